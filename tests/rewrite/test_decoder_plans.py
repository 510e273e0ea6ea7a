"""Plans of whole decoders: every contraction is made once, whatever rotates, caches or unpacks."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest

from luminal import Graph, nn
from luminal.graph.passes import program_of, run_passes
from luminal.models.llm.cache import ContiguousCache
from luminal.models.llm.config import DecoderConfig, Rope
from luminal.models.llm.decoder import Decoder
from luminal.models.llm.storage import Storage
from luminal.precision import default_passes
from luminal.rewrite.normalise import normalise
from luminal.rewrite.optimise import optimise
from luminal.rewrite.plan import Plan, describe
from luminal.rewrite.rates import CostModel
from luminal.rewrite.regions import regions

LAYERS, HIDDEN, WIDTH, VOCABULARY = 2, 8192, 2048, 8192
CONTRACTIONS = 7 * LAYERS + 1  # q, k, v, o, gate, up, down; the head
ATTENTION = 3 * LAYERS  # scores, the sum of weights, the weighted values
NORMS = 2 * LAYERS + 1


def plans_of(graph: Graph) -> list[Plan]:
    """A plan for each region, equal regions included."""
    program = run_passes(program_of(graph), default_passes("f32"))
    known: dict[str, Plan] = {}
    found = []
    for region in regions(normalise(program.graph.space, list(program.roots))):
        if region.key not in known:
            known[region.key] = optimise(region, CostModel())
        found.append(known[region.key])
    return found


@cache
def decoder(storage: str, tokens: int, part: int = 1) -> list[Plan]:
    """A Llama of 1B's shape with two layers, its caches in use; `tokens`: how many are usual. part:
    of its width."""
    config = DecoderConfig(
        "llama", VOCABULARY, WIDTH // part, LAYERS, 32 // part, 8 // part, 64, HIDDEN // part, 4096,
        (None,) * LAYERS,
        ("all",) * LAYERS, {"all": Rope()}, tied=True,
    )  # fmt: skip
    graph = Graph()
    length = graph.dim("tokens", 1, 128, hint=tokens)
    position = graph.dim("position", 0, 1023, hint=512)
    ids = graph.tensor((length,), "i64")
    with nn.uninitialised():
        model = Decoder(graph, config, 1024, Storage(storage))
        memory = ContiguousCache(graph, config, 1024, length, position)
        model.logits(model(ids, memory).narrow(0, length - 1, 1)).output()
    return plans_of(graph)


def attention(cached: bool, batch: int = 1) -> list[Plan]:
    """Attention of 8 heads with rotary positions."""
    graph = Graph()
    tokens = graph.dim("tokens", 1, 1024, hint=1 if cached else 128)
    position = graph.dim("position", 0, 1023, hint=512) if cached else 0
    with nn.uninitialised():
        rotary = nn.RotaryEmbedding(graph, 64, 1024)
        layer = nn.Attention(graph, 512, 8, bias=False, rotary=rotary)
    memory = nn.KVCache(graph, batch, 8, 1024, 64) if cached else None
    x = graph.tensor((batch, tokens, 512))
    layer(x, is_causal=True, cache=memory, position=position).output()
    return plans_of(graph)


def pieces(plans: list[Plan]) -> list:
    return [piece for plan in plans for piece in plan.pieces]


def text(plans: list[Plan]) -> str:
    return "\n".join(plan.describe() for plan in plans)


def sums(plans: list[Plan]) -> Counter:
    """Sums of all kernels by what kind they are."""
    return Counter(node.op for piece in pieces(plans) for _, node in piece.body if node.over)


SHAPES = [("f32", 1), ("f32", 128), ("q8", 1), ("q4", 1)]


@pytest.mark.parametrize("storage, tokens", SHAPES)
def test_every_reduction_of_a_decoder_is_made_once(storage, tokens):
    found = sums(decoder(storage, tokens))
    scores = LAYERS
    assert found["sum"] == CONTRACTIONS + scores + NORMS, text(decoder(storage, tokens))
    assert found["osum"] == ATTENTION - scores
    assert found["Max"] == 0


@pytest.mark.parametrize("storage, tokens", SHAPES)
def test_kernels_of_a_decoder(storage, tokens):
    """A layer: two norms, q, k and v with two scatters, rotation of q, attention, output, gate and
    up in one, down; the embedding, the last norm and the head."""
    plans = decoder(storage, tokens)
    count = len(pieces(plans))
    assert 10 * LAYERS + 2 <= count <= 11 * LAYERS + 3, text(plans)
    scatters = [p for p in pieces(plans) if p.scatter is not None]
    assert len(scatters) == 2 * LAYERS


@pytest.mark.parametrize("storage", ["f32", "q8", "q4"])
def test_weights_stay_as_they_are_stored(storage):
    plans = decoder(storage, 1)
    once = [
        describe(plan.classes, p) for plan in plans for p in plan.pieces
        if plan.classes.constant[p.roots[0]]
    ]  # fmt: skip
    assert not once


@pytest.mark.parametrize("storage", ["q8", "q4", "q4m"])
def test_weights_are_widened_where_they_are_multiplied(storage):
    """Also for many rows, where a cache would hold the wide ones: a unit of work widens its panel
    once, for all rows."""
    plans = decoder(storage, 128, part=4)
    assert len(pieces(plans)) <= 11 * LAYERS + 3, text(plans)


def test_gate_and_up_are_one_kernel():
    plans = decoder("f32", 128)
    both = [p for p in pieces(plans) if [n.op for _, n in p.body if n.over] == ["sum", "sum"]]
    assert len(both) == LAYERS, text(plans)


def test_rotated_projections_are_made_once():
    plans = attention(cached=False)
    assert len(pieces(plans)) == 7, text(plans)  # q, its rotation, k, its rotation, v, rest, out
    assert sums(plans) == {"sum": 5, "osum": 2}


@pytest.mark.parametrize("batch", [1, 2])
def test_a_cache_is_scattered_into_and_read_by_attention(batch):
    plans = attention(cached=True, batch=batch)
    assert sum(p.scatter is not None for p in pieces(plans)) == 2, text(plans)
    assert sums(plans) == {"sum": 5, "osum": 2}, text(plans)
    assert len(pieces(plans)) <= 7


@pytest.mark.parametrize("batch", [1, 2])
def test_states_are_updated_in_place(batch):
    graph = Graph()
    tokens = graph.dim("tokens", 1, 8, hint=1)
    position = graph.dim("position", 0, 15, hint=8)
    layer = nn.Attention(graph, 16, 2, bias=False, rotary=nn.RotaryEmbedding(graph, 8, 16))
    caches = [nn.KVCache(graph, batch, 2, 16, 8, name=f"cache{n}") for n in range(2)]
    x = y = graph.tensor((batch, tokens, 16))
    for memory in caches:
        y = layer(y, is_causal=True, cache=memory, position=position)
    y.output()
    compiled, reference = graph.compile(threads=2), graph.compile(device="reference")
    assert len(compiled._report.plan.in_place) == 4
    assert not any(call.copies for call in compiled._report.plan.calls)
    rng, start = np.random.default_rng(0), 0
    for count in (3, 1, 2):
        value = rng.standard_normal((batch, count, 16)).astype(np.float32)
        for program in (compiled, reference):
            program[x] = value
            program.run(tokens=count, position=start)
        np.testing.assert_allclose(compiled[y], reference[y], rtol=1e-4, atol=1e-5)
        start += count
