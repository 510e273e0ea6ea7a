"""Transformers as `torch.nn` has them: layers, stacks of layers, encoder and decoder together.

Bool masks are True where nothing is seen; others are added to the scores. src: (tokens, batch,
features), or (batch, tokens, features) with batch_first.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from .. import ops
from ..graph.graph import Graph
from ..graph.tensor import Tensor
from . import init
from .activation import activation_of
from .containers import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .multihead import MultiheadAttention
from .norm import LayerNorm

Activation = str | Callable[[Tensor], Tensor]
Mask = Tensor | None


class _Layer(Module):
    """What both kinds of layers share: a feed-forward part, norms around residual parts."""

    parts: int  # residual parts, the last being the feed-forward one
    self_attn: MultiheadAttention
    multihead_attn: MultiheadAttention

    def __init__(
        self, graph: Graph, d_model: int, nhead: int, dim_feedforward: int = 2048,
        dropout: float = 0.1, activation: Activation = "relu", layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        names = ["self_attn", "multihead_attn"][: self.parts - 1]
        for name in names:
            attention = MultiheadAttention(
                graph, d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype
            )
            setattr(self, name, attention)
        self.linear1 = Linear(graph, d_model, dim_feedforward, bias, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(graph, dim_feedforward, d_model, bias, dtype)
        for part in range(1, self.parts + 1):
            norm = LayerNorm(graph, d_model, layer_norm_eps, bias=bias, dtype=dtype)
            setattr(self, f"norm{part}", norm)
            setattr(self, f"dropout{part}", Dropout(dropout))
        self.activation, self.norm_first = activation_of(activation), norm_first

    def _chain(self, x: Tensor, *parts: Callable[[Tensor], Tensor]) -> Tensor:
        """Residual parts, each with its norm before or after, then the feed-forward one."""
        for number, part in enumerate((*parts, self._feed_forward), 1):
            norm = getattr(self, f"norm{number}")
            drop = getattr(self, f"dropout{number}")
            x = x + drop(part(norm(x))) if self.norm_first else norm(x + drop(part(x)))
        return x

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Self attention and a feed-forward part.

    >>> layer = nn.TransformerEncoderLayer(cx, 16, 4, 32, batch_first=True)
    >>> layer(cx.tensor((2, "s", 16))).shape
    (2, s, 16)
    """

    parts = 2

    def forward(
        self, src: Tensor, src_mask: Mask = None, src_key_padding_mask: Mask = None,
        is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """src_mask: (tokens, tokens) or (batch heads, tokens, tokens); src_key_padding_mask:
        (batch, tokens)."""
        own = src_key_padding_mask, False, src_mask, True, is_causal
        return self._chain(src, lambda x: self.self_attn(x, x, x, *own)[0])


class TransformerDecoderLayer(_Layer):
    """Self attention, attention to an encoder's output, a feed-forward part.

    >>> layer = nn.TransformerDecoderLayer(cx, 16, 4, 32, batch_first=True)
    >>> layer(cx.tensor((2, "t", 16)), cx.tensor((2, "s", 16))).shape
    (2, t, 16)
    """

    parts = 3

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Mask = None, memory_mask: Mask = None,
        tgt_key_padding_mask: Mask = None, memory_key_padding_mask: Mask = None,
        tgt_is_causal: bool = False, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """memory: what the encoder gave. Masks as those of an encoder layer."""
        own = tgt_key_padding_mask, False, tgt_mask, True, tgt_is_causal
        other = memory_key_padding_mask, False, memory_mask, True, memory_is_causal
        return self._chain(
            tgt,
            lambda x: self.self_attn(x, x, x, *own)[0],
            lambda x: self.multihead_attn(x, memory, memory, *other)[0],
        )


class _Stack(Module):
    """num_layers copies of a layer, one after the other, and a last norm if there is one."""

    def _fill(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        self.layers = ModuleList(deepcopy(layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def _through(self, x: Tensor, *inputs: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, *inputs)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """Copies of an encoder layer.

    >>> layer = nn.TransformerEncoderLayer(cx, 16, 4, 32, batch_first=True)
    >>> nn.TransformerEncoder(layer, 2)(cx.tensor((2, "s", 16))).shape
    (2, s, 16)
    """

    def __init__(
        self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__()
        self._fill(encoder_layer, num_layers, norm)

    def forward(
        self, src: Tensor, mask: Mask = None, src_key_padding_mask: Mask = None,
        is_causal: bool | None = None,
    ) -> Tensor:  # fmt: skip
        """As of one layer."""
        return self._through(src, mask, src_key_padding_mask, bool(is_causal))


class TransformerDecoder(_Stack):
    """Copies of a decoder layer.

    >>> layer = nn.TransformerDecoderLayer(cx, 16, 4, 32, batch_first=True)
    >>> x, memory = cx.tensor((2, "t", 16)), cx.tensor((2, "s", 16))
    >>> nn.TransformerDecoder(layer, 2)(x, memory).shape
    (2, t, 16)
    """

    def __init__(
        self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__()
        self._fill(decoder_layer, num_layers, norm)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Mask = None, memory_mask: Mask = None,
        tgt_key_padding_mask: Mask = None, memory_key_padding_mask: Mask = None,
        tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """As of one layer."""
        padding = tgt_key_padding_mask, memory_key_padding_mask
        causal = bool(tgt_is_causal), memory_is_causal
        return self._through(tgt, memory, tgt_mask, memory_mask, *padding, *causal)


class Transformer(Module):
    """An encoder, and a decoder that attends to what it gives.

    >>> model = nn.Transformer(cx, 16, 4, 1, 1, 32, batch_first=True)
    >>> model(cx.tensor((2, "s", 16)), cx.tensor((2, "t", 16))).shape
    (2, t, 16)
    """

    def __init__(
        self, graph: Graph, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6,
        num_decoder_layers: int = 6, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = "relu", custom_encoder: Module | None = None,
        custom_decoder: Module | None = None, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        options = (
            graph, d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
            batch_first, norm_first, bias, dtype,
        )  # fmt: skip

        def norm() -> Module:
            return LayerNorm(graph, d_model, layer_norm_eps, bias=bias, dtype=dtype)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*options), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*options), num_decoder_layers, norm()
        )
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.redraw(parameter)

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Mask = None, tgt_mask: Mask = None,
        memory_mask: Mask = None, src_key_padding_mask: Mask = None,
        tgt_key_padding_mask: Mask = None, memory_key_padding_mask: Mask = None,
        src_is_causal: bool | None = None, tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """src: what the encoder reads; tgt: what the decoder does."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        padding = tgt_key_padding_mask, memory_key_padding_mask
        causal = tgt_is_causal, memory_is_causal
        return self.decoder(tgt, memory, tgt_mask, memory_mask, *padding, *causal)

    @staticmethod
    def generate_square_subsequent_mask(graph: Graph, sz: int, dtype: Any = "f32") -> Tensor:
        """(sz, sz): minus infinity above the diagonal, else 0."""
        return ops.triu(ops.full(graph, (sz, sz), float("-inf"), dtype), 1)
