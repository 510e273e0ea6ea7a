"""What points and boxes in a picture mean: Segment Anything, both versions, from folders as Hugging
Face writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError
from ...graph import Graph
from ...weights.checkpoints import read_tensors
from .images import IMAGENET, Source, prepared, processor, read_image, stretched, with_usual
from .layers import config_of, renamed
from .named import Named
from .sam import encoded, encoded2
from .sam_masks import BACKGROUND, FIRST_CORNER, NOTHING, OBJECT, SECOND_CORNER, Prompts, masks

KINDS = {"sam": encoded, "sam2": encoded2, "sam2_video": encoded2}
RENAMES = ((r"\.o_proj\.", ".out_proj."), (r"^detector_model\.", ""))
MOST_POINTS = 62
SIDE = 1024

Point = tuple[float, float]
Box = tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class Mask:
    """mask: (height, width) bool of the picture. score: how well the model thinks it fits, the
    share of what both have in common."""

    mask: np.ndarray
    score: float


class Segmenter:
    """SAM or SAM 2. A picture is looked at once; prompts after it are cheap. Raises WeightsError,
    Unsupported.

    >>> Segmenter("sam2.1-hiera-tiny")("cat.jpg", points=[(120, 80)])
    """

    def __init__(self, directory: str | Path, **compiling: Any) -> None:
        self.directory = Path(directory)
        self.config, self.kind = config_of(self.directory, KINDS)
        self._state = renamed(read_tensors(self.directory), RENAMES)
        self.first = self.kind == "sam"  # keeps proportions and fills the rest with zeros
        self.side = self._side()
        sizes = {"longest_edge": self.side} if self.first else {
            "height": self.side, "width": self.side}  # fmt: skip
        given = with_usual(processor(self.directory), IMAGENET)
        self._prepared = with_usual(given, {"size": sizes})
        self._compiling = compiling
        self._eye: Any = None  # compiled when there is a picture

    def _side(self) -> int:
        given = self.config.fields("vision_config")
        if not self.first:
            given = given.fields("backbone_config")
        found = given.values.get("image_size")
        if isinstance(found, (list, tuple)):
            return given.counts("image_size", 2)[0]
        return given.count("image_size", SIDE)

    # ---- programs

    def _compile(self) -> None:
        """The program that looks at a picture, and the one that makes masks of a prompt."""
        graph = Graph()
        self._pixels = graph.tensor((1, 3, self.side, self.side), name="pixels")
        maps = KINDS[self.kind](Named(graph, self._state), self._pixels, self.config)
        self._maps = [x.output(f"map{n}") for n, x in enumerate(maps)]
        self._eye = graph.compile(**self._compiling)
        graph = Graph()
        w = Named(graph, self._state)
        self.prompts = Prompts(w, self.side)
        self._given = [graph.tensor(x.shape, name=f"map{n}") for n, x in enumerate(maps)]
        count = graph.dim("points", 1, MOST_POINTS + 2)
        self._tokens = graph.tensor((1, count, int(maps[-1].shape[1])), name="tokens")
        grid = self.prompts.grid(*(int(n) for n in maps[-1].shape[2:]))
        found = masks(w, self._given, self._tokens, grid, self.config)
        self._found = [x.output() for x in found if x is not None]
        self._hand = graph.compile(**self._compiling)

    def look(self, pixels: np.ndarray) -> None:
        """At prepared pixels (3, side, side); what `logits` gives then is of these."""
        if self._eye is None:
            self._compile()
        self._eye[self._pixels] = pixels[None]
        self._eye.run()
        for into, out in zip(self._given, self._maps):
            self._hand[into] = self._eye[out]

    def logits(self, points: np.ndarray, labels: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """(logits (masks, side / 4, side / 4), scores (masks,)), the first for a prompt with one
        meaning, the others for parts and wholes; points (count, 2) in pixels of the square."""
        tokens = self.prompts.tokens(np.asarray(points, np.float64), labels)
        self._hand[self._tokens] = tokens[None]
        self._hand.run()
        found = [np.array(self._hand[x]) for x in self._found]
        return found[0], found[1]

    # ---- a picture

    def __call__(
        self, image: Source, points: Sequence[Point] = (), besides: Sequence[Point] = (),
        box: Box | None = None,
    ) -> list[Mask]:  # fmt: skip
        """Masks of the object that all points lie on, that those of `besides` do not lie on, and
        that lies in the box; places in pixels. One, or three (the best first) for a point alone,
        which may mean a part or the whole. Raises InputError."""
        picture = read_image(image)
        checked(picture.size, points, besides, box)
        self.see(picture)
        return self.prompt(picture.size, points, besides, box)

    def see(self, image: Source) -> None:
        """Look at a picture; prompts after it are about it. Raises InputError."""
        seen = prepared(read_image(image), self._prepared)
        pixels = np.zeros((3, self.side, self.side), np.float32)
        pixels[:, : seen.shape[1], : seen.shape[2]] = seen
        self._seen = seen.shape[1:]
        self.look(pixels)

    def prompt(
        self, size: tuple[int, int], points: Sequence[Point] = (), besides: Sequence[Point] = (),
        box: Box | None = None,
    ) -> list[Mask]:  # fmt: skip
        """As a call, about the picture seen last, of this (width, height)."""
        places, labels = checked(size, points, besides, box)
        if box is None or not self.first:  # the first version takes a box alone
            places, labels = np.concatenate([places, [(0.0, 0.0)]]), [*labels, NOTHING]
        scale = np.array(self._seen[::-1]) / np.array(size)
        logits, scores = self.logits(places * scale, labels)
        alone = len(points) == 1 and not besides and box is None
        best = [1 + int(n) for n in np.argsort(-scores[1:], kind="stable")]
        order = best if alone else self._single(logits, scores)
        return [Mask(self.enlarged(logits[n], size) > 0, float(scores[n])) for n in order]

    def _single(self, logits: np.ndarray, scores: np.ndarray) -> list[int]:
        """The mask for one meaning; of SAM 2, the best of the others where its edge is vague."""
        given = self.config.fields("mask_decoder_config")
        if not self.first and given.flag("dynamic_multimask_via_stability", True):
            edge = given.number("dynamic_multimask_stability_delta", 0.05, low=0)
            outer = (logits[0] > -edge).sum()
            stable = (logits[0] > edge).sum() / outer if outer else 1.0
            if stable < given.number("dynamic_multimask_stability_thresh", 0.98):
                return [1 + int(np.argmax(scores[1:]))]
        return [0]

    def enlarged(self, logits: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        """(height, width) f32 of the picture of logits of the square."""
        if self.first:
            logits = stretched(logits, self.side, self.side)
            logits = logits[: self._seen[0], : self._seen[1]]
        return stretched(logits, size[1], size[0])


def checked(
    size: tuple[int, int], points: Sequence[Point], besides: Sequence[Point], box: Box | None
) -> tuple[np.ndarray, list[int]]:
    """(places (count, 2), labels) of a prompt about a picture of this (width, height). Raises
    InputError."""
    places = [*points, *besides]
    labels = [OBJECT] * len(points) + [BACKGROUND] * len(besides)
    if not places and box is None:
        raise InputError("a prompt has a point or a box")
    if len(places) > MOST_POINTS - 2:
        raise InputError(f"{len(places)} points; at most {MOST_POINTS - 2} in a prompt")
    if box is not None:
        left, top, right, bottom = box
        if not (left < right and top < bottom):
            raise InputError(f"a box is left, top, right, bottom, not {box}")
        places += [(left, top), (right, bottom)]
        labels += [FIRST_CORNER, SECOND_CORNER]
    for x, y in places:
        if not (0 <= x <= size[0] and 0 <= y <= size[1]):
            raise InputError(f"{x}, {y} lies outside of a picture of {size[0]} x {size[1]} pixels")
    return np.array(places, np.float64), labels
