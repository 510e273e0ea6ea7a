"""Speech to text for the server: the model is loaded when first asked for, and hears one recording
at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ..models.speech import Segment, SpeechModel, Transcript, read_audio, speech_model
from ..models.speech.packaged import NAME, packaged_parts
from .bodies import Bodies
from .faults import Fault
from .requests import Speech
from .turns import Check, Turns

MOST_BYTES = 25 << 20  # of a file
MOST_SECONDS = 3600  # of sound in it
USUAL = "whisper-1"  # what clients of OpenAI ask for


class Listener:
    """One model of speech. path: None is the packaged Whisper."""

    def __init__(
        self, path: str | Path | None = None, threads: int | None = None, device: str = "auto"
    ) -> None:
        self._given, self._threads, self._device = path, threads, device
        self._model: SpeechModel | None = None
        self._turns = Turns("recordings")

    @property
    def name(self) -> str:
        return NAME if self._given is None else Path(self._given).name

    @property
    def names(self) -> list[str]:
        """Under which it may be asked for; none where it is not installed."""
        if self._given is None:
            try:
                packaged_parts()
            except ValueError:
                return []
        return [self.name, USUAL]

    def close(self) -> None:
        self._turns.close()

    async def answer(self, request: Request, bodies: Bodies, task: str) -> Response:
        """The response to a form with a file. Raises Fault, InputError or ValidationError."""
        data, fields = await bodies.form(request, MOST_BYTES)
        given = Speech.model_validate(fields)
        if given.model not in self.names:
            there = ", ".join(self.names) or "none"
            raise Fault(404, f"no model {given.model[:80]!r} for speech; there is {there}",
                        "model_not_found", "model")  # fmt: skip
        found = await self._turns.run(
            request.receive, lambda check: self._hear(data, given, task, check)
        )
        return _shown(found, given)

    def _hear(self, data: bytes, given: Speech, task: str, check: Check) -> Transcript:
        def heard(segment: Segment) -> None:
            check()

        samples = read_audio(data, most=MOST_SECONDS)
        if self._model is None:
            self._model = speech_model(
                self._given, threads=self._threads, device=self._device
            )
        more: dict[str, Any] = {} if not given.temperature else {
            "temperatures": (given.temperature,)}  # fmt: skip
        return self._model.transcribe(
            samples, on_segment=heard, language=given.language, task=task, prompt=given.prompt,
            words="word" in given.granularities, **more,
        )  # fmt: skip


def _shown(found: Transcript, given: Speech) -> Response:
    """In the form that was asked for."""
    kind = given.response_format
    if kind == "json":
        return JSONResponse({"text": found.text})
    if kind == "verbose_json":
        return JSONResponse(found.json(words="word" in given.granularities))
    text = {"text": f"{found.text}\n", "srt": found.srt(), "vtt": found.vtt()}[kind]
    return PlainTextResponse(text)
