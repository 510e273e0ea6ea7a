"""Language models in GGUF files: metadata as a config, blocks as our storage kinds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import Unsupported, WeightsError
from ...weights.fields import Fields
from ...weights.gguf import GGUF, GGUFTensor
from ...weights.gguf_blocks import PLAIN, split_halves, unpack
from .adapters import Adapter, Pair
from .config import DecoderConfig, Rope
from .families import FAMILIES
from .families.gpt2 import NAMES as GPT2_NAMES
from .families.rwkv import normed_rows
from .gguf_architectures import ARCHITECTURES
from .gguf_names import BARE, FIELDS, OUTSIDE, PARTS, SECTIONS, Architecture, partial_names
from .gguf_text import CONTROL, USER, gguf_tokenizer, texts
from .pictures import Pictures, pictures_for
from .storage import FLOATS, Storage, block_fields, block_makers
from .text import Tokenizer
from .weights import Deferred, Maker

if TYPE_CHECKING:
    from ..vision.projector import Projector

EYES = "clip"  # the architecture of files with towers for pictures
BLIND = ": no mmproj file that fits lies beside it, and none is named"
QUERY_WIDTH = 256  # a Gemma with narrower heads (27B) scales queries by width / heads; no field
ENDS = frozenset((  # of a turn or a text, in vocabularies whose metadata does not name them all
    "<|end|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|endoftext|>",
    "<|end_of_text|>", "</s>", "<|END_OF_TURN_TOKEN|>", "<|return|>",
))  # fmt: skip
KINDS = {"Q8_0": "q8", "Q5_0": "q8", "Q4_0": "q4", "Q4_1": "q4m", "Q4_K": "q4k", "Q5_1": "q8m",
         "Q5_K": "q8k", "Q6_K": "q8s", "Q3_K": "q4s", "Q2_K": "q4n", "IQ4_NL": "q8",
         "IQ4_XS": "q8u", "TQ1_0": "q4", "TQ2_0": "q4", "MXFP4": "q8b", "NVFP4": "q8h",
         "IQ1_S": "q8f", "IQ2_XXS": "q8f", "IQ3_XXS": "q8f", "IQ3_S": "q8f", "IQ1_M": "q8g",
         "IQ2_XS": "q8g", "IQ2_S": "q8g", "Q1_0": "q4", "Q8_1": "q8",
         "Q8_K": "q8f", "F16": "f16", "BF16": "bf16"}  # fmt: skip
SMALL = ("_coefs.weight", "modality_router.weight")  # no matrices that can be stored in any kind
FREQUENCIES, LONG, SHORT = (
    "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
)  # fmt: skip


class GGUFSource:
    """A GGUF file of one of the ARCHITECTURES. mmproj: the file with its eyes; None: what lies
    beside it under such a name."""

    lora: Adapter | None = None  # under our names
    pictures: Pictures | None = None

    def __init__(self, path: Path, mmproj: Path | None = None) -> None:
        self.file = GGUF(path)
        self.given = Fields(self.file.metadata, str(path))
        self.architecture = self.given.text("general.architecture")
        if self.architecture not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            name = self.architecture
            if name == EYES:
                raise Unsupported(f"{path}: the eyes of a model, not a model: name its other file")
            raise Unsupported(f"{path}: unknown architecture {name!r}; there are {known}")
        self._own = ARCHITECTURES[self.architecture].fitting(self.file)
        self._partial = partial_names(self.file)
        self.config = self._config()
        self._eyes = self._projector(mmproj)
        if self._eyes is not None:
            self._eyes.check(self.config)
            deep, together = self._eyes.deep, self._eyes.together
            self.config = replace(self.config, pictures=True, deep=deep, together=together)
            self.pictures = pictures_for(path, self.config, self._eyes.file.path)

    def _projector(self, mmproj: Path | None) -> Projector | None:
        if mmproj is None and not any(self.file.path.parent.glob("*mmproj*.gguf")):
            return None
        from ..vision.projector import Projector, projector_beside

        mmproj = mmproj or projector_beside(self.file.path, self.config.width)
        return None if mmproj is None else Projector(mmproj)

    def tokenizer(self) -> Tokenizer:
        made = gguf_tokenizer(self.file)
        self.file.release()
        if self._eyes is not None and self.pictures is not None:
            made.sight = self._eyes.sight(made, self.pictures)
        made.blind += BLIND
        return made

    # ---- config

    def _config(self) -> DecoderConfig:
        given, where, prefix = self.file.metadata, str(self.file.path), f"{self.architecture}."
        own = {n.removeprefix(prefix): v for n, v in given.items() if n.startswith(prefix)}
        values: dict[str, Any] = {"tie_word_embeddings": self._tied()}
        values |= self._own.values(self.file, Fields(own, where))
        for name in FIELDS:
            if isinstance(values.get(name), np.ndarray):
                raise Unsupported(f"{where}: {FIELDS[name]} differs from layer to layer")
        values["vocab_size"] = self.file["token_embd.weight"].shape[0]
        for name in ("eos", "bos"):
            values[f"{name}_token_id"] = given.get(f"tokenizer.ggml.{name}_token_id")
        values["rope_scaling"] = self._scaling(values.pop("yarn", {}))
        fields = Fields(values, where)
        values["query_pre_attn_scalar"] = self._query_scale(fields)
        values |= {theirs: values.get(ours) for ours, theirs in GPT2_NAMES.items()}
        config = FAMILIES[values["model_type"]].config(fields)
        if config.norm == "rms1":  # the converter adds the one
            config = replace(config, norm="rms")
        return replace(config, end_tokens=self._ends(config), ropes=self._ropes(config))

    def _tied(self) -> bool:
        return "output.weight" not in self.file

    def _query_scale(self, values: Fields) -> float | None:
        """What the square root is taken of: Gemma's only."""
        given = self.given.number(f"{self.architecture}.attention.scale", 0, low=0, high=1e3)
        if given > 1e-6:
            return float(given**-2)
        if self.architecture not in ("gemma2", "gemma3") or not values.has("head_dim"):
            return None
        size = values.count("head_dim")
        if size < QUERY_WIDTH:
            return values.count("hidden_size") / values.count("num_attention_heads")
        return size

    def _ends(self, config: DecoderConfig) -> tuple[int, ...]:
        """The tokens that metadata names, and those that are called so."""
        given, prefix = self.given, "tokenizer.ggml"
        named = [given.count_if(f"{prefix}.{name}_token_id", low=0) for name in ("eot", "eom")]
        tokens = texts(given, "tokens")
        kinds = given.counts_if(f"{prefix}.token_type", len(tokens)) or []
        called = [n for n, kind in enumerate(kinds)
                  if kind in (CONTROL, USER) and tokens[n] in ENDS]  # fmt: skip
        found = [*config.end_tokens, *(n for n in named if n is not None), *called]
        return tuple(dict.fromkeys(found))

    def _scaling(self, yarn: Mapping[str, Any]) -> dict[str, Any] | None:
        """yarn: what the architecture knows besides."""
        given, prefix = self.given, f"{self.architecture}.rope.scaling"
        if LONG in self.file:
            return {
                "rope_type": "longrope",
                "long_factor": self.file[LONG].array(),
                "short_factor": self.file[SHORT].array(),
                "attention_factor": given.number_if(f"{prefix}.attn_factor"),
            }
        kind = given.text(f"{prefix}.type", "linear")
        older = given.number(f"{self.architecture}.rope.scale_linear", 0.0)
        factor = given.number(f"{prefix}.factor", older) or 1.0
        if kind == "none" or (kind == "linear" and factor == 1):
            return self._own.sections(given.values.get(f"{self.architecture}.{SECTIONS}"))
        if kind not in ("linear", "yarn"):
            raise Unsupported(f"{self.file.path}: rope scaling {kind!r} in a GGUF file")
        betas = {n: given.number_if(f"{prefix}.yarn_{n}") for n in ("beta_fast", "beta_slow")}
        return {
            "rope_type": kind,
            "factor": factor,
            "original_max_position_embeddings": given.count_if(f"{prefix}.original_context_length"),
            "attention_share": given.number(f"{prefix}.attn_factor", 1.0),
            **{name: value for name, value in betas.items() if value is not None},
            **(yarn if kind == "yarn" else {}),
        }

    def _ropes(self, config: DecoderConfig) -> Mapping[str, Rope]:
        """Llama 3.1 has a tensor of what each frequency is divided by; Gemma 4's is read before."""
        turning = any(rope.kind == "proportional" for rope in config.ropes.values())
        if FREQUENCIES not in self.file or turning:
            return config.ropes
        factors = Fields({FREQUENCIES: self.file[FREQUENCIES].array()}, str(self.file.path))
        parameters = {"factors": np.array(factors.numbers(FREQUENCIES))}
        return {
            name: replace(rope, kind="factors", parameters=parameters)
            for name, rope in config.ropes.items()
        }

    # ---- tensors

    @property
    def files(self) -> list[Path]:
        return [*self.file.files, *(self.lora.files if self.lora is not None else ())]

    def load(self, quant: str | None) -> tuple[Deferred, Storage]:
        makers: dict[str, Maker] = {}
        exact: dict[str, str] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        for tensor in self._tensors():
            for ours, part in self._parts(tensor).items():
                shapes[ours] = self._shape(ours, part)
                makers.update(self._makers(ours, part, quant, exact))
        if self.lora is not None:
            self.lora.check(shapes)
        state = Deferred(makers, self.file.bytes, shapes, self.file.release)
        return state, Storage(quant or "f32", exact)

    def as_they_are(self) -> set[str]:
        return {ours for tensor in self._tensors() for ours in self._parts(tensor)}

    def _tensors(self) -> Iterator[GGUFTensor]:
        """All but tables of frequencies, layers that predict further tokens, and norms of them."""
        for name, tensor in self.file.items():
            layer = name.split(".")[1] if name.startswith("blk.") else "0"
            later = layer.isdecimal() and int(layer) >= self.config.layers
            around = self._own.normed and name.startswith("token_embd_norm.")
            if name not in (FREQUENCIES, LONG, SHORT) and not later and not around:
                yield tensor

    def _shape(self, name: str, tensor: GGUFTensor) -> tuple[int, ...]:
        """Of our tensor."""
        change = self._own.change(name)
        if change is not None:
            return change(-np.ones(tensor.shape, np.float32), self.config).shape
        return (*tensor.shape[:-2], *tensor.shape[:-3:-1]) if _flipped(name) else tensor.shape

    def _parts(self, tensor: GGUFTensor) -> dict[str, GGUFTensor]:
        """A tensor under our names: several where it is some of ours below each other."""
        found = self._found(tensor)
        return {name: part for name, part in found.items() if not self._own.lost(name, self.config)}

    def _found(self, tensor: GGUFTensor) -> dict[str, GGUFTensor]:
        own, config, pieces = self._own, self.config, tensor.name.split(".")
        if len(pieces) < 2:
            raise _misplaced(tensor.name, str(self.file.path))
        inner, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
        rows: dict[str, int] = {}
        if (cut := own.cuts.get(pieces[-2])) is not None:
            place = own.place(tensor.name)
            return {f"{place}{name}": part for name, part in cut(tensor, config).items()}
        if pieces[-2] == "attn_qkv" and "attn_qkv" not in own.parts:
            rows = {"attn_q": inner, "attn_k": kv, "attn_v": kv}
        elif pieces[-2] == "ffn_up" and config.gated and "ffn_gate.weight" not in self._partial:
            rows = {"ffn_gate": config.hidden, "ffn_up": config.hidden}
        if not rows:
            return {self._name(tensor.name): tensor}
        if tensor.shape[:1] != (sum(rows.values()),):
            raise WeightsError(f"{self.file.path}: tensor {tensor.name!r} of shape {tensor.shape}")
        ends = list(accumulate(rows.values()))
        return {
            self._name(".".join([*pieces[:-2], name, pieces[-1]])): tensor.rows(end - count, end)
            for (name, count), end in zip(rows.items(), ends)
        }

    def _makers(
        self, name: str, tensor: GGUFTensor, quant: str | None, exact: dict[str, str]
    ) -> dict[str, Maker]:
        """What becomes of a tensor, under our names; how it is stored is noted in `exact`."""
        path, kind = name.rpartition(".")[0], KINDS.get(tensor.type, "f32")
        if self.lora is not None and (pair := self.lora.pairs.get(name)) is not None:
            return self._merged(name, tensor, pair, quant is None and kind != "f32", exact)
        if _flipped(name):
            if quant is None and kind != "f32":
                exact[path] = "f16"
            return {name: lambda: _turned(tensor, np.float16 if path in exact else np.float32)}
        if (change := self._own.change(name)) is not None:
            return {name: lambda: change(tensor.array(), self.config)}
        if self._own.normed and name == "model.embed_tokens.weight":
            return {name: lambda: self._normed(tensor)}
        if len(tensor.shape) < 2 or quant is not None or kind == "f32" or name.endswith(SMALL):
            return {name: lambda: self._unpermuted(name, tensor.array()).reshape(tensor.shape)}
        exact[path] = kind
        if kind in FLOATS:
            plain = PLAIN[tensor.type]
            return {name: lambda: self._raw(name, tensor).view(plain).reshape(tensor.shape)}

        def fields() -> dict[str, np.ndarray]:
            found = fields_of(self._raw(name, tensor), tensor.type)
            return {n: v.reshape(*tensor.shape[:-1], *v.shape[1:]) for n, v in found.items()}

        return block_makers(path, kind, fields)

    def _merged(
        self, name: str, tensor: GGUFTensor, pair: Pair, narrow: bool, exact: dict[str, str]
    ) -> dict[str, Maker]:
        """With an adapter's product added: f16 where it was narrow."""
        pair.check(name, tensor.shape)
        if narrow:
            exact[name.rpartition(".")[0]] = "f16"

        def make() -> np.ndarray:
            whole = pair.sum(name, self._unpermuted(name, tensor.array()))
            return whole.astype(np.float16) if narrow else whole

        return {name: make}

    def _normed(self, tensor: GGUFTensor) -> np.ndarray:
        """Embeddings behind a norm of their own."""
        weight, bias = (self.file[f"token_embd_norm.{part}"].array() for part in ("weight", "bias"))
        return normed_rows(tensor.array(), weight, bias, self.config.eps)

    def _raw(self, name: str, tensor: GGUFTensor) -> np.ndarray:
        return self._unpermuted(name, tensor.raw)

    def _name(self, name: str) -> str:
        return our_name(name, self._own, str(self.file.path))

    def _unpermuted(self, name: str, rows: np.ndarray) -> np.ndarray:
        return unpermuted(name, rows, self._own.turned, self.config)


