"""Small networks for the tests of rules, plans and their kernels, and how their regions are run."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from oracles.terms import Values

import luminal.ops as F
from luminal.backend.reference.kernels import evaluate
from luminal.graph.dtype import DType
from luminal.graph.graph import Graph
from luminal.graph.index import Index
from luminal.graph.tensor import Tensor
from luminal.rewrite.lower_plan import Step, lower_plan
from luminal.rewrite.normalise import normalise
from luminal.rewrite.plan import Plan
from luminal.rewrite.terms import Leaf, Region, Terms

Sizes = dict[str, int]
NETS: dict[str, Callable[[Graph, bool], list[Tensor]]] = {}  # (graph, large) -> outputs


def net(build: Callable[[Graph, bool], list[Tensor]]) -> Callable[[Graph, bool], list[Tensor]]:
    """Register a network: small for checking values, large for checking decisions."""
    NETS[build.__name__] = build
    return build


@dataclass
class Program:
    """A graph as one region."""

    region: Region
    dtypes: dict[int, DType]  # of leaves
    sizes: Sizes


def program(name: str, large: bool = False) -> Program:
    graph = Graph()
    outputs = [t.node for t in NETS[name](graph, large)]
    return region_of(graph, outputs)


def region_of(graph: Graph, outputs: list) -> Program:
    """Everything below the outputs as one region."""
    normal = normalise(graph.space, outputs)
    leaves = {t.attribute.number: t.dtype for t in normal.terms.nodes if t.op == "input"}
    inputs = tuple(range(max(leaves, default=-1) + 1))
    region = Region("test", normal.terms, tuple(normal.roots), inputs, tuple(normal.targets))
    sizes = {n: int(min(max(5, low), high)) for n, (low, high) in normal.terms.space.sizes.items()}
    return Program(region, leaves, sizes)


def leaves(terms: Terms) -> dict[int, Leaf]:
    return {t.attribute.number: t.attribute for t in terms.nodes if t.op == "input"}


def extent(terms: Terms, axis: str, sizes: Sizes) -> int:
    return int(terms.space.axes[axis].evaluate(sizes))


def inputs_for(case: Program, kind: str = "normal") -> dict[int, np.ndarray]:
    """Arrays for the leaves. kind: "normal", or "hostile" (inf, NaN, -0.0, ties, large)."""
    terms = case.region.terms
    arrays = {}
    for number, leaf in leaves(terms).items():
        rng = np.random.default_rng(zlib.crc32(f"{kind}{number}".encode()))
        shape = [extent(terms, a, case.sizes) for a in leaf.axes]
        arrays[number] = values(rng, shape, case.dtypes[number], kind)
    return arrays


def values(rng: np.random.Generator, shape: list[int], dtype: DType, kind: str) -> np.ndarray:
    if dtype.kind == "bool":
        return rng.random(shape) < 0.6
    if not dtype.is_float:
        return rng.integers(0, 4, shape).astype(dtype.numpy)
    if kind == "positive":
        return (rng.random(shape) + 0.5).astype(dtype.numpy)
    found = rng.standard_normal(shape)
    if kind == "hostile":
        special = np.array([-0.0, np.inf, np.nan, -np.inf, 0.0, 1.0, 1.0, 3e38, 1e-40])
        places = rng.permutation(found.size)[: (found.size + 1) // 2]
        found.reshape(-1)[places] = np.resize(special, len(places))
    with np.errstate(over="ignore"):
        return found.astype(dtype.numpy)


def expected(case: Program, arrays: dict[int, np.ndarray]) -> list[np.ndarray]:
    """What the terms mean."""
    found = Values(case.region.terms, arrays, case.sizes)
    return [found.root(root) for root in case.region.roots]


def run_plan(plan: Plan, case: Program, arrays: dict[int, np.ndarray]) -> list[np.ndarray]:
    return run_steps(lower_plan(plan), case, arrays)


def run_steps(steps: list[Step], case: Program, arrays: dict[int, np.ndarray]) -> list[np.ndarray]:
    """Evaluate the kernels in order: those that run once first, as a runtime does."""
    memory = {("input", n): a.copy() for n, a in arrays.items()}
    for step in sorted(steps, key=lambda s: not s.constant):
        kernel, given = step.kernel, {}
        for buffer in kernel.buffers:
            ref = step.arguments[buffer.name]
            shape = tuple(int(n.evaluate(case.sizes)) for n in buffer.shape)
            if (ref.kind, ref.number) not in memory:
                memory[ref.kind, ref.number] = np.full(shape, 77, buffer.dtype.numpy)
            given[buffer.name] = memory[ref.kind, ref.number]
            assert given[buffer.name].shape == shape
            assert given[buffer.name].dtype == buffer.dtype.numpy
            assert not (ref.kind == "input" and buffer.name in kernel.outputs)
        evaluate(kernel, given, case.sizes)
    return [memory["output", i] for i in range(len(case.region.roots))]


def close(found: list[np.ndarray], wanted: list[np.ndarray], tolerance: float = 3e-4) -> bool:
    pairs = [(f.astype(np.float64), w.astype(np.float64)) for f, w in zip(found, wanted)]
    return all(np.allclose(f, w, tolerance, tolerance, equal_nan=True) for f, w in pairs)


# ---- networks


@net
def softmax(g: Graph, large: bool) -> list[Tensor]:
    x = g.tensor((512, 2048) if large else (5, 7))
    return [F.softmax(x, -1)]


@net
def layer_norm(g: Graph, large: bool) -> list[Tensor]:
    m, n = (512, 2048) if large else (5, 7)
    return [F.layer_norm(g.tensor((m, n)), (n,), g.parameter((n,)), g.parameter((n,)))]


@net
def rms_norm_matmul(g: Graph, large: bool) -> list[Tensor]:
    m, n, k = (128, 4096, 2048) if large else (4, 6, 5)
    x = F.rms_norm(g.tensor((m, k)), (k,), g.parameter((k,)), 1e-5)
    return [F.linear(x, g.parameter((n, k)))]


@net
def linear_gelu_residual(g: Graph, large: bool) -> list[Tensor]:
    m, n, k = (128, 384, 1536) if large else (4, 6, 5)
    x, w, b = g.tensor((m, k)), g.parameter((n, k)), g.parameter((n,))
    return [F.gelu(F.linear(x, w, b)) + g.tensor((m, n))]


@net
def gated_mlp(g: Graph, large: bool) -> list[Tensor]:
    m, n, k = (128, 4096, 2048) if large else (4, 6, 5)
    x = g.tensor((m, k))
    return [F.silu(F.linear(x, g.parameter((n, k)))) * F.linear(x, g.parameter((n, k)))]


@net
def attention_causal(g: Graph, large: bool) -> list[Tensor]:
    h, s, d = (8, 512, 64) if large else (2, 7, 4)
    q, k, v = (g.tensor((h, s, d)) for _ in range(3))
    return [F.scaled_dot_product_attention(q, k, v, is_causal=True)]


@net
def attention_masked(g: Graph, large: bool) -> list[Tensor]:
    h, s, d = (12, 128, 32) if large else (2, 5, 3)
    q, k, v = (g.tensor((2, h, s, d)) for _ in range(3))
    mask = g.tensor((2, 1, 1, s))
    return [F.scaled_dot_product_attention(q, k, v, mask)]


@net
def cross_entropy(g: Graph, large: bool) -> list[Tensor]:
    m, n = (128, 4096) if large else (4, 6)
    return [F.logsumexp(g.tensor((m, n)), -1)]


@net
def chain_30(g: Graph, large: bool) -> list[Tensor]:
    x = y = g.tensor((512, 2048) if large else (3, 4))
    for i in range(15):
        y = F.relu(y * 0.9 + x) + float(i)
    return [y]


@net
def conv_norm_relu(g: Graph, large: bool) -> list[Tensor]:
    c, o, n = (64, 64, 56) if large else (3, 4, 6)
    x, w = g.tensor((1, c, n, n)), g.parameter((o, c, 3, 3))
    y = F.conv2d(x, w, None, padding=1)
    stats = [g.parameter((o,)) for _ in range(4)]
    return [F.relu(F.batch_norm(y, *stats))]


@net
def depthwise_pointwise(g: Graph, large: bool) -> list[Tensor]:
    c, o, n = (64, 128, 56) if large else (3, 4, 6)
    x = g.tensor((1, c, n, n))
    y = F.relu(F.conv2d(x, g.parameter((c, 1, 3, 3)), g.parameter((c,)), padding=1, groups=c))
    return [F.relu(F.conv2d(y, g.parameter((o, c, 1, 1)), g.parameter((o,))))]


@net
def pools(g: Graph, large: bool) -> list[Tensor]:
    x = g.tensor((1, 16, 56, 56) if large else (1, 2, 6, 6))
    return [F.max_pool2d(x, 3, 2, padding=1), F.avg_pool2d(x, 3, 2, padding=1)]


@net
def concat_views(g: Graph, large: bool) -> list[Tensor]:
    m, n = (256, 1024) if large else (4, 6)
    x, y = g.tensor((m, n)), g.tensor((m, n))
    both = F.cat([F.exp(x), y * 2.0], 1)
    return [F.relu(both[:, 1:]) + 1.0, F.roll(both, 2, 1)]


@net
def halves_again(g: Graph, large: bool) -> list[Tensor]:
    t = F.exp(g.tensor((8, 6)))
    return [F.cat([t[:4] * 1.0, t[4:] * 1.0], 0) + 1.0]


@net
def embedding_norm(g: Graph, large: bool) -> list[Tensor]:
    v, p, s, d = (30522, 512, 128, 384) if large else (9, 6, 4, 5)
    ids = g.tensor((2, s), "i64")
    x = F.embedding(ids, g.parameter((v, d))) + g.parameter((p, d))[:s]
    return [F.layer_norm(x, (d,), g.parameter((d,)), g.parameter((d,)))]


@net
def embedding_dynamic(g: Graph, large: bool) -> list[Tensor]:
    v, p, d = (30522, 512, 384) if large else (9, 6, 5)
    ids = g.tensor((2, g.dim("s", 1, p)), "i64")
    s = ids.shape[1]
    x = F.embedding(ids, g.parameter((v, d))) + g.parameter((p, d))[:s]
    return [F.layer_norm(x, (d,), g.parameter((d,)), g.parameter((d,)))]


@net
def cache_update(g: Graph, large: bool) -> list[Tensor]:
    c, d = (512, 64) if large else (6, 3)
    cache, new = g.tensor((c, d)), g.tensor((2, d))
    at = g.tensor((2,), "i64")
    return [F.index_copy(cache, 0, at, new * 2.0), F.scatter_add(cache, 0, _wide(at, d), new)]


def _wide(index: Tensor, d: int) -> Tensor:
    return index.reshape((2, 1)).expand((2, d))


@net
def scans(g: Graph, large: bool) -> list[Tensor]:
    x = g.tensor((64, 512) if large else (3, 5))
    return [F.cumsum(F.exp(x), 1), F.cummax(x, 0)[0] if large else F.cumsum(x, 0)]


@net
def lstm_cell(g: Graph, large: bool) -> list[Tensor]:
    b, n, k = (16, 256, 256) if large else (2, 3, 4)
    x, h, c = g.tensor((b, k)), g.tensor((b, n)), g.tensor((b, n))
    gates = F.linear(x, g.parameter((4 * n, k))) + F.linear(h, g.parameter((4 * n, n)))
    i, f, o, z = (gates[:, j * n : (j + 1) * n] for j in range(4))
    cell = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(z)
    return [F.sigmoid(o) * F.tanh(cell), cell]


@net
def bert_layer(g: Graph, large: bool) -> list[Tensor]:
    b, s, h, d, f = (1, 128, 12, 32, 1536) if large else (2, 5, 2, 3, 8)
    n = h * d
    x = g.tensor((b, s, n))
    mask = g.tensor((b, 1, 1, s))

    def dense(y: Tensor, out: int, wide: int) -> Tensor:
        return F.linear(y, g.parameter((out, wide)), g.parameter((out,)))

    def norm(y: Tensor) -> Tensor:
        return F.layer_norm(y, (n,), g.parameter((n,)), g.parameter((n,)), 1e-12)

    def heads(y: Tensor) -> Tensor:
        return y.reshape((b, s, h, d)).permute((0, 2, 1, 3))

    q, k, v = (heads(dense(x, n, n)) for _ in range(3))
    a = F.scaled_dot_product_attention(q, k, v, mask)
    y = norm(dense(a.permute((0, 2, 1, 3)).reshape((b, s, n)), n, n) + x)
    return [norm(dense(F.gelu(dense(y, f, n)), n, f) + y)]


@net
def int8_linear(g: Graph, large: bool) -> list[Tensor]:
    m, n, k = (1, 2048, 2048) if large else (2, 3, 4)
    x, w, scale = g.tensor((m, k)), g.parameter((n, k), "i8"), g.parameter((n, 1))
    return [F.linear(x, w.cast("f32") * scale)]


@net
def normalised_rows(g: Graph, large: bool) -> list[Tensor]:
    m, n, k = (128, 384, 256) if large else (3, 4, 5)
    x = F.softmax(g.tensor((m, k)), -1)
    return [F.matmul(x, g.tensor((k, n))), F.sum(x * 2.0, 0), F.max(x, 1)[0] if large else x]


@net
def rotated_scores(g: Graph, large: bool) -> list[Tensor]:
    s, h, d, k = (128, 8, 64, 512) if large else (3, 2, 4, 5)
    x, cos, sin = g.tensor((s, k)), g.tensor((s, d // 2)), g.tensor((s, d // 2))

    def rotated() -> Tensor:
        y = F.linear(x, g.parameter((h * d, k))).reshape((s, h, d)).transpose(0, 1)
        a, b = y[:, :, : d // 2], y[:, :, d // 2 :]
        return F.cat([a * cos - b * sin, b * cos + a * sin], -1)

    return [F.matmul(rotated(), rotated().transpose(1, 2))]


@net
def placed_projection(g: Graph, large: bool) -> list[Tensor]:
    room, n, k = (1024, 512, 512) if large else (7, 3, 4)
    s = g.dim("s", 1, 3, hint=1)
    x, state, q = g.tensor((s, k)), g.tensor((room, n)), g.tensor((n,))
    placed = F.linear(x, g.parameter((n, k))).pad([(2, room - 2 - s), (0, 0)])
    here = g.iota(state.shape, Index.of("i0"))
    whole = F.where((here >= 2) & (here < 2 + F.creation.size_tensor(g, s)), placed, state)
    return [whole, F.sum(whole[: 2 + s] * q, 1)]


@net
def packed_linear(g: Graph, large: bool) -> list[Tensor]:
    m, n, k = (1, 2048, 2048) if large else (2, 3, 4)
    x, packed, scale = g.tensor((m, k)), g.parameter((n, k // 2), "u8"), g.parameter((n, 1), "f16")
    low, high = (packed & 15).cast("f32"), (packed >> 4).cast("f32")
    return [F.linear(x, F.cat([low, high], 1) * scale.cast("f32"))]
