"""Convolutions in tiles: the same numbers with fewer multiplications, where that pays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luminal import ops, train
from luminal.backend import devices
from luminal.graph import Graph, Tensor
from luminal.graph.passes import Pass, program_of, run_passes
from luminal.options import usual_passes
from luminal.precision import default_passes
from luminal.runtime.executable import Executable

ALWAYS = default_passes(moved=0.0)
ROUNDING = 2e-6  # of the largest result
rng = np.random.default_rng(3)


def weight(cx: Graph, *shape: int) -> Tensor:
    return cx.constant((rng.standard_normal(shape) / np.prod(shape[1:]) ** 0.5).astype(np.float32))


def in_tiles(cx: Graph, passes: list[Pass]) -> bool:
    """Some sum is over tiles: of products that a dimension of four positions keeps apart."""
    program = run_passes(program_of(cx), passes)
    sums = [n for n in program.nodes() if n.op == "sum" and n.inputs[0].op == "mul"]
    return any(n.shape and n.shape[0] == 4 for n in sums)


def results(cx: Graph, values: dict[Tensor, np.ndarray], passes: list[Pass], device: str,
            **sizes: int) -> list[np.ndarray]:  # fmt: skip
    rt = cx.compile(device=device, passes=passes, threads=1, database=False)
    for tensor, value in values.items():
        rt[tensor] = value
    rt.run(**sizes)
    return [np.array(rt[output]) for output in cx.outputs]


def check(cx: Graph, values: dict[Tensor, np.ndarray], passes: list[Pass] = ALWAYS,
          **sizes: int) -> None:  # fmt: skip
    """Compiled in tiles, and as these are meant, against sums of all products."""
    assert in_tiles(cx, passes)
    plain = results(cx, values, default_passes(), "reference", **sizes)
    for device in ("cpu", "reference"):
        for found, wanted in zip(results(cx, values, passes, device, **sizes), plain):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=ROUNDING * abs(wanted).max())


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


KINDS: dict[str, Callable[[Graph, Tensor, int], Tensor]] = {
    "plain": lambda cx, x, c: ops.conv2d(x, weight(cx, 12, c, 3, 3)),
    "padded": lambda cx, x, c: ops.conv2d(x, weight(cx, 12, c, 3, 3), padding=1),
    "one axis": lambda cx, x, c: ops.conv2d(x, weight(cx, 12, c, 5, 3), padding=(2, 1)),
    "long steps along one axis": lambda cx, x, c: ops.conv2d(
        x, weight(cx, 12, c, 3, 3), stride=(2, 1), padding=1),
    "groups": lambda cx, x, c: ops.conv2d(x, weight(cx, 12, c // 4, 3, 3), padding=1, groups=4),
    "after a norm": lambda cx, x, c: ops.conv2d(
        ops.silu(ops.group_norm(x, 4)), weight(cx, 12, c, 3, 3), padding=1),
    "doubled picture": lambda cx, x, c: ops.conv2d(
        ops.interpolate(x, scale_factor=2, mode="nearest"), weight(cx, 12, c, 3, 3), padding=1),
    "joined": lambda cx, x, c: ops.conv2d(
        ops.cat([x, ops.relu(x)], 1), weight(cx, 12, 2 * c, 3, 3), padding=1),
    "block": lambda cx, x, c: x + ops.conv2d(
        ops.relu(ops.conv2d(x, weight(cx, 16, c, 3, 3), weight(cx, 16), padding=1)),
        weight(cx, c, 16, 3, 3), padding=1),
    "transposed": lambda cx, x, c: ops.conv_transpose2d(x, weight(cx, c, 12, 3, 3), padding=1),
    "one dimension": lambda cx, x, c: ops.conv1d(x.flatten(2), weight(cx, 12, c, 3), padding=1),
    "three dimensions": lambda cx, x, c: ops.conv3d(
        x.unsqueeze(2), weight(cx, 12, c, 1, 3, 3), padding=(0, 1, 1)),
}  # fmt: skip


@pytest.mark.parametrize("size", [(2, 8, 16, 18), (1, 12, 7, 5)])
@pytest.mark.parametrize("kind", KINDS)
def test_tiles_are_right(kind: str, size: tuple[int, int, int, int]) -> None:
    cx = Graph()
    x = cx.tensor(size, name="x")
    KINDS[kind](cx, x, size[1]).output()
    check(cx, {x: normal(*size)})


@given(
    size=st.tuples(st.integers(1, 2), st.integers(1, 6), st.integers(1, 9), st.integers(3, 20)),
    out=st.integers(1, 9), before=st.integers(0, 2), behind=st.integers(0, 3),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_tiles_of_all_sizes(
    size: tuple[int, int, int, int], out: int, before: int, behind: int
) -> None:
    cx = Graph()
    x = cx.tensor(size, name="x")
    padded = x.pad([(0, 0), (0, 0), (2, 2), (before, behind)])
    ops.conv2d(padded, weight(cx, out, size[1], 3, 3)).output()
    check(cx, {x: normal(*size)})


@pytest.mark.parametrize("height", [3, 8, 31])
def test_sizes_of_a_run(height: int) -> None:
    cx = Graph()
    x = cx.tensor((1, 8, cx.dim("height", 3, 64), 10), name="x")
    ops.conv2d(x, weight(cx, 12, 8, 3, 3), padding=1).output()
    check(cx, {x: normal(1, 8, height, 10)}, height=height)


def test_integers_stay_exact():
    """The factors are halves and quarters: counts of neighbours come out as whole numbers."""
    cx = Graph()
    x = cx.tensor((1, 4, 12, 12), name="x")
    ops.conv2d(x, cx.constant(rng.integers(-9, 9, (6, 4, 3, 3)).astype("f")), padding=1).output()
    values = {x: rng.integers(-99, 99, (1, 4, 12, 12)).astype("f")}
    (plain,) = results(cx, values, default_passes(), "reference")
    for device in ("cpu", "reference"):
        (found,) = results(cx, values, ALWAYS, device)
        np.testing.assert_array_equal(found, plain)


@pytest.mark.parametrize("size", [(2, 16, 17), (3, 4, 4)])
@pytest.mark.parametrize("padding", [0, 1])
def test_gradients(size: tuple[int, int, int], padding: int) -> None:
    """Of what a convolution reads (mirrored taps) and of its weight (three results)."""
    batch, height, width = size
    cx = Graph()
    x, w = cx.tensor((batch, 8, height, width)), cx.tensor((12, 8, 3, 3))
    y = ops.conv2d(x, w, padding=padding)
    g = cx.tensor(y.shape)
    for tensor in (y, *train.backward((y * g).sum(), [x, w])):
        tensor.output()
    check(cx, {t: normal(*(int(str(n)) for n in t.shape)) for t in (x, w, g)})


def pictures(channels: int) -> tuple[Graph, list[Pass]]:
    """Three convolutions, and the passes of a compilation that names none."""
    cx = Graph()
    y = cx.tensor((1, channels, 28, 28), name="x")
    for _ in range(3):
        y = ops.relu(ops.conv2d(y, weight(cx, channels, channels, 3, 3), padding=1))
    y.output()
    return cx, usual_passes("f32", devices.find("cpu"))


@pytest.mark.parametrize("channels, wanted", [(8, False), (128, True)])
def test_tiles_are_taken_where_they_pay(channels: int, wanted: bool) -> None:
    assert in_tiles(*pictures(channels)) is wanted


def test_many_weights_for_few_results_stay():
    """Their products would be almost twice as many bytes as they are."""
    cx = Graph()
    x = cx.tensor((1, 512, 2, 2), name="x")
    ops.conv2d(x, weight(cx, 512, 512, 3, 3), padding=1).output()
    assert not in_tiles(cx, usual_passes("f32", devices.find("cpu")))


def test_depthwise_convolutions_stay():
    cx = Graph()
    x = cx.tensor((1, 128, 28, 28), name="x")
    ops.conv2d(x, weight(cx, 128, 1, 3, 3), padding=1, groups=128).output()
    assert not in_tiles(cx, usual_passes("f32", devices.find("cpu")))


def of_a_run(cx: Graph) -> Executable:
    return cx.compile(passes=ALWAYS, threads=1, database=False)


@pytest.mark.parametrize("channels", [16, 64])
def test_inputs_products_and_results_are_a_kernel_each(channels: int) -> None:
    """No sum makes its inputs again, and none holds the sums of sixteen products."""
    rt = of_a_run(pictures(channels)[0])
    sums = [k for k in rt.kernels if any(v.reduction for v in k.kernel.values)]
    assert all(len(k.kernel.values) <= 3 for k in sums)


def test_a_gradient_is_turned_once():
    """Memory has the taps innermost, its parts have channels there: what the gradient is added to
    is not walked along either while the other's elements are picked from far apart."""
    cx = Graph()
    x, w, rate = cx.tensor((2, 8, 16, 16)), cx.tensor((12, 8, 3, 3)), cx.tensor((12, 8, 3, 3))
    (gradient,) = train.backward(ops.conv2d(x, w, padding=1).square().sum(), [w])
    (w - rate * gradient).output()
    update = of_a_run(cx).kernels[-1].kernel
    assert {b.shape for b in update.buffers} == {update.buffers[0].shape}


