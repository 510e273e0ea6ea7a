"""Every module beside PyTorch's of the same name: (class, its arguments, what goes in).

The same arguments go to both. Arrays become tensors; ours with parameters take the graph first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from luminal import nn
from luminal.graph import Graph
from luminal.nn.function import FunctionModule


@dataclass(frozen=True)
class Spec:
    """One module. options: arguments by name; call: further arguments of forward."""

    name: str
    arguments: tuple[Any, ...]
    inputs: tuple[np.ndarray, ...]
    options: dict[str, Any] = field(default_factory=dict)
    call: dict[str, Any] = field(default_factory=dict)
    scale: float = 1.0

    def ours(self, graph: Graph) -> nn.Module:
        """Our module: some classes take layers in place of numbers."""
        kind = getattr(nn, self.name)
        arguments = [a.ours(graph) if isinstance(a, Spec) else a for a in self.arguments]
        return kind(*([graph] if takes_graph(kind) else []), *arguments, **self.options)

    def theirs(self) -> torch.nn.Module:
        """PyTorch's."""
        arguments = [a.theirs() if isinstance(a, Spec) else as_torch(a) for a in self.arguments]
        options = {n: as_torch(v) for n, v in self.options.items()}
        return getattr(torch.nn, self.name)(*arguments, **options)


def takes_graph(kind: type[nn.Module]) -> bool:
    """Whether a class has parameters of its own."""
    return not issubclass(kind, FunctionModule) and kind.__name__ not in (
        "Sequential", "ModuleList", "ModuleDict", "TransformerEncoder", "TransformerDecoder",
    )  # fmt: skip


