"""`device="cuda:sim"`: CUDA text, thread by thread on the host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kernel.test_threads import UNITS, X, tree_sum
from ops.all_cases import CASES, Case, run_case

import luminal
from luminal import ops
from luminal.backend import devices
from luminal.backend.cuda import simulator
from luminal.backend.cuda.simulator import Simulator, found_compiler
from luminal.errors import CompileError, DeviceError, WrongResult
from luminal.graph import Graph
from luminal.graph.dtype import DType, f32, i8, i64, u8
from luminal.kernel.program import Program

from .test_text import agree_when_sizes_and_parameters_change, on

pytestmark = pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")
PART = 60  # one case of so many; the slow test takes the others


@pytest.mark.parametrize("case", CASES[3::PART], ids=lambda case: case.name)
def test_case(case: Case) -> None:
    run_case(case, on("cuda:sim"))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PART))
def test_all_cases_without_races(part: int) -> None:
    devices.register("cuda races", lambda: Simulator(races=True))
    for case in CASES[part::PART]:
        run_case(case, on("cuda races"))


def test_sizes_and_parameters_change_between_runs() -> None:
    agree_when_sizes_and_parameters_change("cuda:sim")


@pytest.mark.parametrize("device", ["cuda:sim", "hip:sim"])
def test_masked_loads_keep_all_bits(device: str) -> None:
    """A warp has more lanes than there are elements."""
    graph = Graph()
    x = graph.tensor((3,), i64)
    found = on(device)(graph, [x.sum()], {x: np.array([2**62, 2**61 + 5, 3])})
    assert found[0] == 2**62 + 2**61 + 8


@pytest.mark.parametrize("device", ["cuda:sim", "hip:sim"])
def test_numbers_made_of_positions_alone(device: str) -> None:
    """No unit reads memory for their maximum: it stands before the units, and is of threads."""
    graph = Graph()
    halves = graph.iota((17,), "i0").cast("f32") * 0.5
    found = on(device)(graph, [halves - halves.max()], {})
    np.testing.assert_array_equal(found[0], np.arange(17) / 2 - 8)


@pytest.mark.parametrize("dtype", [i8, u8])
def test_all_bytes_as_floats(dtype: DType) -> None:
    """CUDA's text makes them of the last bits of a float."""
    graph, values = Graph(), np.arange(256, dtype=np.uint8).view(dtype.numpy)
    x = graph.tensor((256,), dtype)
    (found,) = on("cuda:sim")(graph, [x.cast(f32) * 0.5], {x: values})
    np.testing.assert_array_equal(found, values.astype(np.float32) / 2)


def test_a_turned_weight() -> None:
    """A row times a matrix that lies across: it is packed, and read along the sum."""
    graph, rng = Graph(), np.random.default_rng(0)
    x, w = graph.tensor((1, 200), name="x"), graph.parameter((200, 48), name="w")
    shapes = {x: (1, 200), w: (200, 48)}
    given = {t: rng.standard_normal(shape).astype(np.float32) for t, shape in shapes.items()}
    (found,) = on("cuda:sim")(graph, [x @ w], given)
    np.testing.assert_allclose(found, given[x] @ given[w], rtol=1e-4, atol=1e-4)


def test_a_kept_program(tmp_path: Path) -> None:
    """A later process has its launches and its texts, but not its statements."""
    seen = []
    for _ in range(2):
        graph = Graph()
        graph.dim("s", 1, 4000)
        x = graph.tensor(("s", 3), name="x")
        y = (ops.softmax(x, 0) * 2.0).output("y")
        rt = graph.compile("cuda:sim", cache=tmp_path)
        for size in (3, 3777):
            rt[x] = np.linspace(0, 1, 3 * size, dtype=np.float32).reshape(size, 3)
            rt.run()
        seen.append((rt[y], rt.sources()))
    assert "build" not in rt.report.stages
    np.testing.assert_array_equal(seen[0][0], seen[1][0])
    assert seen[0][1] == seen[1][1]


def test_lanes_beyond_a_row_are_not_looked_at() -> None:
    """A condition keeps an index inside for the lanes of the row, and not for those behind it."""
    graph, values = Graph(), np.arange(12, dtype=np.float32).reshape(2, 6)
    x = graph.tensor((2, 6), name="x")
    y = ops.diag_embed(x, 1).output("y")
    rt = graph.compile("cuda:sim", cache=False)
    rt[x] = values
    rt.run()
    np.testing.assert_array_equal(rt[y], [np.diag(row, 1) for row in values])


def test_counts_of_values_meet_no_barrier_by_data() -> None:
    graph, values = Graph(), np.array([0.1, 0.2, 0.9, 0.4, 0.1], np.float32)
    x = graph.tensor((5,), name="x")
    y = ops.histc(x, 4, 0.0, 1.0).output("y")
    rt = graph.compile("cuda:sim", cache=False)
    rt[x] = values
    rt.run()
    np.testing.assert_array_equal(rt[y], np.histogram(values, 4, (0, 1))[0])


# ---- threads of a block


def found(program: Program, **options: object) -> np.ndarray:
    """What a tree of sums makes of X."""
    device = Simulator(**options)
    target = device.target(1)
    codes = [kept.code for kept in device.build([device.render(program, target)], target)]
    (kernel,) = device.kernels(codes, [program])
    given, made, workspace = (device.allocate(size) for size in (X.nbytes, 4 * UNITS, 0))
    device.write(given, X)
    device.launch(kernel, [given, made], [], workspace)
    result = np.zeros(UNITS, np.float32)
    device.read(made, result)
    return result


