"""The result of normalising a graph: its terms, and the buffers at its border."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..graph.dtype import DType
from ..graph.index import Index
from ..graph.node import Node, Shape
from .terms import Leaf, Map, Root, ScatterMap, Term, Terms


@dataclass(frozen=True)
class BufferInfo:
    """Memory at the border of a program or between its regions; its number is its position.

    kind: "input", "parameter", "constant" (of the Source node), "output", or "temporary" (added by
    `regions`). shape: that of the node, or of a temporary one size for each axis. axes: the order
    of axes in memory, row-major. node: where it comes from; None for temporaries.
    """

    kind: str
    shape: Shape
    dtype: DType
    axes: tuple[str, ...]
    node: Node | None = None

    @property
    def constant(self) -> bool:
        return self.kind in ("parameter", "constant")


@dataclass
class Normal:
    """A program as terms over named axes.

    roots: the outputs, with the numbers of their buffers in `targets`. sources, outputs: node ->
    number of its buffer. orders: the order of axes of the node that a term came from; origins: the
    position of that node in the program.
    """

    terms: Terms
    roots: list[Root]
    targets: list[int]
    buffers: list[BufferInfo]
    sources: dict[Node, int]
    outputs: dict[Node, int]
    orders: dict[int, tuple[str, ...]] = field(default_factory=dict)
    origins: dict[int, int] = field(default_factory=dict)

    def describe(self) -> str:
        """The terms as text, one line each, and the outputs."""
        lines = describe(self.terms)
        lines += [
            f"output {target} = %{root.term} [{' '.join(root.axes)}]"
            for root, target in zip(self.roots, self.targets)
        ]
        return "\n".join(lines)


def describe(terms: Terms) -> list[str]:
    """One line a term: `%3 = add %1 %2 : f32 [a0 a1]`, after the extents of the axes."""
    extents = (f"{name}: {extent}" for name, extent in terms.space.axes.items())
    lines = ["axes " + ", ".join(extents)]
    for number, term in enumerate(terms.nodes):
        children = "".join(f" %{child}" for child in term.children)
        attribute = attribute_text(term)
        axes = " ".join(sorted(terms.axes[number], key=axis_key))
        head = f"%{number} = {term.op}{children}"
        lines.append(f"{head}{' ' if attribute else ''}{attribute} : {term.dtype} [{axes}]")
    return lines


def axis_key(name: str) -> tuple[int, str]:
    """Sorts a2 before a10."""
    return len(name), name


def attribute_text(term: Term) -> str:
    """A term's attribute, the same for equal attributes."""
    value = term.attribute
    if value is None:
        return ""
    if isinstance(value, Leaf):
        constant = " constant" if value.constant else ""
        known = "".join(f" else {number} if {c} < 0" for c, number in value.outside)
        return f"{value.number} ({' '.join(value.axes)}){constant}{known}"
    if isinstance(value, Map):
        return entries_text(value.entries) + domain_text(value.conditions)
    if isinstance(value, ScatterMap):
        return f"{value.mode} {entries_text(value.entries)} along ({' '.join(value.along)})"
    if isinstance(value, Index):
        return f"({value})"
    if isinstance(value, tuple) and all(isinstance(i, Index) for i in value):
        return domain_text(value)
    if isinstance(value, tuple):
        return f"({' '.join(map(str, value))})"
    return repr(value)


def entries_text(entries: tuple[tuple[str, Index], ...]) -> str:
    return "{" + ", ".join(f"{axis}: {index}" for axis, index in entries) + "}"


def domain_text(domain: tuple[Index, ...]) -> str:
    return "".join(f" if {condition} >= 0" for condition in domain).strip()
