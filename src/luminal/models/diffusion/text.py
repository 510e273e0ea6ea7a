"""From prompts to what a denoiser is given: tokenizers and text encoders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ... import nn
from ...errors import WeightsError
from ...graph import Graph
from ...weights.fields import Fields, exists, read_json
from ..tokenizing import read_tokenizer, refused, tokenizers
from ..vision.clip import CLIPTextConfig, CLIPTextTower
from ..vision.layers import renamed
from .folder import Folder
from .t5 import T5Config, T5Encoder

MOST_TOKENS = 512
CLIP_WORDS = (  # how OpenAI's CLIP splits lower-case text
    r"""<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""
)


class Tokens:
    """A tokenizer that gives every prompt the same number of tokens: cut, or padded.

    place: a folder with tokenizer.json, or with CLIP's vocab.json and merges.txt.
    """

    def __init__(
        self, place: Path, length: int | None = None, pad: str = "<|endoftext|>"
    ) -> None:
        settings = _settings(place)
        file = place / "tokenizer.json"
        self.tokenizer = read_tokenizer(file) if exists(file) else _clip(place)
        most = settings.values.get("model_max_length")
        usual = most if isinstance(most, int) and most <= MOST_TOKENS else 77
        self.length = length or usual
        named = settings.values.get("pad_token", pad)
        pad = named["content"] if isinstance(named, dict) else named
        self.pad = self.tokenizer.token_to_id(pad)
        if self.pad is None:
            raise WeightsError(f"{place}: no token {pad!r}, which is to pad prompts")
        self.where = place

    def __call__(self, text: str) -> np.ndarray:
        """(1, length) i64."""
        self.tokenizer.enable_truncation(self.length)
        self.tokenizer.enable_padding(length=self.length, pad_id=self.pad)
        try:
            ids = self.tokenizer.encode(text).ids
        except BaseException as error:
            raise refused(error, f"{self.where}: its tokenizer cannot encode a prompt") from None
        return np.array([ids], np.int64)


def _settings(place: Path) -> Fields:
    """tokenizer_config.json over special_tokens_map.json."""
    found: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if exists(place / name):
            given = read_json(place / name)
            found |= {key: value for key, value in given.items() if value is not None}
    return Fields(found, str(place))


def _clip(place: Path) -> Any:
    """CLIP's tokenizer from vocab.json and merges.txt."""
    files = place / "vocab.json", place / "merges.txt"
    if not all(exists(file) for file in files):
        raise WeightsError(f"{place}: neither tokenizer.json nor vocab.json and merges.txt")
    package = tokenizers()
    try:
        model = package.models.BPE.from_file(
            *map(str, files), unk_token="<|endoftext|>", end_of_word_suffix="</w>"
        )
    except BaseException as error:
        raise refused(error, f"{place}: not a vocabulary") from None
    made = package.Tokenizer(model)
    norms, splits = package.normalizers, package.pre_tokenizers
    made.normalizer = norms.Sequence(
        [norms.NFC(), norms.Replace(package.Regex(r"\s+"), " "), norms.Lowercase()]
    )
    words = splits.Split(package.Regex(CLIP_WORDS), behavior="removed", invert=True)
    made.pre_tokenizer = splits.Sequence([words, splits.ByteLevel(add_prefix_space=False)])
    names = ["<|endoftext|>", "<|startoftext|>"]
    ends = [made.token_to_id(name) for name in names]
    if None in ends:
        raise WeightsError(f"{place}: no tokens <|startoftext|> and <|endoftext|>")
    made.post_processor = package.processors.RobertaProcessing(  # names differ by version
        *zip(names, ends), False, False
    )
    made.add_special_tokens(names)
    return made


class ClipEncoder:
    """A CLIP text encoder and its tokenizer. number: "" for the first, "_2" for the second."""

    def __init__(self, folder: Folder, number: str = "", **compiling: Any) -> None:
        part = f"text_encoder{number}"
        config = CLIPTextConfig.load(folder.part(part) / "config.json")
        self.tokens = Tokens(folder.part(f"tokenizer{number}"), config.max_position_embeddings)
        state = folder.weights(part)
        projected = "text_projection.weight" in state
        graph = Graph()
        self.ids = graph.tensor((1, self.tokens.length), "i64", name="ids")
        with nn.uninitialised():
            tower = CLIPTextTower(graph, config, projected)
        states, last, row = tower(self.ids)
        self.outputs = [states[-2].output("before"), last.output("last"), row.output("row")]
        tower.load_state_dict(
            renamed(_prefixed(state), (), r"text_model\.embeddings\.position_ids")
        )
        self.program = graph.compile(**compiling)

    def __call__(self, text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(the hidden states before the last layer, the last ones normalised, both (1, tokens,
        width), and the row at the end (1, width))."""
        self.program[self.ids] = self.tokens(text)
        self.program.run()
        before, last, row = (np.array(self.program[tensor]) for tensor in self.outputs)
        return before, last, row


def _prefixed(state: Any) -> dict[str, Any]:
    """Newer files leave out the name of the tower."""
    return {
        name
        if name.startswith(("text_model.", "text_projection."))
        else f"text_model.{name}": value
        for name, value in state.items()
    }


class T5Prompts:
    """T5's encoder and its tokenizer; every prompt has `length` tokens."""

    def __init__(self, folder: Folder, number: str, length: int, **compiling: Any) -> None:
        part = f"text_encoder{number}"
        config = T5Config.load(folder.part(part) / "config.json")
        self.tokens = Tokens(folder.part(f"tokenizer{number}"), length, pad="<pad>")
        graph = Graph()
        self.ids = graph.tensor((1, length), "i64", name="ids")
        with nn.uninitialised():
            net = T5Encoder(graph, config)
        self.output = net(self.ids).output("hidden")
        state = renamed(folder.weights(part), (), r"encoder\.embed_tokens\.weight")
        if "shared.weight" not in state:
            state["shared.weight"] = folder.weights(part)["encoder.embed_tokens.weight"]
        net.load_state_dict(state)
        self.program = graph.compile(**compiling)

    def __call__(self, text: str) -> np.ndarray:
        """(1, length, d_model)."""
        self.program[self.ids] = self.tokens(text)
        self.program.run()
        return np.array(self.program[self.output])
