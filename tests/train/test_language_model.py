"""The language model of our own: its baseline, its file, its numbers."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from luminal import Graph
from luminal import train as training
from luminal.models.llm import LLM
from luminal.models.llm.sequences import next_token_loss

pytest.importorskip("gguf")
EXAMPLE = Path(__file__).parents[2] / "examples" / "language_model"
TEXT = (EXAMPLE.parents[1] / "README.md").read_text(encoding="utf-8")[:6000]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(EXAMPLE)
    return importlib.import_module("language")


def counted(known: bytes, held_out: bytes, order: int) -> float:
    """Bits per byte, one byte after the other."""
    total = 0.0
    for at, byte in enumerate(held_out):
        p = 1 / 128
        for length in range(min(order, at) + 1):
            context = held_out[at - length : at]
            places = range(length, len(known))
            after = Counter(known[i] for i in places if known[i - length : i] == context)
            if after:
                p = (after[byte] + len(after) * p) / (sum(after.values()) + len(after))
        total -= np.log2(p)
    return total / len(held_out)


def test_the_baseline_is_the_sum_over_bytes(example: ModuleType) -> None:
    known, held_out = b"the cat sat on the mat and the rat ran", b"that cat ran on\nthe mat"
    for order in (0, 2, 5):
        found = example.ngram.bits_per_byte(known, held_out, order)
        assert found == pytest.approx(counted(known, held_out, order), rel=1e-12)


def test_a_file_says_what_was_trained(example: ModuleType, tmp_path: Path) -> None:
    size = example.Size(300, 32, 2, 2, 1, 64, 32, 4)
    text = TEXT.encode("ascii", "ignore").decode()
    raw = example.tokenizer_of(tmp_path, [text], size.vocabulary)
    rows = example.rows_of(raw, [text], size.length)
    assert raw.decode(rows[:, :-1].ravel().tolist()[1:]) in text
    graph = Graph()
    ids, targets = (graph.tensor((size.batch, size.length), "i64") for _ in range(2))
    model = example.model_of(graph, size)
    loss = next_token_loss(model, ids, targets)
    options = {"compile_options": {"threads": 1}}
    optimizer = example.optimizer_of(model, 200)
    trainer = training.Trainer(loss, [ids, targets], model.parameters(), optimizer, **options)
    batches = training.Batches(rows[:, :-1], rows[:, 1:], size=size.batch)
    records = trainer.fit(batches, 40)
    assert records[-1].loss < records[0].loss - 0.5
    path = tmp_path / "model.gguf"
    example.export.write(path, "small", model, trainer.__getitem__, raw, example.END)
    llm = LLM(path, threads=1, precision="f32")
    assert llm.ids("the cat") == [raw.token_to_id(example.END), *raw.encode("the cat").ids]
    array = rows[: size.batch]
    trainer.program[ids], trainer.program[targets] = array[:, :-1], array[:, 1:]
    trainer.program.run()
    losses = []
    for row in array:
        logits = llm.logits(row[:-1].tolist()).astype(np.float64)
        wanted = np.take_along_axis(logits, row[1:, None], -1)[:, 0]
        losses.append(np.log(np.exp(logits).sum(-1)) - wanted)
    assert float(trainer.program[loss]) == pytest.approx(np.mean(losses), rel=0.02)  # 8 bits
    assert 0 < example.held_out_bits(llm, [text[:500]]) < 8
