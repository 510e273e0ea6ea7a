"""Objects in pictures: a YOLO from its weights or from an ONNX file, its boxes, masks and poses."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ... import ops
from ...errors import InputError, Unsupported, WeightsError
from ...graph import Graph, Tensor
from ...weights import Safetensors
from ...weights.fields import exists
from .boxes import corners, suppressed
from .images import Source, pillow, read_image, to_array
from .yolo import Yolo, point_size

GREY = (114, 114, 114)  # around a picture of other proportions, as in training
STRIDE = 32
USUAL_SIZE = 640
ENDED = 6  # numbers of a box that suppression in the net has left: corners, score, class
Sides = tuple[int, int]  # height and width of what a net sees
COCO = (
    "person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light,fire hydrant,"
    "stop sign,parking meter,bench,bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe,"
    "backpack,umbrella,handbag,tie,suitcase,frisbee,skis,snowboard,sports ball,kite,baseball bat,"
    "baseball glove,skateboard,surfboard,tennis racket,bottle,wine glass,cup,fork,knife,spoon,bowl,"
    "banana,apple,sandwich,orange,broccoli,carrot,hot dog,pizza,donut,cake,chair,couch,"
    "potted plant,bed,dining table,toilet,tv,laptop,mouse,remote,keyboard,cell phone,microwave,"
    "oven,toaster,sink,refrigerator,book,clock,vase,scissors,teddy bear,hair drier,toothbrush"
).split(",")


@dataclass(frozen=True, eq=False)
class Detection:
    """box: left, top, right, bottom in pixels of the picture. points: keypoints (count, 3), the
    last being how sure each is (1 where the net does not tell). mask: (height, width) bool of the
    whole picture."""

    box: tuple[float, float, float, float]
    score: float
    label: int
    name: str
    points: np.ndarray | None = None
    mask: np.ndarray | None = None


@dataclass(frozen=True)
class Placed:
    """Where a picture lies in the rectangle that the net sees."""

    scale: float
    left: int
    top: int
    width: int
    height: int

    def back(self, across: np.ndarray, down: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places in the rectangle as places in the picture."""
        x = np.clip((across - self.left) / self.scale, 0, self.width)
        return x, np.clip((down - self.top) / self.scale, 0, self.height)


