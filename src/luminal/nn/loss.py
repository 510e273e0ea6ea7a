"""Losses as modules. `weight` and the like may be arrays."""

from __future__ import annotations

from typing import Any

from .. import ops
from ..graph.graph import Graph
from ..graph.tensor import Tensor
from ..ops.base import of_shape
from .containers import ModuleList, Sequential
from .function import function_module
from .linear import Linear
from .module import Module

_OLD: dict[str, Any] = {"size_average": None, "reduce": None, "reduction": "mean"}
_MEAN: dict[str, Any] = {"reduction": "mean"}

L1Loss = function_module("L1Loss", ops.l1_loss, **_OLD)
MSELoss = function_module("MSELoss", ops.mse_loss, **_OLD)
SmoothL1Loss = function_module("SmoothL1Loss", ops.smooth_l1_loss, **_OLD, beta=1.0)
HuberLoss = function_module("HuberLoss", ops.huber_loss, **_MEAN, delta=1.0)
KLDivLoss = function_module("KLDivLoss", ops.kl_div, **_OLD, log_target=False)
SoftMarginLoss = function_module("SoftMarginLoss", ops.soft_margin_loss, **_OLD)
NLLLoss = function_module(
    "NLLLoss", ops.nll_loss, weight=None, size_average=None, ignore_index=-100, reduce=None, **_MEAN
)
NLLLoss2d = NLLLoss
CrossEntropyLoss = function_module(
    "CrossEntropyLoss", ops.cross_entropy, weight=None, size_average=None, ignore_index=-100,
    reduce=None, **_MEAN, label_smoothing=0.0,
)  # fmt: skip
BCELoss = function_module("BCELoss", ops.binary_cross_entropy, weight=None, **_OLD)
BCEWithLogitsLoss = function_module(
    "BCEWithLogitsLoss", ops.binary_cross_entropy_with_logits, weight=None, **_OLD, pos_weight=None
)
PoissonNLLLoss = function_module(
    "PoissonNLLLoss", ops.poisson_nll_loss, log_input=True, full=False, size_average=None,
    eps=1e-8, reduce=None, **_MEAN,
)  # fmt: skip
GaussianNLLLoss = function_module(
    "GaussianNLLLoss", ops.gaussian_nll_loss, full=False, eps=1e-6, **_MEAN
)
MarginRankingLoss = function_module(
    "MarginRankingLoss", ops.margin_ranking_loss, margin=0.0, **_OLD
)
HingeEmbeddingLoss = function_module(
    "HingeEmbeddingLoss", ops.hinge_embedding_loss, margin=1.0, **_OLD
)
CosineEmbeddingLoss = function_module(
    "CosineEmbeddingLoss", ops.cosine_embedding_loss, margin=0.0, **_OLD
)
TripletMarginLoss = function_module(
    "TripletMarginLoss", ops.triplet_margin_loss, margin=1.0, p=2.0, eps=1e-6, swap=False, **_OLD
)
TripletMarginWithDistanceLoss = function_module(
    "TripletMarginWithDistanceLoss", ops.triplet_margin_with_distance_loss,
    distance_function=None, margin=1.0, swap=False, **_MEAN,
)  # fmt: skip
MultiMarginLoss = function_module(
    "MultiMarginLoss", ops.multi_margin_loss, p=1, margin=1.0, weight=None, **_OLD
)
MultiLabelMarginLoss = function_module("MultiLabelMarginLoss", ops.multilabel_margin_loss, **_OLD)
MultiLabelSoftMarginLoss = function_module(
    "MultiLabelSoftMarginLoss", ops.multilabel_soft_margin_loss, weight=None, **_OLD
)
CTCLoss = function_module("CTCLoss", ops.ctc_loss, blank=0, **_MEAN, zero_infinity=False)


class AdaptiveLogSoftmaxWithLoss(Module):
    """The log of a softmax over many classes, of which rare ones stand in clusters of their own
    with narrower features (Grave et al. 2017).

    cutoffs: where each cluster ends, ascending. Gives (log-probability of each target, mean loss).

    >>> layer = nn.AdaptiveLogSoftmaxWithLoss(cx, 16, 100, [10, 50])
    >>> output, loss = layer(cx.tensor((8, 16)), cx.tensor(8, "i64"))
    >>> output.shape, loss.shape
    ((8,), ())
    """

    def __init__(
        self, graph: Graph, in_features: int, n_classes: int, cutoffs: Any, div_value: float = 4.0,
        head_bias: bool = False, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.cutoffs = [*cutoffs, n_classes]
        clusters = len(self.cutoffs) - 1
        short = self.cutoffs[0] + clusters
        self.head = Linear(graph, in_features, short, head_bias, dtype)
        self.tail = ModuleList()
        for i in range(clusters):
            width = int(in_features // div_value ** (i + 1))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            pair = (
                Linear(graph, in_features, width, False, dtype),
                Linear(graph, width, size, False, dtype),
            )
            self.tail.append(Sequential(*pair))

    def log_prob(self, x: Tensor) -> Tensor:
        """(batch, n_classes)."""
        head = ops.log_softmax(self.head(x), 1)
        first = self.cutoffs[0]
        parts = [head.narrow(1, 0, first)]
        for i, cluster in enumerate(self.tail):
            parts.append(ops.log_softmax(cluster(x), 1) + head.narrow(1, first + i, 1))
        return ops.cat(parts, 1)

    def predict(self, x: Tensor) -> Tensor:
        """The likeliest class: (batch,)."""
        return ops.argmax(self.log_prob(x), 1)

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """x: (batch, in_features) or (in_features,), target: (batch,) or ()."""
        rows = x if x.ndim == 2 else x.unsqueeze(0)
        at = of_shape(target, x.shape[:-1], "the target").reshape((-1, 1))
        output = ops.gather(self.log_prob(rows), 1, at).squeeze(1)
        return output if x.ndim == 2 else output.squeeze(0), ops.mean(-output)
