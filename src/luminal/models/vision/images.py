"""Pictures from files and bytes, through Pillow, as RGB."""

from __future__ import annotations

import base64
import binascii
import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ...errors import InputError, to_install
from ...weights.fields import Fields, exists, read_json

Source: TypeAlias = Any  # a path, bytes, a data URL, an array (height, width, 3) u8, Pillow's image
MOST_PIXELS = 1 << 27
MOST_BYTES = 1 << 28
WHOLE = 384  # pixels of a side from which on nothing is cut off by crop_pct
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
PROCESSORS: dict[str, dict[str, Any]] = {  # by how their names begin: what they usually do
    "Detr": {"default_to_square": False, "max_size": 1333},
    "CLIP": {"default_to_square": False},
    "Bit": {"default_to_square": False},
    "ConvNext": {"default_to_square": False, "crop_pct": 224 / 256},
}
WIDE = ("PNG", "PPM")  # files whose integers have 16 bits where they are read as such
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
        return _loaded(source, "picture")
    if isinstance(source, np.ndarray):
        if source.dtype != np.uint8 or source.ndim != 3 or source.shape[2] != 3:
            given = f"{source.shape} {source.dtype}"
            raise InputError(f"a picture is (height, width, 3) u8, not {given}")
        return _rgb(module.fromarray(source))
    name, stream = _opened(source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", module.DecompressionBombWarning)  # the limit is ours
            image = module.open(stream)
        width, height = image.size
        if width * height > MOST_PIXELS:
            raise InputError(f"{name}: {width} x {height} pixels; at most {MOST_PIXELS} are read")
    except InputError:
        raise
    except module.DecompressionBombError:
        raise InputError(f"{name}: too many pixels; at most {MOST_PIXELS} are read") from None
    except module.UnidentifiedImageError:
        raise InputError(f"{name}: not a picture that can be read: of no known kind") from None
    except Exception as error:  # decoders raise whatever they meet
        raise InputError(f"{name}: not a picture that can be read: {error}") from None
    return _loaded(image, name)


def _loaded(image: Any, name: str) -> Any:
    try:
        image.load()
        return _rgb(image)
    except InputError:
        raise
    except Exception as error:  # here too
        raise InputError(f"{name}: not a picture that can be read: {error}") from None


def _opened(source: Source) -> tuple[str, Any]:
    """(a name for messages, a stream)."""
    if isinstance(source, bytes):
        return "picture", io.BytesIO(source)
    if isinstance(source, str) and source.startswith("data:"):
        return "data URL", io.BytesIO(from_data_url(source))
    try:
        path = Path(source)
    except TypeError:
        kind = type(source).__name__
        raise InputError(
            f"a picture is a path, bytes, a data URL, an array or Pillow's image, not {kind}"
        ) from None
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
    if not all(image.size):
        raise InputError("a picture of {} x {} pixels".format(*image.size))
    wide = image.format in WIDE or image.mode.startswith("I;16")
    turned = image.getexif().get(ORIENTATION, 1) != 1
    if turned:
        from PIL import ImageOps

        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        image = pillow().fromarray(_of_16_bits(np.asarray(image), wide))
    if image.mode == "F":
        image = pillow().fromarray(_of_floats(np.asarray(image)))
    if image.mode == "La":  # Pillow knows no other way out of it
        image = image.convert("LA")
    return image if image.mode == "RGB" else image.convert("RGB")


def _of_16_bits(numbers: np.ndarray, wide: bool) -> np.ndarray:
    """Grey of 16 bits as u8; unless that is known, of 8 where all numbers fit. Raises InputError.
    """
    low, high = (int(end) for end in (numbers.min(initial=0), numbers.max(initial=0)))
    if low < 0 or high > 0xFFFF:
        raise InputError(f"a picture of {low} .. {high}; grey has 8 or 16 bits")
    return (numbers >> 8 if wide or high > 0xFF else numbers).astype(np.uint8)


def _of_floats(numbers: np.ndarray) -> np.ndarray:
    """Grey of floats as u8: white is 1 where none is larger, else 255. Raises InputError."""
    low, high = float(numbers.min()), float(numbers.max())
    if not (low >= 0 and high <= 0xFF):
        raise InputError(f"a picture of {low:g} .. {high:g}; floats are 0 .. 1, or 0 .. 255")
    return (np.rint(numbers * 0xFF) if high <= 1 else numbers).astype(np.uint8)


def to_array(image: Any) -> np.ndarray:
    """(height, width, 3) u8."""
    return np.asarray(image, np.uint8)


def check_name(path: Path) -> None:
    """Raises InputError where no picture can be written under this name."""
    module, end = pillow(), path.suffix.lower()
    if module.registered_extensions().get(end) not in module.SAVE:
        raise InputError(f"{path}: no format of pictures ends in {end!r}; take .png")


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
            found = Fields(inner if isinstance(inner, dict) else given, str(directory / name))
            kinds = (found.text(f"{n}_type", "") for n in ("image_processor", "feature_extractor"))
            kind = next(filter(None, kinds), "")
            usual = next((PROCESSORS[n] for n in PROCESSORS if kind.startswith(n)), {})
            return with_usual(found, usual)
    return Fields({}, str(directory))


def normal(
    image: Any, mean: Sequence[float], std: Sequence[float], scale: float = 1 / 255
) -> np.ndarray:
    """(3, height, width) f32: pixels of 0 .. 1 less the mean, over the deviation."""
    pixels = to_array(image) * np.float64(scale)
    return ((pixels - mean) / std).transpose(2, 0, 1).astype(np.float32)


def resized(image: Any, size: tuple[int, int], resample: int) -> Any:
    """A picture of this (width, height), of at least a pixel. Raises InputError where it would have
    more than MOST_PIXELS, as a long and narrow one may."""
    width, height = (max(1, side) for side in size)
    if width * height > MOST_PIXELS:
        raise InputError(f"a picture of {image.size[0]} x {image.size[1]} pixels is seen as "
                         f"{width} x {height}; at most {MOST_PIXELS} pixels are")  # fmt: skip
    return image.resize((width, height), resample)


def middle(image: Any, shortest: int, side: int) -> Any:
    """The square in the middle, after the shortest side has become so long. Raises InputError."""
    size = shortest_side(image.size, shortest)
    return centre(resized(image, size, pillow().Resampling.BICUBIC), side, side)


def centre(image: Any, width: int, height: int) -> Any:
    """The middle of a picture; black around it where it is smaller."""
    left, top = (image.size[0] - width) // 2, (image.size[1] - height) // 2
    return image.crop((left, top, left + width, top + height))


def shortest_side(size: tuple[int, int], side: int, longest: int | None = None) -> tuple[int, int]:
    """(width, height) in the same proportions, the shorter one being `side`, or less where the
    longer one would be more than `longest`. One whose shorter side is right stays as it is."""
    short, long = min(size), max(size)
    exact = float(side)
    if longest is not None and long / short * side > longest:
        exact = longest * short / long
    rounded = int(exact) if exact == side else round(exact)
    if rounded == short:
        return size
    other = int(exact * long / short)
    return (rounded, other) if size[0] <= size[1] else (other, rounded)


def wanted_size(given: Fields, size: tuple[int, int]) -> tuple[int, int]:
    """(width, height) that a picture of this size is resized to, as `size` says: a number alone is
    both sides, or without default_to_square the shorter one, the longer at most max_size. Raises
    WeightsError."""
    if isinstance(given.values.get("size"), int):
        side = given.count("size")
        if not given.flag("default_to_square", True):
            return shortest_side(size, side, given.count_if("max_size"))
        given = Fields({**given.values, "size": {"height": side, "width": side}}, given.where)
    wanted = given.fields("size")
    if given.has("ensure_multiple_of"):
        return _multiples(given, size)
    if wanted.has("height"):
        return wanted.count("width"), wanted.count("height")
    if wanted.has("max_height"):
        scale = min(wanted.count("max_height") / size[1], wanted.count("max_width") / size[0])
        return int(size[0] * scale), int(size[1] * scale)
    if wanted.has("shortest_edge"):
        return shortest_side(size, wanted.count("shortest_edge"), wanted.count_if("longest_edge"))
    if wanted.has("longest_edge"):
        side = wanted.count("longest_edge")
        scale = side / max(size)
        return int(size[0] * scale + 0.5), int(size[1] * scale + 0.5)
    raise given.wrong("size", "height and width, or shortest_edge")


def _multiples(given: Fields, size: tuple[int, int]) -> tuple[int, int]:
    """Sides that a number divides, as near as can be to the height and width that are asked for;
    in the same proportions as the picture's if these are kept."""
    step, wanted = given.count("ensure_multiple_of"), given.fields("size")
    scales = [wanted.count(n) / side for n, side in zip(("width", "height"), size)]
    if given.flag("keep_aspect_ratio"):
        scales = [min(scales, key=lambda scale: abs(1 - scale))] * 2
    width, height = (
        max(step, round(scale * side / step) * step) for scale, side in zip(scales, size)
    )
    return width, height


def prepared(image: Any, given: Fields) -> np.ndarray:
    """(3, height, width) f32 as a preprocessor_config.json says, with what is usual filled in:
    do_resize, size, resample (Pillow's number), do_center_crop, crop_size, crop_pct, do_rescale,
    rescale_factor, rescale_offset, do_normalize, image_mean, image_std. Raises WeightsError,
    InputError."""
    if given.flag("do_resize", True) and given.has("crop_pct"):
        image = _inner(image, given, given.number("crop_pct", low=0.01, high=1))
    elif given.flag("do_resize", True):
        image = resized(image, wanted_size(given, image.size), _filter(given))
    if given.flag("do_center_crop"):
        crop = "crop_size" if given.has("crop_size") else "size"
        image = centre(image, *_sides(given, crop))
    rescaled = given.flag("do_rescale", True)
    scale = given.number("rescale_factor", 1 / 255, low=0) if rescaled else 1
    below = float(rescaled and given.flag("rescale_offset"))
    mean, std = [0.0] * 3, [1.0] * 3
    if given.flag("do_normalize", True):
        mean, std = given.numbers("image_mean", 3), given.numbers("image_std", 3)
    found = normal(image, [value + below for value in mean], std, scale)
    if given.flag("include_top"):  # of EfficientNet: divided twice
        found = found / np.array(given.numbers("image_std", 3), np.float32)[:, None, None]
    return found


def _inner(image: Any, given: Fields, share: float) -> Any:
    """ConvNeXt's: of small squares, more is seen around what is cut out; large ones are warped."""
    alone = isinstance(given.values.get("size"), int)
    side = given.count("size") if alone else given.fields("size").count("shortest_edge")
    if side >= WHOLE:
        return image.resize((side, side), _filter(given))
    larger = shortest_side(image.size, int(side / share))
    return centre(resized(image, larger, _filter(given)), side, side)


def _filter(given: Fields) -> int:
    return given.count("resample", 2, low=0, high=5)


def padded(pixels: np.ndarray, given: Fields) -> np.ndarray:
    """Prepared pixels (3, height, width) with zeros on the right and below, as do_pad and pad_size
    say. Raises WeightsError, InputError."""
    if not (given.flag("do_pad") and given.has("pad_size")):
        return pixels
    (height, width), (right, below) = pixels.shape[1:], _sides(given, "pad_size")
    if height > below or width > right or below * right > MOST_PIXELS:
        raise InputError(f"a picture is seen as {width} x {height} pixels; padding to {right} x "
                         f"{below} takes as many, and gives at most {MOST_PIXELS}")  # fmt: skip
    return np.pad(pixels, ((0, 0), (0, below - height), (0, right - width)))


def _sides(given: Fields, name: str) -> tuple[int, int]:
    """(width, height)."""
    if isinstance(given.values.get(name), int):
        return given.count(name), given.count(name)
    wanted = given.fields(name)
    side = wanted.count_if("shortest_edge")
    return (side, side) if side else (wanted.count("width"), wanted.count("height"))


def with_usual(given: Fields, usual: Mapping[str, Any]) -> Fields:
    """The fields of `given`, and usual values of those that are missing."""
    known = {name: value for name, value in given.values.items() if value is not None}
    return Fields({**usual, **known}, given.where)


def stretched(x: np.ndarray, height: int, width: int, cubic: bool = False) -> np.ndarray:
    """x (rows, columns) at the middles of so many cells: between two of its own, or four if
    cubic (with -0.75 for the slope, as PyTorch has it)."""
    for axis, size in enumerate((height, width)):
        count = x.shape[axis]
        at = (np.arange(size) + 0.5) * (count / size) - 0.5
        at = at if cubic else np.clip(at, 0, count - 1)
        low = np.floor(at).astype(int)
        parts = []
        for step in range(-1, 3) if cubic else range(2):
            share = np.expand_dims(_share(np.abs(at - low - step), cubic), 1 - axis)
            place = np.clip(low + step, 0, count - 1)
            parts.append(np.take(x, place, axis) * share.astype(np.float32))
        x = np.asarray(np.sum(parts, axis=0, dtype=np.float32))
    return x


def _share(far: np.ndarray, cubic: bool) -> np.ndarray:
    """Of a cell so far away (Keys 1981, https://doi.org/10.1109/TASSP.1981.1163711)."""
    if not cubic:
        return 1 - far
    near = (1.25 * far - 2.25) * far * far + 1
    return np.where(far <= 1, near, ((-0.75 * far + 3.75) * far - 6) * far + 3)
