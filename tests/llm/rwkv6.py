"""RWKV 6 token by token in NumPy, from the formulas of its paper: transformers has none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from .rwkv import LAYERS, SIZE, WIDTH, Rwkv7, sigmoid

MIX, DECAY = 6, 10
CONFIG = {
    "model_type": "rwkv6", "hidden_size": WIDTH, "attention_hidden_size": WIDTH, "head_size": SIZE,
    "num_hidden_layers": LAYERS, "intermediate_size": 96, "vocab_size": 320,
    "layer_norm_epsilon": 1e-5, "head_size_divisor": 4, "time_mix_extra_dim": MIX,
    "time_decay_extra_dim": DECAY, "bos_token_id": 1, "eos_token_id": 2,
    "tie_word_embeddings": False,
}  # fmt: skip


class Rwkv6(Rwkv7):
    """Random weights under the names of a checkpoint."""

    def __init__(self) -> None:
        random, w = np.random.default_rng(0), {}

        def draw(name: str, *shape: int, around: float = 0.0) -> None:
            size = 0.3 if max(shape) == np.prod(shape) else 0.12
            w[name] = (around + random.normal(0, size, shape)).astype(np.float32)

        draw("rwkv.embeddings.weight", 320, WIDTH)
        draw("head.weight", 320, WIDTH)
        for name in ("rwkv.ln_out", "rwkv.blocks.0.pre_ln"):
            self._draw_norm(draw, name)
        for n in range(LAYERS):
            at, inner = f"rwkv.blocks.{n}.attention", f"rwkv.blocks.{n}.feed_forward"
            for name in (f"rwkv.blocks.{n}.ln1", f"rwkv.blocks.{n}.ln2", f"{at}.ln_x"):
                self._draw_norm(draw, name)
            for letter in "xwkvrg":
                draw(f"{at}.time_maa_{letter}", 1, 1, WIDTH, around=0.5)
            draw(f"{at}.time_maa_w1", WIDTH, 5 * MIX)
            draw(f"{at}.time_maa_w2", 5, MIX, WIDTH)
            draw(f"{at}.time_decay", 1, 1, WIDTH)
            draw(f"{at}.time_decay_w1", WIDTH, DECAY)
            draw(f"{at}.time_decay_w2", DECAY, WIDTH)
            draw(f"{at}.time_faaaa", WIDTH // SIZE, SIZE)
            for name in ("receptance", "key", "value", "gate", "output"):
                draw(f"{at}.{name}.weight", WIDTH, WIDTH)
            for letter in "kr":
                draw(f"{inner}.time_maa_{letter}", 1, 1, WIDTH, around=0.5)
            for name, shape in {"key": (96, WIDTH), "value": (WIDTH, 96)}.items():
                draw(f"{inner}.{name}.weight", *shape)
            draw(f"{inner}.receptance.weight", WIDTH, WIDTH)
        self.weights: dict[str, np.ndarray] = w

    def save_pretrained(self, directory: Path) -> None:
        save_file(self.weights, directory / "model.safetensors")
        (directory / "config.json").write_text(json.dumps(CONFIG))

    def _step(self, token: int, state: dict[str, Any]) -> np.ndarray:
        w = {name: value.astype(np.float64) for name, value in self.weights.items()}
        x = self._norm("rwkv.blocks.0.pre_ln", w["rwkv.embeddings.weight"][token])
        for n in range(LAYERS):
            at = f"rwkv.blocks.{n}"
            x = x + self._mixed(w, f"{at}.attention", self._norm(f"{at}.ln1", x), state)
            normed, inner = self._norm(f"{at}.ln2", x), f"{at}.feed_forward"
            change = state.get(inner, 0 * x) - normed
            state[inner] = normed
            k, r = (normed + change * w[f"{inner}.time_maa_{c}"].reshape(-1) for c in "kr")
            wide = np.maximum(w[f"{inner}.key.weight"] @ k, 0) ** 2
            through = sigmoid(w[f"{inner}.receptance.weight"] @ r)
            x = x + through * (w[f"{inner}.value.weight"] @ wide)
        return w["head.weight"] @ self._norm("rwkv.ln_out", x)

    def _mixed(
        self, w: dict[str, np.ndarray], at: str, x: np.ndarray, state: dict[str, Any]
    ) -> np.ndarray:
        change = state.get(at, 0 * x) - x
        state[at] = x
        narrow = np.tanh((x + change * w[f"{at}.time_maa_x"].reshape(-1)) @ w[f"{at}.time_maa_w1"])
        shares = np.einsum("mr,mrw->mw", narrow.reshape(5, MIX), w[f"{at}.time_maa_w2"])
        mixed = (x + change * (w[f"{at}.time_maa_{c}"].reshape(-1) + share)
                 for c, share in zip("wkvrg", shares))  # fmt: skip
        d, k, v, r, g = mixed
        low = np.tanh(d @ w[f"{at}.time_decay_w1"]) @ w[f"{at}.time_decay_w2"]
        decay = np.exp(-np.exp(w[f"{at}.time_decay"].reshape(-1) + low))
        k, v, r, g = (w[f"{at}.{name}.weight"] @ t for name, t in
                      zip(("key", "value", "receptance", "gate"), (k, v, r, g)))  # fmt: skip
        r, k, v, decay = (t.reshape(-1, SIZE) for t in (r, k, v, decay))
        old = state.get(f"{at}.wkv", np.zeros((len(r), SIZE, SIZE)))
        taken = np.einsum("hk,hv->hkv", k, v)
        y = np.einsum("hk,hkv->hv", r, old + w[f"{at}.time_faaaa"][..., None] * taken)
        state[f"{at}.wkv"] = old * decay[..., None] + taken
        y = self._norm(f"{at}.ln_x", y, WIDTH // SIZE, 1e-5 * 4**2)
        return w[f"{at}.output.weight"] @ (y * g * sigmoid(g))
