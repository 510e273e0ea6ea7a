"""The eyes of Moondream 2 (https://github.com/vikhyat/moondream): SigLIP on the whole picture and
on squares of it that overlap, whose patches are put together again; both go through one MLP."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ... import nn
from ...errors import InputError
from ...graph import Graph, Tensor
from ...weights.fields import Fields
from ..llm.families.moondream import SIDE
from ..llm.pictures import Pictures
from .images import normal, pillow
from .layers import MLP, renamed
from .sight import HALF, PLACE, Eyes, SquareSight, compiled
from .towers import Tower, TowerConfig

NAMES = (  # of both ways in which it was published
    (r"\._orig_mod", ""),
    (r"^(model\.)?vision\.|^vision_encoder\.encoder\.model\.visual\.", ""),
    (r"^(vision_encoder\.projection\.mlp|proj_mlp)\.", "joint."),
    (r"^patch_emb(ed\.linear)?\.", "embeddings.patch_embedding."),
    (r"^pos_emb(ed)?$", "embeddings.position_embedding.weight"),
    (r"^blocks\.(\d+)\.(ln|norm)(\d)\.", r"encoder.layers.\1.layer_norm\3."),
    (r"^blocks\.(\d+)\.attn\.proj\.", r"encoder.layers.\1.self_attn.out_proj."),
    (r"^blocks\.(\d+)\.attn\.", r"encoder.layers.\1.self_attn."),
    (r"^blocks\.", "encoder.layers."),
    (r"^(post_ln|norm)\.", "post_layernorm."),
)
TABLE = r"\.wte(\.weight)?$"


@dataclass(frozen=True)
class Form:
    """How a question is put. begin: the token before all; prefix, suffix: those around a question;
    caption: asks for a description; space: whether a question begins with one."""

    begin: int
    prefix: list[int]
    suffix: list[int]
    caption: list[int]
    space: bool


GPT2 = 50256  # its token at the ends of texts
OLD = Form(GPT2, [198, 198, 24361, 25], [198, 198, 33706, 25], [198, 198, 24334, 1159, 25], True)
NEW = Form(0, [1, 15381, 2], [3, 3], [1, 32708, 2, 6382, 3], False)  # since 2025-05


class Joint(nn.Module):
    """(tokens, 2 features): the whole and the squares, to (tokens, width)."""

    def __init__(self, graph: Graph, features: int, inner: int, width: int) -> None:
        super().__init__()
        self.joint = MLP(graph, 2 * features, inner, "gelu_pytorch_tanh", width)

    def forward(self, x: Tensor) -> Tensor:
        return self.joint(x)


class Encoder(nn.Module):
    """pixels to what the tower makes of its patches."""

    def __init__(self, graph: Graph, config: TowerConfig) -> None:
        super().__init__()
        self.tower = Tower(graph, config)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.tower(pixels)[1]


class MoondreamSight(SquareSight):
    """One question about one picture, as the model was trained."""

    mean, std, templated = HALF, HALF, False

    def __init__(self, eyes: Eyes, pictures: Pictures) -> None:
        given = eyes.given
        own = given.fields("config")
        vision, self._spoken = own.fields("vision"), own.fields("tokenizer")
        self.most, self.margin = vision.count("max_crops", 12), vision.count("overlap_margin", 4, 0)
        self.inner = vision.count("proj_inner_dim", 8192)
        tower = {
            "model_type": "siglip_vision_model", "layer_norm_eps": 1e-5,
            "hidden_size": vision.count("enc_dim", 1152),
            "intermediate_size": vision.count("enc_ff_dim", 4304),
            "num_hidden_layers": vision.count("enc_n_layers", 27),
            "num_attention_heads": vision.count("enc_n_heads", 16),
            "image_size": vision.count("crop_size", SIDE[0]),
            "patch_size": vision.count("enc_patch_size", SIDE[1]),
            "num_channels": vision.count("in_channels", 3),
        }  # fmt: skip
        known = {"vision_config": tower, "image_token_id": pictures.vocabulary}
        super().__init__(replace(eyes, given=Fields(known, given.where)), pictures)
        self._joint: Any = None
        self._form = OLD

    # ---- a question

    def conversation(
        self, text: Any, messages: Sequence[Mapping[str, Any]], render: Any
    ) -> tuple[str, list[int]]:
        if len(messages) != 1 or messages[0].get("role") != "user":
            raise InputError("Moondream answers one question: a conversation of one message, by "
                             "the user")  # fmt: skip
        images, said = self.images(messages), _words(messages[0])
        if len(images) > 1:
            raise InputError(f"Moondream looks at one picture, not at {len(images)}")
        form = self._form = self._form_of(text)
        start = self.see(images[0]) if images else [form.begin]
        if not said and images:
            asked = form.caption
        else:
            words = text.encode(" " * form.space + said, special=False)
            asked = [*form.prefix, *words, *form.suffix]
        return "".join(map(self.places, images)) + text.decode(asked, True), [*start, *asked]

    def places(self, image: Any) -> str:
        return PLACE

    def _form_of(self, text: Any) -> Form:
        """As the configuration says; else as its tokenizer shows which one it was trained with."""
        own, end = self._spoken, text.token("<|endoftext|>")
        usual = OLD if own.count("bos_id", GPT2 if end is None else end, 0) == GPT2 else NEW
        told = own.fields("templates")
        query, caption = told.fields("query"), told.fields("caption")
        suffix = query.counts_or("suffix", usual.suffix)
        return Form(
            own.count("bos_id", usual.begin, 0), query.counts_or("prefix", usual.prefix),
            suffix if usual.space or not query.has("suffix") else suffix * 2,
            caption.counts_or("normal", usual.caption), usual.space,
        )  # fmt: skip

    # ---- a picture

    def rows(self, image: Any) -> tuple[np.ndarray, tuple[int, int] | None]:
        """The token before all stands before the picture's, as these see each other."""
        whole, *parts = (
            self.features(normal(square, self.mean, self.std)[None])[0]
            for square in self.squares(image)
        )
        side = self.tower.side
        apart = np.stack(parts).reshape(*self.tiles(image.size), side, side, -1)
        seen = _averaged(_together(apart, self.margin), side)
        program, into, out = self._joined()
        program[into] = np.concatenate([whole, seen.reshape(whole.shape)], 1)
        program.run()
        tensors = self.tensors().items()
        table = next(value for name, value in tensors if re.search(TABLE, name))
        begin = np.asarray(table[self._form.begin], np.float32)[None]
        return np.concatenate([begin, np.array(program[out])]), None

    def tiles(self, size: tuple[int, int]) -> tuple[int, int]:
        """(rows, columns) of squares, which cover a picture or come nearest to its form."""
        around = 2 * self.margin * self.tower.patch_size
        width, height = (side - around for side in size)
        step = self.size - around
        if min(width, height) <= step:
            return 1, 1
        least = math.ceil(height / step), math.ceil(width / step)
        if least[0] * least[1] > self.most:
            share = math.sqrt(self.most / (least[0] * least[1]))
            return max(1, math.floor(least[0] * share)), max(1, math.floor(least[1] * share))
        rows = max(math.floor(math.sqrt(self.most * height / width)), least[0])
        columns = max(math.floor(math.sqrt(self.most * width / height)), least[1])
        if rows * columns > self.most and columns > rows:
            columns = self.most // rows
        elif rows * columns > self.most:
            rows = self.most // columns
        return max(1, rows), max(1, columns)

    def squares(self, image: Any) -> list[Any]:
        """The whole, then squares row by row."""
        lanczos, side = pillow().Resampling.LANCZOS, self.size
        around = 2 * self.margin * self.tower.patch_size
        rows, columns = self.tiles(image.size)
        step = side - around
        large = image.resize((columns * step + around, rows * step + around), lanczos)
        places = [(x * step, y * step) for y in range(rows) for x in range(columns)]
        parts = [large.crop((x, y, x + side, y + side)) for x, y in places]
        return [image.resize((side, side), lanczos), *parts]

    # ---- the nets

    def net(self, graph: Graph) -> nn.Module:
        return Encoder(graph, self.tower)

    def state(self) -> dict[str, np.ndarray]:
        state = renamed(self.tensors(), NAMES, r"(model\.)?(text|region).*")
        tower, patch = self.tower, "embeddings.patch_embedding.weight"
        shape = tower.hidden_size, tower.num_channels, tower.patch_size, tower.patch_size
        state[patch] = np.asarray(state[patch]).reshape(shape)
        places = "embeddings.position_embedding.weight"
        state[places] = np.asarray(state[places]).reshape(tower.side**2, -1)
        for name in [name for name in state if ".qkv." in name]:
            for letter, part in zip("qkv", np.split(np.asarray(state.pop(name)), 3)):
                state[name.replace("qkv", f"{letter}_proj")] = part
        own = {n: v for n, v in state.items() if n.startswith("joint.")}
        return own | {f"tower.{n}": v for n, v in state.items() if n not in own}

    def _joined(self) -> tuple[Any, Tensor, Tensor]:
        if self._joint is None:
            graph, features = Graph(), self.tower.hidden_size
            seen = graph.tensor((self.tower.side**2, 2 * features), name="seen")
            with nn.uninitialised():
                net = Joint(graph, features, self.inner, self.pictures.width)
            self._joint = compiled(net, seen, self.state())
        return self._joint


