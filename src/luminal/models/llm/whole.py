"""Encoders out of the layers of language models: every place sees all others of its sequence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import ops
from ...graph import Tensor
from ...graph.index import Index
from ...ops.base import Size
from .config import DecoderConfig


class Whole:
    """Stands where a decoder has its cache: places of `batch` sequences side by side, `length`
    of each, that see all places of their own sequence; causal: none that comes later.

    seen: (batch, length) bool, the places that are no padding.
    """

    def __init__(
        self, config: DecoderConfig, batch: Size, length: Size, seen: Tensor | None = None,
        causal: bool = False,
    ) -> None:  # fmt: skip
        self.config, self.batch, self.length, self.causal = config, batch, length, causal
        self.seen = None if seen is None else seen.unsqueeze(1).unsqueeze(1)
        self.states: list[Tensor] = []

    def rows(self, table: Tensor) -> Tensor:
        part = table.narrow(0, 0, self.length).unsqueeze(0)
        return part.expand((self.batch, *part.shape[1:])).flatten(0, 1)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        def apart(x: Tensor) -> Tensor:
            return x.unflatten(1, (self.batch, self.length)).transpose(0, 1)

        grouped = self.config.heads != self.config.kv_heads
        found = ops.scaled_dot_product_attention(
            apart(query), apart(key), apart(value), attn_mask=self._mask(layer, query),
            scale=self.config.attention_scale, enable_gqa=grouped,
        )  # (batch, heads, length, head_dim)
        return found.transpose(0, 1).flatten(1, 2)

    def _mask(self, layer: int, x: Tensor) -> Tensor | None:
        """What a place sees: with a window, those at most as far away, before it and after, or as
        many as a decoder's."""
        window, steepest = self.config.windows[layer], self.config.alibi
        if window is None and steepest is None and not self.causal:
            return self.seen
        shape = (1, 1, self.length, self.length)
        ahead = x.graph.iota(shape, Index.of("i3") - Index.of("i2"))
        if steepest is not None:
            steep = x.graph.constant(slopes(self.config.heads, steepest).reshape(1, -1, 1, 1))
            bias = steep * -ops.abs(ahead.cast("f32"))
            return bias if self.seen is None else ops.where(self.seen, bias, float("-inf"))
        near = ahead < 1 if self.causal else ahead <= (window or 0)
        if window is not None:
            near &= ahead > -window if self.causal else ahead >= -window
        return near if self.seen is None else near & self.seen


def slopes(heads: int, most: float) -> np.ndarray:
    """(heads,) f32: how much a head's scores lose with each place of distance (ALiBi: Press and
    others 2021, https://arxiv.org/abs/2108.12409). Powers of 2 ** (-most / heads); heads beyond a
    power of two have those that lie between."""
    power = 1 << (heads.bit_length() - 1)
    first = -most / power * np.arange(1, power + 1)
    between = -most / power / 2 * np.arange(1, 2 * (heads - power), 2)
    return np.exp2(np.concatenate([first, between])).astype(np.float32)


def plain_config(**given: Any) -> DecoderConfig:
    """A config without grouped heads, whose fields follow from these."""
    layers = given["layers"]
    usual: dict[str, Any] = {
        "vocabulary": 1, "kv_heads": given["heads"], "windows": (None,) * layers, "ropes": {},
        "head_dim": given["width"] // given["heads"], "rotary": (None,) * layers, "norm": "layer",
    }  # fmt: skip
    return DecoderConfig(**(usual | given))


def buckets_before(context: int, count: int, most: int) -> np.ndarray:
    """The number of T5's bucket of each distance 0 .. context - 1 of a key before a token: half of
    them exact, the others growing with the logarithm up to `most`."""
    far, exact = np.arange(context), count // 2
    with np.errstate(divide="ignore"):
        grown = exact + np.log(far / exact) / math.log(most / exact) * (count - exact)
    grown = np.minimum(np.where(far < exact, 0, grown).astype(np.int64), count - 1)
    return np.where(far < exact, far, grown)
