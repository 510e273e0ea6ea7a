"""Mixture of experts: each token goes through the few experts that a router picks for it."""

from __future__ import annotations

from collections.abc import Callable

from ... import nn, ops
from ...graph import Graph, Tensor
from .config import DecoderConfig
from .norms import norm, plain_norm
from .projection import Projection, projection
from .storage import Storage


class MixtureOfExperts(nn.Module):
    """The chosen experts' matrices are gathered for each token: only they are read and multiplied.

    Stacked matrices: gate and up (experts, hidden, width), down (experts, width, hidden).
    """

    def __init__(
        self,
        graph: Graph,
        config: DecoderConfig,
        activation: Callable[[Tensor], Tensor],
        storage: Storage,
    ) -> None:
        super().__init__()
        assert config.experts is not None
        self.experts, self.activation = config.experts, activation
        count, hidden, width = self.experts.count, self.experts.hidden, config.width
        self.shared_expert: nn.Module | None = None
        self.shared_expert_gate: nn.Module | None = None
        self.gate = nn.Linear(graph, width, count, bias=self.experts.bias)
        self.correction: Tensor | None = None
        if self.experts.correction:
            self.correction = nn.init.filled(graph, (count,), 0)
        self.factors = nn.init.filled(graph, (count,), 1) if self.experts.beside else None
        stack = (count,)
        self.gate_proj: Projection | None = None
        if self.experts.gated:
            self.gate_proj = projection(graph, width, hidden, False, storage, "gate_proj", stack)
        self.up_proj = projection(graph, width, hidden, False, storage, "up_proj", stack)
        self.down_proj = projection(graph, hidden, width, False, storage, "down_proj", stack)
        self.gate_bias = self.up_bias = self.down_bias = None
        if self.experts.bias:
            self.gate_bias, self.up_bias, self.down_bias = (
                nn.init.filled(graph, (count, size), 0) for size in (hidden, hidden, width)
            )

    def forward(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        """x: (tokens, width). seen: what experts are chosen by, if not that."""
        weights, chosen = self._route(x if seen is None else seen)  # (tokens, chosen)
        if self.experts.scale_inputs:
            each = x.unsqueeze(1) * weights.unsqueeze(-1)
            return self._shared(x, nn.mixture(self._expert, each, chosen, None, self.experts.count))
        return self._shared(x, nn.mixture(self._expert, x, chosen, weights, self.experts.count))

    def _expert(self, x: Tensor, chosen: Tensor) -> Tensor:
        """What experts make of rows: see `nn.mixture`."""
        up = self._apply(self.up_proj, self.up_bias, chosen, x)  # (groups, rows, hidden)
        wide = self.activation(up) if self.gate_proj is None else self._gated(
            self._apply(self.gate_proj, self.gate_bias, chosen, x), up)  # fmt: skip
        return self._apply(self.down_proj, self.down_bias, chosen, wide)

    def _shared(self, x: Tensor, out: Tensor) -> Tensor:
        """What the expert of all tokens makes of them, added."""
        if self.shared_expert is None:
            return out
        more = self.shared_expert(x)
        if self.shared_expert_gate is not None:
            more = more * ops.sigmoid(self.shared_expert_gate(x))
        return out + more

    def _route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The weights and numbers of the experts chosen for each token."""
        experts, scores = self.experts, self.gate(x)
        shares = ops.softmax(scores, -1) if experts.scoring == "softmax" else ops.sigmoid(scores)
        choice = shares if self.correction is None else shares + self.correction
        weights, chosen = ops.topk(self._allowed(choice), experts.chosen, -1)
        if self.correction is not None:
            weights = ops.gather(shares, -1, chosen)
        if experts.normalise:
            weights = weights / weights.sum(-1, keepdim=True)
        if self.factors is not None:
            weights = weights * ops.embedding(chosen, self.factors)
        return (weights if experts.factor == 1.0 else weights * experts.factor), chosen

    def _allowed(self, choice: Tensor) -> Tensor:
        """Scores (tokens, experts), those of groups that are not kept being minus infinity."""
        experts = self.experts
        if experts.kept == experts.groups:
            return choice
        grouped = choice.unflatten(-1, (experts.groups, -1))
        best = ops.topk(grouped, experts.best, -1)[0].sum(-1)  # (tokens, groups)
        least = ops.topk(best, experts.kept, -1)[0].narrow(-1, experts.kept - 1, 1)
        kept = (best >= least).unsqueeze(-1)
        return ops.where(kept, grouped, float("-inf")).flatten(-2, -1)

    def _gated(self, gate: Tensor, up: Tensor) -> Tensor:
        limit = self.experts.limit
        if limit is None:
            return self.activation(gate) * up
        gate, up = ops.clamp(gate, max=limit), ops.clamp(up, -limit, limit)
        return (up + 1.0) * gate * ops.sigmoid(gate * self.experts.alpha)

    def _apply(
        self, matrices: Projection, bias: Tensor | None, chosen: Tensor, x: Tensor
    ) -> Tensor:
        """Rows x (groups, rows, in) through the matrices of their experts, (groups, rows or 1)."""
        picked = matrices.rows(chosen)  # (groups, rows or 1, out, in)
        out = (picked * x.unsqueeze(-2)).sum(-1)  # (groups, rows, out)
        return out if bias is None else out + ops.embedding(chosen, bias)


class MixtureBeside(nn.Module):
    """Experts beside a plain feed-forward part, each with norms of its own (Gemma 4): they take
    what that takes before its norm, and so does their router, scaled."""

    def __init__(
        self, graph: Graph, config: DecoderConfig, activation: Callable[[Tensor], Tensor],
        storage: Storage,
    ) -> None:  # fmt: skip
        super().__init__()
        self.eps, width = config.eps, config.width
        self.experts = MixtureOfExperts(graph, config, activation, storage.below("experts"))
        self.scale = nn.init.filled(graph, (width,), 1)
        self.before, self.after, self.plain = (norm(graph, config, width) for _ in range(3))

    def forward(self, x: Tensor, plain: Tensor) -> Tensor:
        """x: (tokens, width); plain: what the other part makes of it."""
        seen = plain_norm(x, self.eps) * self.scale * int(x.shape[-1]) ** -0.5
        return self.plain(plain) + self.after(self.experts(self.before(x), seen))
