"""Where a Whisper model comes from: a directory as Hugging Face or CTranslate2 writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import WeightsError
from ...weights import CTranslate2, Safetensors, locate
from ...weights.fields import Fields
from ..llm.text import Tokenizer, load_tokenizer
from .config import Specials, WhisperConfig, whisper_config
from .names import from_ctranslate2, from_hugging_face
from .packaged import packaged_parts

ENGLISH = 51864  # tokens of the models of English alone; their tokenizers know all languages
CODES = 3  # most letters of a language's code


@dataclass(frozen=True)
class WhisperSource:
    """A checkpoint: tensors under our names, its text."""

    where: Path
    config: WhisperConfig
    state: Mapping[str, np.ndarray]
    tokenizer: Tokenizer
    specials: Specials


def open_whisper(path_or_id: str | Path | None) -> WhisperSource:
    """A directory, a name on the hub, or (None) the packaged Whisper base. Raises WeightsError."""
    if path_or_id is None:
        parts = packaged_parts()
        return _ctranslate2(parts[0].parent, parts)
    path = locate(path_or_id)
    if path.is_dir() and (path / "model.bin").exists():
        return _ctranslate2(path, [path / "model.bin"])
    if not path.is_dir() or not (path / "config.json").exists():
        raise WeightsError(f"{path}: a model of speech is a directory with a config.json")
    values = Fields.load(path / "config.json")
    more = path / "generation_config.json"
    generation = Fields.load(more) if more.exists() else Fields({}, str(more))
    config = whisper_config(values, generation)
    tokenizer = load_tokenizer(path)
    state = from_hugging_face(Safetensors(path), config)
    return WhisperSource(path, config, state, tokenizer, specials(tokenizer, path, config))


def _ctranslate2(path: Path, parts: list[Path]) -> WhisperSource:
    file = CTranslate2(parts)
    if file.model != "WhisperSpec":
        raise WeightsError(f"{path}: CTranslate2's {file.model!r} is no Whisper")
    given = Fields.load(path / "config.json")
    heads = {part: int(file[f"{part}/num_heads"]) for part in ("encoder", "decoder")}
    layers = {part: sum(name.startswith(f"{part}/layer_") and name.endswith("/ffn/layer_norm/beta")
                        for name in file) for part in heads}  # fmt: skip
    rows, width = file["decoder/embeddings/weight"].shape
    values: dict[str, object] = {
        "model_type": "whisper", "d_model": width, "vocab_size": rows,
        "num_mel_bins": file["encoder/conv1/weight"].shape[1],
    }  # fmt: skip
    for part in heads:
        values[f"{part}_attention_heads"], values[f"{part}_layers"] = heads[part], layers[part]
        values[f"{part}_ffn_dim"] = file[f"{part}/layer_0/ffn/linear_0/bias"].size
    values["max_source_positions"] = len(file["encoder/position_encodings/encodings"])
    values["max_target_positions"] = len(file["decoder/position_encodings/encodings"])
    generation = {
        "alignment_heads": given.values.get("alignment_heads"),
        "suppress_tokens": given.values.get("suppress_ids"),
        "begin_suppress_tokens": given.values.get("suppress_ids_begin"),
    }
    config = whisper_config(Fields(values, str(path)), Fields(generation, str(path)))
    tokenizer = load_tokenizer(path)
    state = from_ctranslate2(file, config)
    return WhisperSource(path, config, state, tokenizer, specials(tokenizer, path, config))


def specials(tokenizer: Tokenizer, where: Path, config: WhisperConfig) -> Specials:
    """The tokens that are no text, by their names. Raises WeightsError."""

    def token(*names: str) -> int:
        for name in names:
            if (found := tokenizer.token(f"<|{name}|>")) is not None:
                return found
        raise WeightsError(f"{where}: its tokenizer has no <|{names[0]}|>: it is not Whisper's")

    start, translate = token("startoftranscript"), token("translate")
    between = range(start + 1, min(translate, token("transcribe")))
    names = {tokenizer.name(n)[2:-2]: n for n in between}
    languages = {name: n for name, n in names.items() if name.isalpha()}
    if config.decoder.vocabulary == ENGLISH:
        languages = {}
    return Specials(
        token("endoftext"), start, token("transcribe"), translate, token("startofprev"),
        token("nospeech", "nocaptions"), token("notimestamps"), languages,
    )  # fmt: skip
