"""Eyes in GGUF files: the `mmproj` companion of a language model's file (architecture "clip"), as
Hugging Face's folders have them.

Names of metadata and tensors are in gguf-py's constants, what converters change in llama.cpp's
conversion; what a file leaves out is in llama.cpp's own code for pictures (tools/mtmd).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import Unsupported, WeightsError
from ...weights.fields import Fields
from ...weights.gguf import GGUF
from ..llm.config import DecoderConfig
from ..llm.pictures import Pictures
from .gemma import GemmaSight
from .internvl import InternSight
from .layers import renamed
from .qwen import QwenSight
from .sight import Eyes, Idefics, Llava, Sight

Names = tuple[tuple[str, str], ...]
State = dict[str, Any]
LEAST, MOST = 8, 4096  # tokens of a picture for Qwen
FIELDS = {  # of a tower's config -> after "clip.vision."
    "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count", "num_attention_heads": "attention.head_count",
    "num_heads": "attention.head_count", "layer_norm_eps": "attention.layer_norm_epsilon",
    "image_size": "image_size", "patch_size": "patch_size",
    "spatial_merge_size": "spatial_merge_size", "window_size": "window_size",
}  # fmt: skip
BLOCK: Names = (
    (r"^v\.blk\.(\d+)\.", r"encoder.layers.\1."), (r"\.ln([12])\.", r".layer_norm\1."),
    (r"\.attn_([qkv])\.", r".self_attn.\1_proj."), (r"\.attn_out\.", ".self_attn.out_proj."),
    (r"\.ffn_up\.", ".mlp.fc1."), (r"\.ffn_down\.", ".mlp.fc2."),
    (r"^v\.class_embd$", "embeddings.class_embedding"),
    (r"^v\.patch_embd\.", "embeddings.patch_embedding."),
    (r"^v\.position_embd\.", "embeddings.position_embedding."),
    (r"^v\.pre_ln\.", "pre_layrnorm."), (r"^v\.post_ln\.", "post_layernorm."),
)  # fmt: skip
QWEN: Names = (
    (r"^v\.blk\.(\d+)\.", r"blocks.\1."), (r"\.ln([12])\.", r".norm\1."),
    (r"\.attn_qkv\.", ".attn.qkv."), (r"\.attn_out\.", ".attn.proj."),
    (r"\.ffn_up\.", ".mlp.fc1."), (r"\.ffn_down\.", ".mlp.fc2."),
    (r"\.ffn_gate\.", ".mlp.gate_proj."),
    (r"^v\.patch_embd\.", "patch_embed.proj."), (r"^v\.position_embd\.", "pos_embed."),
    (r"^v\.post_ln\.", "merger.norm."), (r"^mm\.0\.", "merger.linear_fc1."),
    (r"^mm\.2\.", "merger.linear_fc2."), (r"^v\.deepstack\.", "deepstack_merger_list."),
    (r"(deepstack_merger_list\.\d+)\.fc(\d)\.", r"\1.linear_fc\2."),
)  # fmt: skip
INTERN: Names = (
    (r"^v\.blk\.(\d+)\.", r"layers.\1."), (r"\.ln1\.", ".layernorm_before."),
    (r"\.ln2\.", ".layernorm_after."), (r"\.attn_([qkv])\.", r".attention.\1_proj."),
    (r"\.attn_([qk])_norm\.", r".attention.\1_norm."),
    (r"\.attn_out\.", ".attention.projection_layer."), (r"\.ls([12])(\.weight)?$", r".lambda_\1"),
    (r"\.ffn_up\.", ".mlp.fc1."), (r"\.ffn_down\.", ".mlp.fc2."),
    (r"^v\.class_embd$", "cls_token"), (r"^v\.patch_embd\.", "projection."),
    (r"^v\.position_embd(\.weight)?$", "position_embeddings"), (r"^v\.post_ln\.", "layernorm."),
    (r"^mm\.model\.mlp\.0\.", "layer_norm."), (r"^mm\.model\.mlp\.1\.", "linear_1."),
    (r"^mm\.model\.mlp\.3\.", "linear_2."),
)  # fmt: skip


class Projector:
    """An mmproj file. Raises WeightsError, Unsupported for another than KINDS."""

    def __init__(self, path: Path) -> None:
        self.file = GGUF(path)
        values = self.file.metadata
        self.metadata = Fields(values, str(path))
        self.own = _below(self.metadata, "clip.vision.")
        if values.get("general.architecture") != "clip":
            raise WeightsError(f"{path}: no mmproj file: its architecture is not 'clip'")
        names = ("clip.vision.projector_type", "clip.projector_type")
        found = [self.metadata.text(name) for name in names if self.metadata.has(name)]
        name = found[0] if found else "mlp"
        if name not in KINDS:
            raise Unsupported(f"{path}: projector {name!r}; there are {', '.join(KINDS)}")
        self.kind = KINDS[name]

    @property
    def width(self) -> int:
        """Of its rows for a token: that of the decoder."""
        shape = self.file[self.kind.last].shape
        if len(shape) != 2:
            raise WeightsError(f"{self.metadata.where}: {self.kind.last!r} of shape {shape}")
        return shape[0 if self.kind.last != MATRIX else 1]

    @property
    def deep(self) -> int:
        """How many more rows each token has."""
        return len(self._deep)

    @property
    def _deep(self) -> list[int]:
        found = (re.match(r"v\.deepstack\.(\d{1,4})\.", name) for name in self.file)
        return sorted({int(each[1]) for each in found if each})

    @property
    def together(self) -> int:
        """How many tokens of a picture see each other, whichever comes first."""
        if self.kind.sight is not GemmaSight:
            return 0
        own, scale = self.own, self.own.count("projector.scale_factor", 4)
        return int((own.count("image_size") // own.count("patch_size") // scale) ** 2)

    def check(self, config: DecoderConfig) -> None:
        """Whether it is of the model with this config. Raises WeightsError, Unsupported."""
        where = self.metadata.where
        if self.width != config.width:
            raise WeightsError(f"{where}: rows of {self.width} for a model of {config.width}")
        if self.together > min((w for w in config.windows if w is not None), default=1 << 30):
            raise Unsupported(f"{where}: windows shorter than a picture's tokens")

    def sight(self, text: Any, pictures: Pictures) -> Sight:
        """The eyes. text: the tokenizer of the model."""
        given = self._given()
        token = text.token(self.kind.sight.row)
        given |= {} if token is None else {"image_token_id": token}
        where = self.metadata.where
        eyes = Eyes(Fields(given, where), Fields(self._processor(), where), self.tensors)
        return self.kind.sight(eyes, pictures)

    def _given(self) -> dict[str, Any]:
        """Like a config.json."""
        tower = {ours: self.own.values[theirs] for ours, theirs in FIELDS.items()
                 if self.own.has(theirs)}  # fmt: skip
        flags = [name for name in ("gelu", "silu") if self.metadata.flag(f"clip.use_{name}")]
        act = {"gelu": self.kind.gelu, "silu": "silu"}[flags[0]] if flags else "quick_gelu"
        tower |= {"model_type": self.kind.tower, "hidden_act": act}
        more = self.kind.more(self, tower)
        return {"vision_config": tower, "mm_tokens_per_image": self.together or None, **more}

    def _processor(self) -> dict[str, Any]:
        """Like a preprocessor_config.json."""
        own = self.own
        found: dict[str, Any] = {
            name: own.numbers(name, 3) for name in ("image_mean", "image_std") if own.has(name)
        }
        if own.has("preproc_image_size"):
            found["size"] = {"longest_edge": own.count("preproc_image_size")}
        if self.kind.sight is QwenSight:
            side = own.count("patch_size") * own.count("spatial_merge_size", 2)
            for name, count in (("min", LEAST), ("max", MOST)):
                found[f"{name}_pixels"] = own.count(f"image_{name}_pixels", count * side * side)
        if self.kind.sight is InternSight:
            for name, usual in (("min", 1), ("max", 12)):
                found[f"{name}_patches"] = own.count(f"preproc_{name}_tiles", usual)
        return found

    def tensors(self) -> State:
        """Under the names of the net."""
        names = [name for name in self.file if name.startswith(("v.", "mm."))]
        state = {name: np.asarray(self.file[name].array(), np.float32) for name in names}
        try:
            self.kind.change(self, _unswapped(state))
        except (KeyError, ValueError) as error:
            raise WeightsError(f"{self.metadata.where}: a tensor is missing, or of another shape "
                               f"than it has in such files: {error}") from None  # fmt: skip
        self.file.release()
        return renamed(state, self.kind.names)


def _below(given: Fields, prefix: str) -> Fields:
    return Fields({name.removeprefix(prefix): value for name, value in given.values.items()
                   if name.startswith(prefix)}, given.where)  # fmt: skip


def _unswapped(state: State) -> State:
    """Old converters called the matrix that widens `ffn_down`."""
    for name in [name for name in state if name.endswith(".ffn_down.weight")]:
        stem = name.removesuffix("ffn_down.weight")
        wide, width = state[f"{stem}ffn_down.weight"].shape
        if wide > width:
            for part in ("weight", "bias"):
                up, down = f"{stem}ffn_up.{part}", f"{stem}ffn_down.{part}"
                state[up], state[down] = state[down], state[up]
    return state


# ---- kinds


def _llava(file: Projector, tower: dict[str, Any]) -> dict[str, Any]:
    """Files hold the blocks that are looked through, and no more, unless they name one."""
    if file.own.text("mm_patch_merge_type", "flat") != "flat" or "v.image_newline" in file.file:
        raise Unsupported(f"{file.own.where}: LLaVA 1.6, whose pictures are cut into tiles")
    layers = file.own.counts_or("feature_layer", [-1])
    if len(layers) > 1:
        raise Unsupported(f"{file.own.where}: states of several layers side by side")
    if "v.class_embd" not in file.file:
        tower["model_type"] = "siglip_vision_model"
    return {"vision_feature_layer": layers[0]}


def _llava_state(file: Projector, state: State) -> None:
    """The last norm is of a state that is not looked at, and left out."""
    width = file.own.count("embedding_length")
    state.setdefault("v.post_ln.weight", np.ones(width, np.float32))
    state.setdefault("v.post_ln.bias", np.zeros(width, np.float32))


def _idefics(file: Projector, tower: dict[str, Any]) -> dict[str, Any]:
    return {"scale_factor": file.own.count("projector.scale_factor", 2)}


def _qwen(file: Projector, tower: dict[str, Any]) -> dict[str, Any]:
    """Every so many-th block looks at the whole picture."""
    if file.own.has("n_wa_pattern"):
        step, layers = file.own.count("n_wa_pattern"), file.own.count("block_count", high=1 << 12)
        tower["fullatt_block_indexes"] = list(range(step - 1, layers, step))
    tower["deepstack_visual_indexes"] = file._deep
    return {}


def _qwen_state(file: Projector, state: State) -> None:
    """Frames of a patch and queries, keys, values are tensors of their own in files."""
    first, second = "v.patch_embd.weight", "v.patch_embd.weight.1"
    state[first] = np.stack([state[first], state.pop(second)], 2)
    for name in [name for name in state if ".attn_q." in name]:
        parts = [state.pop(name.replace("attn_q", f"attn_{letter}")) for letter in "qkv"]
        state[name.replace("attn_q", "attn_qkv")] = np.concatenate(parts)
    for n, layer in enumerate(file._deep):
        for name in [name for name in state if name.startswith(f"v.deepstack.{layer}.")]:
            state[name.replace(f"stack.{layer}.", f"stack.at.{n}.")] = state.pop(name)
    for name in [name for name in state if name.startswith("v.deepstack.at.")]:
        state[name.replace("stack.at.", "stack.")] = state.pop(name)


def _gemma_state(file: Projector, state: State) -> None:
    state[NORM] = state[NORM] - 1  # the converter adds one


def _intern(file: Projector, tower: dict[str, Any]) -> dict[str, Any]:
    normed = any(name.endswith(".attn_q_norm.weight") for name in file.file)
    tower |= {
        "attention_bias": "v.blk.0.attn_q.bias" in file.file, "use_qk_norm": normed,
        "norm_type": "layer_norm" if "v.blk.0.ln1.bias" in file.file else "rms_norm",
        "use_mean_pooling": "v.post_ln.weight" not in file.file,
    }  # fmt: skip
    return {"downsample_ratio": 1 / file.own.count("projector.scale_factor", 2)}


def _intern_state(file: Projector, state: State) -> None:
    width = file.own.count("embedding_length")
    state["v.class_embd"] = state["v.class_embd"].reshape(1, 1, width)
    state["v.position_embd.weight"] = state["v.position_embd.weight"].reshape(1, -1, width)


def _nothing(file: Projector, state: State) -> None:
    """As they are."""


@dataclass(frozen=True)
class Kind:
    """sight: whose tensors are named so; last: the matrix that makes rows; tower: its type; gelu:
    what files mean by it; more: config besides, into the tower's or beside it; change: what
    converters have done is undone."""

    sight: type[Sight]
    names: Names
    last: str
    tower: str = ""
    gelu: str = "gelu_pytorch_tanh"
    more: Callable[[Projector, dict[str, Any]], Mapping[str, Any]] = lambda file, tower: {}
    change: Callable[[Projector, State], None] = _nothing


def _beside(prefix: str, *more: tuple[str, str]) -> Names:
    """Of a tower under a name, and of what comes behind it."""
    return (*more, *((old, f"{prefix}{new}" if old.startswith("^v") else new)
                     for old, new in BLOCK))  # fmt: skip


MATRIX, NORM = "mm.input_projection.weight", "mm.soft_emb_norm.weight"
SIGLIP = "siglip_vision_model"
KINDS = {
    "mlp": Kind(
        Llava, _beside("vision_tower.", (r"^mm\.0\.", "linear_1."), (r"^mm\.2\.", "linear_2.")),
        "mm.2.weight", "clip_vision_model", "gelu", _llava, _llava_state),
    "idefics3": Kind(
        Idefics, _beside("vision_model.", (r"^mm\.model\.fc\.", "proj.")), "mm.model.fc.weight",
        SIGLIP, more=_idefics),
    "gemma3": Kind(
        GemmaSight,
        _beside("vision_tower.", (re.escape(MATRIX), "mm_input_projection_weight"),
                (r"^mm\.soft_emb_norm", "mm_soft_emb_norm")),
        MATRIX, SIGLIP, change=_gemma_state),
    "qwen2vl_merger": Kind(QwenSight, QWEN, "mm.2.weight", more=_qwen, change=_qwen_state),
    "qwen2.5vl_merger": Kind(QwenSight, QWEN, "mm.2.weight", more=_qwen, change=_qwen_state),
    "qwen3vl_merger": Kind(QwenSight, QWEN, "mm.2.weight", more=_qwen, change=_qwen_state),
    "internvl": Kind(
        InternSight, INTERN, "mm.model.mlp.3.weight", "internvl_vision", "gelu", _intern,
        _intern_state),
}  # fmt: skip


# ---- which file


def projector_beside(model: Path, width: int) -> Path | None:
    """The mmproj file that lies in the folder of a model's file, under the name that llama.cpp's
    users give it. Of several that fit its width, the one whose name has most in common with the
    model's; of equal ones the smallest."""
    found = []
    for path in sorted(model.parent.glob("*mmproj*.gguf")):
        try:
            projector = Projector(path)
        except (WeightsError, Unsupported):
            continue
        if projector.width == width:
            name = re.sub("mmproj-?", "", path.name)
            alike = next((n for n, (a, b) in enumerate(zip(name, model.name)) if a != b), len(name))
            found.append((-alike, projector.file.bytes, path))
    return min(found)[2] if found else None