@pytest.mark.parametrize("order", range(3))
@pytest.mark.parametrize("races", [False, True])
def test_threads_share_a_tile(order: int, races: bool) -> None:
    np.testing.assert_allclose(found(tree_sum(), order=order, races=races), X.sum(1), rtol=1e-5)


@pytest.mark.parametrize("forget", range(4))
def test_a_missing_barrier_is_a_race(forget: int) -> None:
    """Whatever the order; and some order gives a wrong sum."""
    for order in range(3):
        with pytest.raises(WrongResult, match=r"thread \d+ (reads|writes) what thread"):
            found(tree_sum(forget=forget), order=order, races=True)
    sums = [found(tree_sum(forget=forget), order=order) for order in range(2)]
    assert not all(np.allclose(s, X.sum(1), rtol=1e-5) for s in sums)


FAULTS = {
    "a step too far": (tree_sum(at=3), r"element \d+ of 16"),
    "a tile too short": (tree_sum(elements=15), "element 15 of 15"),
    "a barrier in a branch": (tree_sum(parted=True), "waits for others that do not come"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("order", range(3))
def test_planted_faults_are_found(fault: str, order: int) -> None:
    program, message = FAULTS[fault]
    with pytest.raises(WrongResult, match=message):
        found(program, order=order)


SANITIZED = """
import sys
import numpy as np
from backend.sim_text import Kernels
body = "extern \\"C\\" __global__ void k(buffer<int> N, buffer<int> Y) {{ int x[4], n = N[0]; {} }}"
text = body.format(sys.argv[1])
found = np.zeros(1, np.int32)
Kernels({"k": text}, "address,undefined").run("k", [np.array([4], np.int32), found], races=False)
print(found[0])
"""


@pytest.mark.parametrize(
    ("body", "word"),
    [("for (int i = 0; i < n; i++) x[i] = i; Y[0] = x[3];", ""),
     ("for (int i = 0; i <= n; i++) x[i] = i; Y[0] = x[3];", "index 4 out of bounds"),
     ("int* y = new int[n]; Y[0] = y[n]; delete[] y;", "heap-buffer-overflow")],
)  # fmt: skip
def test_with_sanitizers(body: str, word: str) -> None:
    """In a process into which the sanitizer's library is loaded first."""
    library = subprocess.run(["g++", "-print-file-name=libasan.so"], capture_output=True, text=True)
    if "g++" not in str(found_compiler()) or not Path(library.stdout.strip()).is_absolute():
        pytest.skip("no sanitizers")
    paths = [str(Path(luminal.__file__).parents[1]), str(Path(__file__).parents[1])]
    env = {**os.environ, "LD_PRELOAD": library.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0",
           "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])}  # fmt: skip
    command = [sys.executable, "-c", SANITIZED, body]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert word in done.stderr
    assert bool(done.returncode) == bool(word), done.stderr
    assert word or done.stdout == "3\n"


# ---- where it cannot run


def test_no_compiler_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "found_compiler", lambda: None)
    graph = Graph()
    (graph.tensor((4,)) + 1.0).output()
    with pytest.raises(DeviceError, match="g\\+\\+ or clang"):
        graph.compile("cuda:sim")


def test_a_text_that_is_no_language() -> None:
    with pytest.raises(CompileError, match="refused the text"):
        simulator.library((("k", "void k() { no }"),))


def test_a_library_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ("k", 'extern "C" __global__ void k(buffer<float> b) { b[0] = 1; }')
    simulator.library((text,))
    simulator.library.cache_clear()
    monkeypatch.setattr(subprocess, "run", None)  # no compiler is called again
    assert simulator.library((text,)).simulated_0


def test_which_kinds_there_are() -> None:
    with pytest.raises(DeviceError, match='"cuda:sim"'):
        devices.find("cuda:none")


def test_weights_that_are_given_away_are_on_the_device_only_packed() -> None:
    """Two matrices, one of which a gather reads as it is; they may be given again."""
    graph, rng = Graph(), np.random.default_rng(0)
    x, ids = graph.tensor((8, 64), name="x"), graph.tensor((3,), "i64", name="ids")
    w, table = graph.parameter((64, 512), name="w"), graph.parameter((40, 16), name="table")
    (x @ w).output("y")
    ops.embedding(ids, table).output("rows")
    peaks = []
    for away in (False, True):
        rt = graph.compile("cuda:sim", cache=False)
        for _ in range(2):
            arrays = {name: rng.standard_normal(shape).astype(np.float32)
                      for name, shape in (("w", (64, 512)), ("table", (40, 16)))}  # fmt: skip
            if away:
                rt.set_parameters(arrays.items)
            else:
                rt["w"], rt["table"] = arrays["w"], arrays["table"]
            rt["x"], rt["ids"] = np.ones((8, 64), np.float32), np.array([39, 0, 7])
            rt.run()
            np.testing.assert_allclose(rt["y"][3], arrays["w"].sum(0), rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(rt["rows"], arrays["table"][[39, 0, 7]])
        peaks.append(rt.peak_bytes)
    if any(made.program.layouts for made in rt.kernels):
        assert peaks[0] - peaks[1] >= 4 * 64 * 512
