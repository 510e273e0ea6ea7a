"""Devices of this machine that run text for GPUs: OpenCL's and WebGPU's, skipped where none is, and
the simulator of HIP's and Metal's."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest
from ops.all_cases import CASES, Case, run_case

from luminal import LLM, ops
from luminal.backend import devices
from luminal.backend.opencl import device as opencl_device
from luminal.backend.text import wgsl
from luminal.backend.webgpu import device as webgpu_device
from luminal.errors import CompileError, DeviceError, Unsupported
from luminal.graph import Graph
from luminal.graph.dtype import f32, f64, i8, i64, u8
from luminal.graph.index import Index
from luminal.kernel.kernel import Buffer
from luminal.kernel.program import Instruction, Parallel, Program, Tile, Val, start_of

from .test_cuda_models import KINDS, MODELS, inputs, weights
from .test_text import on

REAL = ("opencl", "webgpu")
DEVICES = (*REAL, "hip:sim", "metal:sim")
SHARE = 150  # one case of so many; the slow test takes all of them
PARTS = 20
_WHY: dict[str, str] = {}  # a device cannot be used


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """A device that compiles and runs a kernel, or a skip that says why there is none."""
    name = request.param
    if name not in _WHY:
        graph = Graph()
        x = graph.tensor((4,))
        y = (x + 1.0).output()
        try:
            rt = graph.compile(name)
            _WHY[name] = ""
        except (DeviceError, CompileError) as error:
            _WHY[name] = str(error)[:200]
        else:
            rt[x] = np.zeros(4, np.float32)
            rt.run()
            assert (rt[y] == 1).all()
    if _WHY[name]:
        pytest.skip(_WHY[name])
    return name


def check(case: Case, device: str) -> None:
    """It is right; Metal has no f64, and HIP's text, which is alone, no sine of it."""
    try:
        run_case(case, on(device))
    except Unsupported as error:
        assert str(error) in ("metal has no f64", "hip has no sin of f64", "hip has no cos of f64")


@pytest.mark.parametrize("case", CASES[23::SHARE], ids=lambda case: case.name)
def test_case(case: Case, device: str) -> None:
    check(case, device)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_cases(part: int, device: str) -> None:
    for case in CASES[part::PARTS]:
        check(case, device)


