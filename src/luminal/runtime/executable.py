"""What a user holds after `compile()`: arrays in, run, arrays out."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .. import forks
from ..backend.sizes import check_requirements, settle_sizes
from ..errors import InputError, Unsupported
from ..graph import values
from ..graph.node import Node
from ..graph.passes import Program
from ..graph.space import Range
from .contract import Engine, Interface, Load, Piece, Spill
from .inspection import Inspected
from .report import Report
from .told import Told
from .trace import Span

if TYPE_CHECKING:
    from ..search.compare import Difference
    from ..search.profile import Profiled

Arrays: TypeAlias = Mapping[int, np.ndarray]
Save: TypeAlias = Callable[[Interface, Arrays, Arrays, Path], None]  # by port; see `Engine.made`


class Executable:
    """A compiled program. Built by `Graph.compile()`.

    >>> x = cx.tensor(3, name="x")
    >>> y = (x * 2.0).output("y")
    >>> rt = cx.compile()
    >>> rt[x] = [1.0, 2.0, 3.0]  # or by name: rt["x"]; read when the program runs
    >>> rt.run()  # sizes that no input tells are named here: rt.run(s=17)
    >>> rt[y]
    array([2., 4., 6.], dtype=float32)

    An output is the caller's while it is kept: a later run writes to other memory. An input that
    needs no conversion is not copied: each run reads the caller's own memory. A parameter that was
    changed in place is set again: what is made of it is kept. `run`, `rt[...]` and `rt(...)` (set,
    run, fetch as one) take a lock: several threads may call them.
    """

    def __init__(
        self, engine: Engine, interface: Interface, report: Report, save: Save | None = None,
        sources: Sequence[Node] = (), results: Mapping[Node | str, int] | None = None,
        program: Program | Callable[[], Program] | None = None,
    ) -> None:  # fmt: skip
        """save: writes a file. sources: the nodes of all ports, where there is a graph; results:
        of all that the engine computes, with their numbers there. program: what was compiled,
        where there is a graph; or what records it."""
        self._program = program
        self._engine, self._face, self._report, self._save = engine, interface, report, save
        self._ports = ports = interface.ports
        self._called = Counter(port.name for port in ports)
        self._numbers: dict[Node | str, int] = {port.name: n for n, port in enumerate(ports)}
        self._numbers |= {node: n for n, node in enumerate(sources)}
        self._results: dict[Node | str, int] = {r.name: r.number for r in interface.results}
        self._results |= results or {}
        self._inputs = [n for n, port in enumerate(ports) if port.kind == "input"]
        self._used = [n for n in self._inputs if ports[n].needed]
        self._reads = [number for number, n in enumerate(self._inputs) if ports[n].needed]
        self._launched: dict[str, int] | None = None
        self._lock = threading.RLock()
        forks.guard(self, "_lock", forks.RUN)
        self._arrays: dict[int, np.ndarray] = {}
        self._told = Told(interface, ports)
        self._missing = {n for n, port in enumerate(ports) if port.needed}
        self._given: Mapping[str, int] = {}
        self._sizes: dict[str, int] | None = None
        self._changed = True
        self._ran = False

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise InputError("an executable is not copied: save() writes it to a file")

    # ---- arrays in and out

    def __setitem__(self, tensor: Any, value: Any) -> None:
        """Give an input or a parameter its values. Raises InputError."""
        number = self._number(tensor)
        port = self._ports[number]
        if port.kind == "constant":
            raise InputError(f"'{port.name}' is a constant: known at compile time, never changed")
        self.preset(number, value)

    def clear(self, tensors: Iterable[Any]) -> None:
        """Set inputs of known shapes to zeros. What no run writes of a state takes no memory."""
        for tensor in tensors:
            number = self._number(tensor)
            port = self._ports[number]
            zeros = np.zeros([int(size) for size in port.shape], port.dtype.numpy)
            self.preset(number, zeros, self._engine.clear)

    def preset(self, number: int, value: Any, give: Callable[..., None] | None = None) -> None:
        """The value of a port, also of a constant. give: how the engine gets it."""
        port = self._ports[number]
        array = values.as_array(port.name, port.dtype, value)
        with self._lock:
            self._changed |= self._told.tell(number, array.shape)
            self._arrays[number] = array
            self._missing.discard(number)
            if port.needed:
                (give or self._engine.set)(number, array)

    def set_parameters(self, load: Load, spill: Spill | None = None) -> None:
        """Set parameters to the (tensor, array) pairs of `load`, packing each before the next is
        asked for; `rt[...]` does not give them back. spill: see `Engine`. Raises InputError."""
        with self._lock:
            for tensor, value in load():
                number = self._number(tensor)
                port = self._ports[number]
                if number in self._engine.states:
                    self.preset(number, value)
                elif port.needed:
                    array = values.fitting(port.name, port.dtype, value)
                    self._changed |= self._told.tell(number, array.shape)
                    self._engine.give_away(number, array, spill)
                self._missing.discard(number)
            if missing := self._parameters() & self._missing:
                names = ", ".join(f"'{self._ports[n].name}'" for n in sorted(missing))
                raise InputError(f"no values for {names}")
            self._forget_parameters()

    @property
    def key_of_made(self) -> str | None:
        """Equal for programs that make the same of the same parameters; None if not known."""
        return self._engine.key_of_made

    def made(self) -> Mapping[int, np.ndarray] | None:
        """What is made of the parameters, as bytes by place; None where sizes matter."""
        with self._lock:
            return self._engine.made()

    def take(self, made: Mapping[int, Piece]) -> None:
        """Instead of parameters: what `made` once was."""
        with self._lock:
            self._engine.take(made)
            self._forget_parameters()

    @property
    def parameter_bytes(self) -> int:
        """Of the parameters whose size is known before a run, as they are given."""
        return self._face.parameter_bytes

    def _parameters(self) -> set[int]:
        """Those that no run replaces."""
        found = {n for n, port in enumerate(self._ports) if port.kind == "parameter"}
        return found - self._engine.states

    def _forget_parameters(self) -> None:
        """The engine has made of them what it needs."""
        for number in self._parameters():
            self._arrays.pop(number, None)
            self._told.forget_fixed(number)
            self._missing.discard(number)

    def __getitem__(self, tensor: Any) -> np.ndarray:
        """The values of an output after the last run, or the present values of an input: of a
        state what the last run made of it, also where it is an output."""
        key = self._key(tensor)
        with self._lock:
            port = self._numbers.get(key)
            number = None if port in self._engine.states else self._results.get(key)
            if number is not None:
                if not self._ran:
                    raise InputError("run() the program before reading its outputs")
                return self._engine.output(number)
            if port is not None and port in self._arrays:
                return self._held(port)
        raise InputError(f"{tensor!r} is no output here: .output() comes before compile()")

    def _held(self, number: int) -> np.ndarray:
        """What was set, or what the last run made of it."""
        return self._engine.state(number) if number in self._engine.states else self._arrays[number]

    # ---- running

    def run(self, **sizes: int) -> None:
        """Run once. Raises InputError for a missing input, DimError for a wrong size."""
        with self._lock:
            if self._changed or sizes != self._given:
                self._bind(sizes)
            self._engine.run()
            self._ran = True

    def _bind(self, given: Mapping[str, int]) -> None:
        """Settle the sizes, check every shape with them, and tell the engine."""
        if self._missing:
            names = ", ".join(f"'{self._ports[n].name}'" for n in sorted(self._missing))
            raise InputError(f"missing input {names}: set rt[tensor] = array before run()")
        self._changed = True
        sizes = self._told.settled(given)
        if sizes != self._sizes:
            self._sizes = None  # where memory is lacking, the engine is bound to none
            self._engine.bind(sizes)
        self._sizes, self._given, self._changed = sizes, dict(given), False

    def __call__(self, *arrays: Any, **sizes: int) -> Any:
        """Set the inputs in the order in which they were recorded, run, return the outputs.

        One output is returned as an array, several as a tuple in the order of `.output()` calls.
        """
        if len(arrays) > len(self._inputs):
            raise InputError(f"{len(arrays)} arrays given; {self._input_names()}")
        with self._lock:
            for number, array in zip(self._inputs, arrays):
                self.preset(number, array)
            self.run(**sizes)
            results = tuple(self._engine.output(r.number) for r in self._face.results)
        return results[0] if len(results) == 1 else results

    @property
    def can_launch(self) -> bool:
        """`launch` may be called once parameters are set: every output is memory of its own."""
        return self._engine.can_launch

    @property
    def memory(self) -> str:
        """Where the addresses of `launch` lie: "cpu", "cuda"; "" where there are none."""
        return self._engine.memory

    def launch(
        self, inputs: Sequence[int], outputs: Sequence[int], sizes: Mapping[str, int],
        stream: int | None = None,
    ) -> None:  # fmt: skip
        """Run on memory of the caller's, at which nothing looks: addresses of all inputs in order,
        row-major, of which 64 bytes may be read; of all outputs, row-major, at multiples of 64, as
        inputs are on a device. stream: of a device, in which the run is queued, and not waited for.

        An executable that is launched is not run in another way. Raises DimError, InputError.
        """
        with self._lock:
            if sizes != self._launched:
                settled = settle_sizes(self._face.sizes, sizes, ())
                check_requirements(self._face.requirements, settled)
                self._launched = None
                self._engine.bind(settled)
                self._launched = dict(sizes)
            self._engine.launch(self._used, [inputs[n] for n in self._reads], outputs, stream)

    # ---- what it is

    def __repr__(self) -> str:
        return (f"Executable(inputs {', '.join(self.inputs)}; outputs {', '.join(self.outputs)}; "
                f"{len(self.kernels)} kernels)")  # fmt: skip

    def _repr_html_(self) -> str:
        """For notebooks: the summary, and what `explain` says folded below it."""
        said = escape(repr(self)), escape(self.explain())
        return "<details><summary>{}</summary><pre>{}</pre></details>".format(*said)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, in the order of `rt(...)`."""
        return tuple(port.name for port in self._ports if port.kind == "input")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, in the order of `rt(...)`."""
        return tuple(result.name for result in self._face.results)

    @property
    def sizes(self) -> dict[str, Range]:
        """The run-time sizes that the program needs, with their bounds."""
        return dict(self._face.sizes)

    @property
    def kernels(self) -> Sequence[Any]:
        """The distinct kernels of the program (none on the reference device)."""
        return self._report.kernels

    @property
    def run_sizes(self) -> dict[str, int]:
        """The run-time sizes of the last run. Raises InputError before one."""
        if self._sizes is None:
            raise InputError("run() the program: it has no sizes before")
        return dict(self._sizes)

    @property
    def peak_bytes(self) -> int:
        """Memory held for the last run's sizes: temporaries, outputs and packed constants."""
        return self._engine.peak_bytes

    def time_kernels(self, repeat: int = 20) -> list[tuple[str, float]]:
        """(kernel, seconds) of each call of a run, each alone and warm: the best of `repeat`. The
        outputs of the last run are written again."""
        with self._lock:
            self.run_sizes  # noqa: B018  (raises)
            return self._engine.time_calls(repeat)

    def trace(self) -> list[Span]:
        """When each thread is in which kernel of a run, whose states are taken back. Off the CPU
        calls follow each other as timed. Raises InputError before a run, Unsupported off Linux."""
        with self._lock:
            self.run_sizes  # noqa: B018  (raises)
            return self._engine.trace()

    def sources(self) -> dict[str, str]:
        """The text of each kernel, by its name: LLVM IR, OpenCL C, CUDA C++; none on the reference
        device. The entry of a text has the kernel's name."""
        return self._engine.sources()

    def inspected(self) -> Inspected | None:
        """Plan, memory and kernels of the last run, for viewers; None on the reference device."""
        return self._engine.inspected()

    @property
    def program(self) -> Program | None:
        """The nodes that were compiled, after all passes; of a file as it holds them."""
        self._program = self._program() if callable(self._program) else self._program
        return self._program

    @property
    def missing(self) -> frozenset[int]:
        """Numbers of the inputs and parameters without values (see `preset`)."""
        return frozenset(self._missing)

    @property
    def has_run(self) -> bool:
        """It has sizes, places and outputs."""
        return self._ran

    def view(self, path: str | Path, listings: bool | None = None) -> Path:
        """Write graph and plan as one HTML page, with times once it has run. See `view.page`."""
        from ..view import write_page

        return write_page(path, self, listings)

    @property
    def report(self) -> Report:
        """What the compiler did."""
        return self._report

    def profile(self, repeat: int = 20) -> list[Profiled]:
        """The kernels of the last run, the costliest first: each timed alone and warm, beside what
        the machine can do (measured too), and in one more run thread by thread. Empty on the
        reference device. Raises InputError before a run."""
        from ..search.profile import profiled

        return profiled(self, repeat)

    def check(self) -> list[Difference]:
        """The kernels whose code computes something else than they mean in NumPy, on random and
        hostile inputs, with the first wrong element of each. A second for each kernel."""
        return self._engine.check()

    def explain(self) -> str:
        """What was compiled: stages with times, kernels with what they fuse, their schedules."""
        return self._report.text()

    def _number(self, tensor: Any) -> int:
        """Of its port."""
        number = self._numbers.get(self._key(tensor))
        if number is None:
            raise InputError(f"{tensor!r} is no input of this program; {self._input_names()}")
        return number

    def _input_names(self) -> str:
        return f"its inputs are {', '.join(self.inputs)}" if self.inputs else "it has no inputs"

    def _key(self, tensor: Any) -> Node | str:
        """What a tensor is known by: its node, or its name."""
        key = getattr(tensor, "node", tensor)
        if isinstance(key, Node):
            return key
        if isinstance(key, str) and self._called[key] > 1:
            raise InputError(f"several inputs are called {key!r}: use the tensor itself")
        if isinstance(key, str) and (key in self._called or key in self.outputs):
            return key
        names = ", ".join([*(port.name for port in self._ports), *self.outputs])
        raise InputError(f"rt[...] takes a tensor of the graph or a name ({names}), not {tensor!r}")

    # ---- as a file

    def save(self, path: str | Path) -> None:
        """Write the program with its parameters (of `set_parameters` as packed), constants, states
        to a file, for `luminal.load`. Raises Unsupported on the reference device, and where
        what is made of packed parameters depends on sizes; OSError."""
        if self._save is None:
            raise Unsupported("the reference device has no program that could be saved")
        stays = {n for n, port in enumerate(self._ports) if port.kind != "input"}
        with self._lock:
            known = sorted(self._arrays.keys() & (stays | self._engine.states))
            held = {number: self._held(number) for number in known}
            gone = self._parameters() - self._arrays.keys() - self._missing
            made = self._engine.made() if any(self._ports[n].needed for n in gone) else {}
        if made is None:
            raise Unsupported("parameters given by set_parameters, of which something is made that "
                              "depends on run-time sizes, are not at hand any more: set them one "
                              "by one, rt[tensor] = array")  # fmt: skip
        self._save(self._face, held, made, Path(path))
