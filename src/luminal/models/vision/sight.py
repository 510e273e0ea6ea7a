"""Pictures in conversations: what a vision-language model makes of them, as tokens of its decoder.

LLaVA (Liu et al. 2023, https://arxiv.org/abs/2304.08485) looks at the middle of a picture; Idefics
3 and SmolVLM (Laurencon et al. 2024, https://arxiv.org/abs/2408.12637) at tiles and at the whole.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import nn
from ...errors import InputError
from ...graph import Graph, Tensor
from ...nn.activation import activation_of
from ...weights.fields import Fields
from ..llm.pictures import Pictures
from .images import Source, middle, normal, pillow, read_image, to_array
from .layers import renamed
from .towers import Tower, TowerConfig

PLACE = "<image>"  # where a picture stands in a rendered conversation
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
HALF = (0.5, 0.5, 0.5)
MOST_PICTURES = 64  # of one conversation
PARTS = ("image", "image_url", "input_image")


def pictures_of(message: Mapping[str, Any]) -> list[Source]:
    """The pictures of a message, in order. Raises InputError."""
    content = message.get("content")
    if not isinstance(content, (list, tuple)):
        return []
    return [_source(part) for part in content
            if isinstance(part, Mapping) and part.get("type") in PARTS]  # fmt: skip


def _source(part: Mapping[str, Any]) -> Source:
    found = part.get("image_url", part.get("image"))
    found = found.get("url") if isinstance(found, Mapping) else found
    if found is None:
        raise InputError("a part with a picture has an 'image' or an 'image_url'")
    return found


@dataclass(frozen=True)
class Eyes:
    """What a checkpoint has of eyes. given: a config.json, or what stands for it; processor: of
    pictures; tensors: those of the net, among others."""

    given: Fields
    processor: Fields
    tensors: Callable[[], Mapping[str, Any]]


class Sight(ABC):
    """The eyes of a model. pictures: where rows of pictures are held. The net is compiled when the
    first picture comes."""

    mean: Sequence[float]
    std: Sequence[float]
    place = PLACE
    around = "", "\n"  # a picture, where a template knows of none
    row = PLACE  # the text of a row's token
    templated = True  # conversations are put as a chat template says

    def __init__(self, eyes: Eyes, pictures: Pictures) -> None:
        self.given, self.processor, self.pictures = eyes.given, eyes.processor, pictures
        self.tensors = eyes.tensors
        self.mean = self.processor.numbers_or("image_mean", self.mean, 3)
        self.std = self.processor.numbers_or("image_std", self.std, 3)
        names = ("image_token_id", "image_token_index")
        known = next((name for name in names if self.given.has(name)), None)
        self.token = None if known is None else self.given.count(known, low=0)

    def conversation(
        self, text: Any, messages: Sequence[Mapping[str, Any]], render: Any
    ) -> tuple[str, list[int]]:
        """(the text, the token ids) of a conversation with pictures. text: its tokenizer; render:
        makes a text of messages. Raises InputError."""
        images = self.images(messages)
        said = self._said(messages, len(images), render)
        parts = said.split(self.place)
        ids: list[int] = []
        for image in images:
            ids += self.see(image)
        whole = parts[0]
        for image, after in zip(images, parts[1:]):
            whole += self.places(image) + after
        return said, self._tokens(text, whole, ids)

    def _said(self, messages: Sequence[Mapping[str, Any]], count: int, render: Any) -> str:
        """The text with a place for each of `count` pictures: where the template puts them, or
        before the words of their message, where it knows only words. Raises InputError."""
        plain = [_plain(message, self.place) for message in messages]
        if not _knows_parts(render):
            begin, end = self.around
            plain = [_worded(message, f"{begin}{self.place}{end}") for message in plain]
        said = str(render(plain))
        if (places := said.count(self.place)) != count:
            raise InputError(f"the chat template has {places} places for {count} pictures")
        return said

    def _tokens(self, text: Any, whole: str, rows: Sequence[int]) -> list[int]:
        """A text's tokens, these ids in the places of rows; where the vocabulary has no token for
        a row, what stands between is encoded part by part. Raises InputError."""
        seen = iter(rows)
        if self.token is None:
            first, *parts = (text.encode(part, special=False) if part else []
                             for part in whole.split(self.row))  # fmt: skip
            made = [*first, *(token for part in parts for token in (next(seen, -1), *part))]
        else:
            made = [next(seen, -1) if token == self.token else token
                    for token in text.encode(whole, special=False)]  # fmt: skip
        if -1 in made or next(seen, None) is not None:
            raise InputError(f"the text has not as many tokens {self.row} as pictures have rows")
        return made

    def images(self, messages: Sequence[Mapping[str, Any]]) -> list[Any]:
        """The pictures of a conversation, in order. Raises InputError."""
        sources = [source for message in messages for source in pictures_of(message)]
        if len(sources) > MOST_PICTURES:
            raise InputError(f"{len(sources)} pictures; at most {MOST_PICTURES} in a conversation")
        return [read_image(_safe(source)) for source in sources]

    def see(self, image: Any) -> list[int]:
        """The ids of a picture's tokens."""
        key = hashlib.sha256(to_array(image).tobytes() + repr(image.size).encode()).digest()
        found = self.pictures.find(key)
        return self.pictures.add(key, *self.rows(image)) if found is None else found

    @abstractmethod
    def rows(self, image: Any) -> tuple[np.ndarray, tuple[int, int] | None]:
        """(rows (tokens, width), how many rows and columns of tokens a picture has, where these
        matter to the decoder)."""

    @abstractmethod
    def places(self, image: Any) -> str:
        """The text with a token for every row of a picture."""


