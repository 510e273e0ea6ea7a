"""From prompts to what a denoiser is given: text encoders."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import nn
from ...graph import Graph
from ..tokens import Tokens
from ..vision.clip import CLIPTextConfig, CLIPTextTower
from ..vision.layers import renamed
from .folder import Folder
from .t5 import T5Config, T5Encoder


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
