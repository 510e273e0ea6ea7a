"""A language model of our own: Llama's architecture, 3 million parameters, byte-level BPE.

    python examples/language_model/language.py FOLDER [--steps 4000] [--threads 1]

Downloads the texts (Debian packages) into FOLDER/texts, trains there, goes on where it was stopped,
and writes FOLDER/model.gguf (Q8_0). Ends in held-out bits per byte beside those of an n-gram model.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import corpus
import export
import ngram
import numpy as np
import tokenizers

import luminal
from luminal import ops, train
from luminal.models.llm import LLM, Decoder, DecoderConfig, Rope, Storage
from luminal.models.llm.sequences import next_token_loss

NAME, END = "luminal-tiny", "<|endoftext|>"
WARM_UP = 50


@dataclass(frozen=True)
class Size:
    """Of the model, and of a batch of sequences."""

    vocabulary: int = 2048
    width: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 640
    length: int = 256
    batch: int = 16


def config_of(size: Size) -> DecoderConfig:
    return DecoderConfig(
        "llama", size.vocabulary, size.width, size.layers, size.heads, size.kv_heads,
        size.width // size.heads, size.hidden, size.length, (None,) * size.layers,
        ("all",) * size.layers, {"all": Rope()}, tied=True,
    )  # fmt: skip


def tokenizer_of(folder: Path, texts: Sequence[str], vocabulary: int) -> tokenizers.Tokenizer:
    """Made of the texts once."""
    path = folder / "tokenizer.json"
    if not path.exists():
        raw = tokenizers.Tokenizer(tokenizers.models.BPE())
        raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        raw.decoder = tokenizers.decoders.ByteLevel()
        letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=vocabulary, special_tokens=[END], initial_alphabet=letters
        )
        raw.train_from_iterator(texts, trainer)
        raw.save(str(path))
    return tokenizers.Tokenizer.from_file(str(path))


def rows_of(raw: tokenizers.Tokenizer, texts: Sequence[str], length: int) -> np.ndarray:
    """The texts, END before each, cut into rows of length + 1 tokens; a row begins with the last
    token of the one before it."""
    ids = [i for e in raw.encode_batch(list(texts)) for i in (raw.token_to_id(END), *e.ids)]
    count = (len(ids) - 1) // length
    at = np.arange(count)[:, None] * length + np.arange(length + 1)
    return np.array(ids, np.int64)[at]


def model_of(graph: luminal.Graph, size: Size) -> Decoder:
    """Its parameters drawn from normal distributions as GPT-2's."""
    model = Decoder(graph, config_of(size), size.length, Storage("f32"))
    random = np.random.default_rng(0)
    for name, p in model.named_parameters():
        if p.ndim == 2:
            narrow = name.endswith(("o_proj.weight", "down_proj.weight"))
            spread = 0.02 / math.sqrt(2 * size.layers) if narrow else 0.02
            p.set(random.normal(0, spread, p.shape).astype(np.float32))
        else:
            p.set(np.ones(p.shape, np.float32))
    return model


def optimizer_of(model: Decoder, steps: int) -> Callable[[luminal.Tensor], train.Optimizer]:
    """Muon for the layers' matrices, AdamW for the rest."""
    table = model.model.embed_tokens.weight
    muon = train.Muon(_fading(0.02, steps), weight_decay=0.01)
    adam = train.AdamW(_fading(3e-3, steps), weight_decay=0.01)
    return lambda p: muon if p.ndim == 2 and p is not table else adam


def _fading(rate: float, steps: int) -> train.Schedule:
    """Constant, but for its beginning and its second half, which falls to 0."""
    falling = train.linear(2 * rate, 0.0, steps)
    return train.warm_up(lambda step: ops.minimum(falling(step), rate), WARM_UP)


def report(path: Path, known: Sequence[str], held_out: Sequence[str]) -> None:
    """Held-out bits per byte of the file as it is loaded, and of counting."""
    counted = ngram.bits_per_byte(*("\n".join(texts).encode() for texts in (known, held_out)))
    found = held_out_bits(LLM(path, threads=1), held_out)
    print(f"bits per byte: {found:.3f}, of {ngram.ORDER} bytes' counts {counted:.3f}")
    assert found < counted - 0.1, (found, counted)


def held_out_bits(llm: LLM, texts: Sequence[str]) -> float:
    """Per byte, of windows as long as the context, each begun anew; a half of each but the first is
    only read, so that every token has at least half a context before it."""
    total, half = 0.0, llm.context // 2
    for text in texts:
        ids = llm.ids(text)
        for start in range(0, max(len(ids) - half, 1), half):
            part = ids[start : start + 2 * half]
            known = half if start else 1  # tokens that are given
            logits = llm.logits(part)[known - 1 : -1].astype(np.float64)
            wanted = np.take_along_axis(logits, np.array(part[known:])[:, None], -1)[:, 0]
            largest = logits.max(-1)
            total += (np.log(np.exp(logits - largest[:, None]).sum(-1)) + largest - wanted).sum()
    return float(total / math.log(2) / sum(len(text) for text in texts))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", default="f32")
    given = parser.parse_args(arguments)
    size, folder = Size(), given.folder
    known, held_out = corpus.split(folder / "texts")
    raw = tokenizer_of(folder, known, size.vocabulary)
    rows, checked = (rows_of(raw, texts, size.length) for texts in (known, held_out))
    print(f"{rows.size} tokens to learn from, {checked.size} held out", flush=True)
    graph = luminal.Graph()
    ids, targets = (graph.tensor((size.batch, size.length), "i64") for _ in range(2))
    model = model_of(graph, size)
    print(f"{sum(math.prod(p.shape) for p in model.parameters())} parameters", flush=True)
    loss = next_token_loss(model, ids, targets)
    trainer = train.Trainer(
        loss, [ids, targets], model.parameters(), optimizer_of(model, given.steps),
        validation_loss=loss, folder=folder / "run", save_every=100, log_every=10,
        compile_options={"threads": given.threads, "precision": given.precision},
    )  # fmt: skip
    batches, tests = (
        train.Batches(r[:, :-1], r[:, 1:], size=size.batch, shuffle=r is rows)
        for r in (rows, checked)
    )
    trainer.fit(batches, given.steps, tests, validate_every=500)
    path = folder / f"{NAME}.gguf"
    export.write(path, NAME, model, trainer.__getitem__, raw, END)
    report(path, known, held_out)


if __name__ == "__main__":
    main()