def _words(message: Mapping[str, Any]) -> str:
    """What a message says."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, (list, tuple)) else ()
    return "".join(str(part["text"]) for part in parts
                   if isinstance(part, Mapping) and part.get("type") == "text")  # fmt: skip


def _together(parts: np.ndarray, margin: int) -> np.ndarray:
    """(rows, columns, side, side, features) of squares that overlap by two margins, as one grid:
    inside of it every square gives up its margins."""
    rows, columns, side = parts.shape[:3]
    step = side - 2 * margin
    whole = np.empty((rows * step + 2 * margin, columns * step + 2 * margin, parts.shape[-1]),
                     parts.dtype)  # fmt: skip
    for y in range(rows):
        for x in range(columns):
            top, left = margin * (y > 0), margin * (x > 0)
            whole[y * step + top : y * step + side, x * step + left : x * step + side] = parts[
                y, x, top:, left:
            ]
    return whole


def _averaged(grid: np.ndarray, side: int) -> np.ndarray:
    """(height, width, features) to (side, side, features): means of areas, as PyTorch's
    adaptive_avg_pool2d."""
    first, second = (_areas(length, side) for length in grid.shape[:2])
    return np.einsum("yh,hwf,xw->yxf", first, grid, second, optimize=True)


def _areas(length: int, side: int) -> np.ndarray:
    """(side, length): what each mean is made of."""
    n, place = np.arange(side)[:, None], np.arange(length)
    inside = (place >= n * length // side) & (place < -(-(n + 1) * length // side))
    return (inside / inside.sum(1, keepdims=True)).astype(np.float32)