class Detector:
    """source: `.safetensors` with a YOLO's weights under ultralytics' names, or such weights by
    name; or an ONNX model as ultralytics exports it (`luminal.onnx.load`), also with suppression in
    it. size: of the square that the net sees, a multiple of 32; an export may have sides of its
    own. names: of the classes. Raises WeightsError, Unsupported, InputError.

    >>> Detector(luminal.onnx.load("yolov8n.onnx"))("street.jpg")
    """

    def __init__(
        self, source: str | Path | Mapping[str, np.ndarray] | Any, size: int | None = None,
        names: Sequence[str] | None = None, **compiling: Any,
    ) -> None:  # fmt: skip
        self._compiling = compiling
        self._net: Any = None  # an ONNX model, run before the program
        self._batch = 1  # pictures that it takes
        self.program: Any = None  # none where suppression is in the ONNX model
        self.names: list[str] = list(names or ())
        if isinstance(source, (str, Path)):
            source = _weights(Path(source))
        if isinstance(source, Mapping):
            self._from_weights(source, size)
        else:
            self._from_onnx(source, size)

    # ---- programs

    def _from_weights(self, state: Mapping[str, np.ndarray], size: int | None) -> None:
        net = Yolo(state)
        self.sides = _checked(size or USUAL_SIZE), _checked(size or USUAL_SIZE)
        self.task, self.classes, self._point = net.task, net.classes, net.point
        graph = Graph()
        self._images = graph.tensor((1, 3, *self.sides), name="images")
        raw, protos = net.record(self._images)
        self._finish(graph, raw.squeeze(0), protos)
        self._name(COCO if self.classes == len(COCO) else ())

    def _from_onnx(self, model: Any, size: int | None) -> None:
        self._net = model
        told = {p.key: p.value for p in self._net.proto.metadata_props}
        (port,) = self._net.inputs.values() if len(self._net.inputs) == 1 else (None,)
        if port is None or port.shape is None or len(port.shape) != 4:
            raise Unsupported("a detector has one input, (batch, 3, height, width)")
        self.sides = _sides(port.shape[2:], size, _pair(told.get("imgsz", "")))
        self._batch = port.shape[0] if isinstance(port.shape[0], int) else 1
        self.task = told.get("task", "detect")
        if self.task not in ("detect", "segment", "pose"):
            raise Unsupported(f"a model for the task {self.task!r}")
        names = _literal(told.get("names", ""), dict) or {}
        results = self._net.run([np.zeros((self._batch, 3, *self.sides), np.float32)])
        rows, count = results[0].shape[1:] if results[0].ndim == 3 else (0, 0)
        shape = _pair(told.get("kpt_shape", "")) if self.task == "pose" else None
        more = {"detect": 0, "pose": shape and shape[0] * shape[1],
                "segment": results[1].shape[1] if len(results) > 1 else None}[self.task]
        ended = more is not None and count == ENDED + more
        if not ended and (rows < 5 or count < rows):
            raise Unsupported(f"an output {results[0].shape}, which is not a YOLO v8's")
        self.classes = len(names) or (len(self.names) if ended else rows - 4)
        self._name(list(names.values()))
        if self.task == "pose":
            extra = count - ENDED if ended else rows - 4 - self.classes
            self._point = point_size(extra, shape)
        if ended:
            return
        graph = Graph()
        self._raw = graph.tensor((rows, count), name="raw")
        self._finish(graph, self._raw, None)

    def _finish(self, graph: Graph, raw: Tensor, protos: Tensor | None) -> None:
        """The rest of the graph: the boxes that are left of raw (4 + classes + extra, cells)."""
        self._most, self._least = graph.tensor((), name="overlap"), graph.tensor((), name="least")
        scores = raw.narrow(0, 4, self.classes)
        boxes = corners(raw.narrow(0, 0, 4).transpose(0, 1))
        labels = ops.argmax(scores, 0)
        kept, place = suppressed(boxes, scores.amax(0), labels, self._most, self._least)
        extra = int(raw.shape[0]) - 4 - self.classes
        more = raw.narrow(0, 4 + self.classes, extra).transpose(0, 1) if extra else boxes
        found = {"scores": kept, "boxes": ops.index_select(boxes, 0, place),
                 "labels": ops.index_select(labels, 0, place),
                 "more": ops.index_select(more, 0, place)}  # fmt: skip
        if protos is not None:
            found["protos"] = protos
        self._outputs = {name: tensor.output(name) for name, tensor in found.items()}
        self.program = graph.compile(**self._compiling)

    def _name(self, names: Sequence[str]) -> None:
        names = self.names or names
        self.names = [str(n) for n in names] or [f"class {n}" for n in range(self.classes)]
        if len(self.names) != self.classes:
            raise InputError(f"{len(self.names)} names for {self.classes} classes")

    # ---- a picture

    def __call__(
        self, image: Source, confidence: float = 0.25, overlap: float = 0.7, limit: int = 300
    ) -> list[Detection]:
        """What is in a picture, the surest first. confidence: the least score. overlap: how much
        boxes of a class may share, intersection over union. Raises InputError."""
        for value in (confidence, overlap):
            if not 0 <= value <= 1:
                raise InputError(f"confidence and overlap lie in 0 .. 1, not {value}")
        pixels, placed = letterbox(read_image(image), self.sides)
        found = self._found(pixels, confidence, overlap)
        rows = np.flatnonzero(found["scores"] > 0)[:limit]
        return [self._detection(found, row, placed) for row in rows]

    def _found(
        self, pixels: np.ndarray, confidence: float, overlap: float
    ) -> dict[str, np.ndarray]:
        """scores (the highest first, 0 where a box is dropped), boxes, labels and what more the
        task has, of each box; the prototypes of masks."""
        program, beside = self.program, {}
        if self._net is None:
            program[self._images] = pixels
        else:
            raw, *rest = self._net.run([np.repeat(pixels, self._batch, 0)])
            if rest and self.task == "segment":
                beside["protos"] = rest[0]
            if program is None:
                return left(raw[0], confidence) | beside
            program[self._raw] = raw[0]
        program[self._most], program[self._least] = np.float32(overlap), np.float32(confidence)
        program.run()
        return {name: np.array(program[t]) for name, t in self._outputs.items()} | beside

    def _detection(
        self, found: Mapping[str, np.ndarray], row: int, placed: Placed
    ) -> Detection:
        box, label = found["boxes"][row], int(found["labels"][row])
        x, y = placed.back(box[0::2], box[1::2])
        points = mask = None
        if self.task == "pose":
            each = found["more"][row].reshape(-1, self._point)
            sure = each[:, 2] if self._point == 3 else np.ones(len(each), np.float32)
            points = np.stack([*placed.back(each[:, 0], each[:, 1]), sure], 1)
        if self.task == "segment" and "protos" in found:
            mask = masked(found["more"][row], found["protos"][0], placed, self.sides, (x, y))
        edges = float(x[0]), float(y[0]), float(x[1]), float(y[1])
        name = self.names[label] if 0 <= label < len(self.names) else f"class {label}"
        return Detection(edges, float(found["scores"][row]), label, name, points, mask)


