"""Long recordings: window after window, each from where the last one ended (section 3.8 of the
paper; https://github.com/openai/whisper, transcribe.py)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .audio import RATE
from .decoding import Decoding, Heard
from .mel import HOP
from .program import Encoded
from .rules import STEP, Rules
from .timing import timed
from .transcript import Segment

if TYPE_CHECKING:
    from .whisper import Options, Whisper

REPEATS, UNSURE, SILENT = 2.4, -1.0, 0.6  # compression and mean logarithm to try again at; silence
WARM = 0.5  # what is heard at a higher temperature is no prompt for the next window
FRAMES = round(STEP * RATE / HOP)  # of a spectrogram, between two tokens of time


class Windows:
    """The segments of a recording. mel: of `Whisper.spectrogram`. frames: of the sound in it."""

    def __init__(
        self, model: Whisper, mel: np.ndarray, frames: int, language: str, options: Options
    ) -> None:
        self.model, self.mel, self.frames = model, mel, frames
        self.language, self.options = language, options
        own = model.config
        self.rules = Rules(model.specials, own.suppress, own.suppress_first)
        self._said: list[int] = []
        if options.prompt:
            self._said += model.tokenizer.encode(" " + options.prompt.strip(), special=False)
        self._fresh = 0  # of `said`, from where on it is a prompt
        self._spoken = 0.0  # when the last word ends

    def segments(self) -> Iterator[Segment]:
        """In the order of time."""
        seek = 0
        while seek < self.frames:
            count = min(self.model.config.frames, self.frames - seek)
            encoded = self.model.encoder(self.model.window(self.mel, seek, count)[None])
            heard, temperature = self._hear(encoded)
            if heard.no_speech > SILENT and heard.average < UNSURE:
                seek += count
                continue
            found, told = self._cut(heard, temperature, seek, count)
            if self.options.words:
                seconds, heard_frames = seek * HOP / RATE, max(1, count // FRAMES)
                found = timed(self.model, encoded, found, seconds, heard_frames, self.language,
                              self.options.task, self._spoken)  # fmt: skip
                self._spoken = next((each.words[-1].end for each in reversed(found) if each.words),
                                    self._spoken)  # fmt: skip
            yield from found
            self._said += [token for each in found for token in each.tokens]
            if not self.options.condition or temperature > WARM:
                self._fresh = len(self._said)
            seek += ahead(heard.tokens, found, self.rules.specials.time, seek, told)

    def _hear(self, encoded: Encoded) -> tuple[Heard, float]:
        """(what is said, the temperature): the first that neither repeats itself nor is unlikely;
        silence is unlikely too."""
        options, model = self.options, self.model
        prompt = model.prompt(self.language, options.task, before=self._said[self._fresh :])
        for temperature in options.temperatures:
            several = options.beams if temperature == 0 else model.rows
            how = Decoding(model.decoder, self.rules, several, temperature, seed=options.seed)
            (heard,) = how.hear(encoded, prompt)
            if heard.no_speech > SILENT and heard.average < UNSURE:
                break
            if self._compression(heard.tokens) <= REPEATS and heard.average >= UNSURE:
                break
        return heard, temperature

    def _cut(
        self, heard: Heard, temperature: float, seek: int, count: int
    ) -> tuple[list[Segment], int]:
        """(segments, frames until the next window). Two tokens of time in a row end a segment and
        begin another; a window that ends in one of these pairs goes on where it says."""
        tokens, zero = heard.tokens, self.model.specials.time
        is_time = [token >= zero for token in tokens]
        pairs = [n for n in range(1, len(tokens)) if is_time[n - 1] and is_time[n]]
        alone = ends_alone(tokens, zero)
        facts = Segment(
            0.0, 0.0, "", (), temperature, heard.average, self._compression(tokens),
            heard.no_speech, seek,
        )  # fmt: skip
        if not pairs:
            times = [t - zero for t in tokens if t >= zero]
            length = times[-1] * FRAMES if times and times[-1] else count
            return self._made(facts, [(tokens, 0, length)], count), count
        pieces = []
        for start, stop in zip([0, *pairs], [*pairs, len(tokens)] if alone else pairs):
            part = tokens[start:stop]
            ends = [(part[n] - zero) * FRAMES for n in (0, -1)]
            pieces.append((part, ends[0], ends[1]))
        ahead = count if alone else (tokens[pairs[-1] - 1] - zero) * FRAMES
        return self._made(facts, pieces, count), min(ahead, count) or count

    def _made(
        self, facts: Segment, pieces: Sequence[tuple[Sequence[int], int, int]], count: int
    ) -> list[Segment]:
        """Those with text. pieces: tokens, first and last frame in the window, which has `count`
        of sound."""
        found = []
        for tokens, first, last in pieces:
            text = self._text(tokens)
            if text.strip() and first != last:
                ends = (facts.seek + min(at, count) for at in (first, last))
                start, end = (at * HOP / RATE for at in ends)
                found.append(replace(facts, start=start, end=end, text=text, tokens=tuple(tokens)))
        return found

    def _text(self, tokens: Sequence[int]) -> str:
        end = self.model.specials.end
        return self.model.tokenizer.decode([token for token in tokens if token < end])

    def _compression(self, tokens: Sequence[int]) -> float:
        """Bytes of the text for each that zlib makes of them: high for what repeats itself."""
        raw = self._text(tokens).encode()
        return len(raw) / len(zlib.compress(raw))


def ends_alone(tokens: Sequence[int], zero: int) -> bool:
    """With one token of time (`zero` is the first of these): all of the window was heard."""
    return [token >= zero for token in tokens[-2:]] == [False, True]


def ahead(
    tokens: Sequence[int], segments: Sequence[Segment], zero: int, seek: int, told: int
) -> int:
    """Frames from a window, at `seek`, to the next one. told: by its tokens. Where words have times
    it begins where the last one ends, so that no time goes back."""
    words = [word for each in segments for word in each.words]
    if not words or ends_alone(tokens, zero):
        return told
    heard = round(words[-1].end * RATE / HOP) - seek
    return heard if heard > 0 else told
