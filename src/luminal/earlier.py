"""Kernels that this process has made before, for an earlier program: a model that is compiled again
with other sizes, or one that differs in a layer, needs only those that are new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from .artifact.saved import outline
from .backend.ahead import Ahead
from .backend.contract import Accelerator, Finished, Kept
from .backend.devices import Device
from .jobs import Job
from .runtime.plan import Compiled

Results: TypeAlias = Mapping[str, Sequence[Compiled]]  # of a job: what runs for each kernel
MOST = 512  # jobs, then those go that were asked for longest ago


@dataclass(frozen=True)
class Done:
    """A job that is done. codes: of all its kernels."""

    kernels: Results
    codes: Sequence[Kept]

    @property
    def all(self) -> list[Compiled]:
        return [one for several in self.kernels.values() for one in several]


_DONE: dict[str, Done] = {}  # by all that the kernels depend on


class Earlier:
    """Jobs that were done under the same state, on the CPU: the texts of accelerators may become
    one, in which every function has a name of its own. state: what else kernels depend on (see
    `Tuning.state`); None: nothing is known, and nothing is kept."""

    def __init__(self, state: Sequence[str] | None = None) -> None:
        self._state, self._fresh = state, list[tuple[str, Done]]()

    @staticmethod
    def of(device: Device, state: Sequence[str]) -> Earlier:
        """What is known for a device."""
        return Earlier(None if isinstance(device, Accelerator) else state)

    def find(self, job: Job) -> Done | None:
        """What was made of it, or of an equal one."""
        found = None if self._state is None else _DONE.pop(self._key(job), None)
        if found is not None:
            _DONE[self._key(job)] = found
        return found

    def add(self, job: Job, kernels: Results) -> None:
        """It is kept once its machine code is there."""
        if self._state is not None:
            self._fresh.append((self._key(job), Done(kernels, ())))

    def keep(self, ahead: Ahead) -> None:
        """What has been added, with its machine code."""
        for key, done in self._fresh:
            codes = ahead.codes([one.program for one in done.all])
            _DONE[key] = _small(done, codes)
        for key in list(_DONE)[:-MOST]:
            _DONE.pop(key, None)

    def _key(self, job: Job) -> str:
        return "\n".join((*(self._state or ()), job.text))


def _small(done: Done, codes: Sequence[Kept]) -> Done:
    """Without statements and texts."""
    kernels = {
        text: [replace(one, program=outline(one.program)) for one in several]
        for text, several in done.kernels.items()
    }
    return Done(kernels, [Finished(code.code) for code in codes])


def forget() -> None:
    """All of it."""
    _DONE.clear()
