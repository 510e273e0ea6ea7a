"""Maps of features cut into windows, and put together again."""

from __future__ import annotations

from ...graph import Tensor


def cut(x: Tensor, height: int, width: int) -> Tensor:
    """(batch, rows, columns, features) as windows (batch * windows, height, width, features), row
    by row; filled up with zeros."""
    rows, columns = int(x.shape[1]), int(x.shape[2])
    around = [(0, 0), (0, -rows % height), (0, -columns % width), (0, 0)]
    x = x.pad(around) if any(after for _, after in around) else x
    x = x.unflatten(2, (-1, width)).unflatten(1, (-1, height))
    return x.permute(0, 1, 3, 2, 4, 5).flatten(0, 2)


def joined(windows: Tensor, rows: int, columns: int) -> Tensor:
    """The map (batch, rows, columns, features) of which these are the windows."""
    height, width = int(windows.shape[1]), int(windows.shape[2])
    down, across = -(-rows // height), -(-columns // width)
    x = windows.unflatten(0, (-1, down, across)).permute(0, 1, 3, 2, 4, 5)
    x = x.flatten(3, 4).flatten(1, 2)
    return x[:, :rows, :columns]
