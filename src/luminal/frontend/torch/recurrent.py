"""Recurrent layers, which AOTAutograd would expand into all of their steps, as operations of ours.

They are PyTorch's own under other names ("luminal::lstm" for torch.lstm): what is left to PyTorch
runs them as it does. Only where nothing is trained: they have no derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

LAYERS = {name: getattr(torch, name) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")}
PARAMS, LAYER_COUNT, DROPOUT, TRAINED = 2, 4, 5, 6  # places of arguments
_OPTIONS = (
    "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, "
    "bool bidirectional, bool batch_first"
)
_LIBRARY = torch.library.Library("luminal", "FRAGMENT")


def _define(name: str, function: Callable[..., tuple[Tensor, ...]]) -> None:
    def shapes(x: Tensor, hx: Any, params: list[Tensor], *options: Any) -> tuple[Tensor, ...]:
        bidirectional, batch_first = options[4:]
        width = params[1].shape[1] * (2 if bidirectional else 1)
        steps = x.transpose(0, 1) if batch_first else x
        y = x.new_empty((*steps.shape[:2], width))
        states = [hx] if isinstance(hx, Tensor) else hx
        like = [state.new_empty(state.shape) for state in states]
        return y.transpose(0, 1) if batch_first else y, *like

    kind, count = ("Tensor[]", 3) if name == "lstm" else ("Tensor", 2)
    results = ", ".join(["Tensor"] * count)
    _LIBRARY.define(f"{name}(Tensor input, {kind} hx, {_OPTIONS}) -> ({results})")
    _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"luminal::{name}", shapes, lib=_LIBRARY)


for _name, _function in LAYERS.items():
    _define(_name, _function)


def keep_layers(module: fx.GraphModule) -> None:
    """Layers that are whole in Dynamo's graph stay whole. Not so in training, where dropout draws
    between layers, of sequences that are packed, and under autocast."""
    functions = {function: name for name, function in LAYERS.items()}
    for node in module.graph.nodes:
        name = functions.get(node.target) if node.op == "call_function" else None
        if name is not None and _stays(node, name):
            node.target = getattr(torch.ops.luminal, name).default
    module.recompile()


def _stays(node: fx.Node, name: str) -> bool:
    if len(node.args) != 9 or node.kwargs or torch.is_autocast_enabled("cpu"):
        return False
    if not isinstance(node.args[PARAMS], (list, tuple)):  # packed
        return False
    if isinstance(node.args[1], (list, tuple)) != (name == "lstm"):
        return False
    draws = node.args[TRAINED] and node.args[DROPOUT] and node.args[LAYER_COUNT] != 1
    given = (source.meta.get("example_value") for source in node.all_input_nodes)
    trained = any(isinstance(value, Tensor) and value.requires_grad for value in given)
    return not draws and not (trained and torch.is_grad_enabled())
