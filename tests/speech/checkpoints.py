"""Tiny random checkpoints of models of speech, made with transformers, and sounds."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)
LANGUAGES = ("en", "de", "fr", "ja")
SPECIAL = ["endoftext", "startoftranscript", *LANGUAGES, "translate", "transcribe", "startoflm",
           "startofprev", "nospeech", "notimestamps"]  # fmt: skip
TIMES = 1501
FRAMES = 100  # of an encoder: windows of 2 s
# name -> layers of the encoder, layers of the decoder, heads, mels
SIZES = {
    "two": (2, 2, 2, 80),
    "tiny": (4, 4, 6, 80), "base": (6, 6, 8, 80), "small": (12, 12, 12, 80),
    "medium": (24, 24, 16, 80), "large": (32, 32, 20, 80), "large-v3": (32, 32, 20, 128),
    "turbo": (32, 4, 20, 128),
}  # fmt: skip
TABLED = ("base", "large", "large-v3", "medium", "small", "tiny", "turbo")  # in docs/models.md


def tokenizer(directory: Path) -> Tokenizer:
    """Bytes, and Whisper's special tokens in its order."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE({letter: n for n, letter in enumerate(letters)}, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    times = [f"<|{n * 0.02:.2f}|>" for n in range(TIMES)]
    raw.add_special_tokens([f"<|{name}|>" for name in SPECIAL])
    raw.add_tokens([AddedToken(time, special=False, normalized=False) for time in times])
    raw.save(str(directory / "tokenizer.json"))
    return raw


@functools.cache
def whisper(size: str = "two", seed: int = 0, width: int = 8) -> tuple[Path, Any]:
    """(directory, transformers' model): the layers and heads of a size, `width` features a head,
    windows of 2 s."""
    encoder, decoder, heads, mels = SIZES[size]
    directory = Path(tempfile.mkdtemp())
    raw = tokenizer(directory)
    token = {name: raw.token_to_id(f"<|{name}|>") for name in SPECIAL}
    config = transformers.WhisperConfig(
        vocab_size=raw.get_vocab_size(), num_mel_bins=mels, d_model=width * heads,
        encoder_layers=encoder, decoder_layers=decoder, encoder_attention_heads=heads,
        decoder_attention_heads=heads, encoder_ffn_dim=2 * width * heads,
        decoder_ffn_dim=2 * width * heads, max_source_positions=FRAMES, max_target_positions=96,
        decoder_start_token_id=token["startoftranscript"], eos_token_id=token["endoftext"],
        pad_token_id=token["endoftext"], bos_token_id=token["endoftext"],
    )  # fmt: skip
    torch.manual_seed(seed)
    model = transformers.WhisperForConditionalGeneration(config).eval()
    unit_gain(model)
    generation = model.generation_config
    hidden = [1, 2, 7, *(token[name] for name in SPECIAL[1:-1] if name not in LANGUAGES)]
    settings = {
        "suppress_tokens": hidden, "begin_suppress_tokens": [220, token["endoftext"]],
        "is_multilingual": True, "lang_to_id": {f"<|{name}|>": token[name] for name in LANGUAGES},
        "task_to_id": {name: token[name] for name in ("translate", "transcribe")},
        "no_timestamps_token_id": token["notimestamps"], "max_initial_timestamp_index": 50,
        "prev_sot_token_id": token["startofprev"], "return_timestamps": False,
        "alignment_heads": [[decoder - 1, 0], [decoder - 1, 1]],
    }  # fmt: skip
    for name, value in settings.items():
        setattr(generation, name, value)
    model.save_pretrained(directory)
    generation.save_pretrained(directory)
    return directory, model


def unit_gain(model: torch.nn.Module) -> None:
    """Random weights under which each layer matters, biases and norms too."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                inside = parameter[0].numel() if "embed" not in name else 4
                parameter.copy_(drawn / inside**0.5)
            elif name.endswith("bias"):
                parameter.copy_(0.1 * drawn)
            else:
                parameter.copy_(1 + 0.1 * drawn)


def sound(seconds: float, seed: int = 0) -> np.ndarray:
    """Samples (count,) f32 at 16 kHz: tones that come and go, and noise."""
    rng = np.random.default_rng(seed)
    at = np.arange(round(16000 * seconds)) / 16000
    tones = sum(np.sin(2 * np.pi * hertz * at) * np.sin(at * (n + 2)) ** 2
                for n, hertz in enumerate(rng.uniform(80, 3000, 4)))  # fmt: skip
    return (0.2 * tones + 0.03 * rng.standard_normal(len(at))).astype(np.float32)


@functools.cache
def moonshine() -> tuple[Path, Any]:
    """(directory, transformers' model)."""
    directory = Path(tempfile.mkdtemp())
    raw = tokenizer(directory)
    config = transformers.MoonshineConfig(
        vocab_size=raw.get_vocab_size(), hidden_size=40, intermediate_size=48,
        encoder_num_hidden_layers=2, decoder_num_hidden_layers=2, encoder_num_attention_heads=4,
        decoder_num_attention_heads=4, eos_token_id=256, bos_token_id=257,
        decoder_start_token_id=257,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.MoonshineForConditionalGeneration(config).eval()
    unit_gain(model)
    model.save_pretrained(directory)
    return directory, model


@functools.cache
def wav2vec2(stable: bool) -> tuple[Path, Any]:
    """(directory, transformers' model): as base and as large have it."""
    directory = Path(tempfile.mkdtemp())
    letters = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ETAONIHSRDLU"]
    (directory / "vocab.json").write_text(json.dumps({t: n for n, t in enumerate(letters)}))
    config = transformers.Wav2Vec2Config(
        vocab_size=len(letters), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, conv_dim=[16] * 7, num_conv_pos_embeddings=16 - stable,
        num_conv_pos_embedding_groups=4, do_stable_layer_norm=stable, conv_bias=stable,
        feat_extract_norm="layer" if stable else "group", pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.Wav2Vec2ForCTC(config).eval()
    unit_gain(model)
    model.save_pretrained(directory)
    return directory, model
