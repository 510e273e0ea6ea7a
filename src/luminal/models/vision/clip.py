"""CLIP (Radford et al. 2021, https://arxiv.org/abs/2103.00020): the encoder of texts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ... import nn, ops
from ...graph import Graph, Tensor
from ...weights.fields import Fields
from .layers import Block, sizes

LEGACY_END = 2  # of configs that name a wrong end token: the end has the largest id


@dataclass(frozen=True)
class CLIPTextConfig:
    """Sizes of a text encoder, under the names of its config.json."""

    vocab_size: int = 49408
    hidden_size: int = 512
    intermediate_size: int = 2048
    projection_dim: int = 512
    num_hidden_layers: int = 12
    num_attention_heads: int = 8
    max_position_embeddings: int = 77
    hidden_act: str = "quick_gelu"
    layer_norm_eps: float = 1e-5
    eos_token_id: int = 49407

    @staticmethod
    def read(given: Fields) -> CLIPTextConfig:
        """Raises WeightsError."""
        usual = CLIPTextConfig()
        end = given.count("eos_token_id", usual.eos_token_id, low=0)
        return sizes(usual, given, eos_token_id=end)

    @staticmethod
    def load(file: Path) -> CLIPTextConfig:
        """Of a config.json. Raises WeightsError."""
        given = Fields.load(file)
        given.text("model_type", "clip_text_model", among=("clip_text_model", "clip"))
        return CLIPTextConfig.read(given)


class Embeddings(nn.Module):
    """Tokens and positions, summed."""

    def __init__(self, graph: Graph, config: CLIPTextConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.token_embedding = nn.Embedding(graph, config.vocab_size, width)
        self.position_embedding = nn.Embedding(graph, config.max_position_embeddings, width)

    def forward(self, ids: Tensor) -> Tensor:
        return self.token_embedding(ids) + self.position_embedding.weight[: ids.shape[1]]


class Encoder(nn.Module):
    """Blocks; what each of them is given stands before its result."""

    def __init__(self, graph: Graph, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(blocks)

    def forward(self, x: Tensor, is_causal: bool = False) -> list[Tensor]:
        states = [x]
        for layer in self.layers:
            states.append(layer(states[-1], is_causal=is_causal))
        return states


class CLIPText(nn.Module):
    """ids (batch, tokens) i64 -> (hidden states of all layers, each (batch, tokens, hidden); the
    last one normalised; its row at the end of the text (batch, hidden)). causal: tokens see those
    before them."""

    def __init__(self, graph: Graph, config: CLIPTextConfig, causal: bool = True) -> None:
        super().__init__()
        self.config, self.causal = config, causal
        width, inner = config.hidden_size, config.intermediate_size
        self.embeddings = Embeddings(graph, config)
        self.encoder = Encoder(graph, [
            Block(graph, width, config.num_attention_heads, inner, config.hidden_act,
                  config.layer_norm_eps) for _ in range(config.num_hidden_layers)
        ])  # fmt: skip
        self.final_layer_norm = nn.LayerNorm(graph, width, config.layer_norm_eps)

    def forward(self, ids: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        states = self.encoder(self.embeddings(ids), is_causal=self.causal)
        last = self.final_layer_norm(states[-1])
        return states, last, _row(last, self._end(ids))

    def _end(self, ids: Tensor) -> Tensor:
        """Where each text ends: (batch,) i64."""
        end = self.config.eos_token_id
        marks = ids if end == LEGACY_END else (ids == end).cast("i32")
        return ops.argmax(marks, -1)


class CLIPTextTower(nn.Module):
    """An encoder of texts, with a projection if asked for, as a file of its own holds it."""

    def __init__(self, graph: Graph, config: CLIPTextConfig, projected: bool) -> None:
        super().__init__()
        self.text_model = CLIPText(graph, config)
        self.projected = projected
        if projected:
            shape = config.hidden_size, config.projection_dim
            self.text_projection = nn.Linear(graph, *shape, bias=False)

    def forward(self, ids: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        """As CLIPText, the row at the end being projected."""
        states, last, row = self.text_model(ids)
        return states, last, self.text_projection(row) if self.projected else row


def _row(x: Tensor, place: Tensor) -> Tensor:
    """x (batch, tokens, width) at one token of each: (batch, width)."""
    at = place.unsqueeze(-1).unsqueeze(-1).expand(x.shape[0], 1, x.shape[2])
    return ops.gather(x, 1, at).squeeze(1)