def _weights(path: Path) -> Mapping[str, np.ndarray]:
    """Raises WeightsError, Unsupported."""
    if not exists(path):
        raise WeightsError(f"{path}: no such file")
    if path.suffix == ".pt":
        raise Unsupported(
            f"{path}: a pickle, which can run any code; export it as ONNX, or save its state_dict "
            "as safetensors"
        )
    if path.suffix == ".onnx":
        raise InputError(f"{path}: an ONNX model is given as luminal.onnx.load(path)")
    return Safetensors(path)


def left(rows: np.ndarray, least: float) -> dict[str, np.ndarray]:
    """Of what a net has left by itself, rows (corners, score, class, what more the task has), those
    with more than the least score, the surest first."""
    rows = rows[np.argsort(-rows[:, 4], kind="stable")]
    return {"scores": np.where(rows[:, 4] > least, rows[:, 4], 0), "boxes": rows[:, :4],
            "labels": rows[:, 5].astype(np.int64), "more": rows[:, ENDED:]}  # fmt: skip


def letterbox(image: Any, sides: Sides) -> tuple[np.ndarray, Placed]:
    """((1, 3, height, width) f32 of 0 .. 1 with the whole picture in its middle, where it lies)."""
    width, height = image.size
    scale = min(sides[0] / height, sides[1] / width)
    inner = max(1, round(width * scale)), max(1, round(height * scale))
    across, top = (sides[1] - inner[0]) // 2, (sides[0] - inner[1]) // 2
    sheet = pillow().new("RGB", (sides[1], sides[0]), GREY)
    resized = image if inner == image.size else image.resize(inner, pillow().Resampling.BILINEAR)
    sheet.paste(resized, (across, top))
    pixels = to_array(sheet).transpose(2, 0, 1)[None].astype(np.float32) / 255
    return pixels, Placed(scale, across, top, width, height)


def masked(
    shares: np.ndarray, protos: np.ndarray, placed: Placed, sides: Sides,
    edges: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:  # fmt: skip
    """(height, width) bool: where the sum of prototypes (n, height, width) is positive, inside of
    the box."""
    logits = np.tensordot(shares, protos, 1).astype(np.float32)
    module = pillow()
    whole = module.fromarray(logits).resize((sides[1], sides[0]), module.Resampling.BILINEAR)
    right = placed.left + round(placed.width * placed.scale)
    bottom = placed.top + round(placed.height * placed.scale)
    inner = whole.crop((placed.left, placed.top, max(right, placed.left + 1),
                        max(bottom, placed.top + 1)))  # fmt: skip
    inside = np.asarray(
        inner.resize((placed.width, placed.height), module.Resampling.BILINEAR)
    ) > 0  # fmt: skip
    (left, right_edge), (top, bottom_edge) = edges
    across, down = np.arange(placed.width) + 0.5, np.arange(placed.height)[:, None] + 0.5
    return (
        inside & (across >= left) & (across <= right_edge) & (down >= top) & (down <= bottom_edge)
    )


def _sides(shape: Sequence[Any], size: int | None, usual: Sides | None) -> Sides:
    """Of an ONNX model: those of its input where these are fixed, else `size`, else its usual ones.
    Raises InputError."""
    height, width = (n if isinstance(n, int) else None for n in shape)
    free = (size, size) if size else usual or (USUAL_SIZE, USUAL_SIZE)
    sides = _checked(height or free[0]), _checked(width or free[1])
    if size is not None and sides != (size, size):
        raise InputError(f"this model sees {sides[0]} x {sides[1]} pixels, not {size}")
    return sides


def _checked(size: int) -> int:
    if size % STRIDE or not STRIDE <= size <= 64 * STRIDE:
        raise InputError(f"a size is a multiple of {STRIDE} up to {64 * STRIDE}, not {size}")
    return size


def _literal(text: str, kind: type) -> Any:
    """A list or a dict of numbers and texts as Python writes it, or None."""
    try:
        found = ast.literal_eval(text) if text else None
    except (ValueError, SyntaxError):
        return None
    return found if isinstance(found, kind) else None


def _pair(text: str) -> tuple[int, int] | None:
    """Two numbers as Python writes a list of them."""
    found = _literal(text, list) or []
    whole = len(found) == 2 and all(isinstance(n, int) for n in found)
    return (found[0], found[1]) if whole else None