def as_torch(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def constant(graph: Graph, value: Any) -> Any:
    return graph.constant(value) if isinstance(value, np.ndarray) else value


SPECS: dict[str, Spec] = {}


def add(
    name: str, *arguments: Any, to: Any, label: str = "", call: dict[str, Any] | None = None,
    scale: float = 1.0, **options: Any,
) -> None:  # fmt: skip
    """One more. `to`: an array, or several; call: further arguments of forward, arrays or not."""
    inputs = to if isinstance(to, tuple) else (to,)
    key = f"{name} {label}".strip()
    assert key not in SPECS, key
    SPECS[key] = Spec(name, arguments, inputs, options, call or {}, scale)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def whole(*shape: int, high: int, low: int = 0) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(low, high, shape)


# ---- with parameters

X = normal(2, 5, 8)
IMAGE = normal(2, 4, 7, 8)
add("Linear", 5, 3, to=normal(2, 5))
add("Linear", 5, 3, False, label="no bias", to=normal(5))
add("Bilinear", 4, 5, 3, to=(normal(2, 4), normal(2, 5)))
add("Embedding", 7, 4, to=np.array([[1, 6], [0, 1]]))
add("Embedding", 7, 4, 2, label="padding", to=np.array([[1, 2], [0, 1]]))
add("PReLU", to=X)
add("PReLU", label="number", to=np.array(-2.0, np.float32))
add("PReLU", 5, 0.1, label="channels", to=X)
add("Conv1d", 4, 6, 3, 2, 1, to=normal(2, 4, 9))
add("Conv2d", 4, 6, 3, 1, 2, 2, 2, to=IMAGE)
add("Conv2d", 4, 6, 3, 1, (1, 2), 1, 1, True, "reflect", label="reflect", to=IMAGE)
add("Conv2d", 4, 6, 3, 1, 1, 1, 1, True, "replicate", label="replicate", to=IMAGE)
for padding in ("valid", "same"):
    add("Conv2d", 4, 6, (3, 2), 1, padding, 1, 1, True, "reflect", label=padding, to=IMAGE)
add("Conv3d", 2, 3, 2, to=normal(1, 2, 4, 5, 3))
add("ConvTranspose1d", 4, 6, 3, 2, to=normal(2, 4, 5))
add("ConvTranspose2d", 4, 6, 3, 2, 1, 1, 2, True, to=IMAGE)
add("ConvTranspose3d", 2, 3, 2, 2, to=normal(1, 2, 2, 3, 2))
add("LayerNorm", 8, to=X)
add("LayerNorm", (5, 8), 1e-3, True, False, label="no bias", to=X)
add("RMSNorm", 8, 1e-6, to=X)
add("GroupNorm", 2, 6, to=normal(3, 6, 4))
add("BatchNorm1d", 6, to=normal(3, 6))
add("BatchNorm2d", 4, 1e-3, 0.3, to=IMAGE)
add("BatchNorm2d", 4, 1e-5, None, label="average", to=IMAGE)
add("BatchNorm2d", 4, 1e-5, 0.1, False, False, label="untracked", to=IMAGE)
add("BatchNorm3d", 2, to=normal(3, 2, 3, 4, 2))
add("InstanceNorm1d", 5, to=X)
add("InstanceNorm2d", 4, 1e-5, 0.2, True, True, label="tracked", to=IMAGE)
add("InstanceNorm3d", 2, to=normal(2, 2, 3, 4, 3))
for n in (1, 2, 3):
    alone = normal(2, *range(3, 3 + n))
    add(f"InstanceNorm{n}d", 2, 1e-5, 0.2, True, True, label="alone", to=alone)
add("RNNCell", 4, 5, True, "relu", to=(normal(2, 4), normal(2, 5)))
add("GRUCell", 4, 5, to=(normal(2, 4), normal(2, 5)))
add("LSTMCell", 4, 5, to=normal(2, 4))
add("RNN", 4, 5, 2, "relu", to=(normal(3, 2, 4), normal(2, 2, 5)))
add("RNN", 4, 5, label="alone", to=normal(3, 4))
add("GRU", 4, 5, 1, True, False, 0.0, True, to=normal(3, 2, 4))
add("LSTM", 4, 5, 2, True, True, 0.0, True, to=normal(2, 3, 4))
add("LSTM", 4, 5, 2, False, False, 0.0, True, 3, label="projected", to=normal(3, 2, 4))

# ---- attention: bool masks are True where nothing is seen

CAUSAL = np.triu(np.ones((5, 5), bool), 1)
PADDING = np.array([[False] * 5, [False, False, False, True, True]])
SUMMAND = np.where(CAUSAL, -np.inf, 0).astype(np.float32)
Y = normal(2, 6, 8)
FIRST = {"batch_first": True}
add("MultiheadAttention", 8, 2, to=(normal(5, 2, 8), normal(6, 2, 8), normal(6, 2, 8, seed=1)))
add("MultiheadAttention", 8, 2, label="alone", to=(normal(5, 8),) * 3)
add("MultiheadAttention", 8, 2, label="causal", to=(X,) * 3, call={"attn_mask": CAUSAL}, **FIRST)
add("MultiheadAttention", 8, 2, label="hint", to=(X,) * 3, **FIRST,
    call={"attn_mask": SUMMAND, "is_causal": True, "need_weights": False})  # fmt: skip
add("MultiheadAttention", 8, 2, label="each head", to=(X,) * 3, **FIRST,
    call={"attn_mask": np.stack([CAUSAL, CAUSAL.T] * 2), "average_attn_weights": False,
          "key_padding_mask": np.zeros((2, 5), bool)})  # fmt: skip
add("MultiheadAttention", 8, 2, 0.0, True, True, True, label="added", to=(X, Y, Y), **FIRST,
    call={"key_padding_mask": np.array([[False] * 6, [True, True, False, False, False, True]])},
)  # fmt: skip
add("MultiheadAttention", 8, 2, 0.0, False, kdim=3, vdim=4, label="kdim", **FIRST,
    to=(X, normal(2, 6, 3), normal(2, 6, 4)))  # fmt: skip
LAYER = (8, 2, 16, 0.0)
add("TransformerEncoderLayer", *LAYER, to=normal(5, 2, 8))
add("TransformerEncoderLayer", *LAYER, "gelu", 1e-5, True, True, label="masked", to=X,
    call={"src_mask": CAUSAL, "src_key_padding_mask": PADDING})  # fmt: skip
add("TransformerDecoderLayer", *LAYER, label="masked", to=(X, Y), **FIRST,
    call={"tgt_mask": CAUSAL, "tgt_is_causal": True,
          "memory_mask": np.arange(30).reshape(5, 6) % 7 == 0})  # fmt: skip
add("TransformerEncoder", Spec("TransformerEncoderLayer", LAYER, ()), 2, to=normal(5, 2, 8),
    call={"mask": SUMMAND})  # fmt: skip
add("TransformerDecoder", Spec("TransformerDecoderLayer", LAYER, ()), 2,
    to=(normal(5, 2, 8), normal(6, 2, 8)))  # fmt: skip
add("Transformer", 8, 2, 1, 1, 16, 0.0, to=(normal(5, 2, 8), normal(6, 2, 8)))

# ---- without parameters

for _name in (
    "ReLU ReLU6 LeakyReLU ELU CELU SELU GELU SiLU Mish Sigmoid LogSigmoid Tanh Tanhshrink Softplus "
    "Softsign Softshrink Hardshrink Hardswish Hardsigmoid Hardtanh GLU Identity Flatten"
).split():
    add(_name, to=X * 3)
add("GELU", "tanh", label="tanh", to=X)
add("LeakyReLU", 0.3, True, label="inplace", to=X)
add("Hardtanh", -0.2, 0.4, label="limits", to=X)
add("Threshold", 0.1, 20, to=X)
for _name in ("Softmax", "Softmin", "LogSoftmax"):
    add(_name, 1, to=X)
add("Softmax2d", to=IMAGE)
add("Unflatten", 1, (2, 2), to=IMAGE)
add("Unfold", (2, 3), 1, 1, 2, to=IMAGE)
add("Unfold", (2, 3), 1, 1, 2, label="alone", to=IMAGE[0])
add("Hardtanh", -2.0, 3.0, label="integers", to=np.arange(-4, 6))
add("CircularPad1d", (2, -1), label="cut", to=normal(2, 5))
add("Fold", (4, 5), (2, 3), 1, 1, 2, to=normal(2, 12, 9))
add("PixelShuffle", 2, to=IMAGE)
add("PixelUnshuffle", 2, to=normal(1, 2, 4, 6))
add("ChannelShuffle", 2, to=IMAGE)
add("Upsample", None, 2.5, "bilinear", to=IMAGE, scale=20)
add("Upsample", (3, 5), label="nearest", to=IMAGE)
add("UpsamplingNearest2d", None, 2, to=IMAGE)
add("UpsamplingBilinear2d", (5, 9), to=IMAGE, scale=20)
add("LocalResponseNorm", 3, to=IMAGE)
add("CosineSimilarity", 2, to=(X, normal(2, 5, 8, seed=1)))
add("PairwiseDistance", 1.0, 1e-3, True, to=(X, normal(2, 5, 8, seed=1)))
add("MaxPool1d", 3, 2, 1, 1, True, to=X)
add("MaxPool2d", (3, 2), None, 0, 1, False, True, to=IMAGE)
add("MaxPool3d", 2, to=normal(1, 2, 4, 5, 3))
add("MaxUnpool1d", 2, 2, to=(normal(1, 2, 3), np.array([[[0, 3, 5], [1, 2, 4]]])))
add("MaxUnpool2d", 2, to=(normal(1, 1, 2, 2), np.array([[[[0, 3], [9, 14]]]])))
add("MaxUnpool3d", 2, to=(normal(1, 1, 1, 2, 1), np.array([[[[[3], [12]]]]])))
add("AvgPool1d", 3, 2, 1, to=X)
add("AvgPool2d", 2, 1, 1, False, False, to=IMAGE)
add("AvgPool3d", 2, to=normal(1, 2, 4, 5, 3))
add("LPPool1d", 2.0, 3, to=X)
add("LPPool2d", 2.0, (2, 3), 2, to=IMAGE)
add("LPPool2d", float("inf"), 2, label="max", to=IMAGE)
add("LPPool3d", 2.0, 2, to=normal(1, 2, 4, 5, 3))
add("FractionalMaxPool2d", 2, (3, 4), None, True, to=IMAGE,
    _random_samples=np.full((2, 4, 2), 0.3, np.float32))  # fmt: skip
add("FractionalMaxPool3d", 2, None, 0.6, to=normal(1, 2, 5, 6, 7),
    _random_samples=np.full((1, 2, 3), 0.6, np.float32))  # fmt: skip
for _n, _shape in ((1, (2, 3, 7)), (2, (2, 3, 7, 5)), (3, (1, 2, 4, 5, 6))):
    add(f"AdaptiveAvgPool{_n}d", 3, to=normal(*_shape))
    add(f"AdaptiveMaxPool{_n}d", 3, True, to=normal(*_shape))
    add(f"ZeroPad{_n}d", 1, to=normal(*_shape))
    add(f"ConstantPad{_n}d", tuple(range(2 * _n)), 3.5, to=normal(*_shape))
    for _mode in ("Circular", "Reflection", "Replication"):
        add(f"{_mode}Pad{_n}d", tuple([1, 2] * _n), to=normal(*_shape))
for _name in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout",
              "FeatureAlphaDropout"):  # fmt: skip
    add(_name, 0.0, to=normal(1, 2, 4, 5, 3) if _name == "Dropout3d" else X)
