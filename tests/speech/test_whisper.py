"""Whisper against transformers: spectrograms, logits, greedy tokens; decoding against its rules."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from transformers import WhisperFeatureExtractor
from transformers.generation.logits_process import (
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    WhisperTimeStampLogitsProcessor,
)

from luminal.models.speech import Whisper
from luminal.models.speech.decoding import Decoding
from luminal.models.speech.mel import MelProgram, mel_filters
from luminal.models.speech.rules import Rules

from .checkpoints import FRAMES, sound, whisper

SAMPLES = 2 * FRAMES * 160  # of a window


@functools.cache
def loaded(size: str = "two") -> Whisper:
    return Whisper(whisper(size)[0], threads=1, rows=4)


def mels(model: Whisper, *seeds: int) -> np.ndarray:
    return np.stack([model.mel(sound(SAMPLES / 16000, seed)) for seed in seeds])


def theirs(mel: np.ndarray, ids: list[int]) -> np.ndarray:
    """Logits (audios, tokens, vocabulary) of transformers."""
    model = whisper()[1]
    with torch.no_grad():
        given = torch.tensor([ids] * len(mel))
        found: np.ndarray = model(torch.tensor(mel), decoder_input_ids=given).logits.numpy()
    return found


@pytest.mark.parametrize("count", [80, 128])
def test_spectrograms_equal_those_of_transformers(count: int) -> None:
    extractor, program = WhisperFeatureExtractor(feature_size=count), MelProgram(count, threads=1)
    np.testing.assert_allclose(mel_filters(count).T, extractor.mel_filters, atol=1e-8)
    for seconds in (0.02, 1.0, 31.987):
        samples = sound(seconds)
        expected = extractor(samples, sampling_rate=16000, return_tensors="np", truncation=False,
                             padding="longest").input_features[0]  # fmt: skip
        found = program(samples)
        np.testing.assert_allclose(found, expected[:, : found.shape[1]], atol=1e-4)


def test_logits_equal_those_of_transformers() -> None:
    """Two recordings at once; the prompt in one run, or token by token."""
    model = loaded()
    mel = mels(model, 1, 2)
    encoded = model.encoder(mel)
    ids = np.random.default_rng(0).integers(0, 256, 24).tolist()
    expected = theirs(mel, ids)
    atol = 1e-4 * np.abs(expected).max()
    model.decoder.listen(encoded)
    found = model.decoder.prompt(np.array([ids, ids]), range(24))
    np.testing.assert_allclose(found, expected, atol=atol)
    model.decoder.listen(encoded)
    model.decoder.prompt(np.array([ids[:5]] * 2), [4])
    for place in range(5, 24):
        found = model.decoder.step(np.full((2, 1), ids[place]))
        np.testing.assert_allclose(found[:, 0], expected[:, place], atol=atol)


@pytest.mark.parametrize("timestamps", [False, True])
def test_greedy_tokens_equal_those_of_transformers(timestamps: bool) -> None:
    """Two recordings at once, under transformers' own processors of logits."""
    model, mel = loaded(), mels(loaded(), 3, 4)
    rules = Rules(model.specials, model.config.suppress, model.config.suppress_first, timestamps)
    prompt = model.prompt("de", "translate", timestamps)
    heard = Decoding(model.decoder, rules, limit=64).hear(model.encoder(mel), prompt)
    for one, window in zip(heard, mel):
        assert list(one.tokens) == greedy(window, prompt, 64, timestamps)
    if not timestamps:
        with torch.no_grad():
            whole = whisper()[1].generate(torch.tensor(mel), language="de", task="translate",
                                          max_new_tokens=64)  # fmt: skip
        for one, other in zip(heard, whole.tolist()):
            assert list(one.tokens) == [t for t in other if t != model.specials.end]


def greedy(
    mel: np.ndarray, prompt: list[int], count: int, timestamps: bool, size: str = "two"
) -> list[int]:
    """The likeliest tokens one by one, with transformers' model and processors of logits."""
    model = whisper(size)[1]
    settings, begin = model.generation_config, len(prompt)
    rules: list[Any] = [
        SuppressTokensLogitsProcessor(settings.suppress_tokens),
        SuppressTokensAtBeginLogitsProcessor(settings.begin_suppress_tokens, begin),
    ]
    if timestamps:
        rules.append(WhisperTimeStampLogitsProcessor(settings, begin))
    ids, found = torch.tensor([prompt]), []
    with torch.no_grad():
        memory = model.model.encoder(torch.tensor(mel[None]))
        for _ in range(count):
            logits = model(encoder_outputs=memory, decoder_input_ids=ids).logits[:, -1]
            for rule in rules:
                logits = rule(ids, logits)
            token = logits.argmax(-1)
            if int(token) == settings.eos_token_id:
                break
            found.append(int(token))
            ids = torch.cat([ids, token[:, None]], 1)
    return found
