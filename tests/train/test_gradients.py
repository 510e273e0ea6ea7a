"""Every rule against PyTorch and against differences of f64, in both modes, sizes fixed and not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from luminal import DTypeError, Graph, InputError, ShapeError, Tensor, ops, train
from luminal.backend.reference.graph import evaluate
from luminal.graph.order import reachable

# name: (function of tensors, shapes). Run by luminal and, unless listed below, by PyTorch.
CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "log2": (lambda x: (x * x + 0.5).log2(), [(5,)]),
    "exp2": (lambda x: x.exp2(), [(5,)]),
    "sin": (lambda x: x.sin(), [(5,)]),
    "cos": (lambda x: x.cos(), [(5,)]),
    "sqrt": (lambda x: (x * x + 0.5).sqrt(), [(5,)]),
    "recip": (lambda x: (x * x + 0.5).reciprocal(), [(5,)]),
    "add": (lambda x, y: x + y + x, [(2, 3), (2, 3)]),
    "mul": (lambda x, y: x * y * x, [(2, 3), (2, 3)]),
    "div": (lambda x, y: x / (y * y + 0.5), [(2, 3), (2, 3)]),
    "mod": (lambda x, y: x.remainder(y * 0.3), [(2, 3), (2, 3)]),
    "max": (lambda x, y: x.maximum(y), [(2, 3), (2, 3)]),
    "min": (lambda x, y: x.minimum(y), [(2, 3), (2, 3)]),
    "relu": (lambda x: x.relu(), [(7,)]),
    "clamp": (lambda x: x.clamp(-0.5, 0.7), [(7,)]),
    "abs": (lambda x: x.abs(), [(7,)]),
    "select": (lambda x, y: x.where(x > y, y * 2.0), [(2, 3), (2, 3)]),
    "rounded": (lambda x: x * x.floor() + x.ceil() + x.trunc() * x + x.round(), [(7,)]),
    "broadcast": (lambda x, y: x + y, [(2, 3), (3,)]),
    "sum": (lambda x: x.sum((0, 2)), [(2, 3, 4)]),
    "max of": (lambda x: x.amax((0, 2)), [(2, 3, 4)]),
    "min of": (lambda x: x.amin(1), [(2, 3, 4)]),
    "prod": (lambda x: x.prod(1), [(2, 3, 4)]),
    "cumsum": (lambda x: x.cumsum(1), [(2, 5)]),
    "cumprod": (lambda x: x.cumprod(1), [(2, 5)]),
    "permute": (lambda x: x.permute(2, 0, 1), [(2, 3, 4)]),
    "expand": (lambda x: x.unsqueeze(1).expand(-1, 5, -1), [(2, 3)]),
    "flip": (lambda x: x.flip(0), [(4, 3)]),
    "select one": (lambda x: x[:, 1], [(2, 3, 4)]),
    "slice": (lambda x: x[1:3, 2:], [(4, 5)]),
    "flatten": (lambda x: x.flatten(), [(3, 4, 2)]),
    "flatten some": (lambda x: x.flatten()[3:17].flip(0), [(3, 4, 2)]),
    "diagonal": (lambda x: x.diagonal(1), [(4, 5)]),
    "windows": (lambda x: x.unfold(1, 3, 1), [(2, 7)]),
    "windows apart": (lambda x: x.unfold(1, 2, 3), [(2, 8)]),
    "windows of two": (lambda x: x.unfold(0, 3, 2).unfold(1, 2, 1), [(7, 5)]),
    "roll": (lambda x: x.roll(2, 0), [(5, 3)]),
    "repeat": (lambda x: x.repeat(2, 3), [(2, 3)]),
    "repeat each": (lambda x: x.repeat_interleave(3, 0), [(2, 3)]),
    "tril": (lambda x: x.tril(), [(4, 4)]),
    "matmul": (lambda x, y: x @ y, [(2, 3, 4), (4, 5)]),
    "softmax": (lambda x: x.softmax(-1), [(3, 5)]),
    "log_softmax": (lambda x: x.log_softmax(0), [(3, 5)]),
    "logsumexp": (lambda x: x.logsumexp(1), [(3, 5)]),
    "std": (lambda x: x.std(1), [(3, 5)]),
    "sort": (lambda x: x.sort(1).values, [(3, 5)]),
    "sigmoid": (lambda x: x.sigmoid() * x.tanh(), [(7,)]),
    "erf": (lambda x: x.erf() + x.erfc() * x, [(7,)]),
    "expm1": (lambda x: x.expm1() * (x * x).log1p(), [(7,)]),
    "angles": (lambda x: (x.tanh().asin() + x.atan()) * x.tanh().acos() + x.tan(), [(7,)]),
    "hyperbolic": (lambda x: x.sinh() * x.cosh() + x.asinh() * (x.tanh() * 0.9).atanh(), [(7,)]),
    "acosh": (lambda x: (x * x + 1.5).acosh(), [(7,)]),
    "pow": (lambda x, y: (x * x + 0.2) ** y + x**3 + (x * x) ** 2.5, [(2, 3), (2, 3)]),
    "sinc": (lambda x: (x * x.relu()).sinc(), [(7,)]),
    "sharing": (lambda x: x[0] * x.sum() + x.flip(0)[1] * x[1:], [(4,)]),
}
FIXED: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {  # sizes known only
    "every other": (lambda x: x[::2, 1::3], [(5, 7)]),
    "reshape": (lambda x: x.reshape(4, 6), [(2, 12)]),
    "reshape mixed": (lambda x: x.reshape(9, 4)[1:8].permute(1, 0).reshape(14, 2), [(6, 6)]),
    "long reach": (lambda x: x.reshape(3, 2, 2).permute(2, 0, 1).reshape(12)[::5], [(12,)]),
}
PLACES = np.array([[0, 2, 2], [2, 1, 0], [0, 0, 2], [2, 2, 1]])
MODES = ["sum", "prod", "amax", "amin"]


def draw(shapes: Sequence[tuple[int, ...]], seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape) for shape in shapes]


def places(x: Any) -> Any:
    return x.graph.constant(PLACES) if isinstance(x, Tensor) else torch.tensor(PLACES)


class Derivatives:
    """A function of tensors recorded with its gradient and its tangent along a direction."""

    def __init__(self, function: Callable[..., Tensor], arrays: list[np.ndarray], named=False):
        self.graph = graph = Graph()
        shapes = [tuple(map(str, a.shape)) if named else a.shape for a in arrays]
        shapes = [tuple(f"s{n}" for n in s) if named else s for s in shapes]
        self.inputs = [graph.tensor(shape, "f64") for shape in shapes]
        self.along = [graph.tensor(shape, "f64") for shape in shapes]
        self.y = function(*self.inputs)
        self.weight = graph.tensor(self.y.shape, "f64")
        self.gradients = train.backward((self.y * self.weight).sum(), self.inputs)
        (self.tangent,) = train.jvp([self.y], self.inputs, self.along)
        self.sizes = {f"s{n}": n for a in arrays for n in a.shape} if named else {}

    def values(self, wanted: Sequence[Tensor], *feeds: Any) -> list[np.ndarray]:
        given = {t: a for tensors, arrays in feeds for t, a in zip(tensors, arrays)}
        nodes = [t.node for t in wanted]
        made = evaluate(self.graph, nodes, given, self.sizes if self.sizes else None)
        return [made[node] for node in nodes]


def check_differences(function: Any, arrays: list[np.ndarray], named: bool = False) -> list:
    """Gradient and tangent agree with differences; returns the gradients and the weights."""
    d = Derivatives(function, arrays, named)
    along = draw([a.shape for a in arrays], 5)
    step = 1e-6
    ahead, behind = (
        d.values([d.y], (d.inputs, [a + sign * v for a, v in zip(arrays, along)]))[0]
        for sign in (step, -step)
    )
    slope = (ahead - behind) / (2 * step)
    (weight,) = draw([slope.shape], 9)
    feeds = (d.inputs, arrays), (d.along, along), ([d.weight], [weight])
    tangent, *gradients = d.values([d.tangent, *d.gradients], *feeds)
    scale = 1 + abs(slope).max()
    np.testing.assert_allclose(tangent, slope, rtol=2e-5, atol=2e-7 * scale)
    pulled = sum((g * v).sum() for g, v in zip(gradients, along))
    np.testing.assert_allclose(pulled, (weight * tangent).sum(), rtol=1e-9, atol=1e-9)
    return [gradients, weight]


def check_torch(function: Any, arrays: list[np.ndarray], named: bool = False) -> None:
    gradients, weight = check_differences(function, arrays, named)
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    (function(*leaves) * torch.tensor(weight)).sum().backward()
    for mine, leaf in zip(gradients, leaves):
        np.testing.assert_allclose(mine, leaf.grad.numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("named", [False, True], ids=["fixed", "named"])
@pytest.mark.parametrize("name", CASES)
def test_rules(name: str, named: bool) -> None:
    function, shapes = CASES[name]
    check_torch(function, draw(shapes), named)


@pytest.mark.parametrize("name", FIXED)
def test_rules_of_fixed_sizes(name: str) -> None:
    function, shapes = FIXED[name]
    check_torch(function, draw(shapes))


def of_torch(function: Any, arrays: list[np.ndarray], weight: np.ndarray) -> list[np.ndarray]:
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    (function(*leaves) * torch.tensor(weight)).sum().backward()
    return [leaf.grad.numpy() for leaf in leaves]


def test_gather():
    check_torch(lambda x: x.gather(0, places(x)), draw([(3, 3)]))
    check_torch(lambda x: x.gather(1, places(x)[:3]), draw([(3, 5)]))


@pytest.mark.parametrize("mode", MODES)
def test_scatter_reduce(mode: str) -> None:
    def function(x: Any, y: Any) -> Any:
        return x.scatter_reduce(0, places(x), y, mode)

    x, y = draw([(3, 3), (4, 3)])
    check_torch(function, [x, y])
    y[1, 0], x[2, 1] = y[0, 1], 0.0  # a tie among values; zeros
    y[0, 0] = y[2, 0] = 0.0
    d = Derivatives(function, [x, y])
    (weight,) = draw([(3, 3)], 2)
    mine = d.values(d.gradients, (d.inputs, [x, y]), ([d.weight], [weight]))
    for a, b in zip(mine, of_torch(function, [x, y], weight)):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mode", ["set", "sum", "prod", "max", "min"])
def test_scatter_of_places_outside(mode: str) -> None:
    """The last writer of a place is the one that counts; outside nothing is written."""
    index = np.array([[0, 1, 5], [0, -1, 2], [2, 1, 2]])

    def function(x: Tensor, y: Tensor) -> Tensor:
        return x._scatter(x.graph.constant(index), y, 0, mode)

    check_differences(function, draw([(3, 3), (3, 3)]))


def test_a_part_of_a_composite():
    """Functions are taken whole, but not where the derivative of a part is asked for."""
    graph = Graph()
    x = graph.tensor((2, 3), "f64")
    y = x.softmax(-1)
    (power,) = (graph.wrap(n) for n in reachable([y.node]) if n.op == "exp2")
    found = train.backward((y * y).sum(), [power, x])
    values = evaluate(graph, [t.node for t in found], {x: np.log([[1.0, 2, 5], [1, 1, 1]])})
    of_power, of_x = values.values()
    assert abs(of_power[0]).max() > 0.01
    np.testing.assert_allclose(of_x[1], 0.0, atol=1e-15)


TWICE = "sigmoid softmax log_softmax pow erf prod cumprod matmul windows select sqrt sharing"


@pytest.mark.parametrize("name", [*TWICE.split(), "max of"])
def test_second_order(name: str) -> None:
    function, shapes = CASES[name]

    def slope(*inputs: Any) -> Any:
        if isinstance(inputs[0], Tensor):
            y = function(*inputs)
            (made, *_) = train.backward((y * y).sum(), inputs)
            return made
        y = function(*inputs)
        return torch.autograd.grad((y * y).sum(), inputs, create_graph=True)[0]

    check_torch(slope, draw(shapes))


def test_forward_over_reverse_is_reverse_over_forward():
    graph = Graph()
    x, v = graph.tensor((3, 4), "f64"), graph.tensor((3, 4), "f64")
    y = (x.softmax(-1) * x.sin()).sum()
    (ahead,) = train.jvp(train.backward(y, [x]), [x], [v])
    (behind,) = train.backward(train.jvp([y], [x], [v])[0], [x])
    found = evaluate(graph, [ahead.node, behind.node], dict(zip([x, v], draw([(3, 4)] * 2))))
    np.testing.assert_allclose(found[ahead.node], found[behind.node], rtol=1e-10)


def test_what_has_no_gradient():
    graph = Graph()
    x, other, index = graph.tensor((3,)), graph.tensor((2,)), graph.tensor((3,), "i64")
    stopped = train.stop_gradient(x)
    loss = (x * stopped + x.cast("i64").cast("f32") + index.cast("f32")).sum()
    with pytest.warns(UserWarning, match="input1: does not reach the loss"):
        of_x, of_other = train.backward(loss, [x, other])
    values = np.float32([1.5, -2.0, 3.0])
    found = evaluate(graph, [of_x.node, of_other.node], {x: values})
    np.testing.assert_array_equal(found[of_x.node], values)
    np.testing.assert_array_equal(found[of_other.node], np.zeros(2))
    with pytest.raises(DTypeError, match="input2 is i64: only floats"):
        train.backward(loss, [index])
    with pytest.raises(ShapeError, match=r"the loss has shape \(3,\)"):
        train.backward(x, [x])
    with pytest.raises(InputError, match="only moves elements"):
        train.backward(loss, [x.flip(0)])
    with pytest.raises(ShapeError, match="the gradient of"):
        train.vjp([x], [other], [x])
    with pytest.raises(DTypeError, match="the tangent of"):
        train.jvp([loss], [x], [x.cast("f64")])
    with pytest.raises(InputError, match="of one graph"):
        train.backward(loss, [Graph().tensor(())])


def test_what_is_no_tensor_is_said() -> None:
    graph = Graph()
    x = graph.tensor((), name="x")
    for made, message in [
        (lambda: train.backward(3.0, [x]), "the loss: 3.0 is no tensor"),
        (lambda: train.backward(x, ["w"]), "wrt: 'w' is no tensor"),
        (lambda: train.backward(x, 3), "wrt: a list of tensors is expected, not 3"),
        (lambda: train.vjp([x], [1.0], [x]), "gradients: 1.0 is no tensor"),
        (lambda: train.vjp([x], [], [x]), "0 gradients for 1 results"),
        (lambda: train.jvp([x], [x], [x, x]), "2 tangents for 1 wrt"),
    ]:
        with pytest.raises(InputError, match=message):
            made()


def test_the_warning_of_what_does_not_reach_the_loss_is_at_the_callers_line() -> None:
    graph = Graph()
    x, w = (graph.parameter((), name=n).set(np.float32(1.0)) for n in ("x", "w"))
    for made in (lambda: train.backward(x * x, [w]), lambda: train.Step(x * x, [w], train.SGD())):
        with pytest.warns(UserWarning, match="w: does not reach the loss") as said:
            made()
        assert [warning.filename for warning in said] == [__file__]


def test_gradients_have_the_dtypes_of_their_tensors():
    graph = Graph()
    x, w = graph.tensor((2, 3), "bf16"), graph.tensor((3, 4))
    loss = ops.mse_loss(x.cast("f32") @ w, graph.literal(0.0).expand(2, 4))
    assert [g.dtype.name for g in train.backward(loss, iter([x, w]))] == ["bf16", "f32"]


@pytest.mark.parametrize("kind", ["bool", "added"])
def test_attention_in_which_a_row_sees_nothing(kind: str) -> None:
    """Its gradients are 0, not NaN; those of others are right."""
    mask = np.array([[1, 0, 1], [0, 0, 0]], bool)
    if kind == "added":
        mask = np.where(mask, 0.0, -np.inf)

    def attend(q: Any, k: Any, v: Any) -> Any:
        if isinstance(q, Tensor):
            return ops.scaled_dot_product_attention(q, k, v, q.graph.constant(mask))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, torch.tensor(mask))

    arrays = draw([(2, 2, 4), (2, 3, 4), (2, 3, 4)])
    gradients, weight = check_differences(attend, arrays)
    for mine, theirs in zip(gradients, of_torch(attend, arrays, weight)):
        np.testing.assert_allclose(mine, np.nan_to_num(theirs), rtol=1e-9, atol=1e-12)


def test_attention_of_what_is_query_key_and_value():
    """Its gradient and its tangent count once."""

    def attend(x: Any) -> Any:
        of = ops if isinstance(x, Tensor) else torch.nn.functional
        return of.scaled_dot_product_attention(x, x, x, is_causal=True)

    check_torch(attend, draw([(2, 3, 4)]))


def test_a_chain_of_thousands():
    graph = Graph()
    x = y = graph.tensor((2,), "f64")
    for _ in range(1500):
        y = y * 0.999 + y.sin() * 0.001
    (g,) = train.backward(y.sum(), [x])
    array, step = np.array([0.3, -0.7]), 1e-6
    ahead, behind = (evaluate(graph, [y.node], {x: array + d})[y.node] for d in (step, -step))
    found = evaluate(graph, [g.node], {x: array})[g.node]
    np.testing.assert_allclose(found, (ahead - behind) / (2 * step), rtol=1e-6)


def test_movement_is_transposed_to_movement():
    """Only what is sorted by data is scattered back."""
    for name, (function, shapes) in CASES.items():
        for named in (False, True):
            d = Derivatives(function, draw(shapes), named)
            made = [n.op for n in reachable([g.node for g in d.gradients])]
            assert ("scatter" in made) == (name == "sort"), name


def test_a_part_is_summed_up_before_it_is_put_in_its_place():
    """The gradient of a product of parts of one tensor works on the parts, not on zeros."""
    graph = Graph()
    x, w = graph.tensor((8, 12)), graph.tensor((8, 8))
    a, b, _ = x.chunk(3, -1)
    (g,) = train.backward(((a @ b.T) * w).sum(), [x])
    sizes = [np.prod([int(n) for n in node.shape]) for node in reachable([g.node])]
    assert max(sizes) == 8 * 8 * 4


@pytest.mark.parametrize("size, stride, padding", [(3, 2, 1), (7, 2, 3), (5, 3, 2), (4, 2, 1)])
def test_strided_windows_are_transposed_to_the_taps_that_meet_a_place(
    size: int, stride: int, padding: int
) -> None:
    """Only every stride-th position of a window reads a place."""
    arrays = draw([(2, 3, 11, 11), (4, 3, size, size)])
    graph = Graph()
    x, w = (graph.tensor(a.shape, "f64") for a in arrays)
    y = ops.conv2d(x, w, stride=stride, padding=padding)
    (g,) = train.backward((y * y).sum(), [x])
    taps = -(-size // stride)
    summed = [n.inputs[0].shape for n in reachable([g.node]) if n.op == "sum"]
    assert any((taps, taps) in pairwise(shape) for shape in summed)
    theirs = [torch.from_numpy(a).requires_grad_() for a in arrays]
    out = torch.nn.functional.conv2d(*theirs, stride=stride, padding=padding)
    (want,) = torch.autograd.grad((out * out).sum(), theirs[:1])
    found = evaluate(graph, [g.node], dict(zip((x, w), arrays)))[g.node]
    np.testing.assert_allclose(found, want.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["plain", "strided", "largest", "overlapping", "mean"])
def test_windows_over_images_of_run_time_sizes(name: str) -> None:
    def function(m: Any, x: Any, w: Any) -> Any:
        stride, padding = (2, 1) if name == "strided" else (1, 0)
        y = m.conv2d(x, w, stride=stride, padding=padding)
        pools = {
            "largest": lambda: m.max_pool2d(y, 2), "overlapping": lambda: m.max_pool2d(y, 3, 2, 1),
            "mean": lambda: m.avg_pool2d(y, 2),
        }  # fmt: skip
        return (pools.get(name, lambda: y)() ** 2).sum()

    cx = Graph()
    batch, side = cx.dim("b", 1, 8), cx.dim("h", 6, 40)
    x, w = cx.tensor((batch, 3, side, side)), cx.tensor((4, 3, 3, 3))
    slopes = [g.output() for g in train.backward(function(ops, x, w), [x, w])]
    rt = cx.compile(threads=1)
    for b, h in ((2, 9), (3, 16)):
        rng = np.random.default_rng(b)
        arrays = [rng.standard_normal(s).astype(np.float32) for s in ((b, 3, h, h), (4, 3, 3, 3))]
        rt[x], rt[w] = arrays
        rt.run(b=b, h=h)
        theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
        function(torch.nn.functional, *theirs).backward()
        for slope, t in zip(slopes, theirs):
            np.testing.assert_allclose(rt[slope], t.grad, rtol=1e-4, atol=1e-4)
