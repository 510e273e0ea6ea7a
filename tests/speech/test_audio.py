"""Sound files: what is read from them, and what is refused."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from luminal.errors import InputError, LuminalError
from luminal.models.speech.audio import check_samples, read_audio, resample

from .checkpoints import sound


def encoded(samples: np.ndarray, rate: int = 16000, form: str = "WAV") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=form)
    return file.getvalue()


@pytest.mark.parametrize(("form", "error"), [("WAV", 1e-4), ("FLAC", 1e-4), ("MP3", 0.2),
                                             ("OGG", 0.2)])
def test_files_are_read(form: str, error: float, tmp_path: Path) -> None:
    samples, file = sound(1.0), tmp_path / "sound"
    file.write_bytes(encoded(samples, form=form))
    for source in (file, str(file), file.read_bytes()):
        found = read_audio(source)
        assert found.dtype == np.float32 and found.shape == samples.shape
        assert np.abs(found - samples)[200:-200].mean() < error / 4


def test_channels_are_averaged_and_rates_converted() -> None:
    """A tone at 8 kHz in two channels is the same tone at 16 kHz."""
    at = np.arange(8000) / 8000
    left, right = np.sin(2 * np.pi * 440 * at), 0.5 * np.sin(2 * np.pi * 440 * at)
    found = read_audio(encoded(np.stack([left, right], 1), 8000))
    expected = 0.75 * np.sin(2 * np.pi * 440 * np.arange(16000) / 16000)
    assert len(found) == 16000
    np.testing.assert_allclose(found[500:-500], expected[500:-500], atol=2e-3)


def test_frequencies_beyond_the_rate_are_filtered_out() -> None:
    at = np.arange(48000) / 48000
    high = np.sin(2 * np.pi * 11000 * at).astype(np.float32)
    assert np.abs(resample(high, 48000, 16000)[500:-500]).max() < 1e-2


WAV = encoded(sound(0.5))
LONG = struct.pack("<I", 0xFFFFFFFF)


@pytest.mark.parametrize(("data", "message"), [
    (b"", "cannot be read as sound"),
    (b"no sound " * 100, "cannot be read as sound"),
    (WAV[: len(WAV) // 2], "truncated"),
    (WAV[:30], "cannot be read as sound"),
    (encoded(sound(1.0), form="FLAC")[:9000], "cannot be read as sound"),
    (encoded(sound(1.0), form="MP3")[:2000], "truncated"),
    (encoded(sound(1.0), form="AIFF")[:9000], "truncated"),
    (encoded(sound(1.0), form="AU")[:9000], "truncated"),
    (encoded(sound(1.0), form="OGG")[:-1], "truncated"),
    (encoded(sound(9.0), form="OGG")[:-1].rpartition(b"OggS")[0], "truncated"),
    (encoded(np.zeros(0, np.float32)), "0 seconds"),
    (encoded(sound(1.0)[:1], 192000), "0 seconds"),
])  # fmt: skip
def test_what_is_no_whole_sound_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_audio(data)


@pytest.mark.parametrize("form", "RF64 W64 SVX VOC NIST AVR MPC2K MAT4 CAF".split())
def test_half_a_file_is_refused(form: str) -> None:
    data = encoded(sound(1.0), form=form)
    assert len(read_audio(data)) == 16000
    with pytest.raises(InputError, match=r"truncated|cannot be read"):
        read_audio(data[: len(data) // 2])


@pytest.mark.parametrize("data", [b"", b"no sound " * 100])
def test_a_file_that_is_called_a_sound_is_not_said_to_be_missing(
    data: bytes, tmp_path: Path
) -> None:
    (tmp_path / "none.mp3").write_bytes(data)
    with pytest.raises(InputError, match=r"cannot be read as sound: there is none"):
        read_audio(tmp_path / "none.mp3")


def test_a_stream_of_unknown_length_is_read() -> None:
    """Who writes to a pipe does not know the length when it writes the header."""
    place = WAV.index(b"data") + 4
    assert len(read_audio(WAV[:place] + LONG + WAV[place + 4 :])) == 8000


def test_what_lies_behind_the_last_page_of_ogg_is_no_matter() -> None:
    data = encoded(sound(1.0), form="OGG")
    assert len(read_audio(data + b"Og")) == len(read_audio(data)) == 16000


def test_samples_that_are_no_sound_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = io.BytesIO()
    soundfile.write(file, np.full(100, np.nan, np.float32), 16000, "FLOAT", format="WAV")
    with pytest.raises(InputError, match="NaN"):
        read_audio(file.getvalue())
    for samples, message in (
        (np.zeros((2, 100), np.float32), "one row"), (np.zeros(100, np.int16), "floats"),
        (np.full(4, np.inf), "infinite"), (np.zeros(0), "0 seconds"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            check_samples(samples)
    with pytest.raises(InputError, match="no such file"):
        read_audio(tmp_path / "nothing.wav")
    with pytest.raises(InputError, match="a directory, not a file"):
        read_audio(tmp_path)
    (tmp_path / "x.RAW").write_bytes(bytes(100))
    with pytest.raises(InputError, match="do not say their rate"):
        read_audio(tmp_path / "x.RAW")
    with pytest.raises(InputError, match=r"more than 0.2 seconds"):
        read_audio(WAV, most=0.2)
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(LuminalError, match=r"luminal-compiler\[audio\]"):
        read_audio(WAV)
