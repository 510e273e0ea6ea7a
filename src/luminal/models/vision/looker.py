"""Detectors from folders as Hugging Face writes them: DETR, RT-DETR and its second version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ... import ops
from ...errors import InputError
from ...graph import Graph, Tensor
from ...weights.checkpoints import read_tensors
from ...weights.fields import Fields
from .boxes import corners
from .detector import Detection, Detector
from .detr import detr
from .images import IMAGENET, Source, padded, prepared, processor, read_image, with_usual
from .layers import config_of, names_of, renamed
from .named import Named
from .programs import BySize
from .resnet import TIMM
from .rtdetr import rt_detr

Net: TypeAlias = Callable[..., tuple[Tensor, Tensor]]
NETS: dict[str, Net] = {"detr": detr, "rt_detr": rt_detr, "rt_detr_v2": rt_detr}
RENAMES = (
    (r"^model\.backbone\.(conv_encoder\.)?model\.", "model.backbone."),
    (r"\.o_proj\.", ".out_proj."),
    (r"\.mlp\.(fc\d)\.", r".\1."),
    (r"^model\.encoder\.aifi\.", "model.encoder.encoder."),
    (r"^(bbox_embed|class_embed)\.", r"model.decoder.\1."),
)
BACKBONE = "model.backbone."
USUAL: dict[str, dict[str, Any]] = {
    "detr": {"size": {"shortest_edge": 800, "longest_edge": 1333}, "do_pad": True, **IMAGENET},
    "rt_detr": {"size": {"height": 640, "width": 640}, "do_normalize": False},
}


class Looker:
    """A detector that needs no suppression. size: both sides of what it sees, by default as its
    preprocessor_config.json says. A program serves one size of picture. Raises WeightsError,
    Unsupported.

    >>> Looker("rtdetr_v2_r50vd")("street.jpg")
    """

    def __init__(self, directory: str | Path, size: int | None = None, **compiling: Any) -> None:
        self.directory = Path(directory)
        self.config, self.kind = config_of(self.directory, NETS)
        given = with_usual(processor(self.directory), USUAL.get(self.kind, USUAL["rt_detr"]))
        own = {"size": {"height": size, "width": size}, "do_pad": False}
        self._prepared = given if size is None else Fields({**given.values, **own}, given.where)
        self._state = _state(read_tensors(self.directory))
        self.softmax = self.kind == "detr"
        head = "class_labels_classifier" if self.softmax else "model.enc_score_head"
        self.classes = len(Named(Graph(), self._state)[head].array()) - self.softmax
        self.names = names_of(self.config, self.classes)
        self._programs = BySize(self._record, compiling)

    # ---- programs

    def _record(self, graph: Graph, pixels: Tensor, *shown: tuple[int, int]) -> list[Tensor]:
        logits, boxes = NETS[self.kind](Named(graph, self._state), pixels, self.config, *shown)
        return [logits, boxes, *self._best(logits, boxes)]

    def _best(self, logits: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(scores, labels, corners) of as many boxes as there are queries."""
        edges = corners(boxes)
        if self.softmax:
            shares = ops.softmax(logits, -1).narrow(1, 0, self.classes)
            return shares.amax(-1), ops.argmax(shares, -1), edges
        scores, place = ops.topk(ops.sigmoid(logits).flatten(0, 1), int(logits.shape[0]))
        return scores, place % self.classes, ops.index_select(edges, 0, place // self.classes)

    def run(self, pixels: np.ndarray, shown: tuple[int, int] | None = None) -> list[np.ndarray]:
        """[logits (queries, classes, and "nothing" of a DETR), boxes (queries, 4), scores
        (queries,), labels (queries,), corners (queries, 4)] of prepared pixels (3, height, width).
        shown: (height, width) of the picture in the first of them, all by default; the rest is
        padding. Places are shares of the picture for DETR, of all pixels for RT-DETR."""
        height, width = shown or pixels.shape[1:]
        return self._programs(pixels, *([(height, width)] if self.softmax else []))

    # ---- a picture

    def __call__(
        self, image: Source, confidence: float = 0.25, overlap: float = 0.7, limit: int = 300
    ) -> list[Detection]:
        """As of `Detector`; there is nothing to suppress, so `overlap` does nothing."""
        if not 0 <= confidence <= 1:
            raise InputError(f"a confidence lies in 0 .. 1, not {confidence}")
        picture = read_image(image)
        seen = prepared(picture, self._prepared)
        pixels = padded(seen, self._prepared)
        (height, width), (below, right) = seen.shape[1:], pixels.shape[1:]
        _, _, scores, labels, edges = self.run(pixels, (height, width))
        sides = np.array(picture.size, np.float32)
        if not self.softmax:
            sides = sides * np.array([right / width, below / height], np.float32)
        edges = edges * np.tile(sides, 2)
        order = np.argsort(-scores, kind="stable")
        order = order[scores[order] > confidence][:limit]
        return [
            Detection(
                (float(left), float(top), float(right), float(bottom)),
                float(score), int(label), self.names[label],
            )
            for (left, top, right, bottom), score, label in zip(
                edges[order], scores[order], labels[order]
            )
        ]  # fmt: skip


def _state(given: Any) -> dict[str, np.ndarray]:
    """Under the names of RENAMES, also where the backbone is timm's."""
    found = renamed(given, RENAMES)
    if BACKBONE + "conv1.weight" in found:
        below = {n.removeprefix(BACKBONE): v for n, v in found.items() if n.startswith(BACKBONE)}
        found |= {BACKBONE + name: value for name, value in renamed(below, TIMM).items()}
    return found


def detector_of(source: Any, size: int | None = None, **compiling: Any) -> Detector | Looker:
    """A folder's detector, or a YOLO (`Detector`). Raises WeightsError, Unsupported, InputError."""
    if isinstance(source, (str, Path)) and Path(source).is_dir():
        return Looker(source, size, **compiling)
    return Detector(source, size, **compiling)
