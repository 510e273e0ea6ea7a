"""What the table of cases cannot say: symbolic sizes, methods, errors, the form of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from luminal import ops
from luminal.backend.reference import evaluate
from luminal.errors import DTypeError, LuminalError, ShapeError, Unsupported
from luminal.graph import Graph, Tensor
from luminal.ops.base import result_type


def value(
    tensor: Tensor, feeds: dict[Tensor, np.ndarray] | None = None, **sizes: int
) -> np.ndarray:
    return evaluate(tensor.graph, [tensor.node], feeds or {}, sizes)[tensor.node]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# ---- symbolic sizes

SYMBOLIC = {
    "softmax": (lambda x: ops.softmax(x, 0), lambda x: torch.softmax(x, 0)),
    "mean": (lambda x: x.mean(0), lambda x: x.mean(0)),
    "argmax": (lambda x: x.argmax(0), lambda x: x.argmax(0)),
    "cat": (lambda x: ops.cat([x, x * 2], 0), lambda x: torch.cat([x, x * 2], 0)),
    "sort": (lambda x: ops.sort(x, 0)[0], lambda x: torch.sort(x, 0)[0]),
    "topk": (lambda x: ops.topk(x, 1, 0)[1], lambda x: torch.topk(x, 1, 0)[1]),
    "cumsum": (lambda x: x.cumsum(0), lambda x: x.cumsum(0)),
    "matmul": (lambda x: x @ x.T, lambda x: x @ x.T),
    "triu": (ops.triu, torch.triu),
    "flip": (lambda x: ops.flip(x, 0), lambda x: torch.flip(x, (0,))),
    "var": (lambda x: x.var(0), lambda x: x.var(0)),
    "nearest": (
        lambda x: ops.interpolate(x.reshape((1, 1, x.shape[0], 4)), scale_factor=2),
        lambda x: torch.nn.functional.interpolate(x[None, None], scale_factor=2),
    ),
    "conv1d": (
        lambda x: ops.conv1d(x.T.unsqueeze(0), ops.full(x.graph, (3, 4, 3), 0.5), padding=1),
        lambda x: torch.nn.functional.conv1d(x.T[None], torch.full((3, 4, 3), 0.5), padding=1),
    ),
    "index": (
        lambda x: x[ops.arange(x.graph, x.shape[0]) - 1],
        lambda x: x[torch.arange(len(x)) - 1],
    ),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes(name: str) -> None:
    ours, theirs = SYMBOLIC[name]
    graph = Graph()
    graph.dim("s", 1, 64)
    x = graph.tensor(("s", 4))
    result = ours(x)
    for size in (2, 7):
        array = normal(size, 4)
        expected = theirs(torch.from_numpy(array)).numpy()
        np.testing.assert_allclose(value(result, {x: array}), expected, rtol=1e-5, atol=1e-6)


def test_causal_attention_with_offset() -> None:
    graph = Graph()
    graph.dim("p", 0, 32)
    q, k = graph.tensor((1, 2, 3, 4)), graph.tensor((1, 2, "p + 3", 4))
    out = ops.scaled_dot_product_attention(q, k, k, is_causal=True, offset="p")
    queries, keys = normal(1, 2, 3, 4), normal(1, 2, 8, 4)
    mask = torch.tril(torch.ones(3, 8, dtype=torch.bool), 5)
    tq, tk = torch.from_numpy(queries), torch.from_numpy(keys)
    expected = torch.nn.functional.scaled_dot_product_attention(tq, tk, tk, mask)
    np.testing.assert_allclose(value(out, {q: queries, k: keys}), expected, rtol=1e-5, atol=1e-6)


# ---- promotion

TORCH_DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8,
    "u8": torch.uint8, "bool": torch.bool,
}  # fmt: skip


@pytest.mark.parametrize("first", TORCH_DTYPES)
@pytest.mark.parametrize("second", [*TORCH_DTYPES, 1, 1.5, True])
@pytest.mark.parametrize("scalar", [False, True])
def test_result_type(first: str, second: object, scalar: bool) -> None:
    graph = Graph()
    a, ta = graph.tensor((2,), first), torch.zeros(2, dtype=TORCH_DTYPES[first])
    b: object = second
    tb: object = second
    if isinstance(second, str):
        shape = () if scalar else (2,)
        b, tb = graph.tensor(shape, second), torch.zeros(shape, dtype=TORCH_DTYPES[second])
    assert TORCH_DTYPES[result_type(a, b).name] is torch.result_type(ta, tb)  # type: ignore


# ---- the form of the graph


def ops_of(tensor: Tensor) -> list[str]:
    seen, stack = {}, [tensor.node]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen[node] = node.op
            stack += node.inputs
    return sorted(op for op in seen.values() if op not in ("view", "literal", "input"))


def test_softmax_has_the_online_form() -> None:
    x = Graph().tensor((3, 4))
    assert ops_of(ops.softmax(x)) == ["add", "exp2", "max", "mul", "mul", "mul", "recip", "sum"]


def test_matmul_is_one_product_and_one_sum() -> None:
    graph = Graph()
    a, b = graph.tensor((2, 3, 4, 5)), graph.tensor((5, 6))
    assert ops_of(a @ b) == ["mul", "sum"]


def test_grouped_attention_copies_nothing() -> None:
    graph = Graph()
    q, k = graph.tensor((1, 8, 5, 16)), graph.tensor((1, 2, 5, 16))
    grouped = ops.scaled_dot_product_attention(q, k, k, enable_gqa=True)
    plain = ops.scaled_dot_product_attention(q, q, q)
    assert ops_of(grouped) == ops_of(plain)


def test_half_matmul_accumulates_wide() -> None:
    graph = Graph()
    a = graph.tensor((3, 4), "bf16")
    product = a @ a.T
    assert product.dtype.name == "bf16"
    assert product.node.op == "cast" and product.node.inputs[0].dtype.name == "f32"


def test_many_of_a_short_dimension_are_sorted() -> None:
    graph = Graph()
    graph.dim("n", 1, 64)
    for size, sorts in ((16, True), (36, True), (37, False), (500, False)):
        x = graph.tensor(("n", size))
        order = ops.argsort(x, -1, descending=True)
        assert (ops.topk(x, 12, -1).indices is order.narrow(-1, 0, 12)) == sorts
        assert ops.topk(x, 10, -1).indices is not order.narrow(-1, 0, 10)


# ---- methods


def test_methods_and_operators() -> None:
    x = Graph().tensor((3, 4))
    assert x.softmax(-1) is ops.softmax(x, -1)
    assert (x + 1) is ops.add(x, 1)
    assert x.sum(1) is ops.sum(x, 1)
    assert x.float() is x and x.half().dtype.name == "f16"
    assert x.numel() == 12 and x.size(1) == 4 and x.dim() == 2
    assert x.t().shape == (4, 3)
    assert x.where(x > 0, 0.0) is ops.where(x > 0, x, 0.0)


# ---- errors

REFUSED = {
    "broadcast": (lambda x: x + x.graph.tensor((3, 5)), ShapeError, "do not broadcast"),
    "matmul": (lambda x: x @ x, ShapeError, "inner sizes 4 and 3"),
    "dim": (lambda x: x.sum(2), ShapeError, "dimension 2"),
    "twice": (lambda x: x.sum((0, -2)), ShapeError, "twice"),
    "sub bool": (lambda x: (x > 0) - (x < 0), DTypeError, "bool"),
    "float bits": (lambda x: x & x, DTypeError, "integer"),
    "float index": (lambda x: x[x], DTypeError, "integers"),
    "mask index": (lambda x: x[x > 0], Unsupported, "where"),
    "nonzero": (ops.nonzero, Unsupported, "where"),
    "cat": (lambda x: ops.cat([x, x.T]), ShapeError, "cat"),
    "split": (lambda x: ops.split(x, [1, 1]), ShapeError, "add up"),
    "layer_norm": (lambda x: ops.layer_norm(x, 5), ShapeError, "does not fit"),
    "conv": (lambda x: ops.conv2d(x, x), ShapeError, "conv2d"),
    "argmax empty": (lambda x: x.graph.tensor((0, 2)).argmax(0), ShapeError, "empty"),
    "topk": (lambda x: x.topk(9), ShapeError, "9 elements"),
    "einsum": (lambda x: ops.einsum("ij,jk", x), ShapeError, "operands"),
    "reduction": (lambda x: ops.mse_loss(x, x, reduction="median"), ShapeError, "reduction"),
    "heads": (
        lambda x: ops.scaled_dot_product_attention(
            x.graph.tensor((5, 3, 4)), x.graph.tensor((2, 3, 4)), x, enable_gqa=True
        ),
        ShapeError,
        "multiple",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    build, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        build(Graph().tensor((3, 4)))


def windows(what: str, value: object) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The operations over windows, with this stride, padding, dilation or kernel_size."""
    given: dict[str, Any] = {what: value}
    pool = {"kernel_size": 3} | given
    found: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "max_pool2d": lambda x, w: ops.max_pool2d(x, **pool)
    }
    if what != "dilation":
        found["avg_pool2d"] = lambda x, w: ops.avg_pool2d(x, **pool)
    if what != "kernel_size":
        found["conv2d"] = lambda x, w: ops.conv2d(x, w, **given)
        found["conv_transpose2d"] = lambda x, w: ops.conv_transpose2d(x, w.transpose(0, 1), **given)
    return found


