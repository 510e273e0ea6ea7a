"""From hidden states of tokens to one vector of a text, as a checkpoint's modules.json says.

The files are those of sentence-transformers: a list of modules, each with a directory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import nn, ops
from ..errors import Unsupported, WeightsError
from ..graph import Graph, Tensor
from ..nn.activation import activation_of
from ..weights import Safetensors
from ..weights.fields import Fields, exists, read_json
from ..weights.gguf import gguf_file

Head = Callable[[Tensor], Tensor]  # vectors (batch, features) to others
NO_LIMIT = 1e9  # tokens
FAR = -1e9  # what padding counts as where the largest is taken


def _mean(hidden: Tensor, real: Tensor) -> Tensor:
    return _sum(hidden, real) / ops.clamp(real.sum(1, keepdim=True), min=1e-9)


def _mean_sqrt(hidden: Tensor, real: Tensor) -> Tensor:
    return _sum(hidden, real) / ops.clamp(real.sum(1, keepdim=True), min=1e-9).sqrt()


def _weighted(hidden: Tensor, real: Tensor) -> Tensor:
    return _mean(hidden, real * (_positions(real) + 1))


def _first(hidden: Tensor, real: Tensor) -> Tensor:
    return hidden[:, 0]


def _last(hidden: Tensor, real: Tensor) -> Tensor:
    last = (real * _positions(real)).amax(1, keepdim=True)
    return _sum(hidden, (_positions(real) == last).cast("f32"))


def _max(hidden: Tensor, real: Tensor) -> Tensor:
    return ops.where(real.unsqueeze(-1) > 0, hidden, FAR).amax(1)


def _sum(hidden: Tensor, weight: Tensor) -> Tensor:
    """hidden (batch, tokens, features), weight (batch, tokens) -> (batch, features)."""
    return (hidden * weight.unsqueeze(-1)).sum(1)


def _positions(real: Tensor) -> Tensor:
    """0, 1, 2 ... (1, tokens) f32."""
    return ops.arange(real.graph, real.shape[1]).cast("f32").unsqueeze(0)


# (hidden (batch, tokens, features), real tokens (batch, tokens) f32 0 or 1) -> (batch, features);
# results stand beside each other in this order
POOLINGS: Mapping[str, tuple[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "cls": ("pooling_mode_cls_token", _first),
    "max": ("pooling_mode_max_tokens", _max),
    "mean": ("pooling_mode_mean_tokens", _mean),
    "mean_sqrt_len_tokens": ("pooling_mode_mean_sqrt_len_tokens", _mean_sqrt),
    "weightedmean": ("pooling_mode_weightedmean_tokens", _weighted),
    "lasttoken": ("pooling_mode_lasttoken", _last),
}


@dataclass(frozen=True)
class Pooling:
    """modes: names of POOLINGS. then: directories of dense layers, or None for unit length, in the
    order in which they are applied. max_tokens: what longer texts are cut to, if it is said.
    lower: texts are made lower case. prompt: what stands before every text."""

    modes: tuple[str, ...] = ("mean",)
    then: tuple[Path | None, ...] = ()
    max_tokens: int | None = None
    lower: bool = False
    prompt: str = ""

    @staticmethod
    def load(directory: Path) -> Pooling:
        """Of a model's directory or GGUF file; without modules.json the mean, as it is. Raises
        WeightsError, or Unsupported for a module that is not known."""
        if (found := gguf_file(directory)) is not None:
            from .gguf_encoders import gguf_pooling

            return gguf_pooling(found)
        modes: tuple[str, ...] = ("mean",)
        then: list[Path | None] = []
        for module in _read(directory / "modules.json", list) or []:
            kind, place = _module(directory, module)
            if kind == "Pooling":
                modes = _modes(place / "config.json")
            elif kind in ("Dense", "Normalize"):
                then.append(place if kind == "Dense" else None)
            elif kind != "Transformer":
                raise Unsupported(f"{directory}: a sentence model with a module {kind!r}")
        file = directory / "sentence_bert_config.json"
        text = Fields(_read(file, dict) or {}, str(file))
        return Pooling(
            modes, tuple(then), _limit(directory, text), text.flag("do_lower_case"),
            _prompt(directory),
        )  # fmt: skip

    def apply(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Vectors (batch, features) of hidden states (batch, tokens, features) where the mask
        (batch, tokens) is true. Raises WeightsError or Unsupported."""
        real = mask.cast("f32")
        parts = [POOLINGS[mode][1](hidden, real) for mode in self.modes]
        vectors = parts[0] if len(parts) == 1 else ops.cat(parts, -1)
        for place in self.then:
            if place is None:
                vectors = ops.normalize(vectors, dim=-1)
            else:
                vectors = _dense(vectors.graph, place)(vectors)
        return vectors


