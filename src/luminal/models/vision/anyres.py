"""LLaVA 1.6 (Liu et al. 2024, https://llava-vl.github.io/blog/2024-01-30-llava-next): the whole of
a picture, then tiles of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import WeightsError
from ...graph import Graph
from ...nn import Module
from ..llm.pictures import Pictures
from .images import normal, pillow
from .sight import PLACE, Eyes, Llava, LlavaNet, SquareSight

USUAL = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
Size = tuple[int, int]


class LlavaNext(SquareSight):
    """Tiles cover one of the sizes of `image_grid_pinpoints`, in which the picture lies in the
    middle; rows of its tokens end with the tensor `image_newline`."""

    mean, std, renames = Llava.mean, Llava.std, Llava.renames

    def __init__(self, eyes: Eyes, pictures: Pictures) -> None:
        super().__init__(eyes, pictures)
        given = self.given.values.get("image_grid_pinpoints", USUAL)
        try:
            self.grids = [(int(height), int(width)) for height, width in given]
        except (TypeError, ValueError):
            self.grids = []
        if not self.grids or min(map(min, self.grids)) < self.size:
            raise self.given.wrong("image_grid_pinpoints", "pairs of heights and widths of tiles")

    def net(self, graph: Graph) -> Module:
        return LlavaNet(graph, self.tower, self.pictures.width, self.given)

    def best(self, size: Size) -> Size:
        """(rows, columns) of tiles for a picture (width, height): as much of it as can be seen,
        then as little waste."""

        def worth(grid: Size) -> Size:
            scale = min(grid[1] / size[0], grid[0] / size[1])
            seen = min(int(size[0] * scale) * int(size[1] * scale), size[0] * size[1])
            return seen, seen - grid[0] * grid[1]

        height, width = max(self.grids, key=worth)
        return height // self.size, width // self.size

    def squares(self, image: Any) -> list[Any]:
        cubic, side = pillow().Resampling.BICUBIC, self.size
        rows, columns = self.best(image.size)
        width, height = columns * side, rows * side
        by_width, by_height = width / image.size[0], height / image.size[1]
        if by_width < by_height:
            inner = width, min(math.ceil(image.size[1] * by_width), height)
        else:
            inner = min(math.ceil(image.size[0] * by_height), width), height
        left, top = (width - inner[0]) // 2, (height - inner[1]) // 2
        whole = image.resize(inner, cubic).crop((-left, -top, width - left, height - top))
        tiles = [whole.crop((x * side, y * side, (x + 1) * side, (y + 1) * side))
                 for y in range(rows) for x in range(columns)]  # fmt: skip
        return [image.resize((side, side), cubic), *tiles]

    def rows(self, image: Any) -> tuple[np.ndarray, None]:
        squares = [normal(square, self.mean, self.std) for square in self.squares(image)]
        whole, *tiles = (self.features(square[None])[0] for square in squares)
        (rows, columns), side = self.best(image.size), self.tower.side
        if whole.shape[0] != side**2:
            raise WeightsError(f"{self.given.where}: tiles of {len(whole)} tokens, not {side**2}")
        grid = np.stack(tiles).reshape(rows, columns, side, side, -1)
        grid = grid.transpose(0, 2, 1, 3, 4).reshape(rows * side, columns * side, -1)
        top, left = self.margins(image.size)
        grid = grid[top : len(grid) - top, left : grid.shape[1] - left]
        end = np.asarray(self.state()["image_newline"], np.float32)
        ends = np.broadcast_to(end, (len(grid), 1, len(end)))
        found = np.concatenate([grid, ends], 1).reshape(-1, len(end))
        return np.concatenate([whole, found]), None

    def margins(self, size: Size) -> Size:
        """Rows and columns of tokens at each side that see nothing of a picture (width, height)."""
        rows, columns = (count * self.tower.side for count in self.best(size))
        if size[0] / size[1] > columns / rows:
            return (rows - int(round(size[1] * (columns / size[0]), 7))) // 2, 0
        return 0, (columns - int(round(size[0] * (rows / size[1]), 7))) // 2

    def places(self, image: Any) -> str:
        (rows, columns), (top, left) = self.best(image.size), self.margins(image.size)
        side = self.tower.side
        return PLACE * (side**2 + (rows * side - 2 * top) * (columns * side - 2 * left + 1))
