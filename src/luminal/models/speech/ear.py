"""What models of speech have in common beside Whisper: sound cut where it is quiet, one segment for
each part."""

from __future__ import annotations

from abc import ABC, abstractmethod
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


class Ear(ABC):
    """A model that says what it hears in a part. shortest: samples of one. timed: it tells the
    times of words."""

    shortest: int
    timed = False

    @abstractmethod
    def hear(self, samples: np.ndarray) -> Part:
        """What is said in a part."""

    def transcribe(
        self, audio: str | Path | bytes | np.ndarray, options: Options | None = None,
        on_segment: Callable[[Segment], None] | None = None, **more: Any,
    ) -> Transcript:  # fmt: skip
        """As `Whisper.transcribe`; a segment is a part of at most 30 s. Raises InputError, or
        Unsupported for options of Whisper alone."""
        options = replace(options or Options(), **more)
        self._check(options)
        samples = check_samples(audio) if isinstance(audio, np.ndarray) else read_audio(audio)
        segments = []
        for start, part in parts(samples, self.shortest):
            text, words = self.hear(part)
            if not text.strip():
                continue
            first, end = start / RATE, min(start + len(part), len(samples)) / RATE
            moved = tuple(
                replace(w, start=w.start + first, end=min(w.end + first, end)) for w in words
            )
            segments.append(Segment(first, end, f" {text.strip()}", seek=start,
                                    words=moved if options.words else ()))  # fmt: skip
            if on_segment is not None:
                on_segment(segments[-1])
        text = "".join(each.text for each in segments).strip()
        return Transcript(text, options.language or "en", len(samples) / RATE, tuple(segments))

    def _check(self, options: Options) -> None:
        if options.task != "transcribe":
            raise InputError(f"task {options.task!r}: this model only transcribes")
        if options.words and not self.timed:
            raise Unsupported("times of words: this model does not tell them")
        if options.beams != 1 or options.prompt:
            raise Unsupported("beams and prompts: Whisper has them, this model does not")
