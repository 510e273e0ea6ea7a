"""The engine of compiled programs, on a stand-in backend: memory, order, constants, states."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from standin import Standin, program_of

from luminal.errors import CompileError, DimError, InputError
from luminal.graph.dtype import f32
from luminal.graph.graph import Graph
from luminal.graph.index import Index
from luminal.kernel.canonical import canonical
from luminal.kernel.kernel import Apply, Buffer, Constant, Kernel, Load, Store, Value
from luminal.kernel.schedule import Schedule
from luminal.runtime.contract import Interface, Port, Result
from luminal.runtime.executable import Executable
from luminal.runtime.link import Linker
from luminal.runtime.native import Native
from luminal.runtime.plan import Compiled, Memory, Plan
from luminal.runtime.report import Report

S = Index.of("s")
SIZES = {"s": (0, 4096)}


def elementwise(op: str, operands: int, extent: Index = S, constant: str = "") -> Kernel:
    """out[a] = op(in0[a], ...) or with 2 for the operand that is missing."""
    names = [f"in{n}" for n in range(operands)]
    loads: list[Any] = [Load(name, (Index.of("i"),), f32) for name in names]
    body = Apply(op, tuple((loads + [Constant(2.0, f32)])[:2]), f32)
    buffers = [Buffer(name, f32, (extent,), name == constant) for name in names]
    store = Store("out", (Index.of("i"),))
    value = Value("v", ("i",), body, f32, store=store)
    sizes = SIZES if extent is S else {}
    return Kernel(op, (*buffers, Buffer("out", f32, (extent,))), {"i": extent}, (value,), sizes)


class Build:
    """A small program by hand: kernels on memories."""

    def __init__(self, layouts: dict[str, Any] | None = None) -> None:
        self.layouts = layouts or {}
        self.made: dict[str, Any] = {}
        self.linker = Linker(dict(SIZES), self.made)
        self.lowered = 0
        self.backend = Standin()

    def lower(self, kernel: Kernel) -> list[Compiled]:
        self.lowered += 1
        named = Kernel(f"k{self.lowered}", kernel.buffers, kernel.axes, kernel.values, kernel.sizes)
        layouts = {b.name: self.layouts[b.constant] for b in kernel.buffers if b.constant}
        return [Compiled(named, Schedule({}), program_of(named, layouts))]

    def memory(self, name: str, kind: str, extent: Index = S, **more: Any) -> int:
        return self.linker.memory(Memory(name, kind, f32, (extent,), **more))

    def call(self, kernel: Kernel, *memories: int, constant: bool = False) -> None:
        names = [b.name for b in kernel.buffers]
        plain, _ = canonical(kernel)
        if repr(plain) not in self.made:
            self.made[repr(plain)] = [((), self.lower(plain))]
        self.linker.call(kernel, dict(zip(names, memories)), constant)

    def engine(self, ports: list[int], outputs: list[int], states: Any = ()) -> Native:
        self.plan: Plan = self.linker.plan(ports, outputs, states)
        codes = self.backend.codes([made.kernel for made in self.plan.kernels])
        return Native(self.plan, codes, self.backend, 2)  # type: ignore[arg-type]


def chain(length: int) -> tuple[Build, Native]:
    """x -> *2 -> *2 ... -> out."""
    build = Build()
    memories = [build.memory("x", "input")]
    memories += [build.memory(f"t{n}", "temporary") for n in range(length - 1)]
    memories += [build.memory("out", "output")]
    for source, target in pairwise(memories):
        build.call(elementwise("mul", 1), source, target)
    return build, build.engine([memories[0]], [memories[-1]])


def run(engine: Native, array: np.ndarray) -> np.ndarray:
    engine.set(0, array)
    engine.bind({"s": len(array)})
    engine.run()
    return engine.output(0)


@pytest.mark.parametrize("size", [100, 0, 1, 3000, 7])
def test_a_chain_of_equal_kernels(size: int) -> None:
    build, engine = chain(5)
    array = np.arange(size, dtype=np.float32)
    assert np.array_equal(run(engine, array), array * 32)
    assert build.lowered == 1 and len(build.plan.calls) == 5
    assert build.backend.log == (["k1", "|"] * 4 + ["k1"] if size else [])  # nothing to do


def test_memory_of_a_chain_is_reused() -> None:
    _, engine = chain(50)
    run(engine, np.ones(4096, np.float32))
    assert engine.peak_bytes < 4 * 4096 * 4


def test_sizes_may_change_from_run_to_run() -> None:
    _, engine = chain(3)
    for size in (5, 4000, 5, 0, 17, 4000):
        array = np.full(size, 1.5, np.float32)
        assert np.array_equal(run(engine, array), array * 8)


def test_an_output_that_is_held_is_not_written_again() -> None:
    _, engine = chain(2)
    first = run(engine, np.ones(100, np.float32))
    second = run(engine, np.full(100, 2, np.float32))
    assert first[0] == 4 and second[0] == 8
    address = second.ctypes.data
    del second
    assert run(engine, np.ones(100, np.float32)).ctypes.data == address  # nobody held it
    assert first[0] == 4


def test_a_slice_of_an_output_holds_it_too() -> None:
    _, engine = chain(2)
    part = run(engine, np.ones(100, np.float32))[50:][::2]
    run(engine, np.zeros(100, np.float32))
    assert (part == 4).all()


def test_inputs_are_read_in_place() -> None:
    _, engine = chain(1)
    array = np.ones(100, np.float32)
    run(engine, array)
    array[:] = 7
    engine.run()
    assert (engine.output(0) == 14).all()


@pytest.mark.parametrize("left", [12, 100])
def test_small_inputs_are_read_as_they_are_at_a_run(left: int) -> None:
    """left: bytes of a page from where the array begins."""
    _, engine = chain(1)
    memory = np.zeros(4096, np.float32)
    start = (-memory.ctypes.data % 4096 + 4096 - left) // 4
    array = memory[start : start + 3]
    run(engine, array)
    array[:] = 7
    engine.run()
    assert engine.output(0).tolist() == [14.0] * 3


def test_no_barrier_between_independent_calls() -> None:
    build = Build()
    x, a, b, out = (
        build.memory(n, k)
        for n, k in [("x", "input"), ("a", "temporary"), ("b", "temporary"), ("out", "output")]
    )
    build.call(elementwise("mul", 1), x, a)
    build.call(elementwise("add", 1), x, b)
    build.call(elementwise("add", 2), a, b, out)
    engine = build.engine([x], [out])
    assert np.array_equal(run(engine, np.ones(64, np.float32)), np.full(64, 5, np.float32))
    assert build.backend.log == ["k1", "k2", "|", "k3"]


def test_constants_are_computed_and_packed_once() -> None:
    build = Build(layouts={True: ((0, 1),)})
    n = Index.of(40)
    w = build.memory("w", "parameter", n)
    c = build.memory("c", "temporary", n)
    x = build.memory("x", "input", n)
    out = build.memory("out", "output", n)
    build.call(elementwise("mul", 1, n, "in0"), w, c, constant=True)
    build.call(elementwise("add", 2, n, "in1"), x, c, out)
    engine = build.engine([x, w], [out])
    for weight in (3, 5):
        engine.set(1, np.full(40, weight, np.float32))
        for _ in range(2):
            engine.set(0, np.ones(40, np.float32))
            engine.bind({"s": 0})
            engine.run()
            assert (engine.output(0) == 1 + 2 * weight).all()
    assert build.backend.log == ["k1", "|", "k2", "k2"] * 2


def test_a_constant_output_is_a_copy() -> None:
    build = Build(layouts={False: ()})
    w, out = build.memory("w", "parameter"), build.memory("out", "output")
    build.call(elementwise("mul", 1), w, out, constant=True)
    engine = build.engine([w], [out])
    result = run(engine, np.ones(30, np.float32))
    result[:] = 0
    assert (engine.output(0) == 2).all()
    assert (run(engine, np.ones(50, np.float32)) == 2).all()  # its size changed


def test_a_state_is_replaced_after_each_run() -> None:
    build = Build()
    state, new = build.memory("state", "input"), build.memory("new", "output")
    build.call(elementwise("mul", 1), state, new)
    engine = build.engine([state], [new], [(state, new)])
    mine = np.ones(20, np.float32)
    engine.set(0, mine)
    engine.bind({"s": 20})
    kept = []
    for step in range(1, 5):
        engine.run()
        kept.append(engine.output(0))
        assert (kept[-1] == 2**step).all() and np.array_equal(engine.state(0), kept[-1])
    assert [int(k[0]) for k in kept] == [2, 4, 8, 16] and (mine == 1).all()
    engine.set(0, mine)
    engine.run()
    assert (engine.output(0) == 2).all()


def test_plans_that_are_wrong_are_refused() -> None:
    build = Build()
    t, out = build.memory("t", "temporary"), build.memory("out", "output")
    build.call(elementwise("mul", 1), t, out)
    with pytest.raises(CompileError, match="reads 't' before it is made"):
        build.engine([], [out])
    build = Build()
    x, out = build.memory("x", "input"), build.memory("out", "output")
    with pytest.raises(CompileError, match="written by no kernel"):
        build.engine([x], [out])
    build.call(elementwise("mul", 1), x, out, constant=True)
    with pytest.raises(CompileError, match="is constant, but reads 'x'"):
        build.engine([x], [out])


# ---- the executable around it


def executable() -> tuple[Executable, Any, Any, Any]:
    """out = x + p on the stand-in."""
    graph = Graph()
    graph.dim("s", 1, 64)
    x, p = graph.tensor(("s",), name="x"), graph.parameter(("s",), name="p")
    y = graph.tensor(("s", 2), name="y")
    build = Build()
    memories = build.memory("x", "input"), build.memory("p", "input")
    out = build.memory("out", "output")
    build.call(elementwise("add", 2), *memories, out)
    engine = build.engine([*memories, None], [out])  # type: ignore[list-item]
    kinds = [(x, "input", True), (p, "parameter", True), (y, "input", False)]
    ports = tuple(
        Port(t.node.attribute.name, kind, f32, t.node.shape, needed) for t, kind, needed in kinds
    )
    result = graph.apply("add", [x, p])
    face = Interface(ports, (Result("z", f32, result.node.shape, 0),), {"s": (1, 64)})
    sources = [t.node for t, *_ in kinds]
    made = Executable(engine, face, Report("standin", 2), None, sources, {result.node: 0})
    return made, x, p, result


def test_set_run_fetch() -> None:
    rt, x, p, out = executable()
    rt[x] = [1, 2, 3]
    rt[p] = np.float32([10, 20, 30])
    rt.run()
    assert rt[out].tolist() == [11, 22, 33] and rt[x].tolist() == [1, 2, 3]
    assert rt(np.ones(3, np.float32)).tolist() == [11, 21, 31]
    with pytest.raises(DimError, match=r"s = 3 .* but input 'p' has 3|s = 5 .* but input"):
        rt.run(s=5)
    rt.run(s=3)
    assert rt[out].tolist() == [11, 21, 31]


def test_misuse_leaves_the_program_usable() -> None:
    rt, x, p, out = executable()
    with pytest.raises(InputError, match="run\\(\\) the program before"):
        rt[out]
    with pytest.raises(InputError, match="missing input 'x', 'p'"):
        rt.run(s=3)
    rt[x], rt[p] = np.ones(3, np.float32), np.ones(3, np.float32)
    rt.run()
    for wrong, kind in [
        (np.ones((3, 1), np.float32), InputError),
        (np.ones(3), InputError),
    ]:
        with pytest.raises(kind):
            rt[x] = wrong
    with pytest.raises(InputError, match="is no input of this program; its inputs are x, y"):
        rt[out] = np.ones(3, np.float32)
    with pytest.raises(InputError, match="takes a tensor"):
        rt["nothing"] = np.ones(3, np.float32)
    with pytest.raises(DimError, match="no size is called 'q'"):
        rt.run(q=3)
    rt[x] = np.ones(4, np.float32)
    with pytest.raises(DimError, match="but input 'p' has 3"):
        rt.run()
    rt[x] = np.ones(65, np.float32)
    rt[p] = np.ones(65, np.float32)
    with pytest.raises(DimError, match=r"outside its bounds 1 .. 64"):
        rt.run()
    rt[x], rt[p] = np.ones(4, np.float32), np.ones(4, np.float32)
    rt.run()
    assert rt[out].tolist() == [2, 2, 2, 2]


def test_too_many_arrays() -> None:
    rt, *_ = executable()
    with pytest.raises(InputError, match="3 arrays given; its inputs are x, y"):
        rt(1, 2, 3)