def test_a_network_in_run_time_sizes(device: str) -> None:
    graph = Graph()
    graph.dim("s", 1, 9)
    x = graph.tensor(("s", 3, 12, 12))
    w, v = graph.parameter((8, 3, 3, 3), name="w"), graph.parameter((10, 8), name="v")
    hidden = ops.max_pool2d(ops.relu(ops.conv2d(x, w, padding=1)), 2).mean((2, 3))
    y = ops.softmax(hidden @ v.T, -1).output()
    rng, made = np.random.default_rng(0), []
    given = {w: rng.standard_normal((8, 3, 3, 3)), v: rng.standard_normal((10, 8))}
    images = [rng.standard_normal((size, 3, 12, 12)) for size in (1, 5, 2)]
    for name in (device, "reference"):
        rt = graph.compile(name)
        for tensor, array in given.items():
            rt[tensor] = array.astype(np.float32)
        made.append([])
        for image in images:
            rt[x] = image.astype(np.float32)
            rt.run()
            made[-1].append(rt[y])
    for here, wanted in zip(*made):
        np.testing.assert_allclose(here, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_model(name: str, device: str) -> None:
    graph, y, given = inputs(name)
    found = []
    for where in (device, "cpu"):
        rt = graph.compile(where)
        for tensor, array in given.items():
            rt[tensor] = array
        rt.run()
        found.append(rt[y])
    np.testing.assert_allclose(found[0], found[1], rtol=2e-4, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_llama(
    kind: str, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt, then a token at a time over the cache."""
    path, options = weights(kind, tmp_path, monkeypatch)
    ids, seen = list(range(3, 24)), []
    for where in (device, "cpu"):
        program = LLM(path, context=64, device=where, **options).program
        logits = [program.feed(ids, len(ids)).copy()]
        logits += [program.feed([token], 1).copy() for token in (5, 7, 11)]
        seen.append(np.concatenate(logits))
    bound = 2e-2 if kind in ("bf16", "q8") else 1e-4
    np.testing.assert_allclose(seen[0], seen[1], atol=bound * np.abs(seen[1]).max(), rtol=0)


# ---- what WGSL has not


def copying(dtype, tile: int) -> Program:
    """Y = X, by way of a tile of each worker."""
    units = Val("%u", i64)
    here = {m: Val(f"%{m}", None, memory=m) for m in "XYT"}
    x, y = Val("%x", dtype), Val("%y", dtype)
    body = [Instruction(here[m], "offset", (start_of(m), units)) for m in "XYT"]
    body += [
        Instruction(x, "load", (here["X"],), (0,)),
        Instruction(None, "store", (x, here["T"]), (0,)),
        Instruction(y, "load", (here["T"],), (0,)),
        Instruction(None, "store", (y, here["Y"]), (0,)),
    ]
    loop = Parallel(units, Val("70", i64, literal=True), body)
    buffers = tuple(Buffer(name, dtype, (Index.of(70),)) for name in "XY")
    return Program("copying", buffers, (), [loop], (Tile("T", dtype, tile),))


@pytest.mark.parametrize("device", REAL, indirect=True)
@pytest.mark.parametrize("tile", [70, 5000])
@pytest.mark.parametrize("dtype", [i8, u8, f32, i64, f64], ids=str)
def test_tiles_of_a_worker(dtype, tile: int, device: str) -> None:
    """As variables and in the workspace; workers store side by side in one word."""
    found, program = devices.find(device), copying(dtype, tile)
    target = found.target(1)
    codes = [kept.code for kept in found.build([found.render(program, target)], target)]
    (kernel,) = found.kernels(codes, [program])
    given = (np.arange(70) * 37 - 300).astype(dtype.numpy)
    sizes = (given.nbytes, given.nbytes, found.workspace_bytes(program))
    *buffers, workspace = [found.allocate(max(64, size)) for size in sizes]
    found.write(buffers[0], given)
    found.launch(kernel, buffers, [], workspace)
    made = np.zeros_like(given)
    found.read(buffers[1], made)
    np.testing.assert_array_equal(made, given)
    found.copy(buffers[1], buffers[0], 3, 5, 2)  # bytes of which none begins a word
    found.read(buffers[1], made)
    wanted = bytearray(given.tobytes())
    wanted[5:8] = given.tobytes()[2:5]
    assert made.tobytes() == bytes(wanted)


def test_work_is_waited_for(device: str) -> None:
    """As a search does that times it."""
    found = devices.find(device)
    found.finish()
    buffer, ran = found.allocate(64), list[bool]()

    def work() -> None:
        found.write(buffer, np.ones(16, np.float32))
        ran.append(True)

    assert found.seconds(work) >= 0 and ran


def test_what_webgpu_lacks_is_said() -> None:
    with pytest.raises(Unsupported, match="has no f64"):
        wgsl.render(copying(f64, 70), ["f64"])
    with pytest.raises(Unsupported, match="vector"):
        wide = [Instruction(Val("%v", f32, (("x", 4),)), "load", (start_of("X"),), (0,))]
        wgsl.render(Program("k", (Buffer("X", f32, (Index.of(4),)),), (), [
            Parallel(Val("%u", i64), Val("1", i64, literal=True), wide)]))  # fmt: skip


def test_no_webgpu_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wgpu", None)
    with pytest.raises(DeviceError, match=r"luminal-compiler\[webgpu\]"):
        webgpu_device.__wrapped__()


@pytest.mark.parametrize("found", ["no library", "no platform", "an empty platform"])
def test_no_opencl_is_a_clear_error(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def platforms() -> list[types.SimpleNamespace]:
        if found == "no platform":
            raise RuntimeError("clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR")
        return [types.SimpleNamespace(get_devices=list)]

    stand_in = types.SimpleNamespace(get_platforms=platforms, Error=RuntimeError)
    monkeypatch.setitem(sys.modules, "pyopencl", None if found == "no library" else stand_in)
    with pytest.raises(DeviceError, match=r"luminal-compiler\[opencl\]"):
        opencl_device.__wrapped__()


def test_an_opencl_device_that_builds_nothing_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Program:
        def __init__(self, context: list[types.SimpleNamespace], text: str) -> None:
            self.name = context[0].name

        def build(self, options: list[str]) -> None:
            if self.name == "old":
                raise RuntimeError("unknown target CPU")

    here = types.SimpleNamespace(name="a platform")
    facts = {"type": 2, "max_work_group_size": 1, "max_compute_units": 1, "double_fp_config": 1}
    found = [types.SimpleNamespace(name=n, platform=here, **facts) for n in ("old", "new")]
    stand_in = types.SimpleNamespace(
        get_platforms=lambda: [types.SimpleNamespace(get_devices=lambda: found)],
        device_type=types.SimpleNamespace(GPU=4, CPU=2), Error=RuntimeError,
        Context=lambda given: given, CommandQueue=lambda context: None, Program=Program,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pyopencl", stand_in)
    assert opencl_device.__wrapped__().name == "a platform: new"
    found.pop()
    with pytest.raises(DeviceError, match=r"old: .*unknown target CPU"):
        opencl_device.__wrapped__()
