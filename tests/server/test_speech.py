"""OpenAI's paths for sound: a tiny random Whisper behind a real server."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import soundfile
from speech import test_others
from speech.checkpoints import sound, whisper
from speech.test_whisper import loaded

from luminal.server import bodies, hearing, turns
from luminal.server.hearing import Listener

from .conftest import Running, until

SOUND = sound(1.9, 7)


def wav(samples: np.ndarray = SOUND) -> tuple[str, bytes]:
    file = io.BytesIO()
    soundfile.write(file, samples, 16000, format="WAV", subtype="FLOAT")
    return "sound.wav", file.getvalue()


@pytest.fixture(scope="module")
def hears(start: Callable[..., Any]) -> Iterator[Running]:
    """The model is loaded before, as its tests have it."""
    listener = Listener(whisper()[0], threads=1)
    listener.model._model = loaded()
    with start(listener=listener) as running:
        running.listener = listener
        yield running


def name(running: Any) -> str:
    return str(running.listener.name)


def test_a_recording_becomes_text(hears: Running) -> None:
    said, client = loaded().transcribe(SOUND, language="de"), hears.client()
    assert said.text
    given: Any = {"model": name(hears), "file": wav(), "language": "de"}
    assert client.audio.transcriptions.create(**given).text == said.text
    for form, text in (("text", f"{said.text}\n"), ("srt", said.srt()), ("vtt", said.vtt())):
        assert client.audio.transcriptions.create(**given, response_format=form) == text
    found = client.audio.transcriptions.create(
        **given, response_format="verbose_json", timestamp_granularities=["word", "segment"]
    )
    timed = loaded().transcribe(SOUND, language="de", words=True)
    assert found.text == timed.text and found.duration == pytest.approx(1.9)
    assert [(s.start, s.end) for s in found.segments] == [
        (round(s.start, 3), round(s.end, 3)) for s in timed.segments]  # fmt: skip
    assert found.language == "german"
    assert [w.word for w in found.words] == [
        w.text.strip() for s in timed.segments for w in s.words]  # fmt: skip
    assert name(hears) in [model.id for model in client.models.list().data]


def test_what_times_are_asked_for_is_told(hears: Running) -> None:
    given: Any = {"model": name(hears), "file": wav(), "language": "GERMAN",
                  "response_format": "verbose_json"}  # fmt: skip
    for asked, there in ((["word"], (True, False)), (["segment"], (False, True)),
                         (["word", "segment"], (True, True)), (None, (False, True))):  # fmt: skip
        more: Any = {"timestamp_granularities": asked} if asked else {}
        found = hears.client().audio.transcriptions.create(**given, **more)
        assert (found.words is not None, found.segments is not None) == there
        assert found.language == "german"


def test_a_recording_is_translated(hears: Running) -> None:
    client = hears.client()
    found = client.audio.translations.create(model="whisper-1", file=wav())
    assert found.text == loaded().transcribe(SOUND, task="translate").text


@pytest.mark.parametrize(("fields", "file", "message"), [
    ({}, ("a.wav", b""), "cannot be read as sound"),
    ({}, ("a.mp3", b"no sound" * 99), "cannot be read as sound"),
    ({}, wav(np.full(99, np.nan, np.float32)), "NaN"),
    ({}, wav(np.zeros(0, np.float32)), "0 seconds"),
    ({}, ("a.wav", wav()[1][:9000]), "truncated"),
    ({"language": "xx"}, wav(), "no language"),
    ({"response_format": "docx"}, wav(), "response_format"),
    ({"temperature": "hot"}, wav(), "temperature"),
    ({"timestamp_granularities[]": "word"}, wav(), "verbose_json"),
    ({"timestamp_granularities": "word"}, wav(), "verbose_json"),
    ({"timestamp_granularities[1]": "word"}, wav(), "verbose_json"),
    ({"include": "logprobs"}, wav(), "include is not built"),
    ({"stream": "true"}, wav(), "stream is not built"),
    ({"model": "gpt-4"}, wav(), "no model 'gpt-4' for speech"),
])  # fmt: skip
def test_what_cannot_be_heard_is_refused(
    hears: Running, fields: dict[str, str], file: tuple[str, bytes], message: str
) -> None:
    given = {"model": "whisper-1", **fields}
    with hears.http() as client:
        answer = client.post("/v1/audio/transcriptions", data=given, files={"file": file})
    assert answer.status_code == (404 if "gpt" in message else 400)
    assert message in answer.json()["error"]["message"]


@pytest.mark.parametrize(("kind", "fields", "message"), [
    ("moonshine", {"prompt": "hi"}, "prompts"),
    ("base", {"prompt": "hi"}, "prompts"),
    ("moonshine", {"language": "de"}, "language 'de'"),
    ("base", {"language": "german"}, "language 'de'"),
    ("moonshine", {"response_format": "verbose_json", "timestamp_granularities[]": "word"},
     "times of words"),
])  # fmt: skip
def test_what_other_models_cannot_do_is_refused(
    hears: Running, monkeypatch: pytest.MonkeyPatch, kind: str, fields: dict[str, str], message: str
) -> None:
    listener: Listener = hears.listener  # type: ignore[attr-defined]
    monkeypatch.setattr(listener.model, "_model", test_others.hears(kind))
    with hears.http() as client:
        answer = client.post("/v1/audio/transcriptions", files={"file": wav()},
                             data={"model": "whisper-1", **fields})  # fmt: skip
    assert answer.status_code == 400 and message in answer.json()["error"]["message"]


def test_bodies_that_are_no_forms_are_refused(
    hears: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/v1/audio/transcriptions"
    kind = {"content-type": "multipart/form-data; boundary=x"}
    with hears.http() as client:
        assert client.post(path, json={"model": "whisper-1"}).status_code == 400
        assert client.post(path, content=b"--y\r\n", headers=kind).status_code == 400
        nothing = client.post(path, files={"other": wav()}, data={"model": "whisper-1"})
        assert nothing.status_code == 400 and nothing.json()["error"]["param"] == "file"
        monkeypatch.setattr(hearing, "MOST_BYTES", 4000)
        monkeypatch.setattr(bodies, "MOST_FIELDS", 1000)
        large = client.post(path, files={"file": wav()}, data={"model": "whisper-1"})
        assert large.status_code == 413


def test_who_leaves_is_not_listened_to(hears: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """And when many wait, others are told to come back."""
    free, seen = threading.Event(), threading.Event()
    listener: Listener = hears.listener  # type: ignore[attr-defined]
    whole = Listener._hear

    def slow(self: Listener, *given: Any) -> Any:
        seen.set()
        free.wait(120)
        return whole(self, *given)

    monkeypatch.setattr(Listener, "_hear", slow)
    monkeypatch.setattr(turns, "MOST_WAITING", 1)
    gone = sent(hears)
    until(seen.is_set)
    gone.close()
    until(lambda: listener._turns.waiting == 0)
    free.set()
    client = hears.client()
    assert client.audio.transcriptions.create(model="whisper-1", file=wav()).text
    monkeypatch.setattr(turns, "MOST_WAITING", 0)
    with pytest.raises(openai.RateLimitError, match="wait already"):
        client.audio.transcriptions.create(model="whisper-1", file=wav())


def sent(hears: Running) -> socket.socket:
    """A connection over which a recording was sent."""
    request = httpx.Request("POST", f"{hears.url}/v1/audio/transcriptions",
                            files={"file": wav()}, data={"model": "whisper-1"})  # fmt: skip
    body = request.read()
    headers = [f"{name}: {value}" for name, value in request.headers.items()]
    lines = [f"POST {request.url.path} HTTP/1.1", *headers]
    found = socket.create_connection((request.url.host, request.url.port or 80))
    found.sendall("\r\n".join([*lines, "", ""]).encode() + body)
    return found
