"""Sound files to samples: any rate and channels, as one channel at the rate of a model."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError, LuminalError, to_install

RATE = 16000  # samples in a second, for which all models here are made
MOST_SECONDS = 4 * 3600
BLOCK = 1 << 20  # frames read at once
UNKNOWN_SIZES = (0, 0x7FFFFFFF, 0xFFFFFFFF)  # what a writer that cannot seek leaves in a header
OGG_PAGE, OGG_HEAD, OGG_LAST = b"OggS", 27, 4  # first bytes; bytes to the sizes; flag of the last
SHORTER = re.compile(  # as libsndfile tells of a file that ends before its sound does
    r"^ *(?:data|SSND|Data Size|BODY|riff|Riff size|Data length) *:? (\d+) \(?should be (\d+)\)?$",
    re.MULTILINE,
)
CUT = re.compile(r"seems to be (?:a )?truncated", re.IGNORECASE)
COUNTS = {  # by format: where a header or libsndfile tells how many frames there are
    "AVR": r"^ +Frames +: (\d+)$", "MPC2K": r"^ +Frames +: (\d+)$",
    "NIST": r"^sample_count -i (\d+)$",
}  # fmt: skip
HEADER = 1024  # bytes, of NIST's files


def read_audio(
    source: str | Path | bytes, rate: int = RATE, most: float = MOST_SECONDS
) -> np.ndarray:
    """Samples (count,) f32 of a file's path or contents: wav, flac, mp3, ogg and what else
    libsndfile reads. Channels are averaged. Raises InputError for what is no sound, is truncated,
    empty, longer than `most` seconds, or not finite."""
    where = "the audio" if isinstance(source, bytes) else str(source)
    package = _soundfile()
    if not isinstance(source, bytes) and not Path(source).is_file():
        what = "a directory, not a file" if Path(source).is_dir() else "no such file"
        raise InputError(f"{where}: {what}")
    if not isinstance(source, bytes) and Path(source).suffix.lower() == ".raw":
        raise InputError(f"{where}: raw samples do not say their rate; wav, for one, does")
    try:
        with package.SoundFile(io.BytesIO(source) if isinstance(source, bytes) else source) as file:
            given = int(file.samplerate)
            if file.format == "OGG":
                _check_ogg(_bytes(source), where)
            samples = _read(file, where, most)
            _check_count(file, source, where)
    except package.LibsndfileError as error:
        told = error.error_string.strip().rstrip(".")
        if "does not exist" in told:  # what libsndfile says of an MP3 without a frame
            told = "there is none in it"
        raise InputError(f"{where}: cannot be read as sound: {told}") from None
    return check_samples(resample(check_samples(samples, where), given, rate), where)


def _bytes(source: str | Path | bytes, count: int = -1) -> bytes:
    """The first bytes of a file's path or contents; all, if not told how many."""
    if isinstance(source, bytes):
        return source[:count] if count >= 0 else source
    with Path(source).open("rb") as file:
        return file.read(count)


def check_samples(samples: np.ndarray, where: str = "the audio") -> np.ndarray:
    """One channel of sound as f32. Raises InputError."""
    samples = np.asarray(samples)
    if samples.ndim != 1 or samples.dtype.kind != "f":
        raise InputError(f"{where}: samples are one row of floats, not {samples.dtype} "
                         f"{samples.shape}")  # fmt: skip
    if not samples.size:
        raise InputError(f"{where}: 0 seconds of sound")
    samples = samples.astype(np.float32, copy=False)
    if not np.isfinite(samples).all():
        raise InputError(f"{where}: a sample is infinite or NaN")
    return samples


def resample(samples: np.ndarray, given: int, wanted: int) -> np.ndarray:
    """Samples (count,) f32 of a rate at another, frequencies beyond it filtered out."""
    if given == wanted:
        return samples
    found: np.ndarray = _soxr().resample(samples, given, wanted)
    return found.astype(np.float32, copy=False)


def _read(file: Any, where: str, seconds: float) -> np.ndarray:
    """All frames, channels averaged. Raises InputError."""
    for told, there in SHORTER.findall(file.extra_info):
        if int(told) not in UNKNOWN_SIZES and int(told) > int(there):
            raise InputError(f"{where}: truncated: {there} bytes of sound, not {told}")
    if CUT.search(file.extra_info):
        raise InputError(f"{where}: truncated: it ends before its sound does")
    most = int(seconds * file.samplerate)
    parts, count = [], 0
    while len(block := file.read(BLOCK, dtype="float32", always_2d=True)):
        count += len(block)
        if count > most:
            raise InputError(f"{where}: more than {seconds:g} seconds of sound")
        parts.append(block.mean(1, dtype=np.float32))
    if count < file.frames < most:
        raise InputError(f"{where}: truncated: {count} frames of sound, not {file.frames}")
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def _check_count(file: Any, source: str | Path | bytes, where: str) -> None:
    """Raises InputError where there are fewer frames than a header of COUNTS tells."""
    if file.format in COUNTS:
        text = file.extra_info + _bytes(source, HEADER).decode("latin-1")
        told = re.search(COUNTS[file.format], text, re.MULTILINE)
        if told and int(told[1]) > file.frames:
            raise InputError(f"{where}: truncated: {file.frames} frames of sound, not {told[1]}")


def _check_ogg(data: bytes, where: str) -> None:
    """libsndfile takes the end of a file for the end of its sound. Raises InputError where the last
    page (RFC 3533, section 6) is not whole, or does not end its stream."""
    place, ends = 0, False
    while (place := data.find(OGG_PAGE, place)) >= 0:
        head = data[place : place + OGG_HEAD]
        count = head[-1] if len(head) == OGG_HEAD else 0
        sizes = data[place + OGG_HEAD : place + OGG_HEAD + count]
        place += OGG_HEAD + count + sum(sizes)
        ends = len(head) == OGG_HEAD and place <= len(data) and bool(head[5] & OGG_LAST)
    if not ends:
        raise InputError(f"{where}: truncated: its last page of Ogg is not the end of a stream")


def _soundfile() -> Any:
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: no libsndfile
        raise LuminalError(f"sound files need the soundfile package: {to_install('audio')}"
                           ) from None  # fmt: skip
    return soundfile


def _soxr() -> Any:
    try:
        import soxr
    except ImportError:
        raise LuminalError(f"other sample rates need the soxr package: {to_install('audio')}"
                           ) from None  # fmt: skip
    return soxr
