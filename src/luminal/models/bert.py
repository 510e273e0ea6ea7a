"""BERT encoders (Devlin et al. 2018, arXiv 1810.04805), under Hugging Face's names; RoBERTa, whose
positions begin later."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .. import nn
from ..errors import WeightsError
from ..graph import Graph, Tensor
from ..nn.activation import BY_NAME, activation_of
from ..weights.fields import Fields

KINDS = ("bert", "roberta", "xlm-roberta", "camembert")
SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
         "intermediate_size", "max_position_embeddings", "type_vocab_size")  # fmt: skip


@dataclass(frozen=True)
class BertConfig:
    """Sizes of a BERT encoder, under the names of its config.json. first: the first position."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    first: int = 0

    @staticmethod
    def load(file: Path) -> BertConfig:
        """Read a config.json. Raises WeightsError where it describes no BERT-like encoder."""
        given = Fields.load(file)
        kind = given.text("model_type", among=KINDS)
        given.text("position_embedding_type", "absolute", among=("absolute",))
        usual = BertConfig()
        config = BertConfig(
            **{name: given.count(name, getattr(usual, name)) for name in SIZES},
            first=0 if kind == "bert" else given.count("pad_token_id", 1, low=0) + 1,
            hidden_act=given.text("hidden_act", usual.hidden_act, among=BY_NAME),
            layer_norm_eps=given.number("layer_norm_eps", usual.layer_norm_eps, low=0, high=1),
        )
        if config.hidden_size % config.num_attention_heads:
            heads = config.num_attention_heads
            raise WeightsError(f"{file}: {heads} heads do not share {config.hidden_size} features")
        return config


class Embeddings(nn.Module):
    """Word, position and token type embeddings, summed and normalised."""

    def __init__(self, graph: Graph, config: BertConfig) -> None:
        super().__init__()
        width, self.first = config.hidden_size, config.first
        self.word_embeddings = nn.Embedding(graph, config.vocab_size, width)
        self.position_embeddings = nn.Embedding(graph, config.max_position_embeddings, width)
        self.token_type_embeddings = nn.Embedding(graph, config.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(graph, width, eps=config.layer_norm_eps)

    def forward(self, ids: Tensor, kinds: Tensor | None) -> Tensor:
        positions = self.position_embeddings.weight.narrow(0, self.first, ids.shape[1])
        kind = self.token_type_embeddings.weight[0]  # every token is of the first type
        if kinds is not None:
            kind = self.token_type_embeddings(kinds)
        return self.LayerNorm(self.word_embeddings(ids) + kind + positions)


class ResidualOutput(nn.Module):
    """A projection, the residual, and their layer norm."""

    def __init__(self, graph: Graph, config: BertConfig, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(graph, width, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(graph, config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(x) + residual)


class Attention(nn.Module):
    """Self attention with its output projection."""

    def __init__(self, graph: Graph, config: BertConfig) -> None:
        super().__init__()
        width, heads = config.hidden_size, config.num_attention_heads
        self.self = nn.Attention(graph, width, heads, names=("query", "key", "value"))
        self.output = ResidualOutput(graph, config, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.output(self.self(x, mask=mask), x)


class Intermediate(nn.Module):
    """The widening half of the feed-forward block."""

    def __init__(self, graph: Graph, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(graph, config.hidden_size, config.intermediate_size)
        self.activation = activation_of(config.hidden_act)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.dense(x))


class Layer(nn.Module):
    """Attention, then the feed-forward block."""

    def __init__(self, graph: Graph, config: BertConfig) -> None:
        super().__init__()
        self.attention = Attention(graph, config)
        self.intermediate = Intermediate(graph, config)
        self.output = ResidualOutput(graph, config, config.intermediate_size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention(x, mask)
        return self.output(self.intermediate(x), x)


class Encoder(nn.Module):
    """All layers."""

    def __init__(self, graph: Graph, config: BertConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList(Layer(graph, config) for _ in range(config.num_hidden_layers))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layer:
            x = layer(x, mask)
        return x


class Bert(nn.Module):
    """ids (batch, tokens) i64 and mask (batch, tokens) bool -> (batch, tokens, hidden) f32."""

    def __init__(self, graph: Graph, config: BertConfig) -> None:
        super().__init__()
        self.embeddings = Embeddings(graph, config)
        self.encoder = Encoder(graph, config)

    def forward(self, ids: Tensor, mask: Tensor, kinds: Tensor | None = None) -> Tensor:
        """kinds: (batch, tokens) i64, the type of each token; None: the first."""
        keys = mask.unsqueeze(1).unsqueeze(1)  # (batch, 1, 1, tokens)
        return self.encoder(self.embeddings(ids, kinds), keys)
