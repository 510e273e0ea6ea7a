"""A compiled program held against the reference: each kernel against what it means, and what the
whole program computes against the graph, on random and on hostile inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ..backend.contract import Backend, Code
from ..backend.openblas import one_thread
from ..backend.reference.graph import evaluate
from ..backend.reference.rounding import Rounding
from ..errors import WrongResult
from ..graph.dtype import bf16, f32
from ..graph.node import Node
from ..graph.passes import Program
from ..kernel.program import Program as LoopProgram
from ..kernel.program import instructions
from ..progress import tracked
from ..runtime.contract import Engine, Interface
from ..runtime.plan import Compiled
from ..runtime.show import kernel_text
from .inputs import Arrays, contents
from .oracle import WAYS, allowed, cases, judged
from .trial import Built, tried

SMALL = 3  # a run-time size, within its bounds: the reference holds every product in memory
LEAST_NUMBERS = 0.5  # of an output: else the parameters are drawn anew, positive


@dataclass(frozen=True)
class Difference:
    """What computes something else than it means. fault: the first wrong element, with what was got
    and expected. text: of a kernel."""

    name: str
    fault: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.fault}" + f"\n{self.text}" * bool(self.text)


@one_thread()
def compare_kernels(
    kernels: Iterable[tuple[Compiled, Code]], backend: Backend, threads: int,
    flushes: bool = False, seed: int = 0,
) -> list[Difference]:  # fmt: skip
    """The kernels whose machine code computes something else than they mean, in their order. Those
    whose values the reference cannot hold in memory are left out. flushes: see `Target`."""
    found = []
    for made, code in tracked("checking kernel", list(kernels)):
        built = Built(made.program, code)
        inputs = cases(made.kernel, seed, flushes or _of_halves(made.program))
        faults = (tried(built, backend, threads, case)[0] for case in inputs)
        fault = next(filter(None, faults), "")
        if fault:
            found.append(Difference(made.name, fault, kernel_text(made.kernel)))
    return found


def _of_halves(program: LoopProgram) -> bool:
    """An instruction multiplies bf16: it takes subnormal ones for zeros, as processors do."""
    return any(
        i.out is not None and i.out.dtype is f32 and len(i.args) == 3
        and all(x.dtype is bf16 for x in i.args[1:]) for i in instructions(program.body)
    )  # fmt: skip


@one_thread()
def compare_outputs(
    program: Program, interface: Interface, engine: Engine, known: Mapping[int, np.ndarray],
    flushes: bool = False, seed: int = 0,
) -> list[Difference]:  # fmt: skip
    """The outputs, and the new values of states, that differ from what the graph means. engine:
    whose inputs are set anew. known: values of parameters and constants, by port. flushes: see
    `Target`."""
    sizes = {n: int(min(max(SMALL, low), high)) for n, (low, high) in interface.sizes.items()}
    for kind in ("calm", "points"):
        for positive in (False, True):
            given = _given(interface, known, sizes, kind, positive, seed)
            right = _meaning(program, given, sizes, None)
            if kind != "calm" or _mostly_numbers(right):
                break
        found = _outputs(program, interface, engine, given, right, sizes, flushes, seed)
        if found:
            return [Difference(d.name, f"{d.fault} ({kind} inputs)") for d in found]
    return []


def _outputs(
    program: Program, interface: Interface, engine: Engine, given: Mapping[int, np.ndarray],
    right: Arrays, sizes: Mapping[str, int], flushes: bool, seed: int,
) -> list[Difference]:  # fmt: skip
    ways = [_meaning(program, given, sizes, Rounding(seed + n, sign, skips=True, flushes=zeros))
            for n in range(WAYS) for sign in (1, -1) for zeros in {False, flushes}]  # fmt: skip
    dtypes = {node.dtype for node in program.nodes()}
    looked = {name: np.ones(array.shape, np.bool_) for name, array in right.items()}
    units = {name: allowed(node.dtype, dtypes) for name, node in _named(program)}
    judge = judged(looked, right, ways, units)
    for port, array in given.items():
        engine.set(port, array)
    engine.bind(sizes)
    engine.run()
    got = {name: engine.output(n) for n, (name, _) in enumerate(_named(program))}
    return [Difference(name, fault) for name, fault in judge.faults(got).items()]


def _named(program: Program) -> list[tuple[str, Node]]:
    """The nodes that are computed, in order, with names of their own."""
    names = [program.graph.output_names.get(t.node, "") for t in program.graph.outputs]
    return [(names[n] if n < len(names) and names[n] else f"state {n}", node)
            for n, node in enumerate(program.roots)]  # fmt: skip


def _given(
    interface: Interface, known: Mapping[int, np.ndarray], sizes: Mapping[str, int], kind: str,
    positive: bool, seed: int,
) -> dict[int, np.ndarray]:  # fmt: skip
    """What is known, and random numbers for the rest; only inputs are hostile."""
    rng, given = np.random.default_rng(seed), dict(known)
    for number, port in enumerate(interface.ports):
        if port.needed and number not in given:
            shape = tuple(int(extent.evaluate(sizes)) for extent in port.shape)
            array = contents(port.dtype, shape, rng, kind if port.kind == "input" else "calm", {})
            given[number] = np.abs(array) if positive and port.dtype.is_signed else array
    return {number: array for number, array in given.items() if interface.ports[number].needed}


def _meaning(
    program: Program, given: Mapping[int, np.ndarray], sizes: Mapping[str, int],
    rounding: Rounding | None,
) -> Arrays:  # fmt: skip
    sources = [tensor.node for tensor in program.graph.sources]
    feeds = {sources[port]: array for port, array in given.items()}
    with np.errstate(all="ignore"):
        found = evaluate(program.graph, program.roots, feeds, sizes, rounding)
    return {name: found[node] for name, node in _named(program)}


def _mostly_numbers(outputs: Arrays) -> bool:
    return all(
        np.isfinite(array.astype(np.float64)).mean() >= LEAST_NUMBERS
        for array in outputs.values() if array.size
    )  # fmt: skip


def known_values(program: Program) -> dict[int, np.ndarray]:
    """The values that a graph has, by port."""
    sources = enumerate(tensor.node for tensor in program.graph.sources)
    values = {n: program.graph.values.get(s, s.attribute.value) for n, s in sources}
    return {n: np.asarray(value) for n, value in values.items() if value is not None}


def check_results(program: Program, interface: Interface, engine: Engine) -> None:
    """Raises WrongResult with the first wrong kernel, or else the first wrong output."""
    kernels = engine.check()
    if kernels:
        raise WrongResult(f"a kernel computes wrong results, a fault of the compiler: {kernels[0]}")
    outputs = compare_outputs(program, interface, engine, known_values(program))
    if outputs:
        raise WrongResult(
            f"the program computes wrong results, a fault of the compiler: {outputs[0]}; every "
            "kernel computes what it says: the graph was rewritten wrongly"
        )
