"""docs/models.md: every family of language models against transformers, on tiny random weights.

    python scripts/language_models.py [FAMILY ...]

With names, only the rows of these are written anew. Needs the packages of the tests. Logits of 37
tokens; 64 greedy tokens with the cache, prompts being cut into chunks; the same three replies of
different lengths made together in one batch.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import other_models
import speech_models
from tests.llm.checkpoints import FAMILIES, VOCABULARY, checkpoint, greedy, reference_logits

from luminal import LLM
from luminal.models.llm import Engine, Wishes

TABLE = Path(__file__).resolve().parent.parent / "docs" / "models.md"
TOKENS, LENGTHS = 64, (1, 23, 40)
SECTION = "\n## Models of pictures"  # of `seeing_models.py`
HEAD = """# Families of language models

Written by `scripts/language_models.py`; do not edit. Each row is a tiny model with random weights,
written by transformers {version} and read by luminal: the largest difference of logits over their
largest size; whether {tokens} greedy tokens after {longest} are the same with the cache; and
whether they are in a batch with replies to prompts of other lengths. Models of speech: tokens of a
sound, in a batch with another one. RWKV 6 and 7 are compared with their formulas in NumPy.
Encoders of texts make no tokens: vectors, weights of words or scores, alone and in a padded batch.
"gguf-": from GGUF files, under their architectures; jina-bert-v2, neo-bert and nomic-bert-moe are
compared with their published formulas, as transformers has none of them.

| family | `model_type` | logits off by | greedy | in a batch |
|---|---|---|---|---|"""


def row(name: str) -> str:
    if name in (*speech_models.NAMES, *other_models.NAMES):
        kinds = speech_models if name in speech_models.NAMES else other_models
        kind, off, alone, batch = kinds.row(name, TOKENS)
        cells = [name, f"`{kind}`", f"{off:.0e}", _same(alone), _same(batch)]
        return f"| {' | '.join(cells)} |"
    directory, model = checkpoint(name)
    prompts = [np.random.default_rng(n).integers(3, VOCABULARY, n).tolist() for n in LENGTHS]
    expected = [greedy(model, ids, TOKENS) for ids in prompts]
    llm = LLM(directory, context=128, threads=1)
    llm.program.chunk = 16
    llm.config = replace(llm.config, end_tokens=())
    wanted = reference_logits(model, prompts[-1][:37])
    off = np.abs(llm.logits(prompts[-1][:37]) - wanted).max() / np.abs(wanted).max()
    alone = llm.complete(prompts[-1], TOKENS).tokens == expected[-1]
    engine = Engine.load(directory, context=128, batch=3, chunk=32, threads=1)
    try:
        replies = engine.complete(prompts, Wishes(TOKENS))
    finally:
        engine.close(10)
    found = [[piece.token for piece in pieces if piece.token is not None] for pieces in replies]
    cells = [name, f"`{llm.config.family}`", f"{off:.0e}", _same(alone), _same(found == expected)]
    return f"| {' | '.join(cells)} |"


def _same(equal: Any) -> str:
    if equal is None or isinstance(equal, str):
        return equal or "alone only"
    return "equal" if equal else "**differs**"


def main(names: list[str]) -> None:
    import transformers

    logging.disable(logging.WARNING)
    head = HEAD.format(version=transformers.__version__, tokens=TOKENS, longest=LENGTHS[-1])
    rows = {line.split("|")[1].strip(): line for line in table_rows()} if names else {}
    for name in sorted(names or [*FAMILIES, *speech_models.NAMES, *other_models.NAMES]):
        rows[name] = row(name)
        print(rows[name], flush=True)
        pictures = TABLE.read_text().partition(SECTION)
        lines = [head, *(rows[name] for name in sorted(rows)), ""]
        TABLE.write_text("\n".join(lines) + pictures[1] + pictures[2])


def table_rows() -> list[str]:
    """Those that are there."""
    lines = TABLE.read_text().partition(SECTION)[0].splitlines()
    return [line for line in lines if line.startswith("| ") and not line.startswith("| family")]


if __name__ == "__main__":
    main(sys.argv[1:])
