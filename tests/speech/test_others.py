"""Moonshine and Wav2Vec2 against transformers; which model a folder is."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Wav2Vec2FeatureExtractor

from luminal.errors import InputError, Unsupported, WeightsError
from luminal.models.speech import Moonshine, Wav2Vec2, speech_model
from luminal.models.speech.ear import batches, parts
from luminal.models.speech.transcript import Word

from .checkpoints import moonshine, sound, wav2vec2


@functools.cache
def hears(name: str) -> Any:
    if name == "moonshine":
        return speech_model(moonshine()[0], threads=1)
    return speech_model(wav2vec2(name == "large")[0], threads=1)


def test_moonshine_equals_transformers() -> None:
    """Logits and greedy tokens, of sounds of several lengths."""
    model, (_, reference) = hears("moonshine"), moonshine()
    assert isinstance(model, Moonshine)
    for samples in (sound(0.06, 1), sound(1.013, 2), sound(3.0, 3)):
        ids = np.random.default_rng(0).integers(0, 256, (1, 9))
        with torch.no_grad():
            given = torch.tensor(samples[None])
            expected = reference(given, decoder_input_ids=torch.tensor(ids)).logits.numpy()
            greedy = reference.generate(given, max_new_tokens=20, do_sample=False)[0].tolist()
        model.decoder.listen(model.encode(samples))
        found = model.decoder.prompt(ids, range(9))
        np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
        assert [model.start, *model.tokens(samples, 20)] == [t for t in greedy if t != model.end]


@pytest.mark.parametrize("name", ["base", "large"])
def test_wav2vec2_equals_transformers(name: str) -> None:
    model, (_, reference) = hears(name), wav2vec2(name == "large")
    assert isinstance(model, Wav2Vec2)
    extractor = Wav2Vec2FeatureExtractor(do_normalize=True)
    for samples in (sound(0.05, 1), sound(1.013, 2)):
        given = extractor(samples, sampling_rate=16000, return_tensors="pt").input_values
        with torch.no_grad():
            expected = reference(given).logits[0].numpy()
        found = model.logits(samples)
        np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["base", "large"])
def test_several_sounds_at_once_by_wav2vec2(name: str) -> None:
    """Logits are those of each alone: what is padded is not seen."""
    model = hears(name)
    sounds = [sound(0.05, 1), sound(1.013, 2), sound(0.7, 3)]
    for samples, found in zip(sounds, model.logits_of(sounds)):
        expected = model.logits(samples)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_several_sounds_at_once_by_moonshine() -> None:
    model = hears("moonshine")
    sounds = [sound(0.06, 1), sound(3.0, 3), sound(1.013, 2)]
    limits = [20, 7, 20]
    assert model.tokens_of(sounds, limits) == list(map(model.tokens, sounds, limits))


@pytest.mark.parametrize("name", ["moonshine", "base"])
def test_transcripts_of_several_are_those_of_each(name: str) -> None:
    """In order, long ones in parts; parts of about the same length are heard together."""
    model = hears(name)
    sounds = [sound(2.0, 1), sound(33.0, 2), sound(0.5, 3), sound(1.9, 4), sound(1.8, 5)]
    together = [0.3, 5.0, 4.9, 4.8, 30.0, 29.0, 28.0, *[1.0] * 9]
    found = list(batches([round(16000 * seconds) for seconds in together]))
    assert [len(each) for each in found] == [2, 1, 3, 8, 1, 1]
    assert sorted(n for each in found for n in each) == list(range(16))
    assert list(model.transcribe_all(sounds)) == [model.transcribe(each) for each in sounds]


def test_letters_become_words_with_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """What repeats is one letter unless a blank stands between."""
    model = hears("base")
    said = "__HHEE_LL_L_||AA_||T_"  # _: blank
    codes = {letter: token for token, letter in model._letters.items()}
    tokens = [codes.get(sign, model.blank) for sign in said]
    logits = np.full((len(said), len(codes) + 4), -20.0)
    logits[np.arange(len(said)), tokens] = 20.0
    monkeypatch.setattr(model, "logits", lambda samples: logits)
    found = model.transcribe(np.zeros(len(said) * 1600, np.float32), words=True)
    assert found.text == "HELL A T"
    times = [(w.text.strip(), round(w.start, 3), round(w.end, 3)) for w in found.segments[0].words]
    assert times == [("HELL", 0.2, 1.1), ("A", 1.4, 1.6), ("T", 1.9, 2.0)]
    assert isinstance(found.segments[0].words[0], Word)


def test_long_sounds_are_cut_where_it_is_quiet() -> None:
    samples = sound(70.0)
    samples[16000 * 27 : 16000 * 28] = 0
    cut = list(parts(samples, 400))
    starts = [start for start, _ in cut]
    assert starts[0] == 0 and 27 <= starts[1] / 16000 <= 28 and len(cut) >= 3
    assert np.array_equal(np.concatenate([part for _, part in cut])[: len(samples)], samples)
    assert max(len(part) for _, part in cut) <= 30 * 16000
    ((_, short),) = parts(sound(0.01), 400)
    assert len(short) == 400


def test_other_models_and_options_are_refused(tmp_path: Path) -> None:
    for more, message in (
        ({"task": "translate"}, "only transcribes"), ({"words": True}, "times of words"),
        ({"beams": 2}, "beams"), ({"prompt": "hi"}, "prompts"),
        ({"language": "German"}, "language 'de'"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            hears("moonshine").transcribe(sound(0.5), **more)
    assert hears("moonshine").transcribe(sound(0.5), language="English").language == "en"
    for kind, told in (("llama", "'llama'"), (None, "None"), (["whisper"], "\\['whisper'\\]")):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
        with pytest.raises(WeightsError, match=f"{told} is no .* whisper, moonshine, wav2vec2"):
            speech_model(tmp_path)
    (tmp_path / "config.json").write_text((wav2vec2(False)[0] / "config.json").read_text())
    with pytest.raises(WeightsError, match=r"vocab\.json: no such file"):
        speech_model(tmp_path)
    with pytest.raises(Unsupported, match="only Whisper"):
        speech_model(tmp_path, quant="q8")
