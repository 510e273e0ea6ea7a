"""From a name to a model of speech of any kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...errors import Unsupported, WeightsError
from ...weights import locate
from ...weights.fields import Fields
from .moonshine import Moonshine
from .transcript import Segment, Transcript
from .wav2vec2 import Wav2Vec2
from .whisper import Options, Whisper


class SpeechModel(Protocol):
    """What all models of speech do."""

    @property
    def peak_bytes(self) -> int:
        """That its programs take by now, with the weights."""

    def transcribe(
        self, audio: str | Path | bytes | np.ndarray, options: Options | None = None,
        on_segment: Callable[[Segment], None] | None = None, **more: Any,
    ) -> Transcript:  # fmt: skip
        """See `Whisper.transcribe`."""

    def transcribe_all(
        self, audios: Sequence[str | Path | bytes | np.ndarray], options: Options | None = None,
        **more: Any,
    ) -> Iterator[Transcript]:  # fmt: skip
        """Of each, in order."""


OTHERS: dict[str, Callable[..., SpeechModel]] = {"moonshine": Moonshine, "wav2vec2": Wav2Vec2}


def speech_model(
    path_or_id: str | Path | None = None, quant: str | None = None, threads: int | None = None,
    rows: int | None = None, device: str = "auto",
) -> SpeechModel:  # fmt: skip
    """The model of speech at a path, or of a name on the hub; quant, rows: of `Whisper` alone.
    Raises WeightsError or Unsupported."""
    more: dict[str, Any] = {"device": device} | ({} if rows is None else {"rows": rows})
    if path_or_id is None:
        return Whisper(None, quant, threads, **more)
    path = locate(path_or_id)
    if (kind := speech_kind(path)) in OTHERS:
        if quant is not None:
            raise Unsupported(f"quant={quant!r} for {kind}: only Whisper has it")
        return OTHERS[kind](path, threads=threads, device=device)
    return Whisper(path, quant, threads, **more)


def speech_kind(path: Path) -> str:
    """Which kind of model is there, by its config.json; Whisper's other layouts have no kind in
    theirs. Raises WeightsError for another model's."""
    if not (path.is_dir() and (path / "config.json").exists()):
        return "whisper"
    kind = Fields.load(path / "config.json").values.get("model_type")
    if not kind and (path / "model.bin").exists():
        return "whisper"
    there = ["whisper", *OTHERS]
    if kind not in there:
        raise WeightsError(f"{path}: model_type {kind!r} is no model of speech: there are "
                           f"{', '.join(there)}")  # fmt: skip
    return str(kind)
