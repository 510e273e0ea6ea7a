"""Sentence embeddings for the server."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import WeightsError
from ..models.sentence import SentenceEncoder, default_directory
from .faults import Fault
from .lazy import Lazy
from .ranking import ranked


class Embedder:
    """One encoder, used by one thread at a time. directory: None is the packaged MiniLM. name: for
    clients (None: the directory's)."""

    def __init__(
        self, directory: Path | None = None, threads: int | None = None, device: str = "auto",
        name: str | None = None,
    ) -> None:  # fmt: skip
        place = directory or _packaged()
        self.there = place is not None and place.exists()  # whether it can be loaded
        self.name = name or ("all-MiniLM-L6-v2" if directory is None else directory.name)
        load = partial(SentenceEncoder, directory, threads=threads, device=device)
        self.model = Lazy(self.name, load, [place] if place else [])

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, int]:
        """(unit vectors (texts, width) f32, tokens). Raises Fault for a text that is too long."""
        with self.model.lock:
            encoder = self.model.get()
            lengths, most = encoder.lengths(texts), encoder.max_tokens
            for number, length in enumerate(lengths):
                if length > most:
                    message = f"text {number} has {length} tokens; this model takes {most}"
                    raise Fault(400, message, "context_length_exceeded", "input")
            return encoder.encode(texts, normalise=True), sum(lengths)

    def rank(
        self, query: str, documents: Sequence[str], most: int | None, shown: Sequence[str] | None
    ) -> dict[str, Any]:
        """As `ranked`, by their likeness to the query. Raises Fault."""
        vectors, tokens = self.encode([query, *documents])
        return ranked(self.name, vectors[1:] @ vectors[0], tokens, most, shown)

    def answer(self, texts: Sequence[str], packed: bool, size: int | None) -> dict[str, Any]:
        """The body for these texts. packed: little-endian f32 in base64. size: of the vectors, if
        they are to be cut; they keep the length 1. Raises Fault."""
        vectors, tokens = self.encode(texts)
        if size is not None:
            if size > vectors.shape[1]:
                raise Fault(400, f"dimensions: this model has {vectors.shape[1]}", "invalid_value",
                            "dimensions")  # fmt: skip
            vectors = vectors[:, :size] / np.linalg.norm(vectors[:, :size], axis=1, keepdims=True)
        rows = [base64.b64encode(row.astype("<f4").tobytes()).decode() if packed else row.tolist()
                for row in vectors]  # fmt: skip
        data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(rows)]
        return {"object": "list", "data": data, "model": self.name,
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}  # fmt: skip


def _packaged() -> Path | None:
    """Where MiniLM lies, if it is installed."""
    try:
        return default_directory()
    except WeightsError:
        return None
