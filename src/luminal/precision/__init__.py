"""How exactly a program is computed: the passes that `Graph.compile` makes, the last of them the
contract that narrows contractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from ..errors import Unsupported
from ..graph.folding import fold_constants
from ..graph.graph import Graph
from ..graph.hoist import hoist_products
from ..graph.join import join_loops
from ..graph.node import Node
from ..graph.passes import Pass, Program, rewrite
from .bytewise import bytes_mapped
from .contracts import integer_contraction, is_contraction
from .halves import widen_half
from .integers import bytes_multiplied
from .rounding import bf16_contraction, kept_rounded, sums_rounded
from .winograd import in_tiles, may_slide

Contract: TypeAlias = Callable[[Graph, Node, tuple[int, ...]], Node | None]

CONTRACTS: dict[str, Contract | None] = {
    "f32": None,
    "bf16": bf16_contraction,
    "int8": integer_contraction,
    "quantised": partial(integer_contraction, floats=False),
}


def default_passes(
    precision: str = "f32", half_products: bool = True, signed_bytes: bool = False,
    moved: float = math.inf,
) -> list[Pass]:  # fmt: skip
    """The passes of `Graph.compile` when none are given, in order. precision: see `contracts` and
    `rounding`. half_products: the machine has an instruction that multiplies bf16. signed_bytes: it
    multiplies bytes where both have a sign. moved: multiplications of f32 in the time in which it
    writes a number and reads it again (see `winograd.in_tiles`)."""
    if precision not in CONTRACTS:
        raise Unsupported(f"precision={precision!r}: there is {', '.join(map(repr, CONTRACTS))}")
    contract = CONTRACTS[precision]
    every = precision == "bf16" and half_products
    if precision == "bf16" and not half_products:
        contract = partial(bf16_contraction, weights_only=True)
    multiplied = partial(bytes_multiplied, signed=True) if signed_bytes else bytes_multiplied
    exact: list[Pass] = [
        join_loops, hoist_products, widen_half, fold_constants, bytes_mapped, multiplied,
        fold_constants,
    ]  # fmt: skip
    return [*exact, narrowed(contract, moved), *[sums_rounded, kept_rounded] * every]


def narrowed(contract: Contract | None, moved: float = math.inf) -> Pass:
    """The pass that puts what a contract gives in the place of contractions; where it gives
    nothing, what takes fewer multiplications."""

    def narrow(program: Program) -> Program:
        if contract is None and not (moved < math.inf and may_slide(program)):
            return program

        def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
            if not is_contraction(node) or inputs[0].op != "mul":
                return None
            made = contract(program.graph, inputs[0], node.attribute) if contract else None
            return made or in_tiles(program.graph, inputs[0], node.attribute, moved)

        return rewrite(program, rule)

    return narrow
