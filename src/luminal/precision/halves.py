"""f16 and bf16 are computed in f32."""

from __future__ import annotations

from ..graph.dtype import f32
from ..graph.node import REDUCE_OPS, Node
from ..graph.passes import Program, cast, rewrite
from ..graph.scalars import SCALARS


def widen_half(program: Program) -> Program:
    """bf16 op bf16 --> cast(op(cast, cast)): every operation in f32, rounded once.

    What only moves values stays narrow: views, gathers, select, scatter "set". No pair of casts is
    removed: f32 -> bf16 -> f32 is the rounding that the user asked for.
    """
    graph = program.graph

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        if not _computes(node) or not any(n.dtype.is_half for n in inputs):
            return None
        wide = tuple(cast(graph, n, f32) if n.dtype.is_half else n for n in inputs)
        result = graph.add(node.op, wide, node.attribute)
        return cast(graph, result, node.dtype) if node.dtype.is_half else result

    return rewrite(program, rule)


def _computes(node: Node) -> bool:
    """Whether the node makes new values from its inputs."""
    if node.op == "scatter":
        return bool(node.attribute.mode != "set")
    return node.op in (*SCALARS, *REDUCE_OPS, "scan") and node.op not in ("cast", "select")
