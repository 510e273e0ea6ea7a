"""Loop programs as text: operations of the suite as C, on a device of a hundred lines.

`make slow` runs all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from ops.all_cases import CASES, Case, run_case
from ops.cases import Runner

import luminal
from luminal import ops
from luminal.backend import text
from luminal.errors import DeviceError, Unsupported
from luminal.graph import Graph, Tensor
from luminal.graph.dtype import f32, f64, i64
from luminal.graph.index import Index
from luminal.kernel.kernel import Buffer
from luminal.kernel.program import Instruction, Parallel, Program, Val, start_of

from .c_device import COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")
PART = 24  # one case of so many; the slow test takes the others


def on(device: str) -> Runner:
    """The outputs of a graph, computed by a device in one program."""

    def run(
        graph: Graph, outputs: Sequence[Tensor], feeds: dict[Tensor, np.ndarray]
    ) -> list[np.ndarray]:
        for output in outputs:
            output.output()
        rt = graph.compile(device, threads=2)
        for tensor, array in feeds.items():
            rt[tensor] = array
        rt.run()
        return [rt[output] for output in outputs]

    return run


@pytest.mark.parametrize("case", CASES[::PART], ids=lambda case: case.name)
def test_case(case: Case) -> None:
    run_case(case, on("c"))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, PART))
def test_all_cases(part: int) -> None:
    for case in CASES[part::PART]:
        run_case(case, on("c"))


def agree_when_sizes_and_parameters_change(*devices: str) -> None:
    """Packed parameters, a product in a tile, a softmax: buffers grow and are used again."""
    graph = Graph()
    graph.dim("s", 1, 40)
    x, w = graph.tensor(("s", 24)), graph.parameter((24, 32), name="w")
    y = ops.softmax(ops.gelu(x @ w) @ w.T, -1).cumsum(0).output("y")
    runs = []
    for device in (*devices, "reference"):
        rt, rng = graph.compile(device, threads=2), np.random.default_rng(0)
        runs.append([])
        for size in (3, 40, 1, 17):
            if size != 1:
                rt[w] = rng.standard_normal((24, 32)).astype(np.float32)
            rt[x] = rng.standard_normal((size, 24)).astype(np.float32)
            rt.run()
            runs[-1].append(rt[y])
    for *found, wanted in zip(*runs):
        for here in found:
            np.testing.assert_allclose(here, wanted, rtol=2e-5, atol=1e-6)


def test_sizes_and_parameters_change_between_runs() -> None:
    agree_when_sizes_and_parameters_change("c")


def test_a_chain_needs_the_room_of_two() -> None:
    """Temporary buffers are used again as soon as nothing reads what they hold."""
    graph = Graph()
    x = y = graph.tensor((64, 64))
    for _ in range(12):
        y = ops.softmax(y @ y.T, -1)
    y.output()
    rt = graph.compile("c", threads=2)
    rt[x] = np.ones((64, 64), np.float32)
    rt.run()
    assert rt.peak_bytes <= 6 * 64 * 64 * 4
    np.testing.assert_allclose(rt[y], np.full((64, 64), 1 / 64), rtol=1e-6)


def test_a_saved_program_is_loaded(tmp_path: Path) -> None:
    graph = Graph()
    x, w = graph.tensor((3, 8), name="x"), graph.parameter((8, 8), name="w")
    ops.relu(x @ w).output("y")
    rt, given = graph.compile("c"), np.arange(24, dtype=np.float32).reshape(3, 8)
    rt[w] = np.eye(8, dtype=np.float32) - 0.5
    rt.save(tmp_path / "program")
    again = luminal.load(tmp_path / "program")
    for program in (rt, again):
        program["x"] = given
        program.run()
    np.testing.assert_array_equal(rt["y"], again["y"])


def test_a_search_needs_a_device_that_another_process_can_open() -> None:
    graph = Graph()
    (graph.tensor((4,)) + 1.0).output()
    with pytest.raises(DeviceError, match="search needs a process"):
        graph.compile("c", search=3)


def test_a_vector_has_no_text() -> None:
    lanes = (("x", 4),)
    wide = Val("%v", f32, lanes)
    load = Instruction(wide, "load", (start_of("X"),), (0,))
    units = Parallel(Val("%u", i64), Val("1", i64, literal=True), [load])
    program = Program("k", (Buffer("X", f32, (Index.of(4),)),), (), [units])
    with pytest.raises(Unsupported, match="4 lanes"):
        text.render(program, text.OPENCL)


def test_a_language_says_what_it_lacks() -> None:
    load = Instruction(Val("%v", f64), "load", (start_of("X"),), (0,))
    units = Parallel(Val("%u", i64), Val("1", i64, literal=True), [load])
    program = Program("k", (Buffer("X", f64, (Index.of(4),)),), (), [units])
    with pytest.raises(Unsupported, match="metal has no f64"):
        text.render(program, text.METAL)
