"""Detections drawn into a picture."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence

import numpy as np

from .detector import Detection
from .images import Source, pillow, read_image, to_array

GOLDEN = 0.618034  # turns of the hue from one class to the next
SHADE = 0.45  # how much of a mask's colour covers the picture
SURE = 0.5  # of a keypoint that is drawn


def drawn(image: Source, found: Sequence[Detection]) -> np.ndarray:
    """The picture (height, width, 3) u8 with masks, boxes, names and keypoints."""
    from PIL import ImageDraw, ImageFont

    picture = read_image(image)
    inks = [one.label for one in found if one.mask is not None]
    masks = [one.mask for one in found if one.mask is not None]
    picture = pillow().fromarray(shaded(to_array(picture), masks, inks))
    pen = ImageDraw.Draw(picture)
    thick = max(2, round(max(picture.size) / 400))
    font = ImageFont.load_default(size=6 * thick)
    for one in found:
        ink = colour(one.label)
        pen.rectangle(one.box, outline=ink, width=thick)
        text = f"{one.name} {one.score:.2f}"
        left, top, right, bottom = pen.textbbox((one.box[0], one.box[1]), text, font=font)
        up = min(bottom - top + 2 * thick, one.box[1])
        pen.rectangle((left, top - up, right + thick, bottom - up + thick), fill=ink)
        pen.text((one.box[0], one.box[1] - up), text, fill=_readable(ink), font=font)
        for x, y, sure in () if one.points is None else one.points:
            if sure > SURE:
                pen.ellipse((x - thick, y - thick, x + thick, y + thick), fill=ink)
    return to_array(picture)


def shaded(
    picture: np.ndarray, masks: Sequence[np.ndarray], inks: Sequence[int] | None = None
) -> np.ndarray:
    """A picture (height, width, 3) u8 with colours over masks (height, width) bool; inks: numbers
    of colours."""
    pixels = picture.astype(np.float32)
    for mask, ink in zip(masks, inks or range(len(masks))):
        pixels[mask] += (np.array(colour(ink)) - pixels[mask]) * SHADE
    return pixels.astype(np.uint8)


def colour(label: int) -> tuple[int, int, int]:
    """Of a class: neighbours differ much."""
    red, green, blue = colorsys.hsv_to_rgb(label * GOLDEN % 1.0, 0.85, 1.0)
    return round(red * 255), round(green * 255), round(blue * 255)


def _readable(ink: tuple[int, int, int]) -> str:
    return "black" if 0.3 * ink[0] + 0.59 * ink[1] + 0.11 * ink[2] > 128 else "white"
