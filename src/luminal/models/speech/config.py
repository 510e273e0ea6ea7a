"""What tells one model of speech from another, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...weights.fields import Fields
from ..llm.config import DecoderConfig
from .encoder import plain_config


@dataclass(frozen=True)
class WhisperConfig:
    """mels: of a spectrogram. alignment: (layer, head) whose attention follows the time. suppress:
    tokens that are never said; suppress_first: not at the beginning either."""

    mels: int
    encoder: DecoderConfig
    decoder: DecoderConfig
    alignment: tuple[tuple[int, int], ...] = ()
    suppress: tuple[int, ...] = ()
    suppress_first: tuple[int, ...] = ()
    frames: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "frames", 2 * self.encoder.context)  # of a window's spectrogram


def whisper_config(values: Fields, generation: Fields) -> WhisperConfig:
    """Of a config.json under Hugging Face's names, and a generation_config.json (may be empty).
    Raises WeightsError."""
    values.text("model_type", among=("whisper",))
    width = values.count("d_model", high=1 << 16)
    activation = values.text("activation_function", "gelu")
    if values.flag("scale_embedding"):
        raise values.wrong("scale_embedding", "false")

    def stack(part: str, positions: str, **more: object) -> DecoderConfig:
        heads = values.count(f"{part}_attention_heads", high=1 << 12)
        if width % heads:
            raise values.wrong(f"{part}_attention_heads", f"a divisor of {width}")
        return plain_config(
            family="whisper", width=width, heads=heads, activation=activation, gated=False,
            layers=values.count(f"{part}_layers", high=1 << 10),
            hidden=values.count(f"{part}_ffn_dim", high=1 << 18),
            context=values.count(positions, high=1 << 16),
            attention_bias=True, output_bias=True, mlp_bias=True, **more,
        )  # fmt: skip

    decoder = stack(
        "decoder", "max_target_positions", vocabulary=values.count("vocab_size"),
        learned_positions=True, tied=True,
    )  # fmt: skip
    settings = generation if generation.has("suppress_tokens") else values
    return WhisperConfig(
        values.count("num_mel_bins", high=1024), stack("encoder", "max_source_positions"), decoder,
        _pairs(generation, "alignment_heads", decoder),
        _tokens(settings, "suppress_tokens", decoder.vocabulary),
        _tokens(settings, "begin_suppress_tokens", decoder.vocabulary),
    )  # fmt: skip


def _tokens(values: Fields, name: str, vocabulary: int) -> tuple[int, ...]:
    """Those that the vocabulary has: usual settings name tokens of the published models."""
    return tuple(int(n) for n in values.values.get(name) or () if 0 <= n < vocabulary)


def _pairs(values: Fields, name: str, decoder: DecoderConfig) -> tuple[tuple[int, int], ...]:
    """Heads; where none are named, all of the later half of the layers."""
    given = values.values.get(name)
    if given:
        return tuple((int(layer), int(head)) for layer, head in given)
    later = range(decoder.layers // 2, decoder.layers)
    return tuple((layer, head) for layer in later for head in range(decoder.heads))


@dataclass(frozen=True)
class Specials:
    """The tokens of Whisper that are no text. languages: their codes and tokens. time: of 0.00 s,
    which those of later times follow."""

    end: int
    start: int
    transcribe: int
    translate: int
    previous: int
    no_speech: int
    no_timestamps: int
    languages: Mapping[str, int]

    @property
    def time(self) -> int:
        return self.no_timestamps + 1