class SquareSight(Sight):
    """Eyes for squares of one size."""

    size: int  # of the square that the tower sees

    def __init__(self, eyes: Eyes, pictures: Pictures) -> None:
        super().__init__(eyes, pictures)
        self.tower = TowerConfig.read(self.given.fields("vision_config"))
        self.size = self.tower.image_size
        self._program: Any = None

    def rows(self, image: Any) -> tuple[np.ndarray, tuple[int, int] | None]:
        squares = [normal(s, self.mean, self.std) for s in self.squares(image)]
        return np.concatenate([self.features(square[None])[0] for square in squares]), None

    @abstractmethod
    def squares(self, image: Any) -> list[Any]:
        """The pictures of `size` that are looked at."""

    def features(self, pixels: np.ndarray) -> np.ndarray:
        """Rows (1, tokens, width of the decoder) of (1, 3, size, size)."""
        if self._program is None:
            self._program = self._compiled()
        program, into, out = self._program
        program[into] = pixels
        program.run()
        return np.array(program[out])

    def _compiled(self) -> tuple[Any, Tensor, Tensor]:
        graph = Graph()
        pixels = graph.tensor((1, self.tower.num_channels, self.size, self.size), name="pixels")
        with nn.uninitialised():
            net = self.net(graph)
        return compiled(net, pixels, self.state())

    renames: tuple[tuple[str, str], ...] = ()

    def state(self) -> dict[str, Any]:
        """The tensors of the net, among others."""
        return renamed(self.tensors(), self.renames)

    @abstractmethod
    def net(self, graph: Graph) -> nn.Module:
        """pixels to rows."""


def compiled(net: nn.Module, given: Tensor, state: Mapping[str, Any]) -> tuple[Any, Tensor, Tensor]:
    """(program, what it is given, its rows) of a net with its tensors out of a state."""
    out = net(given).output("rows")
    wanted = {name for name, _ in net.named_parameters()}
    net.load_state_dict({name: value for name, value in state.items() if name in wanted})
    return given.graph.compile(), given, out


def _safe(source: Source) -> Source:
    """What a request may name: a data URL, bytes, a picture; a path only as a Path. Raises
    InputError."""
    if isinstance(source, str) and not source.startswith("data:"):
        raise InputError(
            f"a picture is given as a data URL (data:image/...;base64,...), not {source[:60]!r}"
        )
    return source


