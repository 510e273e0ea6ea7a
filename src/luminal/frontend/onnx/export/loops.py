"""Loops as Scan, where their length is known, else as Loop; running reductions as Scan."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import TensorProto, ValueInfoProto, helper

from ....errors import Unsupported
from ....graph.dtype import DType, boolean
from ....graph.loops import Parts
from ....graph.node import Node
from ....graph.scalars import identity
from .. import kinds
from .movement import sizes_of
from .scalars import LOGIC, PLAIN
from .writer import Size, Writer

RUNNING = {"max": "max", "min": "min", "prod": "mul"}  # the operation of each running reduction


def info(name: str, dtype: DType, shape: Sequence[Size]) -> ValueInfoProto:
    """A tensor; sizes of run time by their names, or as text."""
    sizes = [n if isinstance(n, int) else str(n) for n in shape]
    return helper.make_tensor_value_info(name, kinds.OURS[dtype], sizes)


def opened(body: Writer, made: Parts) -> list[str]:
    """The names of what each step is given, as inputs of the body."""
    if made.loop.conditional and (made.slices or made.rows):
        raise Unsupported("export of a loop that a condition ends, with slices or rows")
    names = [body.name("step") for _ in made.variables]
    if made.loop.conditional:
        for kind in (TensorProto.INT64, TensorProto.BOOL):  # the step, the condition
            body.graph.input.append(helper.make_tensor_value_info(body.name("step"), kind, []))
    for name, node in zip(names, made.variables):
        body.graph.input.append(info(name, node.dtype, sizes_of(node)))
    return names


def closed(
    out: Writer, body: Writer, made: Parts, initial: Sequence[str], stacks: Sequence[str],
    results: Sequence[str],
) -> list[str]:  # fmt: skip
    """The names of the results of a loop. initial, stacks: names of what it is given; results: of
    what each step makes, in the body."""
    loop, kept = made.loop, list(zip(results, made.made))
    if loop.conditional:
        _give(body, [(results[0], made.new[0]), *kept])
        length = "" if loop.length is None else out.index(loop.length)
        return out.several("Loop", [length, initial[0], *initial], len(kept), body=body.graph)
    if not stacks:
        assert loop.length is not None
        ends = (out.index(n) for n in (0, loop.length, 1))
        stacks = [out.op("Range", *ends)]
        name = body.name("step")
        body.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, []))
    _give(body, kept)
    directions = {"scan_input_directions": len(stacks), "scan_output_directions": loop.rows}
    backwards = {name: [1] * count for name, count in directions.items() if loop.reverse and count}
    return out.several("Scan", [*initial, *stacks], len(kept), body=body.graph,
                       num_scan_inputs=len(stacks), **backwards)  # fmt: skip


def running(out: Writer, node: Node, x: str) -> str:
    """A running maximum, minimum or product."""
    scan, kind = node.attribute, node.dtype
    body, shape = Writer(out), [n for d, n in enumerate(sizes_of(node)) if d != scan.dim]
    names = [body.name("step") for _ in range(2)]
    body.graph.input.extend(info(name, kind, shape) for name in names)
    name = RUNNING[scan.op]
    found = body.op((LOGIC if kind is boolean else PLAIN)[name], *names)
    for _ in range(2):
        last = body.name("made")
        body.graph.node.append(helper.make_node("Identity", [found], [last]))
        body.graph.output.append(info(last, kind, shape))
    first = out.expand(out.number(identity(scan.op, kind), kind), shape)
    return out.several(
        "Scan", [first, x], 2, body=body.graph, num_scan_inputs=1, scan_input_axes=[scan.dim],
        scan_output_axes=[scan.dim],
    )[1]  # fmt: skip


def _give(body: Writer, results: Sequence[tuple[str, Node]]) -> None:
    """Outputs of a body: values of its own, each under a name of its own."""
    for name, node in results:
        last = body.name("made")
        body.graph.node.append(helper.make_node("Identity", [name], [last]))
        body.graph.output.append(info(last, node.dtype, sizes_of(node)))
    body.prune()
