"""Whisper (Radford et al. 2022, https://arxiv.org/abs/2212.04356): speech to text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError
from ..llm.storage import Storage
from .audio import RATE, check_samples, read_audio
from .decoding import softmax
from .languages import code_of
from .mel import HOP, MelProgram
from .program import DecoderProgram, Encoded, EncoderProgram
from .source import open_whisper
from .transcript import Segment, Transcript
from .windows import Windows

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
TASKS = ("transcribe", "translate")
ROWS = 5  # hypotheses at once, if not told otherwise


@dataclass(frozen=True)
class Options:
    """language: a code or a name ("en", "English"), kept as its code; None to find out. words:
    times of each. beams: of a search, 1 is greedy. temperatures: tried one after the other where
    the result is unlikely or repeats itself. prompt: text that comes before. condition: each window
    goes on from the text of those before."""

    language: str | None = None
    task: str = "transcribe"
    words: bool = False
    beams: int = 1
    temperatures: tuple[float, ...] = TEMPERATURES
    prompt: str | None = None
    condition: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.language is not None:
            object.__setattr__(self, "language", code_of(self.language))


class Whisper:
    """A model that hears windows of 30 s.

    path_or_id: a directory as Hugging Face or CTranslate2 writes it, a name on the hub, or None:
    the packaged Whisper base. quant: as for `LLM`, of the decoder's matrices; None: as they are in
    the checkpoint. rows: most hypotheses, or recordings, at once. options: of `Graph.compile`.
    Raises WeightsError or Unsupported.
    """

    def __init__(
        self, path_or_id: str | Path | None = None, quant: str | None = None,
        threads: int | None = None, rows: int = ROWS, **options: Any,
    ) -> None:  # fmt: skip
        source = open_whisper(path_or_id)
        self.config, self.tokenizer, self.specials = (
            source.config, source.tokenizer, source.specials)  # fmt: skip
        self._state, self._storage = source.state, _storage(source.state, quant)
        self._options = {"threads": threads, "precision": "quantised" if quant else "f32"} | options
        self.rows = rows
        self.mel = MelProgram(self.config.mels, threads)
        self.encoder = EncoderProgram(self.config, self._state, rows, **self._options)
        self._decoders: list[DecoderProgram] = []
        self.decoder = self._decoder(rows)

    def _decoder(self, rows: int, aligned: bool = False) -> DecoderProgram:
        frames = self.config.encoder.context
        heads = self.config.alignment if aligned else ()
        made = DecoderProgram(self.config.decoder, self._state, frames, rows, self._storage, heads,
                              **self._options)  # fmt: skip
        self._decoders.append(made)
        return made

    @cached_property
    def aligner(self) -> DecoderProgram:
        """The decoder that tells how much of each frame a token takes."""
        return self._decoder(1, aligned=True)

    @property
    def peak_bytes(self) -> int:
        """That its programs take by now, with the weights."""
        made = [each.executable for each in self._decoders]
        made += [self.mel.executable, self.encoder.executable]
        return sum(each.peak_bytes for each in made)

    # ---- sound

    @property
    def seconds(self) -> float:
        """Of a window."""
        return self.config.frames * HOP / RATE

    def window(self, mel: np.ndarray, start: int, count: int | None = None) -> np.ndarray:
        """(mels, frames) of a spectrogram from a frame on; zero after `count`."""
        part = mel[:, start : start + (self.config.frames if count is None else count)]
        return np.pad(part, ((0, 0), (0, self.config.frames - part.shape[1])))

    def spectrogram(self, samples: np.ndarray) -> np.ndarray:
        """(mels, samples // HOP + frames of a window) of the sound and a window of silence."""
        silence = np.zeros(self.config.frames * HOP, np.float32)
        return self.mel(np.concatenate([samples, silence]))

    # ---- text

    def language(self, encoded: Encoded) -> list[tuple[str, float]]:
        """Of each recording the code of its language, and its probability."""
        names = list(self.specials.languages)
        if not names:
            return [("en", 1.0)] * len(encoded[0])
        self.decoder.listen(encoded)
        start = np.full((len(encoded[0]), 1), self.specials.start, np.int64)
        logits = self.decoder.prompt(start, [0])[:, 0]
        shares = softmax(logits[:, [self.specials.languages[name] for name in names]])
        return [(names[row.argmax()], float(row.max())) for row in shares]

    def prompt(
        self, language: str, task: str, timestamps: bool = True, before: Sequence[int] = ()
    ) -> list[int]:
        """The tokens that text begins with. before: those of what was said earlier."""
        own, room = self.specials, self.config.decoder.context // 2 - 1
        told = [own.previous, *before[-room:]] if before else []
        told.append(own.start)
        if own.languages:
            told += [own.languages[language], getattr(own, task)]
        return told if timestamps else [*told, own.no_timestamps]

    def check(self, options: Options) -> None:
        """Raises InputError for what this model does not know."""
        known = self.specials.languages
        if options.task not in TASKS:
            raise InputError(f"task {options.task!r}; there are {', '.join(TASKS)}")
        if options.task == "translate" and not known:
            raise InputError("this model knows English only: it does not translate")
        if options.language is not None and options.language not in (known or {"en": 0}):
            there = ", ".join(known) or "en"
            raise InputError(f"no language {options.language!r}; there are {there}")
        if not 1 <= options.beams <= self.rows:
            raise InputError(f"{options.beams} beams: this model was loaded for {self.rows}")
        if not options.temperatures or min(options.temperatures) < 0:
            raise InputError("temperatures are 0 or more, and at least one")

    # ---- both

    def transcribe(
        self, audio: str | Path | bytes | np.ndarray, options: Options | None = None,
        on_segment: Callable[[Segment], None] | None = None, **more: Any,
    ) -> Transcript:  # fmt: skip
        """What is said in a file (its path or contents) or in samples (count,) at 16 kHz.
        on_segment: is told each segment as soon as it is heard. more: fields of Options. Raises
        InputError."""
        options = replace(options or Options(), **more)
        self.check(options)
        if isinstance(audio, (str, Path, bytes)):
            samples = read_audio(audio)
        else:
            samples = check_samples(audio)
        mel = self.spectrogram(samples)
        language = options.language
        if language is None:
            (language, _), *_ = self.language(self.encoder(self.window(mel, 0)[None]))
        segments = []
        for segment in Windows(self, mel, len(samples) // HOP, language, options).segments():
            segments.append(segment)
            if on_segment is not None:
                on_segment(segment)
        text = "".join(segment.text for segment in segments).strip()
        return Transcript(text, language, len(samples) / RATE, tuple(segments), options.task)

    def transcribe_all(
        self, audios: Sequence[str | Path | bytes | np.ndarray], options: Options | None = None,
        **more: Any,
    ) -> Iterator[Transcript]:  # fmt: skip
        """As `transcribe` of each, in order and one after the other."""
        return (self.transcribe(audio, options, **more) for audio in audios)


def _storage(state: Any, quant: str | None) -> Storage:
    """Of the decoder's matrices: f16 ones stay so, as a step reads them all."""
    if quant is None:
        kind = state["decoder.embed_tokens.weight"].dtype.name
        return Storage({"float16": "f16", "bfloat16": "bf16"}.get(kind, "f32"))
    from ..llm.loading import QUANTS
    from ..llm.source import storage_for

    if quant not in QUANTS:
        raise InputError(f"quant={quant!r}; there are {', '.join(QUANTS)}")
    return storage_for(QUANTS[quant])
