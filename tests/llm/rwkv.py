"""RWKV 7 token by token in NumPy, from the formulas of its paper: transformers has none."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

WIDTH, SIZE, LAYERS = 64, 16, 2
RANKS = {"w": 12, "a": 8, "v": 4, "g": 20}
CONFIG = {
    "model_type": "rwkv7", "hidden_size": WIDTH, "head_dim": SIZE, "num_hidden_layers": LAYERS,
    "decay_low_rank_dim": 12, "a_low_rank_dim": 8, "v_low_rank_dim": 4, "gate_low_rank_dim": 20,
    "intermediate_size": 96, "vocab_size": 320, "norm_eps": 1e-5, "hidden_act": "sqrelu",
    "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
}  # fmt: skip


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


class Rwkv7:
    """Random weights under the names of a checkpoint."""

    def __init__(self) -> None:
        random, w = np.random.default_rng(0), {}

        def draw(name: str, *shape: int, around: float = 0.0) -> None:
            size = 0.3 if len(shape) == 1 else 0.12
            w[name] = (around + random.normal(0, size, shape)).astype(np.float32)

        draw("model.embeddings.weight", 320, WIDTH)
        draw("lm_head.weight", 320, WIDTH)
        for name in ["model.norm", "model.layers.0.pre_norm"]:
            self._draw_norm(draw, name)
        for n in range(LAYERS):
            at = f"model.layers.{n}"
            for name in ("attn_norm", "ffn_norm", "attn.g_norm"):
                self._draw_norm(draw, f"{at}.{name}")
            for letter in "rwkvag":
                draw(f"{at}.attn.x_{letter}", 1, 1, WIDTH, around=0.5)
            for name in ("k_k", "k_a"):
                draw(f"{at}.attn.{name}", WIDTH, around=0.5)
            draw(f"{at}.attn.r_k", WIDTH // SIZE, SIZE)
            for letter in "rkvo":
                draw(f"{at}.attn.{letter}_proj.weight", WIDTH, WIDTH)
            for letter, rank in RANKS.items():
                if letter == "v" and n == 0:
                    continue
                draw(f"{at}.attn.{letter}_lora.lora.0.weight", rank, WIDTH)
                draw(f"{at}.attn.{letter}_lora.lora.2.weight", WIDTH, rank)
                if letter != "g":
                    draw(f"{at}.attn.{letter}_lora.lora.2.bias", WIDTH)
            draw(f"{at}.ffn.x_k", WIDTH, around=0.5)
            draw(f"{at}.ffn.key.weight", 96, WIDTH)
            draw(f"{at}.ffn.value.weight", WIDTH, 96)
        self.weights: dict[str, np.ndarray] = w

    @staticmethod
    def _draw_norm(draw: Any, name: str) -> None:
        draw(f"{name}.weight", WIDTH, around=1.0)
        draw(f"{name}.bias", WIDTH)

    def save_pretrained(self, directory: Path) -> None:
        save_file(self.weights, directory / "model.safetensors")
        (directory / "config.json").write_text(json.dumps(CONFIG))

    def __call__(self, ids: torch.Tensor) -> Any:
        state: dict[str, Any] = {}
        rows = [self._step(int(token), state) for token in ids[0]]
        return SimpleNamespace(logits=torch.tensor(np.array(rows, np.float32))[None])

    def generate(self, ids: torch.Tensor, max_new_tokens: int, **_: Any) -> torch.Tensor:
        state: dict[str, Any] = {}
        tokens = ids[0].tolist()
        for token in tokens:
            logits = self._step(token, state)
        for _ in range(max_new_tokens):
            tokens.append(int(logits.argmax()))
            logits = self._step(tokens[-1], state)
        return torch.tensor([tokens])

    def _norm(self, name: str, x: np.ndarray, groups: int = 1, eps: float = 1e-5) -> np.ndarray:
        x = x.reshape(groups, -1)
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
        return x.reshape(-1) * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def _step(self, token: int, state: dict[str, Any]) -> np.ndarray:
        w = {name: value.astype(np.float64) for name, value in self.weights.items()}
        x = self._norm("model.layers.0.pre_norm", w["model.embeddings.weight"][token])
        for n in range(LAYERS):
            at = f"model.layers.{n}"
            x = x + self._mix(w, f"{at}.attn", self._norm(f"{at}.attn_norm", x), state, n)
            normed = self._norm(f"{at}.ffn_norm", x)
            earlier = state.get(f"{at}.ffn", 0 * x)
            state[f"{at}.ffn"] = normed
            wide = w[f"{at}.ffn.key.weight"] @ (
                normed + (earlier - normed) * w[f"{at}.ffn.x_k"]
            )
            x = x + w[f"{at}.ffn.value.weight"] @ np.maximum(wide, 0) ** 2
        return w["lm_head.weight"] @ self._norm("model.norm", x)

    def _mix(
        self, w: dict[str, np.ndarray], at: str, x: np.ndarray, state: dict[str, Any], n: int
    ) -> np.ndarray:
        change = state.get(at, 0 * x) - x
        state[at] = x
        r_, w_, k_, v_, a_, g_ = (x + change * w[f"{at}.x_{c}"].reshape(-1) for c in "rwkvag")

        def low(letter: str, x: np.ndarray, act: Any = lambda t: t) -> np.ndarray:
            inside = act(w[f"{at}.{letter}_lora.lora.0.weight"] @ x)
            bias = w.get(f"{at}.{letter}_lora.lora.2.bias", 0.0)
            return w[f"{at}.{letter}_lora.lora.2.weight"] @ inside + bias

        r, k, v = (w[f"{at}.{c}_proj.weight"] @ t for c, t in (("r", r_), ("k", k_), ("v", v_)))
        decay = np.exp(-np.exp(-0.5) * sigmoid(low("w", w_, np.tanh)))
        a, gate = sigmoid(low("a", a_)), low("g", g_, sigmoid)
        if n == 0:
            state["values"] = v
        else:
            v = v + (state["values"] - v) * sigmoid(low("v", v_))
        removed = (k * w[f"{at}.k_k"]).reshape(-1, SIZE)
        removed /= np.linalg.norm(removed, axis=-1, keepdims=True)
        k = k * (1 + (a - 1) * w[f"{at}.k_a"])
        r, k, v, decay, a = (t.reshape(-1, SIZE) for t in (r, k, v, decay, a))
        old = state.get(f"{at}.wkv", np.zeros((len(r), SIZE, SIZE)))
        forget = np.einsum("hi,hj->hij", -removed, removed * a)
        new = old * decay[:, None] + old @ forget + np.einsum("hi,hj->hij", v, k)
        state[f"{at}.wkv"] = new
        y = self._norm(f"{at}.g_norm", np.einsum("hij,hj->hi", new, r), WIDTH // SIZE, 1e-5 * SIZE)
        y = y + ((r * k * w[f"{at}.r_k"]).sum(-1, keepdims=True) * v).reshape(-1)
        return w[f"{at}.o_proj.weight"] @ (y * gate)
