"""What models of speech have in common beside Whisper: sound cut where it is quiet, one segment for
each part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError, Unsupported
from .audio import RATE, check_samples, read_audio
from .transcript import Segment, Transcript, Word
from .whisper import Options

PART, SEARCHED = 30.0, 5.0  # seconds of a part; of its end, where the quietest place is cut
QUIET = 0.1  # seconds over which loudness is measured
Part = tuple[str, tuple[Word, ...]]  # what is said; its words, in seconds of the part


def parts(samples: np.ndarray, shortest: int) -> Iterator[tuple[int, np.ndarray]]:
    """(first sample, samples) of parts of at most PART seconds; what has less than `shortest`
    samples is filled up with silence."""
    start, whole, step = 0, round(PART * RATE), round(QUIET * RATE)
    while start < len(samples):
        part = samples[start : start + whole]
        if start + whole < len(samples):
            searched = part[-round(SEARCHED * RATE) :].reshape(-1, step)
            quiet = len(part) - len(searched) * step + int((searched**2).sum(1).argmin()) * step
            part = part[: quiet + step // 2]
        yield start, np.pad(part, (0, max(0, shortest - len(part))))
        start += len(part)


def transcribed(
    audio: str | Path | bytes | np.ndarray, hear: Callable[[np.ndarray], Part], shortest: int,
    options: Options, on_segment: Callable[[Segment], None] | None, timed: bool,
) -> Transcript:  # fmt: skip
    """What `hear` finds in each part. timed: it tells the times of words. Raises InputError for an
    option that such a model does not have."""
    if options.task != "transcribe":
        raise InputError(f"task {options.task!r}: this model only transcribes")
    if options.words and not timed:
        raise Unsupported("times of words: this model does not tell them")
    if options.beams != 1 or options.prompt:
        raise Unsupported("beams and prompts: Whisper has them, this model does not")
    samples = read_audio(audio) if isinstance(audio, (str, Path, bytes)) else check_samples(audio)
    segments = []
    for start, part in parts(samples, shortest):
        text, words = hear(part)
        if not text.strip():
            continue
        first, end = start / RATE, min(start + len(part), len(samples)) / RATE
        moved = tuple(replace(w, start=w.start + first, end=min(w.end + first, end)) for w in words)
        segments.append(Segment(first, end, f" {text.strip()}", seek=start,
                                words=moved if options.words else ()))  # fmt: skip
        if on_segment is not None:
            on_segment(segments[-1])
    text = "".join(each.text for each in segments).strip()
    return Transcript(text, options.language or "en", len(samples) / RATE, tuple(segments))


def changed(options: Options | None, more: dict[str, Any]) -> Options:
    return replace(options or Options(), **more)
