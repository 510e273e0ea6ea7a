"""Whole sequences, as a decoder is trained on them, give the losses that it has with a cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from luminal import Graph, train
from luminal.models.llm import Decoder, DecoderConfig, DecoderProgram, Rope, Storage
from luminal.models.llm.mixers import Mamba2
from luminal.models.llm.sequences import next_token_loss

PLAIN = DecoderConfig(
    "llama", 40, 32, 2, 4, 2, 8, 48, 16, (None, None), ("all", "all"), {"all": Rope()}, tied=True
)
CASES = {
    "grouped": PLAIN,
    "capped": replace(PLAIN, windows=(4, None), attention_cap=2.0, kv_heads=4),
    "sinks": replace(PLAIN, sinks=True, windows=(None, 3)),
    "learned": replace(PLAIN, rotary=(None, None), learned_positions=True, tied=False),
    "mixed": replace(PLAIN, mixers=(None, Mamba2(4, 8, 2, 8, 3))),
}


def drawn(graph: Graph, config: DecoderConfig) -> tuple[Decoder, dict[str, np.ndarray]]:
    model, random = Decoder(graph, config, config.context, Storage("f32")), np.random.default_rng(0)
    state = {
        name: random.normal(0, 0.3, p.shape).astype(np.float32)
        for name, p in model.named_parameters()
    }
    for name, p in model.named_parameters():
        p.set(state[name])
    return model, state


@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_with_a_cache(name: str) -> None:
    config, graph = CASES[name], Graph()
    model, state = drawn(graph, config)
    ids, targets = (graph.tensor((3, 12), "i64") for _ in range(2))
    loss = next_token_loss(model, ids, targets).output()
    first = train.backward(loss, [model.model.layers[0].self_attn.q_proj.weight])[0].output()
    rt = graph.compile(threads=1)
    rows = np.random.default_rng(1).integers(0, 40, (3, 13))
    rt[ids], rt[targets] = rows[:, :-1], rows[:, 1:]
    rt.run()
    program = DecoderProgram(config, state, 16, threads=1, precision="f32")
    losses = []
    for row in rows:
        program.keep(0)
        logits = program.feed(row[:-1].tolist(), 12).astype(np.float64)
        wanted = np.take_along_axis(logits, row[1:, None], -1)[:, 0]
        losses.append(np.log(np.exp(logits).sum(-1)) - wanted)
    np.testing.assert_allclose(rt[loss], np.mean(losses), rtol=1e-5)
    assert np.isfinite(rt[first]).all() and np.abs(rt[first]).max() > 0
