"""What models of speech have in common beside Whisper: sound cut where it is quiet, one segment for
each part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ...errors import InputError
from .audio import RATE, check_samples, read_audio
from .transcript import Segment, Transcript, Word
from .whisper import Options

PART, SEARCHED = 30.0, 5.0  # seconds of a part; of its end, where the quietest place is cut
ROWS, TOGETHER = 8, 60.0  # parts that are heard at once, at most; seconds of them, with padding
QUIET = 0.1  # seconds over which loudness is measured
KNOWN = "en"  # the language of the published models
Audio: TypeAlias = str | Path | bytes | np.ndarray
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


def padded(several: Sequence[np.ndarray]) -> np.ndarray:
    """(recordings, samples of the longest) f32, silence behind the others."""
    found = np.zeros((len(several), max(map(len, several))), np.float32)
    for row, samples in zip(found, several):
        row[: len(samples)] = samples
    return found


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Numbers of parts that are heard together: of about the same length, so that little is
    padding."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        longest = lengths[batch[0]] if batch else 0
        most = min(ROWS, TOGETHER * RATE // max(longest, 1))
        if batch and (len(batch) >= most or lengths[number] < 0.7 * longest):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


class Ear(ABC):
    """A model that says what it hears in a part. shortest: samples of one. timed: it tells the
    times of words."""

    shortest: int
    timed = False

    @property
    @abstractmethod
    def peak_bytes(self) -> int:
        """That its programs take by now, with the weights."""

    @abstractmethod
    def hear(self, samples: np.ndarray) -> Part:
        """What is said in a part."""

    @abstractmethod
    def hear_all(self, several: Sequence[np.ndarray]) -> list[Part]:
        """What is said in each of several parts, of ROWS at most, heard at once."""

    def transcribe_all(
        self, audios: Sequence[Audio], options: Options | None = None, **more: Any
    ) -> Iterator[Transcript]:
        """As `transcribe` of each, in order; parts of about the same length are heard at once. The
        first call compiles a second program."""
        options = replace(options or Options(), **more)
        self._check(options)
        sounds = [_samples(audio) for audio in audios]
        cut = [list(parts(samples, self.shortest)) for samples in sounds]
        every = [part for each in cut for _, part in each]
        heard: list[Part] = [("", ())] * len(every)
        for batch in batches([len(part) for part in every]):
            several = [every[n] for n in batch]
            said = [self.hear(several[0])] if len(batch) == 1 else self.hear_all(several)
            for number, each_said in zip(batch, said):
                heard[number] = each_said
        left = iter(heard)
        for samples, each in zip(sounds, cut):
            found = [(start, part, next(left)) for start, part in each]
            yield self._transcript(samples, found, options)

    def transcribe(
        self, audio: Audio, options: Options | None = None,
        on_segment: Callable[[Segment], None] | None = None, **more: Any,
    ) -> Transcript:  # fmt: skip
        """As `Whisper.transcribe`; a segment is a part of at most 30 s. Raises InputError, also for
        options of Whisper alone."""
        options = replace(options or Options(), **more)
        self._check(options)
        samples = _samples(audio)
        heard = ((start, part, self.hear(part)) for start, part in parts(samples, self.shortest))
        return self._transcript(samples, heard, options, on_segment)

    def _transcript(
        self, samples: np.ndarray, heard: Iterable[tuple[int, np.ndarray, Part]], options: Options,
        on_segment: Callable[[Segment], None] | None = None,
    ) -> Transcript:  # fmt: skip
        segments = []
        for start, part, (text, words) in heard:
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
        return Transcript(text, KNOWN, len(samples) / RATE, tuple(segments))

    def _check(self, options: Options) -> None:
        if options.task != "transcribe":
            raise InputError(f"task {options.task!r}: this model only transcribes")
        if options.language not in (None, KNOWN):
            raise InputError(f"language {options.language!r}: Whisper has several, this model knows"
                             " its own alone; leave it out")  # fmt: skip
        if options.words and not self.timed:
            raise InputError("times of words: this model does not tell them")
        if options.beams != 1 or options.prompt:
            raise InputError("beams and prompts: Whisper has them, this model does not")


def _samples(audio: Audio) -> np.ndarray:
    return check_samples(audio) if isinstance(audio, np.ndarray) else read_audio(audio)
