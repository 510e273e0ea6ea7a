"""YOLO v8, v9 and v11 (https://docs.ultralytics.com/models): nets whose form follows from the names
and shapes of their weights, as `model.N.block. ... .conv.weight`. Norms are folded into weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ... import ops
from ...errors import Unsupported, WeightsError
from ...graph import Graph, Tensor

NORM_EPS = 1e-3
BINS = 16  # of each side of a box
HEAD_WIDTH = 64  # features of a head of attention
Joined = dict[int, int]  # layer that is joined -> layer whose result stands beside


@dataclass(frozen=True)
class Layout:
    """joined: layers that join what came before with an earlier result. twice: layers that double
    the size. scales: layers that the head reads. starts: layers that see the images. linear: layers
    that map an earlier result for the second backbone, the n-th to n parts -> the layer of that.
    fused: layers that add such a part of all that have it -> its number."""

    joined: Joined
    twice: tuple[int, int]
    scales: tuple[int, int, int]
    head: int
    always: bool  # blocks of the neck add their input too
    starts: tuple[int, ...] = (0,)
    linear: Joined = field(default_factory=dict)
    fused: Joined = field(default_factory=dict)


LAYOUTS = {
    22: Layout({11: 6, 14: 4, 17: 12, 20: 9}, (10, 13), (15, 18, 21), 22, False),  # v8, v9
    23: Layout({12: 6, 15: 4, 18: 13, 21: 10}, (11, 14), (16, 19, 22), 23, True),  # v11
    42: Layout({31: 25, 34: 22, 37: 32, 40: 29}, (30, 33), (35, 38, 41), 42, False, (1, 15),
               {10: 1, 11: 3, 12: 5, 13: 7, 14: 9}, {16: 0, 18: 1, 21: 2, 24: 3, 27: 4}),  # v9e
}  # fmt: skip


def folded(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Weights and biases of convolutions, each with the norm behind it inside."""
    found = {}
    for name, value in state.items():
        if name.endswith(".conv.weight"):
            base, norm = name.removesuffix(".conv.weight"), name.replace(".conv.weight", ".bn.")
            weight = np.asarray(value, np.float32)
            if norm + "weight" in state:
                parts = [np.asarray(state[norm + n], np.float64) for n in
                         ("weight", "bias", "running_mean", "running_var")]  # fmt: skip
                gain = parts[0] / np.sqrt(parts[3] + NORM_EPS)
                weight = (weight * gain[:, None, None, None]).astype(np.float32)
                found[f"{base}.bias"] = (parts[1] - parts[2] * gain).astype(np.float32)
            found[f"{base}.weight"] = weight
        elif name.endswith(".conv.bias"):  # of a convolution without a norm
            base = name.removesuffix(".conv.bias")
            found.setdefault(f"{base}.bias", np.asarray(value, np.float32))
        elif ".bn." not in name:
            found[name] = np.asarray(value, np.float32)
    return found


def point_size(extra: int, told: tuple[int, int] | None = None) -> int:
    """Numbers of a keypoint, of `extra` of all: its place and how sure it is, or its place alone.
    told: (keypoints, numbers of one). What could be both has three. Raises Unsupported."""
    size = told[1] if told else 2 if extra % 3 else 3
    count = told[0] if told else extra // size
    if size not in (2, 3) or count < 1 or count * size != extra:
        raise Unsupported(f"{extra} numbers beside each box, which are no keypoints of 2 or 3 each")
    return size


