"""precision="bf16": what contractions multiply is rounded.

`bf16_contraction` (precision="bf16"): both factors are rounded to bf16 (to nearest, ties to even)
and multiplied and added up in f32: |error| <= (2^-7 + 2^-16) sum_k |x_k w_k|. Where no instruction
multiplies bf16, only factors that are known before the run are rounded, and take half of the
memory: rounding the others would be work for nothing. Those that many rows share are not rounded
either: nothing waits for their memory, and to widen them would be more work. A softmax, or what is
an exponential as one is, is not rounded here before it weighs values: scores, softmax and weighted
sum are one pass. Kernels of machines that multiply matrices, or pairs of bf16 faster than f32, may
round its weights, within the same bound (`half_weights`); those that multiply f32 after all take
factors as they were before (`whole_weights`).
What is read by rounded factors and by sums alone is rounded for the sums too (`sums_rounded`), as
products with ones would be: |error| <= 2^-8 sum_k |x_k|. Only the rounded numbers are kept then.
What a contraction gives, also plus or times something, and what elementwise operations alone make
several rounded values of, is rounded before (`kept_rounded`): a GELU's argument, which its gradient
reads again, is kept in half of the memory. |error| <= 2^-8 |y| of such a y; what is made of it is
made of the rounded number.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ..graph.dtype import bf16, f32
from ..graph.graph import Graph
from ..graph.index import names_of
from ..graph.node import Node, Shape, View, position
from ..graph.passes import Program, cast, rebuild, rewrite
from ..graph.scalars import SCALARS
from ..graph.views import positions
from .contracts import below_views, is_contraction, load_time_constant, resolved

STREAMED = 16  # rows up to which reading weights takes longer than multiplying them


def bf16_contraction(
    graph: Graph, product_node: Node, dims: tuple[int, ...], weights_only: bool = False
) -> Node | None:
    """sum of a b --> sum of f32(bf16(a)) f32(bf16(b)), where each factor lacks a dimension that
    the other has, or one is known before the run. A softmax over what is summed stays as it is: its
    rounding would keep attention from one pass. weights_only: a factor that is not known then stays
    as it is too, and so does one that many rows share."""
    factors = [_placed(factor) for factor in product_node.inputs]
    names = [_names(factor) for factor in product_node.inputs]
    summed = frozenset(position(d) for d in dims)
    if not all(mine & summed for mine in names):
        return None
    outer = names[0] - names[1] and names[1] - names[0]
    known = [load_time_constant(node) for node, _ in factors]
    stays = [not any(known) and is_share(node, view.index, summed) for node, view in factors]
    if any(stays):  # what it weighs may be of f16: kernels round weights to that too
        stays = [stay or _is_half(node) for stay, (node, _) in zip(stays, factors)]
    if not any(known) and (weights_only or not outer):
        return None
    if weights_only:
        weight = names[known.index(True)]
        if _rows(graph, product_node.shape, weight | summed) > STREAMED:
            return None

    def operand(factor: tuple[Node, View], known: bool, stays: bool) -> Node:
        node, view = factor
        if (known or not weights_only) and not stays:
            return cast(graph, _rounded(graph, graph.moved(node, view)), f32)
        return graph.moved(node, view)

    a, b = map(operand, factors, known, stays)
    return graph.add("sum", (graph.add("mul", (a, b)),), dims)


def sums_rounded(program: Program) -> Program:
    """sum of x --> sum of f32(bf16(x)), where nothing else reads x but such sums and what rounds
    it."""
    graph, uses = program.graph, _uses(program)

    def serves(node: Node) -> bool:
        found = {"sum" if n.op == "sum" else n.op == "cast" and n.dtype for n in uses(node)}
        return node.dtype is f32 and found == {"sum", bf16}

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        if node.op != "sum" or not serves(below_views(node.inputs[0])):
            return None
        return graph.add("sum", (cast(graph, _rounded(graph, inputs[0]), f32),), node.attribute)

    return rewrite(program, rule)


def kept_rounded(program: Program) -> Program:
    """y --> f32(bf16(y)), where y is what a contraction with a rounded factor gives, or the last
    value that one operation after the other makes of it, and all that comes of y, element by
    element, are values that are rounded: more than one, so that y is kept."""
    graph, uses, nodes = program.graph, _uses(program), program.nodes()
    ends: dict[Node, set[Node | None]] = {}  # the roundings that come of it; None: anything else
    for node in reversed(nodes):
        ends[node] = set()
        for use in uses(node):
            rounds = use.op == "cast" and use.dtype is bf16
            plain = use is not node and use.op in SCALARS
            ends[node] |= {use} if rounds else ends[use] if plain else {None}
        ends[node] = {None} if None in ends[node] else ends[node]

    def last(node: Node) -> Node:
        while len(made := {*uses(node)}) == 1:
            (use,) = made
            if use is node or use.op not in SCALARS or use.dtype is not f32:
                break
            node = use
        return node

    products = [n for n in nodes if is_contraction(n) and any(map(_is_half, n.inputs[0].inputs))]
    kept = {y for y in map(last, products) if len(ends[y]) > 1 and None not in ends[y]}

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        if node not in kept:
            return None
        return cast(graph, _rounded(graph, rebuild(graph, node, inputs)), f32)

    return rewrite(program, rule)


def _uses(program: Program) -> Callable[[Node], list[Node]]:
    """What reads a node, also through views; itself, if it is wanted."""
    readers = dict[Node, list[Node]]()
    for node in program.nodes():
        for source in node.inputs:
            readers.setdefault(source, []).append(node)
    wanted = {*program.outputs, *(node for _, node in program.states)}

    def uses(node: Node) -> list[Node]:
        if node in wanted:
            return [node]
        return [use for n in readers.get(node, []) for use in (uses(n) if n.op == "view" else [n])]

    return uses


def _names(factor: Node) -> frozenset[str]:
    """The dimensions along which it differs."""
    _, view = _placed(factor)
    return names_of((*view.index, *view.conditions))


def _placed(factor: Node) -> tuple[Node, View]:
    """What a factor reads, and how: what lies outside of it is 0, rounded or not."""
    view = factor.attribute
    if factor.op == "view" and not (view.conditions and view.fill):
        return factor.inputs[0], view
    return factor, View(factor.shape, positions(len(factor.shape)))


def _rounded(graph: Graph, node: Node) -> Node:
    """bf16(node), rounded where it is made: before it is moved, and under all its names (casts to
    the own dtype, see `train.checkpoint`). Of an input, windows with padding are as they are read:
    it is not made."""
    source, view = _placed(node)
    if source is not node and not (view.conditions and source.op == "input"):
        return graph.moved(_rounded(graph, source), view)
    if node.op == "cast" and node.inputs[0].dtype is node.dtype:
        return graph.add("cast", (_rounded(graph, node.inputs[0]),), None, bf16)
    return cast(graph, node, bf16)


def is_share(node: Node, index: Shape, summed: frozenset[str]) -> bool:
    """A softmax, in parts or whole: an exponential, also over something; a value over its sum over
    dimensions that are summed, also times something. index: where it is read."""
    if node.op == "exp2":
        return True
    sides = node.inputs if node.op in ("mul", "div") else ()
    below = [below_views(x) for x in sides]
    for side, under in zip(sides, below):
        total = below_views(under.inputs[0]) if under.op == "recip" else under
        if total.op == "sum" and below_views(total.inputs[0]) in below:
            kept = names_of(resolved(side)[1])
            lost = [i for d, i in enumerate(index) if position(d) not in kept]
            return bool(names_of(lost) & summed)
    parts = sides[:1] if node.op == "div" else [x for x in dict.fromkeys(sides) if x.op != "exp2"]
    return any(is_share(x, index, summed) for x in parts)


def _is_half(node: Node) -> bool:
    """It has two bytes as it stands."""
    source = below_views(node)
    return source.op == "cast" and source.inputs[0].dtype.is_half


def _rows(graph: Graph, shape: Shape, names: frozenset[str]) -> int:
    """Products that each element of a factor with these dimensions takes part in, usually."""
    sizes = graph.space.usual()
    kept = (extent for d, extent in enumerate(shape) if position(d) not in names)
    return prod(int(extent.evaluate(sizes)) for extent in kept)
