"""Rows of docs/models.md for models of speech: see `language_models.py`, which prints them.

Whisper has the layers and heads of its sizes, 8 features a head, windows of 2 s; a batch is two
recordings at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tests.speech.checkpoints import FRAMES, TABLED, moonshine, sound, wav2vec2, whisper
from tests.speech.test_whisper import greedy

from luminal.models.speech import Moonshine, Wav2Vec2, Whisper
from luminal.models.speech.decoding import Decoding
from luminal.models.speech.rules import Rules

Row = tuple[str, float, bool, bool | None]  # model_type, logits off by, greedy, in a batch
LOGITS = 24


def row(name: str, tokens: int) -> Row:
    kind, _, size = name.partition("-")
    with torch.no_grad():
        if kind == "whisper":
            return _whisper(size, tokens)
        return _moonshine(tokens) if kind == "moonshine" else _wav2vec2(size == "large")


def _off(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def _whisper(size: str, tokens: int) -> Row:
    directory, reference = whisper(size)
    model = Whisper(directory, threads=1, rows=2)
    mel = np.stack([model.mel(sound(FRAMES / 50, seed)) for seed in (1, 2)])
    encoded = model.encoder(mel)
    ids = np.random.default_rng(0).integers(0, 256, (2, LOGITS))
    model.decoder.listen(encoded)
    found = model.decoder.prompt(ids, range(LOGITS))
    expected = reference(torch.tensor(mel), decoder_input_ids=torch.tensor(ids)).logits.numpy()
    rules = Rules(model.specials, model.config.suppress, model.config.suppress_first, False)
    how = Decoding(model.decoder, rules, limit=tokens)
    prompt = model.prompt("en", "transcribe", timestamps=False)
    texts = [greedy(window, prompt, tokens, False, size) for window in mel]
    both = [list(heard.tokens) for heard in how.hear(encoded, prompt)]
    (alone,) = how.hear([value[:1] for value in encoded], prompt)
    return "whisper", _off(found, expected), list(alone.tokens) == texts[0], both == texts


def _moonshine(tokens: int) -> Row:
    directory, reference = moonshine()
    model, samples = Moonshine(directory, threads=1), sound(3.0, 3)
    ids, given = np.random.default_rng(0).integers(0, 256, (1, LOGITS)), torch.tensor(samples[None])
    model.decoder.listen(model.encode(samples))
    found = model.decoder.prompt(ids, range(LOGITS))
    expected = reference(given, decoder_input_ids=torch.tensor(ids)).logits.numpy()
    whole = reference.generate(given, max_new_tokens=tokens, do_sample=False)[0].tolist()
    text = [t for t in whole[1:] if t != model.end]
    alone, short = model.tokens(samples, tokens), sound(1.013, 2)
    both = model.tokens_of([samples, short], [tokens] * 2)
    same = both == [alone, model.tokens(short, tokens)]
    return "moonshine", _off(found, expected), alone == text, same


def _wav2vec2(stable: bool) -> Row:
    directory, reference = wav2vec2(stable)
    model, samples = Wav2Vec2(directory, threads=1), sound(2.0, 2)
    given: Any = (samples - samples.mean()) / np.sqrt(samples.var() + 1e-7)
    found = model.logits(samples)
    expected = reference(torch.tensor(given[None])).logits[0].numpy()
    same = bool((found.argmax(-1) == expected.argmax(-1)).all())
    both = model.logits_of([samples, sound(1.013, 3)])[0]
    batch = bool((both.argmax(-1) == expected.argmax(-1)).all())
    return "wav2vec2", _off(found, expected), same, batch


NAMES = ["moonshine", "wav2vec2-base", "wav2vec2-large", *(f"whisper-{size}" for size in TABLED)]
