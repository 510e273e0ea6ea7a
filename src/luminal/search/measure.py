"""Candidates are built and run in a child process: a crash, a hang or a wrong result costs only the
candidate. The child is started anew where it was lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import cores
from ..backend.contract import Accelerator
from ..children import Child, Lost
from ..errors import WrongResult
from ..kernel.kernel import Kernel
from ..kernel.target import Target
from ..runtime.show import kernel_text
from .space import Candidate
from .trial import Result

OPEN_SECONDS = 60.0  # start of the child, and the oracle
TRIAL_SECONDS = 10.0
RACE_SECONDS = 60.0
HOPELESS = 3.0  # times the best: one measurement is enough


class Measurer:
    """Measures candidates of one kernel at a time.

    backend: the name of a module that is a `backend.contract.Backend`, or a device that pickles.
    """

    def __init__(self, backend: str | Accelerator, target: Target, seed: int = 0) -> None:
        self.backend, self.target, self.seed = backend, target, seed
        self._child = Child("luminal.search.child")
        self._kernel: Kernel | None = None
        self._default: Candidate | None = None
        self._built: dict[int, Candidate] = {}  # in the child as it is now

    @property
    def ahead(self) -> int:
        """Candidates that are built at once, where another compiler builds them in processes."""
        return 1 if isinstance(self.backend, str) else max(2, cores.count())

    def begin(self, batch: Mapping[int, Candidate]) -> None:
        """Candidates that will be tried."""
        if len(batch) > 1:
            listed = [(number, c.kernel, c.schedule) for number, c in batch.items()]
            self._child.ask(TRIAL_SECONDS * len(batch), "begin", listed)

    def close(self) -> None:
        """End the child process; the next message starts another."""
        self._child.stop()

    def rates(self) -> dict[str, float]:
        """Giga-operations a second of instructions, and GB/s of "read" and "cache", as measured
        now."""
        found: dict[str, float] = self._child.ask(
            OPEN_SECONDS, "rates", self.backend, self.target.threads
        )
        return found

    def open(self, kernel: Kernel, default: Candidate) -> Result:
        """Take up a kernel. The result of its default schedule. Raises WrongResult where that is
        wrong: what is compiled without a search is wrong, too."""
        self._kernel, self._default = kernel, default
        result = self._reopen()
        if result.status == "wrong":
            raise WrongResult(f"the kernel {kernel.name} computes wrong results, a fault of the "
                              f"compiler: {result.detail}\n{kernel_text(kernel)}")  # fmt: skip
        return result

    def _reopen(self) -> Result:
        self._built = {}
        kernel, default = self._kernel, self._default
        assert kernel is not None and default is not None
        self._child.ask(OPEN_SECONDS, "open", kernel, self.target, self.backend, self.seed)
        return self._attempt(0, default, 0.0, OPEN_SECONDS)

    def attempt(self, number: int, candidate: Candidate, best: float) -> Result:
        """Try a candidate; `best`: seconds of the best so far."""
        try:
            return self._attempt(number, candidate, HOPELESS * best, TRIAL_SECONDS + 100 * best)
        except Lost as lost:
            self._reopen()
            return Result("crashed", str(lost))

    def _attempt(self, number: int, candidate: Candidate, limit: float, seconds: float) -> Result:
        result: Result = self._child.ask(
            seconds, "attempt", number, candidate.kernel, candidate.schedule, limit
        )
        if result.status == "ok":
            self._built[number] = candidate
        return result

    def race(
        self, finalists: Mapping[int, Candidate], rounds: int, seconds: float
    ) -> dict[int, list[float]]:
        """Seconds of a call in each round; number 0, the default, always takes part. It takes about
        so many seconds at most."""
        for number, candidate in finalists.items():
            if number not in self._built:
                self._attempt(number, candidate, 0.0, TRIAL_SECONDS)
        numbers: Sequence[int] = [0, *(n for n in finalists if n in self._built and n)]
        found: dict[int, list[float]] = self._child.ask(
            RACE_SECONDS + seconds, "race", list(numbers), rounds, seconds
        )
        return found
