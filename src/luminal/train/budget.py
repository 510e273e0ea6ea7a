"""A memory budget decides which parts under `checkpoint()` are computed again: those that cost the
least time for the bytes that they free, both by the compiler's own model of the part's kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .. import cores
from ..backend import devices
from ..errors import InputError, Unsupported
from ..graph.graph import Graph
from ..graph.node import Node
from ..graph.order import post_order, reachable
from ..graph.tensor import Tensor
from ..rewrite.cuts import cuts_of, facts_of
from ..rewrite.cuts import reachable as reachable_terms
from ..rewrite.normalise import normalise
from ..rewrite.optimise import extractor
from ..rewrite.rates import CostModel
from ..rewrite.regions import regions
from .autograd import vjp
from .checkpoint import NAME
from .limits import check


@dataclass(frozen=True)
class Part:
    """What is under one checkpoint: the bytes that it makes and the seconds of making them."""

    result: Node
    bytes: float
    seconds: float
    again: bool = True


def settle(loss: Tensor, budget: int) -> list[Part]:
    """Takes the marks off the checkpoints that fit. What is kept of those, and what the largest of
    the others takes while its gradient is made, is at most `budget` bytes. Inputs of parts and what
    lies outside of them are not counted. Raises InputError where there is no checkpoint, or where
    the budget is less than one of them takes, Unsupported where there is a loop in one."""
    check("memory", budget)
    parts = _parts(loss)
    if not parts:
        raise InputError("a memory budget is kept by parts under train.checkpoint(): there is none")
    largest = max(part.bytes for part in parts)
    if largest > budget:
        raise InputError(
            f"a budget of {budget:,.0f} bytes: one part alone takes {largest:,.0f} while its "
            "gradient is made; take smaller parts, or a larger budget"
        )
    graph = loss.graph
    kept = _fitting(parts, budget)
    for part in kept:
        _, _, before = graph.composites.pop(part.result).options
        if before is not None:
            graph.composites[part.result] = before
    names = {part.result for part in kept}
    return [Part(p.result, p.bytes, p.seconds, p.result not in names) for p in parts]


def _fitting(parts: Sequence[Part], budget: int) -> list[Part]:
    """The parts to keep: those of the most seconds a byte first; of equal ones the last, which are
    the first whose gradients are made."""
    order = sorted(reversed(parts), key=lambda part: -part.seconds / max(part.bytes, 1.0))
    kept: list[Part] = []
    if sum(part.bytes for part in parts) <= budget:
        return order
    for part in order:
        rest = [p.bytes for p in order if p not in kept and p is not part]
        if sum(p.bytes for p in kept) + part.bytes + max(rest, default=0.0) <= budget:
            kept.append(part)
    return kept


def _parts(loss: Tensor) -> list[Part]:
    graph, model = loss.graph, CostModel.of(devices.host().target(cores.count()))
    seconds: dict[str, float] = {}
    marked = [node for node in reachable([loss.node]) if _is_marked(graph, node)]
    return [_measured(Tensor(graph, node), model, seconds) for node in marked]


def _is_marked(graph: Graph, node: Node) -> bool:
    known = graph.composites.get(node)
    return known is not None and known.name == NAME


def _measured(result: Tensor, model: CostModel, seconds: dict[str, float]) -> Part:
    """seconds: of regions by their keys; equal layers have equal ones."""
    graph, node = result.graph, result.node
    known = graph.composites[node]
    inside = post_order([node], lambda n: () if n in known.inputs else n.inputs)
    if any(n.op == "loop" for n in inside):
        raise Unsupported("a memory budget: parts with loops in them (scan, LSTM) have none yet")
    del graph.composites[node]
    wrt = [Tensor(graph, n) for n in known.inputs if n.dtype.is_float and n.op != "view"]
    gradients = vjp([result], [result], wrt)  # any gradient: only what is kept is asked
    graph.composites[node] = known
    given = frozenset(known.inputs)
    pieces = regions(normalise(graph.space, [node], given=given))
    for piece in pieces:
        if piece.key not in seconds:
            seconds[piece.key] = extractor(piece, model).plans()[0].cost
    both = normalise(graph.space, [node, *(g.node for g in gradients)], given=given)
    facts = facts_of(both)
    forward = set(reachable_terms(both.terms, [both.roots[0].term]))
    kept = (t for t in cuts_of(facts) & forward if not facts.fixed[t] and t not in facts.ends)
    taken = sum(facts.points(t) * both.terms.nodes[t].dtype.bytes for t in kept)
    return Part(node, taken, sum(seconds[piece.key] for piece in pieces))
