"""What PyTorch's modules refuse, ours refuse too, with an error of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from luminal import nn
from luminal.errors import LuminalError
from luminal.graph import Graph

from .modules import Spec, as_torch, constant, normal, whole

REFUSED: dict[str, Spec] = {}


def refuse(
    name: str, *arguments: Any, to: Any, label: str = "", call: Any = None, **options: Any
) -> None:
    """One more: with these arguments, or for what goes in."""
    key = f"{name} {label}".strip()
    assert key not in REFUSED, key
    inputs = to if isinstance(to, tuple) else (to,)
    REFUSED[key] = Spec(name, arguments, inputs, options, call or {})


# ---- losses

SCORES = normal(3, 4)
for loss in ("NLLLoss", "CrossEntropyLoss", "MultiMarginLoss"):
    for targets in (1, 2, 5):
        refuse(loss, label=f"{targets} targets", to=(SCORES, whole(targets, high=4)))
    refuse(loss, label="weight", weight=np.ones(1, np.float32), to=(SCORES, whole(3, high=4)))
refuse("CrossEntropyLoss", label="smooth", label_smoothing=0.1, to=(SCORES, whole(1, high=4)))
refuse("CrossEntropyLoss", label="pixels", to=(normal(2, 4, 3), whole(2, 2, high=4)))
refuse("CrossEntropyLoss", label="smoothing", label_smoothing=2.0, to=(SCORES, whole(3, high=4)))
for loss in ("CrossEntropyLoss", "BCELoss", "BCEWithLogitsLoss"):
    refuse(loss, label="one row", to=(np.abs(np.tanh(SCORES)), np.ones((1, 4), np.float32)))
refuse("MultiLabelMarginLoss", to=(SCORES, whole(1, 4, high=4)))
refuse("HuberLoss", delta=-1.0, to=(SCORES, SCORES))
refuse("SmoothL1Loss", beta=-1.0, to=(SCORES, SCORES))

# ---- normalisations

for n, ranks in enumerate([(1, 4), (2, 3, 5), (3, 4, 6)], 1):
    for rank in ranks:
        refuse(f"BatchNorm{n}d", 2, label=f"rank {rank}", to=normal(*(2,) * rank))
for n in (1, 2, 3):
    for rank in (n, n + 3):
        refuse(f"InstanceNorm{n}d", 2, label=f"rank {rank}", to=normal(*(2,) * rank))
    refuse(f"InstanceNorm{n}d", 2, label="one value", to=normal(2, *(1,) * n))
    refuse(f"BatchNorm{n}d", 2, label="one value", to=normal(1, 2, *(1,) * n))
refuse("SyncBatchNorm", 2, to=normal(2))
refuse("BatchNorm2d", 1, label="channels", to=normal(2, 4, 3, 3))
refuse("GroupNorm", 2, 1, label="channels", to=normal(2, 4, 3))

# ---- shapes

ROW = normal(2, 5)
refuse("GLU", to=ROW)
refuse("CircularPad1d", (6, 0), to=ROW)
refuse("ReflectionPad1d", 9, to=ROW)
refuse("ReflectionPad2d", (0, 0, 0, 5), to=normal(1, 5, 6))

# ---- options

IMAGE = normal(1, 2, 5, 5)
refuse("Conv2d", 2, 2, 3, 2, "same", to=IMAGE)
refuse("Conv2d", 2, 2, 3, 2, "same", label="reflect", padding_mode="reflect", to=IMAGE)
refuse("ConvTranspose2d", 2, 2, 3, 2, 1, 2, to=IMAGE)
refuse("GELU", "foo", to=ROW)
refuse("LocalResponseNorm", 0, to=IMAGE)
WHOLE = {"attn_mask": whole(3, 3, high=2)}
refuse("MultiheadAttention", 4, 2, to=(normal(3, 1, 4),) * 3, call=WHOLE)
refuse("Embedding", 7, 4, 7, to=whole(3, high=7))
refuse("EmbeddingBag", 7, 4, label="padding", padding_idx=-8, to=whole(3, 2, high=7))
for mode in ("mean", "max"):
    refuse("EmbeddingBag", 7, 4, label=f"{mode} weights", mode=mode, to=whole(3, 2, high=7),
           call={"per_sample_weights": normal(3, 2)})  # fmt: skip
refuse("EmbeddingBag", 7, 4, to=whole(3, 2, high=7), call={"offsets": np.array([0, 2])})
STEPS = normal(3, 2, 4)
refuse("LSTM", 4, 5, label="proj_size", proj_size=5, to=STEPS)
refuse("LSTM", 4, 5, 0, label="layers", to=STEPS)
refuse("GRU", 4, 5, 2, label="dropout", dropout=1.5, to=STEPS)
refuse("GRU", 4, 0, label="width", to=STEPS)
refuse("RNN", 4, 5, label="kind", nonlinearity="foo", to=STEPS)
refuse("RNNCell", 4, 5, label="kind", nonlinearity="foo", to=normal(2, 4))


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    spec = REFUSED[name]
    with pytest.raises((ValueError, RuntimeError, AssertionError)):
        call = {n: as_torch(v) for n, v in spec.call.items()}
        spec.theirs()(*map(torch.from_numpy, spec.inputs), **call)
    graph = Graph()
    with pytest.raises(LuminalError):
        call = {n: constant(graph, v) for n, v in spec.call.items()}
        spec.ours(graph).train()(*(graph.tensor(a.shape, a.dtype) for a in spec.inputs), **call)


def test_as_many_targets_as_rows_in_each_run() -> None:
    graph = Graph()
    x, target = graph.tensor(("a", 4)), graph.tensor("b", "i64")
    loss = nn.CrossEntropyLoss()(x, target).output()
    program = graph.compile(device="reference")
    program[x], program[target] = SCORES, np.array([1, 0, 3])
    program.run()
    wanted = map(torch.from_numpy, (SCORES, program[target]))
    expected = torch.nn.functional.cross_entropy(*wanted)
    np.testing.assert_allclose(program[loss], expected, rtol=2e-6)
    program[target] = np.array([1, 0])
    with pytest.raises(LuminalError, match="the target must have the shape"):
        program.run()
