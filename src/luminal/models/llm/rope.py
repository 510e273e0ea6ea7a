"""Tables of rotary positions: cosines and sines with a checkpoint's way to stretch them."""

from __future__ import annotations

import math

import numpy as np

from ...errors import Unsupported, WeightsError
from .config import DecoderConfig, Rope


def tables(rope: Rope, config: DecoderConfig, context: int) -> tuple[np.ndarray, np.ndarray]:
    """(cos, sin), each (context, turning features / 2) f32, scaled as the checkpoint asks; where
    there is a `switch`, so many rows by the short factors, then those of the context by the long
    ones."""
    most = switch(rope, config, context)
    whole = _table(rope, config, context, most is not None)
    if most is None:
        return whole
    cos, sin = (np.concatenate(both) for both in zip(_table(rope, config, most), whole))
    return cos, sin


def switch(rope: Rope, config: DecoderConfig, context: int) -> int | None:
    """LongRoPE: of how many tokens sequences have at most that turn by the short factors; None
    where a context has no longer ones."""
    most = int(_original(rope, config))
    return most if rope.kind == "longrope" and context > most else None


def switch_of(config: DecoderConfig, context: int) -> int | None:
    """That of the first kind of rotary positions that has one."""
    found = (switch(rope, config, context) for rope in config.ropes.values())
    return next((most for most in found if most is not None), None)


def rows_at(positions: np.ndarray, prompts: np.ndarray | int, most: int) -> np.ndarray:
    """Rows of `tables` with a switch. prompts: how many tokens those of each token's sequence have.
    A token turns by the long factors if there are more than `most` of them, or it stands behind so
    many. Keys that are cached stay as they are, as in transformers where a cache is kept; its
    `generate` computes those of Phi 3 anew, with the long factors, once a reply gets so long."""
    return positions + most * (np.maximum(positions + 1, prompts) > most)


def _table(
    rope: Rope, config: DecoderConfig, context: int, long: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    width = int(config.head_dim * rope.share) if rope.width is None else rope.width
    frequencies, factor = scaled(rope, width, config, long)
    angles = np.arange(context, dtype=np.float32)[:, None] * frequencies[None].astype(np.float32)
    cos, sin = np.cos(angles, dtype=np.float64), np.sin(angles, dtype=np.float64)
    return (cos * factor).astype(np.float32), (sin * factor).astype(np.float32)


def scaled(rope: Rope, width: int, config: DecoderConfig, long: bool) -> tuple[np.ndarray, float]:
    """(frequencies, factor of the tables). Formulas of Hugging Face's modeling_rope_utils. long:
    which factors of LongRoPE."""
    plain = 1.0 / rope.theta ** (np.arange(0, width, 2, dtype=np.float64) / width)
    try:
        if rope.kind in ("default", "dynamic"):  # dynamic: only beyond the model's own context
            return plain, 1.0
        if rope.kind == "proportional":  # the first pairs turn, whatever their share of a head
            turning = np.arange(width // 2) < int(rope.parameters["turning"] * width // 2)
            return np.where(turning, plain, 0.0), 1.0
        if rope.kind == "factors":
            return plain / _listed(rope, "factors", plain), 1.0
        if rope.kind == "linear":
            return plain / rope.parameters["factor"], 1.0
        if rope.kind == "llama3":
            return _llama3(rope, plain), 1.0
        if rope.kind == "yarn":
            return _yarn(rope, plain, width, config)
        if rope.kind == "longrope":
            return _longrope(rope, plain, config, long)
    except KeyError as error:
        raise WeightsError(f"rope scaling {rope.kind!r} needs {error}") from None
    raise Unsupported(f"rope scaling {rope.kind!r}; there are default, dynamic, linear, llama3, "
                      "yarn, longrope")  # fmt: skip


def _llama3(rope: Rope, plain: np.ndarray) -> np.ndarray:
    """Low frequencies are divided by the factor, high ones stay, those between are blended."""
    given = rope.parameters
    factor, low, high = given["factor"], given["low_freq_factor"], given["high_freq_factor"]
    if high <= low:
        raise WeightsError(f"rope scaling 'llama3': factors of frequencies from {low} to {high}")
    turns = given["original_max_position_embeddings"] * plain / (2 * math.pi)
    blend = np.clip((turns - low) / (high - low), 0, 1)
    return (1 - blend) * plain / factor + blend * plain


def _yarn(
    rope: Rope, plain: np.ndarray, width: int, config: DecoderConfig
) -> tuple[np.ndarray, float]:
    """YaRN (Peng et al. 2023, https://arxiv.org/abs/2309.00071)."""
    given = rope.parameters
    factor = given["factor"]
    original = _original(rope, config)
    ends = []
    for turns in (given.get("beta_fast") or 32, given.get("beta_slow") or 1):
        ends.append(width * math.log(original / (turns * 2 * math.pi)) / 2 / math.log(rope.theta))
    if given.get("truncate", True):
        ends = [math.floor(ends[0]), math.ceil(ends[1])]
    low, high = max(ends[0], 0), min(ends[1], width - 1)
    ramp = np.clip((np.arange(width // 2) - low) / max(high - low, 0.001), 0, 1)
    grown = _yarn_factor(rope, factor) * given.get("attention_share", 1.0)
    return plain / factor * ramp + plain * (1 - ramp), grown


def _yarn_factor(rope: Rope, factor: float) -> float:
    given = rope.parameters
    if given.get("attention_factor") is not None:
        return float(given["attention_factor"])

    def scale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if given.get("mscale") and given.get("mscale_all_dim"):
        return scale(given["mscale"]) / scale(given["mscale_all_dim"])
    return scale(1.0)


def _longrope(
    rope: Rope, plain: np.ndarray, config: DecoderConfig, long: bool
) -> tuple[np.ndarray, float]:
    """LongRoPE (Ding et al. 2024): factors for short or for long sequences (`rows_at`)."""
    given, original = rope.parameters, _original(rope, config)
    factors = _listed(rope, "long_factor" if long else "short_factor", plain)
    stretch = given.get("factor", config.context / original)
    factor = given.get("attention_factor")
    if factor is None:
        grown = math.log(stretch) / math.log(max(2, original)) if stretch > 1 else 0.0
        factor = math.sqrt(1 + grown)
    return plain / factors, float(factor)


def _original(rope: Rope, config: DecoderConfig) -> float:
    """The context that the model was trained for first."""
    return float(rope.parameters.get("original_max_position_embeddings") or config.context)


def _listed(rope: Rope, name: str, plain: np.ndarray) -> np.ndarray:
    """One number for each frequency."""
    found = np.asarray(rope.parameters[name], np.float64)
    if found.shape != plain.shape:
        raise WeightsError(f"rope scaling {rope.kind!r}: {name} has the shape {found.shape}, there "
                           f"are {len(plain)} frequencies")  # fmt: skip
    return found
