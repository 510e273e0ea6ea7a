"""What encoders are made for besides vectors of sentences: cross-encoders that score a document
for a query, sparse vectors of words (SPLADE), and a vector for every token (ColBERT)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import nn, ops
from ..errors import Unsupported, WeightsError
from ..graph import Graph, Tensor
from ..nn.activation import activation_of
from .encoders import Backbone, backbone_of, encoder_tokenizer
from .tokenizing import MAX_BATCH, batches, refused

Made = Callable[[Tensor, Tensor], Tensor]  # (hidden states, mask) -> the output
Head = Callable[[Graph, Backbone], Made]


class _Reader:
    """A backbone with a head, compiled for all lengths and batch sizes, and its tokenizer.
    options: of `Graph.compile`."""

    def __init__(self, directory: Path, head: Head, max_tokens: int | None, **options: Any) -> None:
        self.backbone, self.directory = backbone_of(directory), directory
        most = self.backbone.max_tokens
        self.max_tokens = min(max_tokens or most, most)
        self.tokenizer = encoder_tokenizer(directory)
        self.tokenizer.enable_truncation(self.max_tokens)
        self.tokenizer.enable_padding()
        graph = Graph()
        graph.dim("batch", 1, MAX_BATCH, hint=1)
        graph.dim("tokens", 1, self.max_tokens, hint=min(128, self.max_tokens))
        self.ids = graph.tensor(("batch", "tokens"), dtype="i64", name="ids")
        self.mask = graph.tensor(("batch", "tokens"), dtype="bool", name="mask")
        self.kinds = None
        if self.backbone.kinds > 1:
            self.kinds = graph.tensor(("batch", "tokens"), dtype="i64", name="kinds")
        hidden = self.backbone.module(graph)(self.ids, self.mask, self.kinds)
        self.output = head(graph, self.backbone)(hidden, self.mask).output("output")
        self.program = graph.compile(**options)

    def rows(self, texts: Sequence[Any], batch_size: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """(output, mask of its tokens) of each text or pair, in their order. Raises InputError."""
        found: list[Any] = [None] * len(texts)
        for numbers in batches(texts, batch_size):
            made, mask = self._run([texts[n] for n in numbers])
            for n, row, real in zip(numbers, made, mask):
                found[n] = (row.copy(), real)
        return found

    def _run(self, texts: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        try:
            rows = self.tokenizer.encode_batch(list(texts))
        except BaseException as error:
            raise refused(error, f"{self.directory}: its tokenizer cannot encode a text") from None
        mask = np.array([row.attention_mask for row in rows], np.bool_)
        self.program[self.ids] = np.array([row.ids for row in rows], np.int64)
        self.program[self.mask] = mask
        if self.kinds is not None:
            self.program[self.kinds] = np.array([row.type_ids for row in rows], np.int64)
        self.program.run()
        return self.program[self.output], mask


class Reranker:
    """A cross-encoder: how well documents answer a query. directory: a model for sequence
    classification with one label, or its GGUF file. Raises WeightsError or Unsupported."""

    def __init__(
        self, directory: str | Path, max_tokens: int | None = None, **options: Any
    ) -> None:
        self._reader = _Reader(Path(directory), _scores, max_tokens, **options)
        _check_labels(Path(directory), self._reader.output)

    @property
    def peak_bytes(self) -> int:
        """That its program takes, with the weights."""
        return self._reader.program.peak_bytes

    def score(
        self, query: str, documents: Sequence[str], batch_size: int = 32
    ) -> np.ndarray:
        """Logits (documents,) f32: the sigmoid of one is how likely the document fits."""
        return self.scored(query, documents, batch_size)[0]

    def scored(
        self, query: str, documents: Sequence[str], batch_size: int = 32
    ) -> tuple[np.ndarray, int]:
        """As `score`, and how many tokens were read."""
        pairs = [(query, document) for document in documents]
        rows = self._reader.rows(pairs, batch_size)
        scores = np.array([row[0] for row, _ in rows], np.float32)
        return scores, sum(int(real.sum()) for _, real in rows)


def check_reranker(directory: Path) -> None:
    """Raises what `Reranker` does where none is there; nothing is compiled."""
    graph, backbone = Graph(), backbone_of(directory)
    hidden = graph.tensor((1, 1, backbone.width), name="hidden")
    mask = graph.tensor((1, 1), "bool", "mask")
    _check_labels(directory, _scores(graph, backbone)(hidden, mask))


def _check_labels(directory: Path, scores: Tensor) -> None:
    if (labels := scores.shape[1]) != 1:
        raise Unsupported(f"{directory}: a classifier of {labels} labels, not of one, a score")


class SparseEncoder:
    """SPLADE (Formal and others 2021, https://arxiv.org/abs/2107.05720): of each word of the
    vocabulary log(1 + max(0, its largest logit over the tokens)). directory: a masked language
    model. Raises WeightsError or Unsupported."""

    def __init__(
        self, directory: str | Path, max_tokens: int | None = None, **options: Any
    ) -> None:
        self._reader = _Reader(Path(directory), _words, max_tokens, **options)

    def encode(self, texts: Sequence[str], batch_size: int = 8) -> np.ndarray:
        """Weights (texts, vocabulary) f32, mostly 0."""
        return np.array([row for row, _ in self._reader.rows(texts, batch_size)], np.float32)

    def words(self, weights: np.ndarray, most: int = 20) -> list[tuple[str, float]]:
        """The heaviest words of one text's weights."""
        best = np.argsort(-weights, kind="stable")[:most]
        name = self._reader.tokenizer.id_to_token
        return [(name(int(n)), float(weights[n])) for n in best if weights[n] > 0]


class MultiVectorEncoder:
    """ColBERT (Khattab and Zaharia 2020, https://arxiv.org/abs/2004.12832): a unit vector for each
    token. directory: an encoder with a matrix "linear.weight", or a Dense module. Raises
    WeightsError or Unsupported."""

    def __init__(
        self, directory: str | Path, max_tokens: int | None = None, **options: Any
    ) -> None:
        self._reader = _Reader(Path(directory), _vectors, max_tokens, **options)

    def encode(self, texts: Sequence[str], batch_size: int = 32) -> list[np.ndarray]:
        """Of each text (tokens, width) f32."""
        return [row[real] for row, real in self._reader.rows(texts, batch_size)]


def max_similarity(query: np.ndarray, document: np.ndarray) -> float:
    """The sum over the query's vectors of the largest product with one of the document's."""
    return float((query @ document.T).max(-1).sum())


# ---- heads, with the weights that a checkpoint has for them


def _linear(graph: Graph, rest: Mapping[str, np.ndarray], name: str) -> nn.Linear:
    weight = rest.get(f"{name}.weight")
    if weight is None or weight.ndim != 2:
        raise WeightsError(f"no matrix {name}.weight, which this kind of model needs")
    bias = rest.get(f"{name}.bias")
    layer = nn.Linear(graph, weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.load_state_dict(_state({"weight": weight, "bias": bias}))
    return layer


def _norm(graph: Graph, rest: Mapping[str, np.ndarray], name: str, eps: float) -> nn.LayerNorm:
    weight, bias = rest.get(f"{name}.weight"), rest.get(f"{name}.bias")
    if weight is None:
        raise WeightsError(f"no {name}.weight, which this kind of model needs")
    layer = nn.LayerNorm(graph, len(weight), eps, True, bias is not None)
    layer.load_state_dict(_state({"weight": weight, "bias": bias}))
    return layer


def _state(given: Mapping[str, np.ndarray | None]) -> dict[str, np.ndarray]:
    return {n: np.asarray(v, np.float32) for n, v in given.items() if v is not None}


def _scores(graph: Graph, backbone: Backbone) -> Made:
    """(batch, labels)."""
    rest, given = backbone.rest, backbone.given
    if "head.dense.weight" in rest:  # ModernBERT
        dense, last = _linear(graph, rest, "head.dense"), _linear(graph, rest, "classifier")
        norm = _norm(graph, rest, "head.norm", given.number("norm_eps", 1e-5))
        act = activation_of(given.text("classifier_activation", "gelu"))
        mean = given.text("classifier_pooling", "cls") == "mean"

        def modern(hidden: Tensor, mask: Tensor) -> Tensor:
            real = mask.cast("f32").unsqueeze(-1)
            pooled = (hidden * real).sum(1) / real.sum(1) if mean else hidden[:, 0]
            return last(norm(act(dense(pooled))))

        return modern
    names = ("classifier.dense", "classifier.out_proj")  # RoBERTa
    if "classifier.dense.weight" not in rest:
        names = ("pooler.dense", "classifier")
    if "pooler.dense.weight" in rest and "classifier.weight" not in rest:  # (Jina) the score alone
        single = _linear(graph, rest, "pooler.dense")
        return lambda hidden, mask: ops.tanh(single(hidden[:, 0]))
    inner, outer = (_linear(graph, rest, name) for name in names)
    return lambda hidden, mask: outer(ops.tanh(inner(hidden[:, 0])))


def _words(graph: Graph, backbone: Backbone) -> Made:
    """(batch, vocabulary)."""
    rest, given = backbone.rest, backbone.given
    forms = (  # dense, norm, decoder, bias
        ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
         "cls.predictions.decoder", "cls.predictions.bias"),
        ("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"),
        ("lm_head.dense", "lm_head.norm", "lm_head.decoder", "lm_head.decoder.bias"),
        ("head.dense", "head.norm", "decoder", "decoder.bias"),
    )  # fmt: skip
    found = [form for form in forms if f"{form[1]}.weight" in rest]
    if not found:
        raise WeightsError("no head of a masked language model, which sparse vectors need")
    first, second, third, fourth = found[0]
    modern = first.startswith("head.")
    eps = given.number("norm_eps" if modern else "layer_norm_eps", 1e-5 if modern else 1e-12)
    dense, norm = _linear(graph, rest, first), _norm(graph, rest, second, eps)
    tied = ("embeddings.word_embeddings.weight", "embed_tokens.weight")
    weight = rest.get(f"{third}.weight")
    if weight is None:
        weight = next(backbone.state[name] for name in tied if name in backbone.state)
    bias = rest.get(fourth, rest.get(f"{third}.bias"))
    both = _state({"words.weight": weight, "words.bias": bias})
    decoder = _linear(graph, both, "words")
    act = activation_of(given.text("hidden_activation" if modern else "hidden_act", "gelu"))

    def made(hidden: Tensor, mask: Tensor) -> Tensor:
        logits = decoder(norm(act(dense(hidden))))  # (batch, tokens, vocabulary)
        real = mask.cast("f32").unsqueeze(-1)
        return ops.log1p(ops.relu(logits) * real).amax(1)

    return made


def _vectors(graph: Graph, backbone: Backbone) -> Made:
    """(batch, tokens, width)."""
    matrix = _linear(graph, backbone.rest, "linear")
    return lambda hidden, mask: ops.normalize(matrix(hidden), dim=-1)
