"""Documents by how well they fit a query: scores of a cross-encoder, or likeness of vectors."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..models.ranking import Reranker
from .lazy import Lazy


class Ranker:
    """A cross-encoder, used by one thread at a time. name: for clients (None: the directory's)."""

    def __init__(
        self, directory: Path, threads: int | None = None, device: str = "auto",
        name: str | None = None,
    ) -> None:  # fmt: skip
        self.name = name or directory.name
        load = partial(Reranker, directory, threads=threads, device=device)
        self.model = Lazy(self.name, load, [directory])

    def rank(
        self, query: str, documents: Sequence[str], most: int | None, shown: Sequence[str] | None
    ) -> dict[str, Any]:
        """As `ranked`; scores are the sigmoids of the model's logits. Raises WeightsError,
        Unsupported."""
        with self.model.lock:
            logits, tokens = self.model.get().scored(query, documents)
        scores = 0.5 + 0.5 * np.tanh(logits / 2)  # the sigmoid, without an overflow
        return ranked(self.name, scores, tokens, most, shown)


def ranked(
    name: str, scores: np.ndarray, tokens: int, most: int | None, shown: Sequence[str] | None
) -> dict[str, Any]:
    """The body for documents with these scores, the best first. shown: their texts, if they are
    told. tokens: that were read."""
    results: list[dict[str, Any]] = []
    for number in np.argsort(-scores, kind="stable")[:most].tolist():
        result = {"index": number, "relevance_score": float(scores[number])}
        text = {} if shown is None else {"document": {"text": shown[number]}}
        results.append({**result, **text})
    return {"id": f"rerank-{uuid.uuid4().hex}", "model": name, "results": results,
            "usage": {"total_tokens": tokens}}  # fmt: skip
