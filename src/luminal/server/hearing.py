"""Speech to text for the server: the model hears one recording at a time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ..errors import WeightsError
from ..models.speech import Segment, Transcript, read_audio, speech_model
from ..models.speech.packaged import NAME, packaged_parts
from .bodies import Bodies
from .faults import Fault
from .lazy import Lazy
from .requests import Speech
from .shelf import Shelf
from .turns import Check, Turns

MOST_BYTES = 25 << 20  # of a file
MOST_SECONDS = 3600  # of sound in it
USUAL = "whisper-1"  # what clients of OpenAI ask for


class Listener:
    """One model of speech. path: None is the packaged Whisper. name: for clients (None: the
    path's). names: under which it may be asked for; none where it is not installed."""

    def __init__(
        self, path: str | Path | None = None, threads: int | None = None, device: str = "auto",
        name: str | None = None,
    ) -> None:  # fmt: skip
        places = _packaged() if path is None else [Path(path)]
        self.name = name or (NAME if path is None else Path(path).name)
        self.names = [self.name, USUAL] if places else []
        load = partial(speech_model, path, threads=threads, device=device)
        self.model = Lazy(self.name, load, places)
        self._turns = Turns("recordings")

    def close(self) -> None:
        self._turns.close()

    async def answer(
        self, request: Request, bodies: Bodies, shelf: Shelf, task: str
    ) -> Response:
        """The response to a form with a file. Raises Fault, InputError or ValidationError."""
        data, fields = await bodies.form(request, MOST_BYTES)
        given = Speech.model_validate(fields)
        if given.model is not None and given.model not in self.names:
            there = ", ".join(self.names) or "none"
            raise Fault(404, f"no model {given.model[:80]!r} for speech; there is {there}",
                        "model_not_found", "model")  # fmt: skip
        async with shelf.beside(self.model):
            found = await self._turns.run(
                request.receive, lambda check: self._hear(data, given, task, check)
            )
        return _shown(found, given)

    def _hear(self, data: bytes, given: Speech, task: str, check: Check) -> Transcript:
        def heard(segment: Segment) -> None:
            check()

        samples = read_audio(data, most=MOST_SECONDS)
        more: dict[str, Any] = {} if not given.temperature else {
            "temperatures": (given.temperature,)}  # fmt: skip
        return self.model.get().transcribe(
            samples, on_segment=heard, language=given.language, task=task, prompt=given.prompt,
            words="word" in given.granularities, **more,
        )  # fmt: skip


def _packaged() -> list[Path]:
    """The packaged model's files, if it is installed."""
    try:
        return packaged_parts()
    except WeightsError:
        return []


def _shown(found: Transcript, given: Speech) -> Response:
    """In the form that was asked for."""
    kind = given.response_format
    if kind == "json":
        return JSONResponse({"text": found.text})
    if kind == "verbose_json":
        timed = given.granularities
        return JSONResponse(found.json("word" in timed, segments="segment" in timed))
    text = {"text": f"{found.text}\n", "srt": found.srt(), "vtt": found.vtt()}[kind]
    return PlainTextResponse(text)