def _module(directory: Path, module: Any) -> tuple[str, Path]:
    """(the last part of a module's type, where its files are)."""
    kind = module.get("type") if isinstance(module, dict) else None
    path = module.get("path", "") if isinstance(module, dict) else None
    if not isinstance(kind, str) or not isinstance(path, str):
        raise WeightsError(f"{directory / 'modules.json'}: no module with a type and a path")
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise WeightsError(f"{directory / 'modules.json'}: {path!r} is outside the directory")
    return kind.rpartition(".")[2], directory / path


def _modes(file: Path) -> tuple[str, ...]:
    given = _read(file, dict)
    if given is None:
        raise WeightsError(f"{file}: no such file; it says how tokens are pooled")
    named = given.get("pooling_mode")
    if named is not None:
        modes = tuple(named) if isinstance(named, list) else (named,)
    else:
        modes = tuple(mode for mode, (key, _) in POOLINGS.items() if given.get(key))
    wrong = [mode for mode in modes if mode not in list(POOLINGS)]
    if wrong or not modes:
        raise Unsupported(f"{file}: pooling {wrong or None}; there are {', '.join(POOLINGS)}")
    if given.get("include_prompt") is False and _prompt(file.parent.parent):
        raise Unsupported(f"{file}: tokens of the prompt are left out of the pooling")
    return modes


def _limit(directory: Path, text: Fields) -> int | None:
    """The most tokens of a text; a tokenizer that knows no limit says a huge number."""
    if text.has("max_seq_length"):
        return text.count("max_seq_length", low=3)  # two are special
    file = directory / "tokenizer_config.json"
    settings = Fields(_read(file, dict) or {}, str(file))
    if not settings.has("model_max_length"):
        return None
    given = settings.number("model_max_length", low=3, high=1e31)
    return int(given) if given < NO_LIMIT else None


def _prompt(directory: Path) -> str:
    given = _read(directory / "config_sentence_transformers.json", dict) or {}
    name, prompts = given.get("default_prompt_name"), given.get("prompts")
    found = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    return found if isinstance(found, str) else ""


def _dense(graph: Graph, place: Path) -> Head:
    """A dense layer from its directory."""
    given, state = _read(place / "config.json", dict) or {}, dict(Safetensors(place))
    name = str(given.get("activation_function", "torch.nn.Tanh")).rpartition(".")[2]
    activate = (lambda x: x) if name == "Identity" else activation_of(name.lower())
    weight, bias = state.get("linear.weight"), state.get("linear.bias")
    if weight is None or weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        raise WeightsError(f"{place}: no linear.weight and linear.bias that fit each other")
    layer = nn.Linear(graph, weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.load_state_dict({n.removeprefix("linear."): np.asarray(v, np.float32)
                           for n, v in state.items()})  # fmt: skip
    return lambda x: activate(layer(x))


def _read(file: Path, kind: Any) -> Any:
    """A JSON file of this kind; None where there is none. Raises WeightsError."""
    return read_json(file, kind) if exists(file) else None
