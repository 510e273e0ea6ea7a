"""What views share memory with.

Views of an input or of another result, and all that a graph with run-time sizes returns, are made
by PyTorch, of what they are views of. So they share its memory; and AOTAutograd makes such results
anew, as views of the user's tensors, with the strides and the offset of what the graph returns.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx


def returned_views(graph: fx.Graph, shared: int | None = None) -> list[fx.Node]:
    """The chains of views at the ends of a graph, made nodes of their own: others may read the
    same views, natively. shared: of so many results the memory matters to the user (None: all)."""
    output = next(node for node in graph.nodes if node.op == "output")
    made: list[fx.Node] = []

    def twin(node: Any) -> Any:
        if not isinstance(node, fx.Node) or not is_view(node):
            return node
        source = twin(node.args[0])
        with graph.inserting_before(output):
            made.append(graph.node_copy(node, lambda n: source if n is node.args[0] else n))
        return made[-1]

    results = output.args[0]
    seen = [n for n in results[:shared] if isinstance(n, fx.Node)]
    wholes = Counter(_whole(n) for n in dict.fromkeys(seen))
    shares = {n for n in seen if _is_input(_whole(n)) or wholes[_whole(n)] > 1}
    output.args = (tuple(twin(n) if _varies(n) or n in shares else n for n in results),)
    _erase_unread(n for n in results if isinstance(n, fx.Node))
    return made


def read_memory(graph: fx.Graph) -> None:
    """`as_strided` counts from the start of a memory: it reads what that belongs to, and none of
    the views of it, which need not share a memory where we compute them."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.as_strided.default):
        whole = node.args[0]
        offset = node.args[3] if len(node.args) > 3 else node.kwargs.get("storage_offset")
        if offset is None:
            offset = whole.meta["val"].storage_offset()
        while is_view(whole) and not isinstance(offset, torch.SymInt):
            above = whole.args[0]
            if _kind(above) not in (None, _kind(node)):
                break
            whole = above
        if whole is not node.args[0]:
            node.args, node.kwargs = (whole, *node.args[1:3], offset), {}


def _kind(node: fx.Node) -> torch.dtype | None:
    """None: several tensors."""
    return getattr(node.meta["val"], "dtype", None)


def is_view(node: fx.Node) -> bool:
    """Its result shares the memory of its first argument; a part of several does, too."""
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and is_view(node.args[0])
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if node.target is torch.ops.aten._unsafe_view.default:  # a view that autograd need not know
        return True
    aliases = [result.alias_info for result in node.target._schema.returns]
    return len(aliases) == 1 and aliases[0] is not None and not aliases[0].is_write


def _whole(view: fx.Node) -> fx.Node:
    """What its memory was made for: an input, or what is no view."""
    while is_view(view):
        (view,) = view.args[:1]  # type: ignore[assignment]
    return view


def _is_input(node: fx.Node) -> bool:
    return node.op == "placeholder"


def _varies(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(value, torch.Tensor):
        return False
    numbers = (*value.shape, *value.stride(), value.storage_offset())
    return any(isinstance(n, torch.SymInt) for n in numbers)


def _erase_unread(nodes: Iterable[fx.Node]) -> None:
    """What only the results read, of views that were made anew."""
    left = dict.fromkeys(nodes)
    while left:
        node, _ = left.popitem()
        if node.op == "call_function" and not node.users and is_view(node):
            left[node.args[0]] = None  # type: ignore[index]
            node.graph.erase_node(node)
