"""Pictures from files and bytes, through Pillow, as RGB."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ...errors import InputError, to_install
from ...weights.fields import Fields, exists, read_json

Source: TypeAlias = Any  # a path, bytes, a data URL, an array (height, width, 3) u8, Pillow's image
MOST_PIXELS = 1 << 27
MOST_BYTES = 1 << 28
ORIENTATION = 0x0112  # the EXIF tag of how a camera was held


def pillow() -> Any:
    """Pillow's module of images. Raises InputError where it is not installed."""
    try:
        from PIL import Image
    except ImportError:
        raise InputError(f"pictures need Pillow: {to_install('vision')}") from None
    return Image


def read_image(source: Source) -> Any:
    """An RGB image of Pillow's, turned as its EXIF says. Raises InputError for what is no picture,
    is damaged, or has more than MOST_PIXELS."""
    module = pillow()
    if isinstance(source, module.Image):
        return _rgb(source)
    if isinstance(source, np.ndarray):
        if source.dtype != np.uint8 or source.ndim != 3 or source.shape[2] != 3:
            raise InputError(f"a picture is (height, width, 3) u8, not {source.shape}")
        return module.fromarray(source)
    name, stream = _opened(source)
    try:
        image = module.open(stream)
        width, height = image.size
        if width * height > MOST_PIXELS:
            raise InputError(f"{name}: {width} x {height} pixels; at most {MOST_PIXELS} are read")
        image.load()
        return _rgb(image)
    except InputError:
        raise
    except Exception as error:  # decoders raise whatever they meet
        raise InputError(f"{name}: not a picture that can be read: {error}") from None


def _opened(source: Source) -> tuple[str, Any]:
    """(a name for messages, a stream)."""
    if isinstance(source, bytes):
        return "picture", io.BytesIO(source)
    if isinstance(source, str) and source.startswith("data:"):
        return "data URL", io.BytesIO(from_data_url(source))
    path = Path(source)
    try:
        size = path.stat().st_size
        if not path.is_file() or size > MOST_BYTES:
            raise InputError(f"{path}: not a file of at most {MOST_BYTES} bytes")
        return str(path), io.BytesIO(path.read_bytes())
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be read: {error}") from None


def from_data_url(url: str) -> bytes:
    """What `data:image/...;base64,...` holds. Raises InputError."""
    head, comma, body = url.partition(",")
    if not comma or not head.endswith(";base64"):
        raise InputError(f"a picture in a URL is data:image/...;base64,..., not {url[:40]!r}")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"a data URL that is not base64: {error}") from None


def _rgb(image: Any) -> Any:
    turned = image.getexif().get(ORIENTATION, 1) != 1
    if turned:
        from PIL import ImageOps

        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):
        image = pillow().fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image if image.mode == "RGB" else image.convert("RGB")


def to_array(image: Any) -> np.ndarray:
    """(height, width, 3) u8."""
    return np.asarray(image, np.uint8)


def write_image(path: Path, picture: np.ndarray) -> None:
    """Write (height, width, 3) u8 in the format of the file's name. Raises InputError."""
    try:
        pillow().fromarray(picture).save(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be written: {error}") from None


# ---- as a net wants them


def processor(directory: Path) -> Fields:
    """What says how pictures are prepared for a folder's model; empty where nothing does."""
    for name in ("preprocessor_config.json", "processor_config.json"):
        if exists(directory / name):
            given = read_json(directory / name)
            inner = given.get("image_processor")
            return Fields(inner if isinstance(inner, dict) else given, str(directory / name))
    return Fields({}, str(directory))


def normal(image: Any, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
    """(3, height, width) f32: pixels of 0 .. 1 less the mean, over the deviation."""
    pixels = to_array(image).astype(np.float32) / 255
    return ((pixels - mean) / std).transpose(2, 0, 1).astype(np.float32)


def middle(image: Any, shortest: int, side: int) -> Any:
    """The square in the middle, after the shortest side has become so long."""
    width, height = image.size
    scale = shortest / min(width, height)
    size = max(shortest, int(width * scale)), max(shortest, int(height * scale))
    image = image.resize(size, pillow().Resampling.BICUBIC)
    left, top = (size[0] - side) // 2, (size[1] - side) // 2
    return image.crop((left, top, left + side, top + side))


def prepared(
    image: Any, given: Fields, side: int, mean: Sequence[float], std: Sequence[float]
) -> np.ndarray:
    """(3, side, side) f32 as a preprocessor_config.json says; mean, std: usual ones."""
    size = given.fields("size")
    if given.flag("do_center_crop", size.has("shortest_edge")):
        shortest = size.count("shortest_edge", side) if size.has("shortest_edge") else side
        square = middle(image, max(shortest, side), side)
    else:
        kind = int(given.number("resample", 2))  # Pillow's numbers: 2 is bilinear
        square = image.resize((side, side), kind)
    mean = given.numbers("image_mean", 3) if given.has("image_mean") else mean
    std = given.numbers("image_std", 3) if given.has("image_std") else std
    return normal(square, mean, std)