def test_inputs_of_a_gradient_are_not_kept():
    """They are four times what they are made of: made again, they need no memory until then."""
    cx = Graph()
    x = y = cx.tensor((4, 8, 32, 32), name="x")
    weights = [cx.tensor((8, 8, 3, 3)) for _ in range(8)]
    for w in weights:
        y = ops.tanh(ops.conv2d(y, w, padding=1))
    for gradient in train.backward((y * y).sum(), weights):
        gradient.output()
    plain = cx.compile(passes=default_passes(), threads=1, database=False)
    tiles = of_a_run(cx)
    for rt in (plain, tiles):
        rt[x] = normal(4, 8, 32, 32)
        for w in weights:
            rt[w] = normal(8, 8, 3, 3)
        rt.run()
    one = 4 * 4 * 8 * 32 * 32  # bytes of what one convolution reads
    assert tiles.peak_bytes < plain.peak_bytes + 12 * one


def test_pixels_side_by_side_are_stored_with_what_follows() -> None:
    """A bias is added where results are made, not to rows of them that were turned before."""
    cx = Graph()
    x, w = cx.tensor((1, 32, 16, 16), name="x"), weight(cx, 32, 32, 3, 3)
    ops.conv2d(x, w, weight(cx, 32), padding=1).output()
    *made, results = (k.kernel for k in of_a_run(cx).kernels)
    assert len(made) == 3 and [int(n) for b in results.buffers[1:-1] for n in b.shape] == [32]
