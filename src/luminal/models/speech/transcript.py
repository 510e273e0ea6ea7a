"""What was said, and when; as text, subtitles or JSON."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .languages import name_of

ARROW = re.compile("--+>")


@dataclass(frozen=True)
class Word:
    """Text with the blank before it, from start to end in seconds."""

    text: str
    start: float
    end: float
    probability: float


@dataclass(frozen=True)
class Segment:
    """A phrase. temperature, average, compression, no_speech: of the window that it was heard in
    (`transcribe`)."""

    start: float
    end: float
    text: str
    tokens: tuple[int, ...] = ()
    temperature: float = 0.0
    average: float = 0.0
    compression: float = 0.0
    no_speech: float = 0.0
    seek: int = 0
    words: tuple[Word, ...] = ()


@dataclass(frozen=True)
class Transcript:
    """text: all of it. language: its code. duration: of the sound, in seconds."""

    text: str
    language: str
    duration: float
    segments: tuple[Segment, ...]
    task: str = "transcribe"

    def json(self, words: bool = False, segments: bool = True) -> dict[str, Any]:
        """In the form of OpenAI's verbose_json; words, segments: with their times."""
        found: dict[str, Any] = {
            "task": self.task, "language": name_of(self.language),
            "duration": round(self.duration, 3), "text": self.text,
        }  # fmt: skip
        if segments:
            found["segments"] = [_about(n, each) for n, each in enumerate(self.segments)]
        if words:
            found["words"] = [
                {"word": word.text.strip(), "start": round(word.start, 3),
                 "end": round(word.end, 3), "probability": round(word.probability, 4)}
                for each in self.segments for word in each.words
            ]  # fmt: skip
        return found

    def srt(self) -> str:
        """SubRip subtitles."""
        return "".join(
            f"{n}\n{clock(each.start, ',')} --> {clock(each.end, ',')}\n{_line(each)}\n\n"
            for n, each in enumerate(self.segments, 1)
        )

    def vtt(self) -> str:
        """WebVTT subtitles (https://www.w3.org/TR/webvtt1)."""
        escaped: Callable[[str], str] = lambda text: (  # noqa: E731
            text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))  # fmt: skip
        return "WEBVTT\n\n" + "".join(
            f"{clock(each.start)} --> {clock(each.end)}\n{escaped(_line(each))}\n\n"
            for each in self.segments
        )


def clock(seconds: float, point: str = ".") -> str:
    """hh:mm:ss.mmm."""
    whole = round(1000 * max(0.0, seconds))
    minutes, milliseconds = divmod(whole, 60_000)
    hours, minutes = divmod(minutes, 60)
    rest, parts = divmod(milliseconds, 1000)
    return f"{hours:02}:{minutes:02}:{rest:02}{point}{parts:03}"


def _line(segment: Segment) -> str:
    """One line; an arrow would end the times of a subtitle."""
    return ARROW.sub("->", " ".join(segment.text.split()))


def _about(number: int, segment: Segment) -> dict[str, Any]:
    return {
        "id": number, "seek": segment.seek, "start": round(segment.start, 3),
        "end": round(segment.end, 3), "text": segment.text, "tokens": list(segment.tokens),
        "temperature": segment.temperature, "avg_logprob": round(segment.average, 4),
        "compression_ratio": round(segment.compression, 4),
        "no_speech_prob": round(segment.no_speech, 6),
    }  # fmt: skip
