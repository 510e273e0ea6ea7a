"""YOLOv8 in plain PyTorch, to the raw maps of its head (Jocher et al. 2023,
https://docs.ultralytics.com/models/yolov8). Ours runs it through `torch.compile`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BOX = 64  # channels of a box: four sides of 16 bins


class Conv(nn.Module):
    """Convolution, batch norm, SiLU; the size is kept or halved."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    def __init__(self, channels: int, shortcut: bool) -> None:
        super().__init__()
        self.cv1, self.cv2 = Conv(channels, channels, 3), Conv(channels, channels, 3)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = self.cv2(self.cv1(x))
        return x + y if self.shortcut else y


class C2f(nn.Module):
    """Half of the channels pass through bottlenecks; all that comes about is joined."""

    def __init__(self, inputs: int, outputs: int, count: int, shortcut: bool = False) -> None:
        super().__init__()
        self.cv1, self.cv2 = Conv(inputs, outputs), Conv((2 + count) * outputs // 2, outputs)
        self.m = nn.ModuleList(Bottleneck(outputs // 2, shortcut) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.cv1(x).chunk(2, 1))
        for block in self.m:
            parts.append(block(parts[-1]))
        return self.cv2(torch.cat(parts, 1))


class Pool(nn.Module):
    """Maxima over windows of 5, 9 and 13, joined."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.cv1, self.cv2 = Conv(channels, channels // 2), Conv(2 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.cv1(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.cv2(torch.cat(parts, 1))


def branch(inputs: int, width: int, outputs: int) -> nn.Sequential:
    """Boxes, or classes, of one scale."""
    return nn.Sequential(
        Conv(inputs, width, 3), Conv(width, width, 3), nn.Conv2d(width, outputs, 1)
    )


class Yolo(nn.Module):
    """Images (batch, 3, height, width) to (batch, 64 + classes, cells of all three scales)."""

    def __init__(self, width: int = 16, blocks: Sequence[int] = (1, 2, 2, 1), classes: int = 80):
        super().__init__()
        a, b, c, d, e = (width << n for n in range(5))
        self.stem = nn.Sequential(Conv(3, a, 3, 2), Conv(a, b, 3, 2), C2f(b, b, blocks[0], True))
        self.p3 = nn.Sequential(Conv(b, c, 3, 2), C2f(c, c, blocks[1], True))
        self.p4 = nn.Sequential(Conv(c, d, 3, 2), C2f(d, d, blocks[2], True))
        self.p5 = nn.Sequential(Conv(d, e, 3, 2), C2f(e, e, blocks[3], True), Pool(e))
        self.up4, self.up3 = C2f(e + d, d, blocks[0]), C2f(d + c, c, blocks[0])
        self.down3, self.down4 = Conv(c, c, 3, 2), Conv(d, d, 3, 2)
        self.out4, self.out5 = C2f(c + d, d, blocks[0]), C2f(d + e, e, blocks[0])
        self.boxes = nn.ModuleList(branch(n, max(16, c // 4, BOX), BOX) for n in (c, d, e))
        self.classes = nn.ModuleList(branch(n, max(c, min(classes, 100)), classes)
                                     for n in (c, d, e))  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        p3 = self.p3(self.stem(images))
        p4 = self.p4(p3)
        p5 = self.p5(p4)
        n4 = self.up4(torch.cat([_twice(p5), p4], 1))
        n3 = self.up3(torch.cat([_twice(n4), p3], 1))
        n4 = self.out4(torch.cat([self.down3(n3), n4], 1))
        n5 = self.out5(torch.cat([self.down4(n4), p5], 1))
        scales = zip((n3, n4, n5), self.boxes, self.classes)
        return torch.cat([torch.cat([b(x), c(x)], 1).flatten(2) for x, b, c in scales], 2)


def _twice(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="nearest")
