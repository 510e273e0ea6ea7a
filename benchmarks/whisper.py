"""Whisper tiny's shape, random weights, 30 s of sound: ours beside CTranslate2 (what
faster-whisper runs), if it is installed, and transformers, eager and with inductor, paired in one
run.

python benchmarks/whisper.py [--threads 2] [--tokens 64] [--rounds 9] [--only ctranslate2]

A call is all from samples to tokens: spectrogram, encoder, prompt, greedy tokens (as many as asked
for; no end). Tokens are compared with transformers'.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models

from luminal.bench.machine import cpu_name
from luminal.bench.paired import paired
from luminal.models.speech import Whisper

SPECIAL = ["endoftext", "startoftranscript", "en", "translate", "transcribe", "startoflm",
           "startofprev", "nospeech", "notimestamps"]  # fmt: skip
VOCABULARY, TEXT = 51865, 50257


def checkpoint(directory: Path) -> Any:
    """transformers' model of whisper-tiny's sizes, and a tokenizer of as many tokens."""
    raw = Tokenizer(models.WordLevel({f"t{n}": n for n in range(TEXT)}, "t0"))
    raw.decoder = decoders.Fuse()
    raw.add_special_tokens([f"<|{name}|>" for name in SPECIAL])
    raw.save(str(directory / "tokenizer.json"))
    end = raw.token_to_id("<|endoftext|>")
    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY, decoder_start_token_id=end + 1, eos_token_id=end, pad_token_id=end,
        bos_token_id=end, suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval()
    model.save_pretrained(directory)
    (directory / "generation_config.json").write_text(json.dumps({}))
    return model


def ours(model: Whisper, prompt: list[int], tokens: int) -> Callable[[np.ndarray], list[int]]:
    decoder = model.decoder

    def run(samples: np.ndarray) -> list[int]:
        decoder.listen(model.encoder(model.mel(samples)[None]))
        logits = decoder.prompt(np.array([prompt]), [len(prompt) - 1])
        found: list[int] = []
        for _ in range(tokens):
            found.append(int(logits[0, -1, :TEXT].argmax()))
            logits = decoder.step(np.array([[found[-1]]]))
        return found

    return run


def theirs(model: Any, prompt: list[int], tokens: int) -> Callable[[np.ndarray], list[int]]:
    """Encoder and decoder compiled by inductor, the cache static: as their documentation says."""
    extractor = transformers.WhisperFeatureExtractor()
    encode = torch.compile(model.model.encoder, fullgraph=True)
    step = torch.compile(model.forward, fullgraph=True)

    cache = transformers.EncoderDecoderCache(
        transformers.StaticCache(config=model.config, max_cache_len=128),
        transformers.StaticCache(config=model.config, max_cache_len=1500),
    )

    def run(samples: np.ndarray) -> list[int]:
        mel = extractor(samples, sampling_rate=16000, return_tensors="pt").input_features
        encoded = encode(mel)
        cache.reset()
        found: list[int] = []
        ids, place = torch.tensor([prompt]), 0
        for _ in range(tokens):
            positions = torch.arange(place, place + ids.shape[1])
            given = {"decoder_position_ids": positions[None], "cache_position": positions}
            logits = step(encoder_outputs=encoded, decoder_input_ids=ids, past_key_values=cache,
                          use_cache=True, **given).logits  # fmt: skip
            place += ids.shape[1]
            found.append(int(logits[0, -1, :TEXT].argmax()))
            ids = torch.tensor([found[-1:]])
        return found

    return run


def eager(model: Any, prompt: list[int], tokens: int) -> Callable[[np.ndarray], list[int]]:
    """Without a compiler, with transformers' usual cache."""
    extractor = transformers.WhisperFeatureExtractor()

    def run(samples: np.ndarray) -> list[int]:
        mel = extractor(samples, sampling_rate=16000, return_tensors="pt").input_features
        encoded, cache = model.model.encoder(mel), None
        found: list[int] = []
        ids = torch.tensor([prompt])
        for _ in range(tokens):
            made = model(encoder_outputs=encoded, decoder_input_ids=ids, past_key_values=cache,
                         use_cache=True)  # fmt: skip
            cache = made.past_key_values
            found.append(int(made.logits[0, -1, :TEXT].argmax()))
            ids = torch.tensor([found[-1:]])
        return found

    return run


def ctranslate(model: Any, prompt: list[int], tokens: int) -> Callable[[np.ndarray], list[int]]:
    """In f32; greedy, no token but of text. (It makes half of its max_length.)"""
    import ctranslate2
    from ctranslate2.converters import transformers as converters

    spec = converters.WhisperLoader().get_model_spec(model)
    spec.register_vocabulary([f"t{n}" for n in range(TEXT)] + [f"<|{n}|>" for n in SPECIAL]
                             + [f"<|extra{n}|>" for n in range(VOCABULARY - TEXT - len(SPECIAL))])
    spec.config.suppress_ids, spec.config.suppress_ids_begin, spec.config.lang_ids = [], [], []
    spec.config.alignment_heads = [[0, 0]]
    spec.validate()
    spec.optimize()
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        runner = ctranslate2.models.Whisper(
            folder, compute_type="float32", intra_threads=torch.get_num_threads()
        )
    extractor, others = transformers.WhisperFeatureExtractor(), list(range(TEXT, VOCABULARY))

    def run(samples: np.ndarray) -> list[int]:
        mel = extractor(samples, sampling_rate=16000, return_tensors="np").input_features
        found = runner.generate(
            ctranslate2.StorageView.from_array(np.ascontiguousarray(mel)), [prompt], beam_size=1,
            max_length=2 * tokens, suppress_blank=False, suppress_tokens=others,
        )  # fmt: skip
        return list(found[0].sequences_ids[0][:tokens])

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="a part of the peer's name")
    options = parser.parse_args()
    peers = {"ctranslate2": ctranslate, "eager": eager, "inductor": theirs}
    if importlib.util.find_spec("ctranslate2") is None:
        del peers["ctranslate2"]
    torch.set_num_threads(options.threads)
    samples = (0.1 * np.random.default_rng(0).standard_normal(480_000)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        reference = checkpoint(Path(folder))
        start = time.perf_counter()
        model = Whisper(folder, threads=options.threads, rows=1)
        print(f"{cpu_name()}, {options.threads} threads; compiled in "
              f"{time.perf_counter() - start:.1f} s")  # fmt: skip
        prompt = model.prompt("en", "transcribe", timestamps=False)
        mine = ours(model, prompt, options.tokens)
        for name, make in peers.items():
            if options.only not in name:
                continue
            other = make(reference, prompt, options.tokens)
            start = time.perf_counter()
            same = other(samples) == mine(samples)
            print(f"{name}: first call {time.perf_counter() - start:.1f} s, tokens equal: {same}")
            found = paired(lambda: mine(samples), lambda: other(samples), options.rounds)  # noqa: B023
            print(f"ours, {name}, their ratio (quartiles), us: {found}", flush=True)


if __name__ == "__main__":
    main()
