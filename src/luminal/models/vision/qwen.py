"""The eyes of Qwen2-VL (Wang et al. 2024, https://arxiv.org/abs/2409.12191), Qwen2.5-VL (Bai et
al. 2025, https://arxiv.org/abs/2502.13923) and Qwen3-VL (2025, https://arxiv.org/abs/2511.21631):
pictures of any size, as patches that turn with their rows and columns.

Patches lie in windows of a fixed number of slots, those of one output token side by side; slots
beyond a picture's edge are empty. So one program serves pictures of all sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import ops
from ...errors import InputError
from ...graph import Graph, Tensor
from ...nn.activation import BY_NAME, activation_of
from ...nn.attention import merged, unpacked
from ...weights.fields import Fields
from ..llm.pictures import Pictures
from .images import normal, pillow
from .layers import renamed
from .named import Activation, Named
from .sight import CLIP_MEAN, CLIP_STD, Eyes, Sight

RENAMES = (
    (r"^(model\.)?visual\.", ""),
    (r"\.mlp\.(linear_fc1|up_proj)\.", ".mlp.fc1."),
    (r"\.mlp\.(linear_fc2|down_proj)\.", ".mlp.fc2."),
    (r"^merger\.ln_q\.", "merger.norm."),
    (r"^merger\.mlp\.0\.", "merger.linear_fc1."),
    (r"^merger\.mlp\.2\.", "merger.linear_fc2."),
)
EPS, THETA = 1e-6, 10000.0
SIDE = 4  # output tokens along a side of a window, where none is given
MOST_WINDOWS = 1024
LONGEST = 200  # times as long as wide
FRAMES = 2  # of a video are a patch; a picture is both
LEAST, MOST = 56 * 56, 28 * 28 * 1280  # pixels of a picture


@dataclass(frozen=True)
class Eye:
    """Sizes of a tower. patch: pixels of a side; merge: patches of a side in an output token; side:
    output tokens of a side in a window; whole: layers that look at all windows (None: all do)."""

    heads: int
    head_dim: int
    patch: int
    merge: int
    side: int
    whole: tuple[int, ...] | None
    deep: tuple[int, ...]
    activation: str

    @staticmethod
    def read(given: Fields) -> Eye:
        """Raises WeightsError."""
        patch, merge = given.count("patch_size", 14), given.count("spatial_merge_size", 2)
        heads = given.count("num_heads", 16)
        width = given.count("embed_dim" if given.has("embed_dim") else "hidden_size", 1280)
        side, whole = SIDE, None
        if given.has("fullatt_block_indexes"):
            side = max(1, given.count("window_size", 112) // merge // patch)
            whole = tuple(given.counts("fullatt_block_indexes"))
        usual = "quick_gelu" if given.has("embed_dim") else "silu"
        return Eye(
            heads, width // heads, patch, merge, side, whole,
            tuple(given.counts_or("deepstack_visual_indexes", [])),
            given.text("hidden_act", usual, among=BY_NAME),
        )  # fmt: skip

    @property
    def slots(self) -> int:
        """Patches in a window."""
        return (self.side * self.merge) ** 2


# ---- the net


@dataclass(frozen=True)
class Inputs:
    """Of windows: patches (windows, slots, numbers), cosines and sines (windows, slots, head_dim),
    0 or minus infinity for an empty slot (windows, slots), learned places (windows, slots, width)
    if there are any."""

    patches: Tensor
    cos: Tensor
    sin: Tensor
    empty: Tensor
    places: Tensor | None


def tower(w: Named, given: Inputs, eye: Eye) -> Tensor:
    """(windows, output tokens, width of the decoder, and as much again for each deep layer)."""
    act = activation_of(eye.activation)
    kernel = w["patch_embed"]["proj"]
    x = ops.linear(given.patches, kernel.tensor().flatten(1, 4))
    x = x + kernel.tensor("bias") if kernel.has("bias") else x
    x = x if given.places is None else x + given.places
    deep = []
    for n, block in enumerate(w["blocks"].each()):
        whole = eye.whole is None or n in eye.whole
        x = x + _attended(block["attn"], block["norm1"].norm(x, EPS), given, eye, whole)
        x = x + _widened(block["mlp"], block["norm2"].norm(x, EPS), act)
        if n in eye.deep:
            merger = w["deepstack_merger_list"][eye.deep.index(n)]
            deep.append(_joined(merger, x, eye, True))
    return ops.cat([_joined(w["merger"], x, eye, False), *deep], -1)


def _attended(w: Named, x: Tensor, given: Inputs, eye: Eye, whole: bool) -> Tensor:
    """Within windows, or over all of them."""
    parts = [x.flatten(0, 1).unsqueeze(0) if whole else x]
    for table in (given.cos, given.sin, given.empty.unsqueeze(-1)):
        parts.append(table.flatten(0, 1).unsqueeze(0) if whole else table)
    x, cos, sin, empty = parts
    q, k, v = unpacked(w["qkv"].linear(x), eye.heads)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)  # (windows, 1, slots, head_dim)
    q, k = (part * cos + ops.rotate_half(part) * sin for part in (q, k))
    mask = empty.transpose(1, 2).unsqueeze(1)  # (windows, 1, 1, slots)
    x = w["proj"].linear(merged(ops.scaled_dot_product_attention(q, k, v, mask)))
    return x.squeeze(0).unflatten(0, (-1, eye.slots)) if whole else x


def _widened(w: Named, x: Tensor, act: Activation) -> Tensor:
    if w.has("gate_proj"):
        return w["fc2"].linear(act(w["gate_proj"].linear(x)) * w["fc1"].linear(x))
    return w.mlp(x, act, "fc1", "fc2")


def _joined(w: Named, x: Tensor, eye: Eye, behind: bool) -> Tensor:
    """Patches of an output token side by side, through two layers. behind: joined, then normed."""
    x = x if behind else w["norm"].norm(x, EPS)
    x = x.unflatten(1, (-1, eye.merge**2)).flatten(2, 3)
    x = w["norm"].norm(x, EPS) if behind else x
    return w.mlp(x, ops.gelu, "linear_fc1", "linear_fc2")


# ---- pictures


@dataclass(frozen=True)
class Grid:
    """Output tokens (rows, columns) of a picture, and where they lie among windows."""

    rows: int
    columns: int
    eye: Eye

    @property
    def windows(self) -> int:
        """How many there are."""
        side = self.eye.side
        return -(-self.rows // side) * -(-self.columns // side)

    def slots(self) -> np.ndarray:
        """(rows * columns,) i64: the number of each token in windows of side^2 tokens."""
        side = self.eye.side
        y, x = (t.ravel() for t in np.mgrid[: self.rows, : self.columns])
        window = y // side * -(-self.columns // side) + x // side
        return np.asarray(window * side * side + y % side * side + x % side)

    def spread(self, numbers: np.ndarray, fill: float = 0.0) -> np.ndarray:
        """Numbers of patches (rows, merge, columns, merge, ...) in windows (windows, slots,
        ...)."""
        merge = self.eye.merge
        tokens = np.moveaxis(numbers, 2, 1).reshape(-1, merge**2, *numbers.shape[4:])
        shape = self.windows * self.eye.side**2, *tokens.shape[1:]
        found = np.full(shape, fill, np.float32)
        found[self.slots()] = tokens
        return found.reshape(self.windows, self.eye.slots, *numbers.shape[4:])

    def by_patch(self, numbers: np.ndarray) -> np.ndarray:
        """(height, width, ...) of patches as `spread` takes them."""
        merge = self.eye.merge
        return numbers.reshape(self.rows, merge, self.columns, merge, *numbers.shape[2:])

    def angles(self) -> tuple[np.ndarray, np.ndarray]:
        """(cosines, sines) in windows: a half of the pairs turns with the row, a half with the
        column."""
        merge, width = self.eye.merge, self.eye.head_dim // 2
        speeds = THETA ** -(np.arange(0, width, 2) / width)
        y, x = np.mgrid[: self.rows * merge, : self.columns * merge]
        angles = np.concatenate([y[..., None] * speeds, x[..., None] * speeds], -1)
        angles = self.by_patch(np.tile(angles, 2))
        return self.spread(np.cos(angles)), self.spread(np.sin(angles))


def between(table: np.ndarray, height: int, width: int) -> np.ndarray:
    """(height, width, features) of a square table (side^2, features), bilinear, from edge to
    edge."""
    side = math.isqrt(len(table))
    found = table.reshape(side, side, -1)
    for axis, count in enumerate((height, width)):
        at = np.linspace(0, side - 1, count, dtype=np.float32)
        low = at.astype(int)
        share = (at - low).reshape([-1, 1, 1] if axis == 0 else [1, -1, 1])
        high = np.minimum(low + 1, side - 1)
        found = np.take(found, low, axis) * (1 - share) + np.take(found, high, axis) * share
    return found


class QwenSight(Sight):
    """Pictures as they are, but for sides that are multiples of an output token's, and for a least
    and a largest number of pixels."""

    mean, std, place = CLIP_MEAN, CLIP_STD, "<|image_pad|>"
    row, around = place, ("<|vision_start|>", "<|vision_end|>")

    def __init__(self, eyes: Eyes, pictures: Pictures) -> None:
        super().__init__(eyes, pictures)
        self.eye = Eye.read(self.given.fields("vision_config"))
        self._program: Any = None

    def wanted(self, size: tuple[int, int]) -> tuple[int, int]:
        """(width, height) that a picture of this size is resized to. Raises InputError."""
        own, step = self.processor, self.eye.patch * self.eye.merge
        sides = own.fields("size")
        least = own.count("min_pixels", sides.count("shortest_edge", LEAST))
        most = own.count("max_pixels", sides.count("longest_edge", MOST))
        most = min(most, MOST_WINDOWS // 4 * self.eye.slots * self.eye.patch**2)
        if max(size) > LONGEST * min(size):
            raise InputError(f"a picture of {size[0]} x {size[1]} pixels: one side is more than "
                             f"{LONGEST} times as long as the other")  # fmt: skip
        width, height = (round(side / step) * step for side in size)
        if width * height > most:
            scale = math.sqrt(size[0] * size[1] / most)
            width, height = (max(step, math.floor(s / scale / step) * step) for s in size)
        elif width * height < least:
            scale = math.sqrt(least / (size[0] * size[1]))
            width, height = (math.ceil(s * scale / step) * step for s in size)
        return width, height

    def grid(self, image: Any) -> Grid:
        width, height = self.wanted(image.size)
        step = self.eye.patch * self.eye.merge
        return Grid(height // step, width // step, self.eye)

    def patches(self, image: Any) -> np.ndarray:
        """(rows, merge, columns, merge, numbers of a patch) f32."""
        grid, patch, merge = self.grid(image), self.eye.patch, self.eye.merge
        size = self.wanted(image.size)
        image = image.resize(size, pillow().Resampling.BICUBIC)
        pixels = normal(image, self.mean, self.std)
        pixels = pixels.reshape(3, grid.rows, merge, patch, grid.columns, merge, patch)
        pixels = pixels.transpose(1, 2, 4, 5, 0, 3, 6)
        pixels = np.repeat(pixels[:, :, :, :, :, None], FRAMES, 5)
        return np.asarray(pixels.reshape(*pixels.shape[:4], -1))

    def rows(self, image: Any) -> tuple[np.ndarray, tuple[int, int]]:
        grid, patches = self.grid(image), self.patches(image)
        if self._program is None:
            self._program = self._compiled()
        program, given, table, out = self._program
        program[given.patches] = grid.spread(patches)
        program[given.cos], program[given.sin] = grid.angles()
        some = np.zeros(patches.shape[:4], np.float32)
        program[given.empty] = grid.spread(some, -np.inf)
        if given.places is not None:
            shape = grid.rows * self.eye.merge, grid.columns * self.eye.merge
            program[given.places] = grid.spread(grid.by_patch(between(table, *shape)))
        program.run()
        found = np.array(program[out])
        return found.reshape(-1, found.shape[-1])[grid.slots()], (grid.rows, grid.columns)

    def _compiled(self) -> tuple[Any, Inputs, np.ndarray | None, Tensor]:
        graph, eye = Graph(), self.eye
        state = renamed(self.tensors(), RENAMES)
        w = Named(graph, state)
        count = graph.dim("windows", 1, MOST_WINDOWS, hint=min(16, MOST_WINDOWS))
        kernel = w["patch_embed"]["proj"].array()
        table = w["pos_embed"].array() if w.has("pos_embed") else None
        shape = count, eye.slots
        given = Inputs(
            graph.tensor((*shape, kernel[0].size), name="patches"),
            graph.tensor((*shape, eye.head_dim), name="cos"),
            graph.tensor((*shape, eye.head_dim), name="sin"),
            graph.tensor(shape, name="empty"),
            None if table is None else graph.tensor((*shape, len(kernel)), name="places"),
        )
        out = tower(w, given, eye).output("rows")
        return graph.compile(), given, table, out

    def places(self, image: Any) -> str:
        grid = self.grid(image)
        return self.place * (grid.rows * grid.columns)