def our_name(name: str, own: Architecture, where: str) -> str:
    """blk.3.attn_q.weight --> model.layers.3.self_attn.q_proj.weight"""
    stem, _, part = name.rpartition(".")
    outside = {**OUTSIDE, **own.outside}
    if stem in outside:
        return f"{outside[stem]}.{part}"
    inner = name.split(".", 2)[-1]
    ours = {**PARTS, **own.parts}.get(inner.removesuffix(f".{part}"))
    ours = {**BARE, **own.bare}.get(inner, None if ours is None else f"{ours}.{part}")
    if not name.startswith("blk.") or ours is None:
        raise _misplaced(name, where)
    return f"{own.place(name)}{ours}"


def _flipped(name: str) -> bool:
    """Matrices of which files have the transposes."""
    return name.endswith(".k_b_proj.weight")


def _turned(tensor: GGUFTensor, kind: type[np.floating]) -> np.ndarray:
    return np.ascontiguousarray(tensor.array().swapaxes(-1, -2), kind)


def _misplaced(name: str, where: str) -> WeightsError:
    return WeightsError(f"{where}: tensor {name!r} has no place in the model")


def unpermuted(name: str, rows: np.ndarray, turned: bool, config: DecoderConfig) -> np.ndarray:
    """turned: queries and keys have the features of a pair side by side; here the second half of a
    head follows the first."""
    heads = {"q_proj": config.heads, "k_proj": config.kv_heads}
    part = name.split(".")[-2]
    if not turned or part not in heads:
        return rows
    split = rows.reshape(heads[part], -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(rows.shape)


def fields_of(raw: np.ndarray, kind: str) -> dict[str, np.ndarray]:
    """The arrays of a `Blocks` module, of raw rows (rows, bytes)."""
    halves = split_halves(kind, raw)
    if halves is not None:
        return block_fields(halves, KINDS[kind], halves.quants)
    return block_fields(unpack(kind, raw), KINDS[kind])
