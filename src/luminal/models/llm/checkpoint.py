"""A directory of a language model: config, tensors under our names, checked before use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import Unsupported, WeightsError
from ...weights.checkpoints import read_tensors
from ...weights.fields import Fields
from ...weights.quantised import decoded
from .adapters import Adapter, merged
from .config import DecoderConfig, end_tokens
from .families import Family, family_of

EXPONENTS = {2: {"f": 0x7C00, "V": 0x7F80}, 4: {"f": 0x7F800000}}  # bits of inf and NaN
SEEING = (  # model types with a decoder and a tower for pictures
    "llava", "llava_next", "idefics3", "smolvlm", "qwen2_vl", "qwen2_5_vl", "qwen3_vl",
    "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "gemma3", "internvl", "moondream1", "mistral3",
)  # fmt: skip
DECODERS = re.compile(
    r"^(model\.language_model\.|model\.text_model\.|language_model\.model\.|"
    r"(model\.)?text\.|text_model\.(transformer\.)?)"
)
OWN = re.compile(
    r"(model\.(layers|embed_tokens|norm|blocks|h|embd|wte|post_ln|lm_head)|lm_head)(\.|$)"
)
SLICE = 1 << 20  # weights looked at together


def read_values(directory: Path) -> Fields:
    """config.json. Raises WeightsError."""
    file = directory / "config.json"
    if not file.exists():
        raise WeightsError(f"{directory}: no config.json in this directory")
    return Fields.load(file)


def read_config(directory: Path, values: Fields) -> tuple[Family, DecoderConfig]:
    """The family and config of a directory with this config.json. Raises WeightsError or
    Unsupported."""
    words = words_of(values)
    family = family_of(words)
    deep = values.fields("vision_config").counts_if("deepstack_visual_indexes") or []
    sees = values.values.get("model_type") in SEEING
    config = replace(family.config(words), pictures=sees, deep=len(deep) if sees else 0)
    if sees and values.text("model_type") == "gemma3":
        config = replace(config, together=values.count("mm_tokens_per_image", 256))
        windows = [window for window in config.windows if window is not None]
        if config.together > min(windows, default=config.together):
            raise Unsupported(f"{directory}: windows shorter than a picture's tokens")
    more = directory / "generation_config.json"
    ends = end_tokens(Fields.load(more)) if more.exists() else ()
    return family, replace(config, end_tokens=tuple(dict.fromkeys(config.end_tokens + ends)))


def words_of(values: Fields) -> Fields:
    """The config of the decoder, which a model that sees keeps within its own."""
    if values.values.get("model_type") not in SEEING:
        return values
    inner = values.fields("text_config")
    if not inner.values:  # as Qwen2-VL was published: one object for all
        kind = values.text("model_type")
        return Fields({**values.values, "model_type": f"{kind}_text"}, values.where)
    names = ("tie_word_embeddings", "quantization_config", "dtype", "torch_dtype")
    own = {name: values.values[name] for name in names if values.has(name)}
    return Fields({**inner.values, **own}, inner.where)


def _words_alone(state: dict[str, Any]) -> dict[str, Any]:
    """The decoder's tensors out of all, under Llama's names."""
    found = {}
    for name, value in state.items():
        new = DECODERS.sub("model.", name.replace("._orig_mod", ""))
        new = new.replace("language_model.lm_head.", "lm_head.")
        if OWN.match(new):
            found[new] = value
    return found


def read_state(directory: Path, values: Fields, lora: Adapter | None = None) -> dict[str, Any]:
    """The memory-mapped tensors; matrices that are quantised, or have an adapter's added to them,
    as `Packed`. Raises WeightsError or Unsupported."""
    state: dict[str, Any] = dict(read_tensors(directory))
    if words_of(values) is not values:
        state = _words_alone(state)
    kind = values.text("dtype", values.text("torch_dtype", "float32"))
    floats = {"bfloat16": "bf16", "float16": "f16"}.get(kind, "f32")
    if values.has("quantization_config"):
        state = decoded(state, values.fields("quantization_config"), floats)
    return state if lora is None else merged(state, lora, floats)


def adapted(
    state: dict[str, np.ndarray], family: Family, config: DecoderConfig
) -> dict[str, np.ndarray]:
    """Under our names."""
    state = family.adapt(state, config)
    state = {n: v for n, v in state.items() if not n.endswith("rotary_emb.inv_freq")}
    if config.tied:
        state.pop("lm_head.weight", None)
    elif "lm_head.weight" not in state and "model.embed_tokens.weight" in state:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return state


def float_kind(state: Mapping[str, np.ndarray]) -> str:
    """The float type of most weights: "f32", "bf16" or "f16"."""
    sizes: dict[str, int] = {}
    for value in state.values():
        name = {"float16": "f16", "bfloat16": "bf16"}.get(value.dtype.name, "f32")
        sizes[name] = sizes.get(name, 0) + value.size
    return max(sizes, key=lambda name: sizes[name]) if sizes else "f32"


def check_finite(state: Mapping[str, np.ndarray]) -> None:
    """Raises WeightsError for the first tensor with an infinity or a NaN."""
    for name, value in state.items():
        mask = EXPONENTS.get(value.dtype.itemsize, {}).get(value.dtype.kind)
        if mask is None:
            finite = value.dtype.kind not in "fV" or bool(np.isfinite(value).all())
        else:
            finite = _all_below(value, mask)
        if not finite:
            raise WeightsError(f"tensor {name!r} holds an infinity or NaN")


def _all_below(value: np.ndarray, exponent: int) -> bool:
    """No element has all bits of its exponent set: read as integers, a slice at a time."""
    bits = value.view(f"u{value.dtype.itemsize}")
    rows = bits.reshape(-1) if bits.flags.c_contiguous else bits.T.reshape(-1)
    kind = bits.dtype.type
    top = kind(exponent)
    return all(
        int((rows[start : start + SLICE] & top).max()) < exponent
        for start in range(0, len(rows), SLICE)
    )
