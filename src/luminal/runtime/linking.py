"""From the regions of a program to the plan of a run: whose buffers are which memories."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.node import Node
from ..graph.passes import Program
from ..rewrite.bridge import Ref, Step
from ..rewrite.normal import BufferInfo, Normal
from ..rewrite.terms import Region
from .link import Linker
from .plan import Memory, Plan


def buffer_memories(normal: Normal, linker: Linker) -> list[int]:
    """The memory of each buffer of the normal form."""
    return [
        linker.memory(Memory(_buffer_name(info, number), info.kind, info.dtype, info.shape))
        for number, info in enumerate(normal.buffers)
    ]


def _buffer_name(info: BufferInfo, number: int) -> str:
    source = info.node is not None and info.node.op == "input" and info.kind != "output"
    return str(info.node.attribute.name) if source and info.node else f"{info.kind}{number}"


def link_steps(
    region: Region, steps: Sequence[Step], memories: Sequence[int], linker: Linker
) -> None:
    """The kernels of a region, called on its buffers."""
    known = {Ref("input", n): memories[buffer] for n, buffer in enumerate(region.inputs)}
    known |= {Ref("output", n): memories[buffer] for n, buffer in enumerate(region.outputs)}
    for step in steps:
        for name, ref in step.arguments.items():
            if ref not in known:
                buffer = step.kernel.buffer(name)
                known[ref] = linker.temporary(buffer.dtype, buffer.shape)
        arguments = {name: known[ref] for name, ref in step.arguments.items()}
        linker.call(step.kernel, arguments, step.constant, step.copies)


def linked_plan(
    program: Program,
    normal: Normal,
    ports: Sequence[Node],
    memories: Sequence[int],
    linker: Linker,
) -> Plan:
    """The finished plan: which memories the user's inputs, outputs and states are."""
    sources = {node: memories[number] for node, number in normal.sources.items()}
    results = {node: memories[number] for node, number in normal.outputs.items()}
    return linker.plan(
        [sources.get(port) for port in ports],
        [results[node] for node in program.roots],
        [(sources[state], results[new]) for state, new in program.states if state in sources],
    )
