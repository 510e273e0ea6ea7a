"""How well pictures and texts fit each other: CLIP and SigLIP, both towers, from folders as Hugging
Face writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ... import nn, ops
from ...errors import InputError
from ...graph import Graph, Tensor
from ...nn import init
from ...weights.checkpoints import read_tensors
from ...weights.fields import Fields
from ..tokens import Tokens
from .clip import CLIPText, CLIPTextConfig
from .images import Source, prepared, processor, read_image, with_usual
from .layers import MLP, config_of, renamed
from .sight import CLIP_MEAN, CLIP_STD, HALF
from .towers import Tower, TowerConfig

HEADS = ((r"^(vision|text)_model\.head\.", r"\1_head."),)
LENGTHS = {"clip": 77, "siglip": 64}


class Probe(nn.Module):
    """One learned query over all patches, then an MLP: what SigLIP makes of a picture."""

    def __init__(self, graph: Graph, config: TowerConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.probe = init.normal(graph, (1, 1, width), 0.02)
        self.attention = nn.MultiheadAttention(
            graph, width, config.num_attention_heads, batch_first=True
        )
        self.layernorm = nn.LayerNorm(graph, width, config.layer_norm_eps)
        self.mlp = MLP(graph, width, config.intermediate_size, config.hidden_act)

    def forward(self, x: Tensor) -> Tensor:
        query = self.probe.expand(x.shape[0], 1, x.shape[2])
        seen, _ = self.attention(query, x, x, need_weights=False)
        return (seen + self.mlp(self.layernorm(seen))).squeeze(1)


class PictureNet(nn.Module):
    """pixels (batch, 3, size, size) to vectors of length 1."""

    def __init__(self, graph: Graph, config: TowerConfig, width: int) -> None:
        super().__init__()
        self.classed = config.classed
        self.vision_model = Tower(graph, config)
        if self.classed:
            self.visual_projection = nn.Linear(graph, config.hidden_size, width, bias=False)
        else:
            self.vision_head = Probe(graph, config)

    def forward(self, pixels: Tensor) -> Tensor:
        states, last = self.vision_model(pixels)
        if self.classed:
            first = self.vision_model.post_layernorm(states[-1][:, 0])
            return ops.normalize(self.visual_projection(first), dim=-1)
        return ops.normalize(self.vision_head(last), dim=-1)


class TextNet(nn.Module):
    """ids (batch, tokens) to vectors of length 1."""

    def __init__(self, graph: Graph, config: CLIPTextConfig, width: int, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.text_model = CLIPText(graph, config, causal)
        if causal:
            self.text_projection = nn.Linear(graph, config.hidden_size, width, bias=False)
        else:
            self.text_head = nn.Linear(graph, config.hidden_size, width)

    def forward(self, ids: Tensor) -> Tensor:
        _, last, row = self.text_model(ids)
        if self.causal:
            return ops.normalize(self.text_projection(row), dim=-1)
        return ops.normalize(self.text_head(last[:, -1]), dim=-1)


class Pairs:
    """CLIP or SigLIP. Raises WeightsError, Unsupported.

    >>> Pairs("clip-vit-base-patch32")(["cat.jpg"], ["a cat", "a dog"])
    """

    def __init__(self, directory: str | Path, **compiling: Any) -> None:
        self.directory = Path(directory)
        given, kind = config_of(self.directory, LENGTHS)
        self.clip = kind == "clip"
        self._state = renamed(read_tensors(self.directory), HEADS)
        vision = _typed(given.fields("vision_config"), f"{kind}_vision_model")
        tower = TowerConfig.read(vision)
        text = self._text_config(given.fields("text_config"))
        width = given.count("projection_dim", 512) if self.clip else text.projection_dim
        self.size, self.length = tower.image_size, text.max_position_embeddings
        self._prepared = with_usual(processor(self.directory), self._usual())
        self._compiling = compiling
        shape = 1, 3, self.size, self.size
        self._picture = self._compiled(lambda g: PictureNet(g, tower, width), shape, "f32")
        self._text = self._compiled(
            lambda g: TextNet(g, text, width, self.clip), (1, self.length), "i64"
        )

    def _usual(self) -> dict[str, Any]:
        """What a processor does unless its file says more."""
        side = self.size
        mean, std = (CLIP_MEAN, CLIP_STD) if self.clip else (HALF, HALF)
        both = {"image_mean": list(mean), "image_std": list(std), "resample": 3}
        if not self.clip:
            return {**both, "size": {"height": side, "width": side}}
        cut = {"do_center_crop": True, "crop_size": {"height": side, "width": side}}
        return {**both, "size": side, "default_to_square": False, **cut}

    def _text_config(self, given: Fields) -> CLIPTextConfig:
        if self.clip:
            return CLIPTextConfig.read(given)
        usual = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
                 "vocab_size": 32000, "max_position_embeddings": 64, "layer_norm_eps": 1e-6,
                 "hidden_act": "gelu_pytorch_tanh", "eos_token_id": 1}  # fmt: skip
        known = {n: v for n, v in given.values.items() if v is not None}
        config = CLIPTextConfig.read(Fields({**usual, **known}, given.where))
        return replace(config, projection_dim=given.count("projection_size", config.hidden_size))

    def _compiled(self, make: Any, shape: tuple[int, ...], dtype: str) -> Any:
        graph = Graph()
        into = graph.tensor(shape, dtype)
        with nn.uninitialised():
            net = make(graph)
        out = net(into).output()
        wanted = {name for name, _ in net.named_parameters()}
        net.load_state_dict({n: v for n, v in self._state.items() if n in wanted})
        program = graph.compile(**self._compiling)

        def run(array: np.ndarray) -> np.ndarray:
            program[into] = array[None]
            program.run()
            return np.array(program[out][0])

        return run

    def pixels(self, pixels: np.ndarray) -> np.ndarray:
        """The vector of prepared pixels (3, size, size)."""
        return np.array(self._picture(np.asarray(pixels, np.float32)))

    def tokens(self, ids: Sequence[int]) -> np.ndarray:
        """The vector of a text's tokens, as many as the model has positions."""
        if len(ids) != self.length:
            raise InputError(f"{len(ids)} tokens; a text is filled up to {self.length}")
        return np.array(self._text(np.asarray(ids, np.int64)))

    def fit(self, pictures: np.ndarray, texts: np.ndarray) -> np.ndarray:
        """(pictures, texts) f32, not normalised, of vectors."""
        scale = np.exp(np.float32(self._state["logit_scale"]).reshape(()))
        scores = pictures @ texts.T * scale
        return np.asarray(scores if self.clip else scores + np.float32(self._state["logit_bias"]))

    def __call__(self, images: Sequence[Source], texts: Sequence[str]) -> np.ndarray:
        """(images, texts) f32: of CLIP, how likely each text is among them; of SigLIP, how likely
        each fits by itself. Raises InputError."""
        seen = [self.pixels(prepared(read_image(image), self._prepared)) for image in images]
        scores = self.fit(np.stack(seen), np.stack([self.tokens(self.encode(t)) for t in texts]))
        if not self.clip:
            return np.asarray(1 / (1 + np.exp(-scores)))
        shares = np.exp(scores - scores.max(1, keepdims=True))
        return np.asarray(shares / shares.sum(1, keepdims=True))

    def encode(self, text: str) -> list[int]:
        """A text's tokens, cut or filled up with the folder's token for that."""
        return [int(token) for token in self._tokens(text)[0]]

    @cached_property
    def _tokens(self) -> Tokens:
        pad = "<|endoftext|>" if self.clip else "</s>"
        return Tokens(self.directory, self.length, pad)


def _typed(given: Fields, kind: str) -> Fields:
    """With the type of a tower, which older files leave out."""
    return Fields({**given.values, "model_type": kind}, given.where)