@pytest.mark.parametrize("what", ["stride", "padding", "dilation", "kernel_size"])
@pytest.mark.parametrize("value", [0, -1, (1, -1), (1, 1, 1), 1.5])
def test_windows_have_positive_whole_sizes_and_steps(what: str, value: object) -> None:
    """As in PyTorch: none are numbers of something else."""
    for name, build in windows(what, value).items():
        graph = Graph()
        x, w = graph.tensor((1, 3, 8, 8)), graph.tensor((4, 3, 3, 3))
        if (what, value) == ("padding", 0):
            build(x, w)
            continue
        with pytest.raises(ShapeError):
            print(name, build(x, w))


NEGATIVE: dict[str, Callable[[Tensor], object]] = {
    "repeat": lambda x: x.repeat(-1, 1),
    "repeat_interleave": lambda x: x.repeat_interleave(-1, 0),
    "narrow": lambda x: x.narrow(0, 0, -1),
    "unfold": lambda x: x.unfold(0, -1),
    "unfold step": lambda x: x.unfold(0, 2, 0),
    "chunk": lambda x: x.chunk(0),
    "split": lambda x: x.split(0),
    "topk": lambda x: x.topk(-1),
    "adaptive": lambda x: ops.adaptive_avg_pool1d(x, -1),
    "one_hot": lambda x: ops.one_hot(x.cast("i64"), -1),
    "interpolate": lambda x: ops.interpolate(x.expand(1, 1, 3, 4), size=-1),
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_no_tensor_has_a_negative_size(name: str) -> None:
    with pytest.raises(LuminalError):
        NEGATIVE[name](Graph().tensor((3, 4)))
