"""From the stages of a program, and the regions of their pieces, to the plan of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ..graph.node import Node
from ..graph.passes import Program
from ..graph.stages import BasicBlock, Repeat, Stage
from ..rewrite.by_range import Ranged
from ..rewrite.lower_plan import Ref
from ..rewrite.normal import Normal
from ..rewrite.terms import Region
from .link import Linker, Made
from .plan import Carried, Loop, Memory, Plan

Parts: TypeAlias = Mapping[BasicBlock, tuple[Normal, Sequence[Region]]]
Steps: TypeAlias = Mapping[str, Sequence[Ranged]]  # by the keys of regions


def linked_plan(
    program: Program, stages: Sequence[Stage], parts: Parts, steps: Steps, made: Mapping[str, Made]
) -> Plan:
    """The plan of a program: its stages in order, each block from its regions and their steps."""
    graph = program.graph
    linker = Linker(dict(graph.space.sizes), made)
    linking = _Linking(program, parts, steps, linker)
    linking.stages(stages, ())
    states = [(linking.place(state), linking.results[new]) for state, new in program.states]
    return linker.plan(
        [linking.places.get(tensor.node) for tensor in graph.sources],
        [linking.results[node] for node in program.roots],
        states,
    )


class _Linking:
    """places: the memory in which a node is found. results: of what the program computes."""

    def __init__(self, program: Program, parts: Parts, steps: Steps, linker: Linker) -> None:
        self.graph, self.parts, self.steps, self.linker = program.graph, parts, steps, linker
        self.states = {state for state, _ in program.states}
        self.roots = set(program.roots)
        self.regions = 0  # that are linked
        self.places: dict[Node, int] = {}
        self.results: dict[Node, int] = {}

    def stages(self, stages: Sequence[Stage], made: Sequence[int]) -> None:
        """made: the memories of what the loop around makes in a step."""
        for stage in stages:
            if isinstance(stage, BasicBlock):
                self._block(stage, made)
            else:
                self._repeat(stage)

    def place(self, node: Node) -> int:
        """The memory of a node that is there."""
        if node not in self.places:
            kind = node.attribute.kind if node not in self.states else "input"
            self.places[node] = self._memory(node.attribute.name, kind, node)
        return self.places[node]

    def _memory(self, name: str, kind: str, node: Node) -> int:
        return self.linker.memory(Memory(name, kind, node.dtype, node.shape))

    def _result(self, node: Node) -> int:
        """New memory for what others find there. The first that keeps an output makes it: blocks
        in loops that keep it too have a copy."""
        if node not in self.roots or node in self.results:
            return self.linker.temporary(node.dtype, node.shape)
        number = f"output{len(self.linker.memories)}"
        self.results[node] = self._memory(number, "output", node)
        return self.results[node]

    # ---- basic blocks

    def _block(self, block: BasicBlock, made: Sequence[int]) -> None:
        normal, regions = self.parts[block]
        memories = {number: self.place(node) for node, number in normal.sources.items()}
        kept = [self._result(node) for node in block.kept]
        own = [made[number] for number, _ in block.made]
        memories.update(zip(normal.targets, (*kept, *own)))
        for number, info in enumerate(normal.buffers):
            if number not in memories:
                memories[number] = self.linker.temporary(info.dtype, info.shape)
        first = len(self.linker.calls)
        for region in regions:
            _link_steps(self.regions, region, self.steps[region.key], memories, self.linker)
            self.regions += 1
        self._made_each_time(first, frozenset(own))
        for node, memory in zip(block.kept, kept):
            self.places.setdefault(node, memory)

    def _made_each_time(self, first: int, memories: frozenset[int]) -> None:
        """What a loop makes is written in each step, also where it is known before the run."""
        calls, kernels = self.linker.calls, self.linker.kernels
        for number in range(first, len(calls)):
            call = calls[number]
            buffers = kernels[call.kernel].program.buffers
            names = [b.name for b, a in zip(buffers, call.arguments) if a.memory in memories]
            if call.constant and not kernels[call.kernel].uses[1].isdisjoint(names):
                calls[number] = replace(call, constant=False)

    # ---- loops

    def _repeat(self, repeat: Repeat) -> None:
        parts, loop, linker = repeat.parts, repeat.node.attribute, self.linker
        initial = [self.place(node) for node in parts.initial]
        stacks = [self.place(node) for node in parts.stacks]
        results = [
            self.graph.add("result", (repeat.node,), number) for number in range(len(parts.made))
        ]
        homes = [self._result(node) for node in results]
        for node in parts.variables:
            self.places[node] = self._memory(f"step{len(linker.memories)}", "moving", node)
        made = [self._memory(f"step{len(linker.memories)}", "moving", node) for node in parts.made]
        spares: list[int | None] = [None] * loop.carried
        for row, number in parts.shared.items():
            made[loop.carried + row] = made[number]
            spares[number] = homes[loop.carried + row]
        others = (linker.temporary(node.dtype, node.shape) if spare is None else spare
                  for node, spare in zip(parts.new, spares))  # fmt: skip
        start, outside = len(linker.calls), set(self.places)
        self.stages(repeat.body, made)
        old = [self.places[node] for node in parts.carried]
        carried = tuple(map(Carried, initial, old, made, homes, others))
        slices = [self.places[node] for node in parts.slices]
        sliced = tuple(zip(stacks, slices))
        rows = tuple(zip(homes[loop.carried :], made[loop.carried :]))
        calls = start, len(linker.calls)
        linker.loops.append(
            Loop(*calls, loop.length, carried, sliced, rows, loop.reverse, loop.conditional)
        )
        inside = [n for n in self.places if n not in outside and n.op != "input"]
        for node in inside:  # another loop may have the same values in its steps
            del self.places[node]
        self.places.update(zip(results, homes))


def _link_steps(
    number: int, region: Region, steps: Sequence[Ranged], memories: Mapping[int, int],
    linker: Linker,
) -> None:  # fmt: skip
    """The kernels of a region, called on its buffers."""
    known = {Ref("input", n): memories[buffer] for n, buffer in enumerate(region.inputs)}
    known |= {Ref("output", n): memories[buffer] for n, buffer in enumerate(region.outputs)}
    for ranges, step in steps:
        for name, ref in step.arguments.items():
            if ref not in known:
                buffer = step.kernel.buffer(name)
                known[ref] = linker.temporary(buffer.dtype, buffer.shape)
        arguments = {name: known[ref] for name, ref in step.arguments.items()}
        linker.call(step.kernel, arguments, step.constant, step.copies, number, ranges)