def _plain(message: Mapping[str, Any], place: str) -> dict[str, Any]:
    """With parts as chat templates know them."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": [{"type": "text", "text": content}]}
    if not isinstance(content, (list, tuple)):
        return dict(message)
    parts = [{"type": "image"} if part.get("type") in PARTS else
             {"type": "text", "text": str(part.get("text", "")).replace(place, "")}
             for part in content if isinstance(part, Mapping)]  # fmt: skip
    return {**message, "content": parts}


def _knows_parts(render: Any) -> bool:
    """Whether a chat template takes messages of several parts: shows their words, nothing else."""
    asked = [{"role": "user", "content": [{"type": "text", "text": "words"}]}]
    try:
        said = render(asked)
    except InputError:
        return False
    return "words" in said and "'text'" not in said


def _worded(message: Mapping[str, Any], picture: str) -> dict[str, Any]:
    """A plain message as one text, with this in the place of a picture."""
    parts = message.get("content")
    if not isinstance(parts, list):
        return dict(message)
    return {**message, "content": "".join(part.get("text", picture) for part in parts)}


# ---- LLaVA


class LlavaNet(nn.Module):
    """The tower, states of one of its layers, two linear layers."""

    def __init__(self, graph: Graph, tower: TowerConfig, width: int, given: Fields) -> None:
        super().__init__()
        self.vision_tower = Tower(graph, tower)
        self.layer = int(given.number("vision_feature_layer", -2))
        self.skip = int(given.text("vision_feature_select_strategy", "default") == "default")
        bias = given.flag("multimodal_projector_bias", True)
        self.linear_1 = nn.Linear(graph, tower.hidden_size, width, bias=bias)
        self.linear_2 = nn.Linear(graph, width, width, bias=bias)
        self.activation = activation_of(given.text("projector_hidden_act", "gelu"))

    def forward(self, pixels: Tensor) -> Tensor:
        states, _ = self.vision_tower(pixels)
        seen = states[self.layer][:, self.skip :]
        return self.linear_2(self.activation(self.linear_1(seen)))


class Llava(SquareSight):
    """The middle square of a picture, or all of it, where its processor (SigLIP's) cuts nothing."""

    mean, std = CLIP_MEAN, CLIP_STD
    renames = (
        (r"^model\.", ""),
        (r"^vision_tower\.vision_model\.", "vision_tower."),
        (r"^multi_modal_projector\.", ""),
    )

    def net(self, graph: Graph) -> nn.Module:
        return LlavaNet(graph, self.tower, self.pictures.width, self.given)

    def squares(self, image: Any) -> list[Any]:
        cut = not self.processor.fields("size").has("height")
        if not self.processor.flag("do_center_crop", cut):
            return [image.resize((self.size, self.size), pillow().Resampling.BICUBIC)]
        return [middle(image, self.size, self.size)]

    def places(self, image: Any) -> str:
        full = self.given.text("vision_feature_select_strategy", "default") == "full"
        return PLACE * (self.tower.side**2 + int(full and self.tower.classed))


# ---- Idefics 3, SmolVLM


class IdeficsNet(nn.Module):
    """The tower, neighbouring patches joined, one matrix."""

    def __init__(self, graph: Graph, tower: TowerConfig, width: int, factor: int) -> None:
        super().__init__()
        self.vision_model, self.factor, self.side = Tower(graph, tower), factor, tower.side
        self.proj = nn.Linear(graph, tower.hidden_size * factor**2, width, bias=False)

    def forward(self, pixels: Tensor) -> Tensor:
        _, seen = self.vision_model(pixels)
        cut = seen.unflatten(1, (self.side, self.side)).unflatten(2, (-1, self.factor))
        # (batch, rows, factor, columns, factor, width)
        cut = cut.unflatten(1, (-1, self.factor)).permute(0, 1, 3, 2, 4, 5)
        return self.proj(cut.flatten(3, 5).flatten(1, 2))


class Idefics(SquareSight):
    """Tiles of a picture, row by row, then the whole of it."""

    mean, std = HALF, HALF
    renames = ((r"^model\.", ""), (r"^connector\.modality_projection\.", ""))

    @property
    def factor(self) -> int:
        return self.given.count("scale_factor", 2)

    def net(self, graph: Graph) -> nn.Module:
        return IdeficsNet(graph, self.tower, self.pictures.width, self.factor)

    def tiles(self, size: tuple[int, int]) -> tuple[int, int]:
        """(rows, columns) of tiles; (0, 0): the whole alone."""
        if not self.processor.flag("do_image_splitting", True):
            return 0, 0
        width, height = self.enlarged(size)[1]
        rows, columns = height // self.size, width // self.size
        return (0, 0) if rows == columns == 1 else (rows, columns)

    def enlarged(self, size: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
        """The longest side is as long as the model wants; then both are multiples of a tile's."""
        longest = self.processor.fields("size").count("longest_edge", 4 * self.size)
        width, height = size
        ratio = width / height
        if width >= height:
            width, height = longest, int(longest / ratio)
            height += height % 2
        else:
            width, height = int(longest * ratio), longest
            width += width % 2
        first = max(width, 1), max(height, 1)
        ratio = first[0] / first[1]
        if width >= height:
            width = math.ceil(width / self.size) * self.size
            height = math.ceil(int(width / ratio) / self.size) * self.size
        else:
            height = math.ceil(height / self.size) * self.size
            width = math.ceil(int(height * ratio) / self.size) * self.size
        return first, (width, height)

    def squares(self, image: Any) -> list[Any]:
        lanczos, side = pillow().Resampling.LANCZOS, self.size
        rows, columns = self.tiles(image.size)
        if not rows:
            return [image.resize((side, side), lanczos)]
        first, last = self.enlarged(image.size)
        whole = image.resize(first, lanczos).resize(last, lanczos)
        found = [whole.crop((x * side, y * side, (x + 1) * side, (y + 1) * side))
                 for y in range(rows) for x in range(columns)]  # fmt: skip
        return [*found, whole.resize((side, side), lanczos)]

    def places(self, image: Any) -> str:
        around, seen = "<fake_token_around_image>", PLACE * (self.tower.side // self.factor) ** 2
        rows, columns = self.tiles(image.size)
        text = ""
        for y in range(rows):
            for x in range(columns):
                text += f"{around}<row_{y + 1}_col_{x + 1}>{seen}"
            text += "\n"
        return f"{text}{chr(10) if rows else ''}{around}<global-img>{seen}{around}"
