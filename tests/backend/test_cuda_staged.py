"""Products whose operands are copied ahead into shared tiles: as the default schedule makes them,
on the simulator, and with faults planted into their loop program and their text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from oracles.program import interpret

import luminal
from luminal import ops
from luminal.backend import devices
from luminal.backend.cuda import gpu, nvrtc
from luminal.backend.cuda.matrices import STAGED, TILED, instructions_of
from luminal.backend.cuda.model import predicted
from luminal.backend.cuda.simulator import CUDA, Simulator, found_compiler
from luminal.backend.loops import verify_loops
from luminal.errors import VerifyError, WrongResult
from luminal.graph.dtype import DType, bf16, f16, f32, i8, i32
from luminal.kernel.program import Instruction, Program, Statement
from luminal.lowering.verify import statements

pytestmark = pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module", autouse=True)
def races() -> None:
    target = replace(CUDA.target, instructions=instructions_of("sm_80"))
    like = {"cuda races": CUDA, "sm_80 races": replace(CUDA, target=target)}
    for name, language in like.items():
        devices.register(name, lambda language=language: Simulator(races=True, language=language))


def numbers(*shape: int, dtype: Any = ml_dtypes.bfloat16) -> np.ndarray:
    return (RNG.standard_normal(shape) / 4).astype(dtype)


def near(found: np.ndarray, wanted: np.ndarray) -> bool:
    apart = np.abs(found.astype(np.float32) - wanted).max() / np.abs(wanted).max()
    return bool(apart < 0.01)  # and no NaN


def is_staged(program: Program) -> bool:
    return any(tile.turns for tile in program.tiles)


# ---- right


@pytest.mark.parametrize("device", ["cuda races", "sm_80 races"])
@pytest.mark.parametrize("rows, columns, deep, dtype", [
    (128, 128, 256, bf16),  # fewer turns than tiles
    (200, 192, 320, bf16),  # a part of a unit in both directions
    (64, 256, 576, f16),
])  # fmt: skip
def test_products(rows: int, columns: int, deep: int, dtype: Any, device: str) -> None:
    graph = luminal.Graph()
    x = graph.tensor((rows, deep), dtype=dtype, name="x")
    w, free = numbers(columns, deep, dtype=dtype.numpy), deep == 256
    kept = graph.tensor(w.shape, dtype=dtype, name="w") if free else graph.constant(w)
    (x @ kept.T).output("y")
    rt = graph.compile(device)
    assert is_staged(rt.kernels[0].program)
    rt["x"] = given = numbers(rows, deep, dtype=dtype.numpy)
    if free:
        rt["w"] = w
    rt.run()
    assert near(rt["y"], given.astype(np.float32) @ w.astype(np.float32).T)


@pytest.mark.parametrize("seed, device", [
    *((seed, "sm_80 races") for seed in range(6)), (3, "cuda races"), (4, "cuda races"),
])  # fmt: skip
def test_products_of_any_number_of_rows_and_columns(seed: int, device: str) -> None:
    """By warps that each have rows and columns of a tile, alone or in a batch; of bytes, and with
    columns side by side in memory, too."""
    rng, graph = np.random.default_rng(seed), luminal.Graph()
    dtype: DType = (bf16, f16, i8)[seed % 3]
    batch, rows, columns = rng.integers(1, 3), *rng.integers(33, 290, 2)
    deep = 128 * int(rng.integers(4, 7))
    turned = dtype is not i8 and seed > 2
    columns = columns // 8 * 8 if turned else columns
    second = (deep, columns) if turned else (columns, deep)
    shapes = {"x": (batch, rows, deep), "w": (batch, *second)}
    x, w = (graph.tensor(shape, dtype=dtype, name=name) for name, shape in shapes.items())
    wide = [each.cast(i32) for each in (x, w)] if dtype is i8 else [x, w]
    (wide[0] @ (wide[1] if turned else wide[1].transpose(1, 2))).output("y")
    rt = graph.compile(device)
    assert is_staged(rt.kernels[0].program)
    assert any("_turned" in text for text in rt.sources().values()) is turned
    given = {}
    for name, shape in shapes.items():
        made = rng.integers(-9, 9, shape) if dtype is i8 else numbers(*shape)
        rt[name] = given[name] = made.astype(dtype.numpy)
    rt.run()
    a, b = (each.astype(np.float32) for each in given.values())
    assert near(rt["y"], a @ (b if turned else b.swapaxes(1, 2)))


def test_a_convolution() -> None:
    """Of points: columns lie side by side in memory."""
    graph, w = luminal.Graph(), numbers(64, 256)
    x = graph.tensor((1, 256, 16, 16), bf16, "x")
    ops.conv2d(x, graph.constant(w[:, :, None, None])).cast(f32).output("y")
    rt = graph.compile("sm_80 races", precision="bf16")
    assert any(is_staged(kernel.program) for kernel in rt.kernels)
    rt["x"] = given = numbers(1, 256, 16, 16)
    rt.run()
    wanted = w.astype(np.float32) @ given.astype(np.float32).reshape(256, 256)
    assert near(rt["y"].reshape(64, 256), wanted)


def test_windows_that_are_written_out_are_columns() -> None:
    """Taps and channels become one axis where no padding is asked for any more."""
    graph = luminal.Graph()
    x = graph.tensor((1, 256, 64, 64), bf16)
    ops.conv2d(x, graph.constant(numbers(256, 256, 3, 3)), padding=1).output()
    rt = graph.compile("cuda:sm_80", precision="bf16", cache=False)
    (product,) = (kernel for kernel in rt.kernels if is_staged(kernel.program))
    assert {n.constant for n in product.kernel.axes.values()} == {256, 256 * 3 * 3, 64 * 64}


@pytest.mark.parametrize("device", ["cuda races", "sm_80 races"])
def test_rows_of_run_time_number_and_an_epilogue(device: str) -> None:
    """Two sums share an operand; whole units and the last one have loops of their own."""
    graph = luminal.Graph()
    graph.dim("s", 1, 1024)
    x, r = (graph.tensor(("s", n), dtype=bf16, name=name) for n, name in ((256, "x"), (128, "r")))
    gate, up = (numbers(128, 256) for _ in range(2))
    first, second = (x @ graph.constant(w).T for w in (gate, up))
    (ops.silu(first) * second + r).output("y")
    rt = graph.compile(device)
    assert is_staged(rt.kernels[0].program)
    for size in (131, 5):
        rt["x"], rt["r"] = given, rest = numbers(size, 256), numbers(size, 128)
        rt.run(s=size)
        a, b = (given.astype(np.float32) @ w.astype(np.float32).T for w in (gate, up))
        assert near(rt["y"], a / (1 + np.exp(-a)) * b + rest.astype(np.float32))


@pytest.mark.parametrize("first, staged", [(64, True), (3, False)])
def test_rows_within_longer_rows(first: int, staged: bool) -> None:
    """They are copied where they begin at multiples of 16 bytes."""
    graph = luminal.Graph()
    x, w = (graph.tensor(shape, dtype=bf16, name=name)
            for name, shape in (("x", (64, 512)), ("w", (64, 256))))  # fmt: skip
    (x[:, first : first + 256] @ w.T).output("y")
    rt = graph.compile("cuda races")
    assert is_staged(rt.kernels[0].program) is staged
    rt["x"], rt["w"] = given, weights = numbers(64, 512), numbers(64, 256)
    rt.run()
    part = given[:, first : first + 256].astype(np.float32)
    assert near(rt["y"], part @ weights.astype(np.float32).T)


def test_rows_at_floors_are_no_tiles() -> None:
    """Rows and columns of an image, every second one, as one axis."""
    graph = luminal.Graph()
    x, w = (graph.tensor(s, bf16, n) for s, n in (((48, 16, 256), "x"), ((64, 256), "w")))
    (x[::2, ::2].flatten(0, 1) @ w.T).output("y")
    rt = graph.compile("cuda races")
    assert "mma_bf16" in rt.sources()[rt.kernels[0].name] and not is_staged(rt.kernels[0].program)
    rt["x"], rt["w"] = given, weights = numbers(48, 16, 256), numbers(64, 256)
    rt.run()
    rows = given[::2, ::2].reshape(-1, 256).astype(np.float32)
    assert near(rt["y"], rows @ weights.astype(np.float32).T)


@pytest.mark.parametrize("device", ["cuda races", "sm_80 races"])
def test_the_loop_program_says_the_same(device: str) -> None:
    """By the interpreter, in which copies are NaN until they are waited for."""
    graph = luminal.Graph()
    x, w = (graph.tensor((n, 256), dtype=bf16, name=name) for n, name in ((70, "x"), (64, "w")))
    (x @ w.T).output("y")
    (kernel,) = graph.compile(device).kernels
    given, weights = numbers(70, 256), numbers(64, 256)
    arrays = {b.name: np.zeros([n.constant for n in b.shape], b.dtype.numpy)
              for b in kernel.program.buffers}  # fmt: skip
    first, second, out = arrays.values()
    first[...], second[...] = given, weights
    wanted = given.astype(np.float32) @ weights.astype(np.float32).T
    early = replace(kernel.program, body=list(rewritten(kernel.program.body, without("await"))))
    for program, right in ((kernel.program, True), (early, False)):
        interpret(program, arrays, {}, instructions=STAGED + TILED)
        assert near(out, wanted) is right


# ---- one product, and what is done to it


@pytest.fixture(scope="module")
def product() -> Any:
    graph = luminal.Graph()
    x, w = (graph.tensor((128, 512), dtype=bf16, name=name) for name in "xw")
    (x @ w.T).output("y")
    return graph.compile("cuda races")


def rewritten(
    body: list[Statement], change: Callable[[Instruction], list[Instruction]]
) -> Iterator[Statement]:
    for s in body:
        if isinstance(s, Instruction):
            yield from change(s)
        else:
            yield replace(s, body=list(rewritten(s.body, change)))


def without(op: str) -> Callable[[Instruction], list[Instruction]]:
    return lambda s: [] if s.op == op else [s]


def later(op: str, more: int) -> Callable[[Instruction], list[Instruction]]:
    def change(s: Instruction) -> list[Instruction]:
        return [replace(s, attrs=(s.attrs[0] + more,))] if s.op == op else [s]

    return change


def slots_off_by(more: int) -> Callable[[Instruction], list[Instruction]]:
    """The number of parts after which copies begin anew."""
    def change(s: Instruction) -> list[Instruction]:
        if s.op != "mod" or not s.args[1].literal or s.args[1].name != "6":
            return [s]
        return [replace(s, args=(s.args[0], replace(s.args[1], name=str(6 + more))))]

    return change


PROGRAM_FAULTS = {
    "no wait": without("await"),
    "a wait one turn too early": later("await", 1),
    "no barriers": without("barrier"),
    "nothing is settled before a tile is filled again": without("settle"),
    "too little is settled before a tile is filled again": later("settle", 1),
    "no groups": without("commit"),
    "tiles for too few turns": slots_off_by(-1),
    "tiles for too many turns": slots_off_by(1),
    "sums are read that are under way": lambda s: [replace(s, op="cast")] if s.op == "settled"
    else [s],
}  # fmt: skip


@pytest.mark.parametrize("fault", ["no wait", "no barriers", "no groups", "a product goes on"])
def test_faults_where_products_are_done_when_they_end(fault: str) -> None:
    graph = luminal.Graph()
    x, w = (graph.tensor((128, 512), dtype=bf16, name=name) for name in "xw")
    (x @ w.T).output("y")
    program = graph.compile("sm_80 races").kernels[0].program
    own, faults = {i.name for i in TILED}, {
        "a product goes on": lambda s: [replace(s, attrs=(1,))] if s.op in own else [s]
    }
    verify_loops(program)
    with pytest.raises(VerifyError):
        change = (PROGRAM_FAULTS | faults)[fault]
        verify_loops(replace(program, body=list(rewritten(program.body, change))))


@pytest.mark.parametrize("fault", PROGRAM_FAULTS)
def test_faults_in_the_program(fault: str, product: Any) -> None:
    program = product.kernels[0].program
    verify_loops(program)
    body = list(rewritten(program.body, PROGRAM_FAULTS[fault]))
    assert len(statements(body)) <= len(statements(program.body)) and body != program.body
    with pytest.raises(VerifyError):
        verify_loops(replace(program, body=body))


TEXT_FAULTS = {  # what is changed, and into what; the last of its kind
    "no wait": ("copies_wait<3>();", ""),
    "a wait one turn too early": ("copies_wait<3>", "copies_wait<4>"),
    "no fence": ("copies_fence();", ""),
    "no barrier before a tile is read": ("copies_fence();\n        __syncthreads();",
                                         "copies_fence();"),
    "products are not waited for": ("products_wait<1>", "products_wait<2>"),
    "sums are read that are under way": ("products_done(", "(void)("),
    "not swizzled": (" ^ ", " + 0 * "),
    "a box one row off": ("+ 16384), 16)", "+ 16896), 16)"),
    "a box that ends too late": ("b0 + (", "b0 + (8192 + "),
    "one copy is left out": ("copy_16(t1", "if (0) copy_16(t1"),
    "the tile of another turn": (", 6)", ", 5)"),
}  # fmt: skip


@pytest.mark.parametrize("fault", [None, *TEXT_FAULTS])
def test_faults_in_the_text(fault: str | None, product: Any) -> None:
    """A wrong result, or an error that says which thread does what; in every order."""
    (kernel,), (text,) = product.kernels, product.sources().values()
    if fault:
        before, after = TEXT_FAULTS[fault]
        head, found, rest = text.rpartition(before)
        assert found
        text = head + after + rest
    x, w = numbers(128, 512), numbers(128, 512)
    wanted = x.astype(np.float32) @ w.astype(np.float32).T
    for order in range(3):
        device = Simulator(order, races=True)
        memory = [device.allocate(array.nbytes) for array in (x, w)]
        for place, array in zip(memory, (x, w)):
            device.write(place, array)
        memory.append(device.allocate(2 * 128 * 128))
        (loaded,) = device.kernels([text.encode()], [kernel.program])
        result = np.empty((128, 128), ml_dtypes.bfloat16)
        try:
            device.launch(loaded, memory, [], device.allocate(64))
            device.read(memory[-1], result)
            right = near(result, wanted)
        except WrongResult:
            right = False
        assert right is not bool(fault), order


# ---- what the model of kernels says


def test_what_is_not_hidden_takes_time() -> None:
    """Copies that are one turn ahead of a short one are waited for; one unit more than there are
    multiprocessors is another round."""
    device = gpu.Cuda("sm_90a")
    target, kind, seconds = replace(device.target(1), l2_rate=64), device.gpu, []  # never late
    graph = luminal.Graph()
    x, w = (graph.tensor((n, 4096), dtype=bf16) for n in (512, 1024))
    (x @ w.T).output()
    (kernel,) = graph.compile("cuda:sm_90a", cache=False).kernels
    for change in (lambda s: [s], lambda s: [replace(s, attrs=(0,))] if s.op == "await" else [s]):
        program = replace(kernel.program, body=list(rewritten(kernel.program.body, change)))
        seconds.append(predicted(program, {}, kind, target)[0])
    assert seconds[1] > 1.3 * seconds[0]
    few, more = (replace(kind, multiprocessors=n) for n in (127, 128))  # 128 units
    assert predicted(kernel.program, {}, few, target)[0] > 1.5 * predicted(
        kernel.program, {}, more, target
    )[0]


# ---- what the default makes of a large one


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_nvrtc_spills_nothing(arch: str) -> None:
    graph = luminal.Graph()
    graph.dim("s", 1, 1024, hint=512)
    x = graph.tensor(("s", 4096), dtype=bf16)
    first, second = (x @ graph.constant(np.zeros((2048, 4096), ml_dtypes.bfloat16)).T
                     for _ in range(2))  # fmt: skip
    (ops.silu(first) * second).output()
    device = gpu.Cuda(arch)
    rt = graph.compile(f"cuda:{arch}")
    assert is_staged(rt.kernels[0].program)
    (found,) = device.resources(list(rt.sources().values()))
    assert found["spilled"] == 0 and found["registers"] <= 255


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC")
@pytest.mark.parametrize("dtype", [bf16, f16, i8])
def test_a_large_product_keeps_the_tensor_cores_busy(dtype: DType) -> None:
    """As the model counts, by `mma.sync` where there is nothing else."""
    graph, device = luminal.Graph(), gpu.Cuda("sm_80")
    x, w = (graph.tensor((4096, 4096), dtype) for _ in range(2))
    wide = [each.cast(i32) for each in (x, w)] if dtype is i8 else [x, w]
    (wide[0] @ wide[1].T).output()
    rt = graph.compile("cuda:sm_80", cache=False)
    (kernel,), (found,) = rt.kernels, device.resources(list(rt.sources().values()))
    assert found["spilled"] == 0
    modelled = device.modelled(kernel.kernel, kernel.program, {}, found["registers"])
    assert modelled is not None and modelled.share > 0.8
