"""Layers that PyTorch or a library keeps whole: the encoder's fast path, grouped products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .... import ops
from ....graph.dtype import boolean
from ....graph.tensor import Tensor
from ....nn.experts import mixture
from ....ops.attention import attention_scores
from ....ops.base import extent, static
from ....ops.recurrent import Cell, recurrent
from .base import rule, widened

# ---- nn.TransformerEncoderLayer and nn.MultiheadAttention, where nothing is trained

ROWS, SEQUENCES = 0, 1  # what a mask is of: (queries, keys), (batch, keys); else all of it


def _blocked(mask: Tensor, kind: int | None) -> Tensor:
    """True where nothing is seen; broadcasts against (batch, heads, queries, keys)."""
    mask = mask if mask.dtype is boolean else ops.ne(mask, 0)
    return mask.unsqueeze(1).unsqueeze(1) if kind == SEQUENCES else mask


@rule("_native_multi_head_attention.default")
def multi_head_attention(
    query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_head: int,
    qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor,
    mask: Tensor | None = None, need_weights: bool = True, average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:  # fmt: skip
    """(result, weights of attention or None). x: (batch, sequence, width); projections joined."""
    heads = []
    for place, x in enumerate((query, key, value)):
        weight, bias = (w.narrow(0, place * embed_dim, embed_dim) for w in (qkv_weight, qkv_bias))
        heads.append(ops.linear(x, weight, bias).unflatten(-1, (num_head, -1)).transpose(1, 2))
    q, k, v = heads  # (batch, heads, sequence, width)
    scores = attention_scores(q, k)
    if mask is not None:
        scores = ops.where(_blocked(mask, mask_type), float("-inf"), scores)
    weights = ops.softmax(scores, -1)
    mixed = ops.matmul(weights, v).transpose(1, 2).flatten(2, 3)
    shown = ops.mean(weights, 1) if average_attn_weights else weights
    return ops.linear(mixed, proj_weight, proj_bias), shown if need_weights else None


@rule("_transformer_encoder_layer_fwd.default")
def encoder_layer(
    src: Tensor, embed_dim: int, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor,
    proj_weight: Tensor, proj_bias: Tensor, use_gelu: bool, norm_first: bool, eps: float,
    norm_weight_1: Tensor, norm_bias_1: Tensor, norm_weight_2: Tensor, norm_bias_2: Tensor,
    ffn_weight_1: Tensor, ffn_bias_1: Tensor, ffn_weight_2: Tensor, ffn_bias_2: Tensor,
    mask: Tensor | None = None, mask_type: int | None = None,
) -> Tensor:  # fmt: skip
    """Attention and two linear layers, each added to what it reads, normed before or after."""

    def first(x: Tensor) -> Tensor:
        return ops.layer_norm(x, embed_dim, norm_weight_1, norm_bias_1, eps)

    def second(x: Tensor) -> Tensor:
        return ops.layer_norm(x, embed_dim, norm_weight_2, norm_bias_2, eps)

    def attend(x: Tensor) -> Tensor:
        result, _ = multi_head_attention(
            x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
            need_weights=False, mask_type=mask_type,
        )  # fmt: skip
        return result

    def feed(x: Tensor) -> Tensor:
        activation = ops.gelu if use_gelu else ops.relu
        return ops.linear(
            activation(ops.linear(x, ffn_weight_1, ffn_bias_1)), ffn_weight_2, ffn_bias_2
        )

    if norm_first:
        x = ops.add(src, attend(first(src)))
        return ops.add(x, feed(second(x)))
    x = first(ops.add(src, attend(src)))
    return second(ops.add(x, feed(x)))


# ---- recurrent layers, of any number of steps


def _recurrent(
    kind: str, x: Tensor, states: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool,
    num_layers: int, bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    count = len(params) // (num_layers * (2 if bidirectional else 1))
    cells = [_cell(params[n : n + count], has_biases) for n in range(0, len(params), count)]
    each = 2 if bidirectional else 1
    layers = [cells[n : n + each] for n in range(0, len(cells), each)]
    wide = [widened(state) for state in states]
    steps = widened(x.transpose(0, 1) if batch_first else x)
    y, after = recurrent(kind, steps, layers, tuple(wide))
    return y.transpose(0, 1) if batch_first else y, *after


def _cell(params: Sequence[Tensor], has_biases: bool) -> Cell:
    w_ih, w_hh, *rest = map(widened, params)
    b_ih, b_hh = rest[:2] if has_biases else (None, None)
    return Cell(w_ih, w_hh, b_ih, b_hh, *rest[2 if has_biases else 0 :])


@rule("luminal.lstm.default")
def lstm(
    x: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    return _recurrent("lstm", x, hx, params, has_biases, num_layers, bidirectional, batch_first)


def _one_state(kind: str) -> Any:
    def layer(
        x: Tensor, hx: Tensor, params: Sequence[Tensor], has_biases: bool, num_layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        return _recurrent(kind, x, [hx], params, has_biases, num_layers, bidirectional, batch_first)

    return layer


for _name, _kind in {"gru": "gru", "rnn_tanh": "tanh", "rnn_relu": "relu"}.items():
    rule(f"luminal.{_name}.default")(_one_state(_kind))


# ---- rows in groups, each group through a matrix of its own (mixtures of experts)


def _group(rows: Tensor, ends: Tensor) -> Tensor:
    """The number of each row's group, of those that end before the rows in `ends`."""
    places = ops.arange(rows.graph, extent(rows, 0))
    return ops.searchsorted(ends.cast(places.dtype), places, right=True)


@rule("transformers.grouped_mm_fallback.default", "_grouped_mm.default")
def grouped_mm(
    rows: Tensor, matrices: Tensor, offs: Tensor, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """rows (count, in) through matrices (groups, in, out); rows after the last group give 0."""
    group, last = _group(rows, offs), static(extent(matrices, 0), "groups") - 1

    def product(x: Tensor, asked: Tensor) -> Tensor:
        picked = widened(ops.embedding(asked, matrices))  # (blocks, 1, in, out)
        return ops.sum(ops.mul(picked, x.unsqueeze(-1)), -2)

    asked = ops.minimum(group, last).unsqueeze(1)
    made = mixture(product, widened(rows), asked, None, last + 1)
    result = ops.where(ops.le(group, last).unsqueeze(-1), made, 0.0)
    return result if bias is None else ops.add(result, bias)


@rule("transformers.grouped_mm_fallback_backward.default")
def grouped_mm_backward(rows: Tensor, matrices: Tensor, offs: Tensor, grad: Tensor) -> Any:
    """Of the rows, and of the matrices: sum over a group's rows of rows^T grad."""
    members = ops.eq(_group(rows, offs).unsqueeze(-1), ops.arange(rows.graph, extent(matrices, 0)))
    wide = widened(rows)
    own = ops.mul(members.cast(wide.dtype).unsqueeze(-1), wide.unsqueeze(1))
    of_matrices = ops.einsum("rgi,ro->gio", own, widened(grad))
    return grouped_mm(grad, matrices.transpose(1, 2), offs), of_matrices