add("RReLU", 0.2, 0.2, to=X)

# ---- losses

SCORES, CLASSES = normal(6, 4), whole(6, high=4)
SHARE = np.array([0.2, 1.5, 1.0, 0.3], np.float32)
UNIT = 1 / (1 + np.exp(-SCORES))
SIGNS = np.sign(normal(6, seed=3)).astype(np.float32)
BOTH = (SCORES, normal(6, 4, seed=1))
for _name in ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss"):
    add(_name, to=BOTH)
    add(_name, label="sum", to=BOTH, reduction="sum")
add("MSELoss", None, False, label="each", to=BOTH)
add("MSELoss", False, label="old sum", to=BOTH)
add("HuberLoss", "none", 0.3, label="delta", to=BOTH)
add("KLDivLoss", None, None, "batchmean", to=(np.log(UNIT), UNIT))
add("NLLLoss", SHARE, to=(SCORES, CLASSES))
add("CrossEntropyLoss", SHARE, None, 2, None, "mean", 0.1, to=(SCORES, CLASSES))
add("CrossEntropyLoss", label="shares", to=(SCORES, UNIT))
add("BCELoss", SHARE, to=(UNIT, (SCORES > 0).astype(np.float32)))
add("BCEWithLogitsLoss", pos_weight=SHARE, to=(SCORES, UNIT))
add("PoissonNLLLoss", True, True, to=(SCORES, np.abs(SCORES) * 3))
add("GaussianNLLLoss", full=True, to=(*BOTH, UNIT))
add("GaussianNLLLoss", label="column", to=(*BOTH, UNIT[:, :1].copy()))
add("SoftMarginLoss", to=(SCORES, np.sign(SCORES[::-1]).copy()))
add("MarginRankingLoss", 0.2, to=(SCORES[:, 0].copy(), SCORES[:, 1].copy(), SIGNS))
add("HingeEmbeddingLoss", 0.5, to=(SCORES[:, 0].copy(), SIGNS))
add("CosineEmbeddingLoss", 0.1, to=(*BOTH, SIGNS))
TRIPLE = (*BOTH, normal(6, 4, seed=2))
add("TripletMarginLoss", 1.0, 1.0, 1e-6, True, to=TRIPLE)
add("TripletMarginWithDistanceLoss", swap=True, reduction="none", to=TRIPLE)
add("MultiMarginLoss", 2, 0.5, SHARE, to=(SCORES, CLASSES))
add("MultiLabelMarginLoss", to=(SCORES[:3], np.array([[3, 0, -1, 1], [2, -1, 0, 0], [-1] * 4])))
add("MultiLabelSoftMarginLoss", SHARE, to=(SCORES, (SCORES > 0).astype(np.float32)))
LOGS = np.log(UNIT[:, None, :].repeat(2, 1) / UNIT.sum(1)[:, None, None]).astype(np.float32)
add("CTCLoss", to=(LOGS, np.array([[1, 2, 2], [3, 0, 0]]), np.array([6, 4]), np.array([3, 1])))
add("CTCLoss", 1, "sum", True, label="in a row",
    to=(LOGS, np.array([3, 3, 2, 2, 2]), np.array([4, 3]), np.array([2, 3])))  # fmt: skip
add("AdaptiveLogSoftmaxWithLoss", 8, 9, [3, 6], 2.0, to=(normal(5, 8), whole(5, high=9)))
add("EmbeddingBag", 7, 4, to=whole(3, 5, high=7))
for _mode in ("sum", "mean", "max"):
    add("EmbeddingBag", 7, 4, mode=_mode, padding_idx=2, label=_mode,
        to=(np.array([1, 2, 2, 4, 6, 0]), np.array([0, 2, 2, 5])))  # fmt: skip

# ---- the number of features from the first input

add("LazyLinear", 3, False, to=X)
add("LazyConv2d", 6, 3, 2, to=IMAGE)
add("LazyConvTranspose1d", 6, 3, to=X)
add("LazyBatchNorm2d", 1e-3, to=IMAGE)
add("LazyInstanceNorm1d", affine=True, to=X)
add("LazyConv2d", 3, 2, label="alone", to=normal(4, 7, 8))