class Yolo:
    """state: the weights by name. task: detect, segment or pose. classes: how many. point: numbers
    of a keypoint, of a net for poses. Raises Unsupported, WeightsError."""

    def __init__(self, state: Mapping[str, np.ndarray]) -> None:
        self.state = folded(state)
        numbers = [int(m[1]) for m in (re.match(r"model\.(\d+)\.", n) for n in state) if m]
        if not numbers or max(numbers) not in LAYOUTS:
            raise Unsupported("weights of no YOLO v8, v9 or v11: there is no head model.22, "
                              ".23 or .42")  # fmt: skip
        self.layout = LAYOUTS[max(numbers)]
        self.head = f"model.{self.layout.head}"
        if not self._is(f"{self.head}.dfl") or f"{self.head}.cv3.2.2.weight" not in self.state:
            raise Unsupported("the head of these weights is none of YOLO v8, v9 or v11")
        self.classes = len(self.state[f"{self.head}.cv3.0.2.weight"])
        extra = self.state.get(f"{self.head}.cv4.0.2.weight")
        self.extra = 0 if extra is None else len(extra)
        masks = f"{self.head}.proto.cv1.weight" in self.state
        self.task = "segment" if masks else "pose" if self.extra else "detect"
        self.point = point_size(self.extra) if self.task == "pose" else 0

    def _is(self, name: str) -> bool:
        return any(key.startswith(name + ".") for key in self.state)

    def record(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """(boxes as centres and sizes in pixels, scores, and what more the task has: (batch, 4 +
        classes + extra, cells); prototypes of masks (batch, 32, height / 4, width / 4) or None) of
        images (batch, 3, height, width) in 0 .. 1, with sides that 32 divides."""
        return _Recorder(self, images.graph).net(images)


class _Recorder:
    """Records blocks, each by the name of its weights."""

    def __init__(self, net: Yolo, graph: Graph) -> None:
        self.yolo, self.state, self.graph = net, net.state, graph
        self.layout = net.layout

    # ---- convolutions

    def weight(self, name: str) -> Tensor:
        value = self.state.get(name)
        if value is None:
            raise WeightsError(f"no weight {name!r} where this YOLO has one")
        return self.graph.parameter(value.shape, name=name).set(value)

    def conv(self, name: str, x: Tensor, stride: int = 1, act: bool = True) -> Tensor:
        """A convolution that keeps the size but for the stride, and SiLU."""
        weight = self.weight(f"{name}.weight")
        bias = self.weight(f"{name}.bias") if f"{name}.bias" in self.state else None
        groups = int(x.shape[1]) // int(weight.shape[1])
        y = ops.conv2d(x, weight, bias, stride, int(weight.shape[2]) // 2, 1, groups)
        return ops.silu(y) if act else y

    def chain(self, name: str, x: Tensor) -> Tensor:
        """Convolutions under the names 0, 1, ..., also within each other; the last one bare if it
        has no norm of its own."""
        for number in self.entries(name):
            inner = f"{name}.{number}"
            if f"{inner}.weight" in self.state:
                x = self.conv(inner, x, act=number != "2")
            elif f"{inner}.cv1.weight" in self.state:
                x = self.c3(inner, x)
            else:
                x = self.chain(inner, x)
        return x

    def entries(self, name: str) -> list[str]:
        start = name + "."
        found = {key[len(start) :].split(".")[0] for key in self.state if key.startswith(start)}
        return sorted(found, key=int)

    def has(self, name: str) -> bool:
        return f"{name}.weight" in self.state

    # ---- blocks

    def block(self, place: int, x: Tensor) -> Tensor:
        """The layer of this number, whatever it is."""
        name = f"model.{place}"
        added = self.layout.always or place < min(self.layout.twice)
        if self.has(name):
            return self.conv(name, x, 2)
        if self.yolo._is(f"{name}.m.0.attn"):
            return self.attentive(name, x)
        if self.yolo._is(f"{name}.m"):
            return self.split_chain(name, x, added)
        if self.yolo._is(f"{name}.cv4"):
            return self.aggregated(name, x)
        if self.has(f"{name}.cv5"):
            return self.pooled(name, x, "cv5")
        if self.has(f"{name}.cv2") and self.state[f"{name}.cv1.weight"].shape[2] == 1:
            return self.pooled(name, x, "cv2")
        if self.has(f"{name}.cv2"):
            return self.halved(name, x)
        return self.conv(f"{name}.cv1", ops.avg_pool2d(x, 2, 1), 2)

    def split_chain(self, name: str, x: Tensor, added: bool) -> Tensor:
        """C2f and C3k2: half of the channels pass through blocks; all that comes is joined."""
        parts = list(ops.chunk(self.conv(f"{name}.cv1", x), 2, 1))
        for number in self.entries(f"{name}.m"):
            inner = f"{name}.m.{number}"
            whole, last = self.has(f"{inner}.cv3"), parts[-1]
            parts.append(self.c3(inner, last) if whole else self.bottleneck(inner, last, added))
        return self.conv(f"{name}.cv2", ops.cat(parts, 1))

    def bottleneck(self, name: str, x: Tensor, added: bool) -> Tensor:
        first = f"{name}.cv1"
        y = self.double(first, x) if self.has(f"{first}.conv1") else self.conv(first, x)
        y = self.conv(f"{name}.cv2", y)
        return x + y if added and x.shape[1] == y.shape[1] else y

    def double(self, name: str, x: Tensor) -> Tensor:
        """RepConv: two convolutions side by side, summed."""
        parts = [self.conv(f"{name}.conv{n}", x, act=False) for n in (1, 2)]
        return ops.silu(parts[0] + parts[1])

    def c3(self, name: str, x: Tensor) -> Tensor:
        """C3k and RepCSP: two ways, one of them through bottlenecks."""
        y = self.conv(f"{name}.cv1", x)
        for number in self.entries(f"{name}.m"):
            y = self.bottleneck(f"{name}.m.{number}", y, True)
        return self.conv(f"{name}.cv3", ops.cat([y, self.conv(f"{name}.cv2", x)], 1))

    def aggregated(self, name: str, x: Tensor) -> Tensor:
        """ELAN1 and RepNCSPELAN4: as C2f, two blocks of a kind of their own."""
        parts = list(ops.chunk(self.conv(f"{name}.cv1", x), 2, 1))
        for inner in (f"{name}.cv2", f"{name}.cv3"):
            last = parts[-1]
            parts.append(self.conv(inner, last) if self.has(inner) else self.nested(inner, last))
        return self.conv(f"{name}.cv4", ops.cat(parts, 1))

    def nested(self, name: str, x: Tensor) -> Tensor:
        return self.conv(f"{name}.1", self.c3(f"{name}.0", x))

    def pooled(self, name: str, x: Tensor, last: str) -> Tensor:
        """SPPF and SPPELAN: maxima over windows of 5, 9 and 13, joined."""
        parts = [self.conv(f"{name}.cv1", x)]
        for _ in range(3):
            parts.append(ops.max_pool2d(parts[-1], 5, 1, 2))
        return self.conv(f"{name}.{last}", ops.cat(parts, 1))

    def halved(self, name: str, x: Tensor) -> Tensor:
        """ADown: half of the size, by a convolution and by maxima."""
        a, b = ops.chunk(ops.avg_pool2d(x, 2, 1), 2, 1)
        b = self.conv(f"{name}.cv2", ops.max_pool2d(b, 3, 2, 1))
        return ops.cat([self.conv(f"{name}.cv1", a, 2), b], 1)

    def attentive(self, name: str, x: Tensor) -> Tensor:
        """C2PSA: half of the channels pass through blocks of attention."""
        a, b = ops.chunk(self.conv(f"{name}.cv1", x), 2, 1)
        for number in self.entries(f"{name}.m"):
            inner = f"{name}.m.{number}"
            b = b + self.attention(f"{inner}.attn", b)
            b = b + self.conv(f"{inner}.ffn.1", self.conv(f"{inner}.ffn.0", b), act=False)
        return self.conv(f"{name}.cv2", ops.cat([a, b], 1))

    def attention(self, name: str, x: Tensor) -> Tensor:
        """Over all pixels; what is mixed is also seen through a window of 3."""
        channels, height, width = (int(n) for n in x.shape[1:])
        heads = max(1, channels // HEAD_WIDTH)
        packed = self.conv(f"{name}.qkv", x, act=False).flatten(2, 3).unflatten(1, (heads, -1))
        value = channels // heads
        query, key, mixed = ops.split(packed, [value // 2, value // 2, value], 2)
        query, key, seen = (t.transpose(2, 3) for t in (query, key, mixed))
        seen = ops.scaled_dot_product_attention(query, key, seen)

        def image(t: Tensor) -> Tensor:
            return t.flatten(1, 2).unflatten(2, (height, width))

        near = self.conv(f"{name}.pe", image(mixed), act=False)
        return self.conv(f"{name}.proj", image(seen.transpose(2, 3)) + near, act=False)

    # ---- the whole

    def net(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        results: dict[int, Tensor] = {}
        layout, images, size = self.layout, x, int(x.shape[3])
        for place in range(layout.starts[0], layout.head):
            x = images if place in layout.starts else x
            if place in layout.twice:
                x = ops.interpolate(x, scale_factor=2.0)
            elif place in layout.joined:
                x = ops.cat([x, results[layout.joined[place]]], 1)
            elif place in layout.linear:
                x = self.conv(f"model.{place}", results[layout.linear[place]], act=False)
            elif place in layout.fused:
                x = fuse(layout.fused[place], x, [results[n] for n in layout.linear])
            else:
                x = self.block(place, x)
            results[place] = x
        maps = [results[place] for place in self.layout.scales]
        strides = [size // int(t.shape[3]) for t in maps]
        return self.heads(maps, strides), self.prototypes(maps[0])

    def heads(self, maps: Sequence[Tensor], strides: Sequence[int]) -> Tensor:
        """(batch, 4 + classes + extra, cells) of all scales."""
        name, columns = self.yolo.head, []
        for n, (x, stride) in enumerate(zip(maps, strides)):
            sides = self.distances(self.chain(f"{name}.cv2.{n}", x).flatten(2, 3))
            x0, y0 = self.centres(x)
            left, top, right, bottom = (sides.select(1, side) for side in range(4))
            box = [x0 + (right - left) * 0.5, y0 + (bottom - top) * 0.5, left + right, top + bottom]
            parts = [ops.stack(box, 1) * stride,
                     ops.sigmoid(self.chain(f"{name}.cv3.{n}", x).flatten(2, 3))]  # fmt: skip
            if self.yolo.extra:
                more = self.chain(f"{name}.cv4.{n}", x).flatten(2, 3)
                pose = self.yolo.task == "pose"
                parts.append(self.points(more, x0, y0, stride) if pose else more)
            columns.append(ops.cat(parts, 1))
        return ops.cat(columns, 2)

    def distances(self, x: Tensor) -> Tensor:
        """Expected distances of the four sides (batch, 4, cells), in cells."""
        shares = ops.softmax(x.unflatten(1, (4, BINS)), 2)
        bins = ops.arange(self.graph, BINS).cast("f32").unsqueeze(-1)
        return (shares * bins).sum(2)

    def centres(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(x, y) of all cells (cells,)."""
        height, width = int(x.shape[2]), int(x.shape[3])
        cells = ops.arange(self.graph, height * width)
        return (cells % width).cast("f32") + 0.5, (cells // width).cast("f32") + 0.5

    def points(self, x: Tensor, x0: Tensor, y0: Tensor, stride: int) -> Tensor:
        """Keypoints (batch, points 2 or 3, cells): places in pixels, and how sure they are."""
        each = x.unflatten(1, (-1, self.yolo.point))
        across = (each.select(2, 0) * 2 + x0 - 0.5) * stride
        down = (each.select(2, 1) * 2 + y0 - 0.5) * stride
        sure = [ops.sigmoid(each.select(2, 2))] if self.yolo.point == 3 else []
        return ops.stack([across, down, *sure], 2).flatten(1, 2)

    def prototypes(self, x: Tensor) -> Tensor | None:
        """What masks are sums of."""
        name = f"{self.yolo.head}.proto"
        if self.yolo.task != "segment":
            return None
        x = self.conv(f"{name}.cv1", x)
        weight, bias = (self.weight(f"{name}.upsample.{n}") for n in ("weight", "bias"))
        x = self.conv(f"{name}.cv2", ops.conv_transpose2d(x, weight, bias, 2))
        return self.conv(f"{name}.cv3", x)


def fuse(part: int, x: Tensor, linear: Sequence[Tensor]) -> Tensor:
    """CBFuse: x, and a part of each result of `linear` that has it, at the size of x."""
    edges = [0, *(int(t.shape[1]) for t in linear)]  # the n-th has one part more than the last
    for given in linear[part:]:
        given = given.narrow(1, edges[part], edges[part + 1] - edges[part])
        times = int(x.shape[3]) // int(given.shape[3])
        x = x + (ops.interpolate(given, scale_factor=float(times)) if times > 1 else given)
    return x
