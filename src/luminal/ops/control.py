"""Control flow: steps of a function inside of one program, under JAX's names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from ..errors import InputError, ShapeError, Unsupported
from ..graph.dtype import boolean
from ..graph.graph import Graph
from ..graph.index import Index
from ..graph.infer import text
from ..graph.loops import parts_of, substituted
from ..graph.node import Loop, Node
from ..graph.order import reachable
from ..graph.tensor import Tensor
from .base import Size, graph_of, literal, number_dtype
from .logic import where

Tree: TypeAlias = Any  # a tensor, None, or a tuple, list or dict of trees


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]], init: Tree, xs: Tree = None,
    length: Size | None = None, reverse: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """(the last carry, all ys stacked) of `carry, y = f(carry, x)` for every x of xs: as
    `jax.lax.scan`.

    init, xs, y: tensors in tuples, lists and dicts, or None. x: a slice of each of xs along its
    first dimension; ys: each y along a new first dimension. The carry keeps its shapes and dtypes.
    length: the number of steps, where xs do not tell: an int, or a run-time size. reverse: the last
    x comes first, and ys stand in the order of xs. f is called once, and recorded: one body serves
    any number of steps, and what it draws at random is drawn once for all of them: let xs bring
    what differs. Raises ShapeError, DTypeError, InputError, and Unsupported for a state that would
    change in each step (a batch norm in training).

    >>> a, b = cx.constant(0.0), cx.constant([1.0, 2.0, 3.0])
    >>> total, sums = ops.scan(lambda s, x: (s + x, s + x), a, b)
    >>> float(total.numpy()), sums.numpy()
    (6.0, array([1., 3., 6.], dtype=float32))
    """
    stacks, _ = _flat(xs)
    graph = _graph(init, xs)
    count = _length(graph, stacks, length)
    initial, rebuild = _flat(init, graph)
    carried = [graph.wrap(graph.variable(t.node.shape, t.dtype)) for t in initial]
    slices = [graph.wrap(graph.variable(t.node.shape[1:], t.dtype)) for t in stacks]
    new, ys = _pair(f(rebuild(carried), _flat(xs)[1](slices)))
    after = _same_tree("scan", init, new, graph)
    rows, rebuild_rows = _flat(ys, graph)
    loop = Loop(count, len(initial), len(stacks), len(rows), reverse)
    found = _recorded(graph, loop, initial, stacks, carried, slices, after, rows)
    return rebuild(found[: len(initial)]), rebuild_rows(found[len(initial) :])


def while_loop(
    cond: Callable[[Any], Tensor], body: Callable[[Any], Any], init: Tree,
    max_steps: Size | None = None,
) -> Any:  # fmt: skip
    """The carry after `carry = body(carry)` as long as cond(carry), one bool, holds: as
    `jax.lax.while_loop`. max_steps: at most so many steps are made. Raises as `scan`.

    >>> ops.while_loop(lambda n: n < 100, lambda n: n * 2, cx.constant(3)).numpy()
    array(192)
    """
    graph = _graph(init, None)
    count = None if max_steps is None else _length(graph, [], max_steps)
    initial, rebuild = _flat(init, graph)
    first = _condition(cond(rebuild(initial)))
    variables = [graph.variable(t.node.shape, t.dtype) for t in (first, *initial)]
    carried = [graph.wrap(node) for node in variables]
    new = body(rebuild(carried[1:]))
    after = _same_tree("while_loop", init, new, graph)
    more = _condition(cond(rebuild(after)))
    loop = Loop(count, len(carried), 0, 0, conditional=True)
    found = _recorded(graph, loop, [first, *initial], [], carried, [], [more, *after], [])
    return rebuild(found[1:])


def cond(
    pred: Tensor, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any
) -> Any:
    """true_fn(*operands) where pred, one bool, holds, else false_fn(*operands): as `jax.lax.cond`,
    but both are computed, as by `where`. Raises ShapeError, InputError where they differ in kind.

    >>> a, b = cx.constant(True), cx.constant([1.0])
    >>> ops.cond(a, lambda x: x + 1.0, lambda x: x - 1.0, b).numpy()
    array([2.], dtype=float32)
    """
    holds, graph = _condition(pred), pred.graph
    yes, no = true_fn(*operands), false_fn(*operands)
    first, rebuild = _flat(yes, graph)
    other = _same_tree("cond", yes, no, graph)
    for a, b in zip(first, other):
        if (a.node.shape, a.dtype) != (b.node.shape, b.dtype):
            raise ShapeError(f"cond: both functions give the same kind of tensors, not {a} and {b}")
    return rebuild([where(holds, a, b) for a, b in zip(first, other)])


# ---- recording


def _check_states(graph: Graph, variables: set[Node]) -> None:
    """A state changes once in a run."""
    first = min((node.number for node in variables), default=math.inf)
    for state, new in graph.states:
        if new.node.number > first and not variables.isdisjoint(reachable([new.node])):
            name = state.node.attribute.name
            raise Unsupported(f"{name} would change in each step of a loop: carry it instead")


def _recorded(
    graph: Graph, loop: Loop, initial: Sequence[Tensor], stacks: Sequence[Tensor],
    carried: Sequence[Tensor], slices: Sequence[Tensor], new: Sequence[Tensor],
    rows: Sequence[Tensor],
) -> list[Tensor]:  # fmt: skip
    """The results of a loop. What is carried on unchanged is no variable: it is as it was."""
    every = [*initial, *stacks, *carried, *slices, *new, *rows]
    if any(t.graph is not graph for t in every):
        raise InputError("a loop and all that it uses belong to one graph")
    made = parts_of(loop, tuple(t.node for t in every))
    _check_states(graph, set(made.variables))
    kept = {v: i for v, n, i in zip(made.carried, made.new, made.initial) if n is v}
    if loop.conditional:
        kept.pop(made.carried[0], None)
    body: tuple[Node, ...] = substituted(graph, made.made, kept) if kept else made.made
    left = [n for n, v in enumerate(made.carried) if v not in kept]
    inputs = (
        *(made.initial[n] for n in left), *made.stacks, *(made.carried[n] for n in left),
        *made.slices, *(body[n] for n in left), *body[loop.carried :],
    )  # fmt: skip
    if not left and not loop.rows:
        return list(initial)
    new_loop = Loop(loop.length, len(left), loop.sliced, loop.rows, loop.reverse, loop.conditional)
    found = graph.loop(inputs, new_loop)
    results = dict(zip(left, found))
    return [results.get(n, t) for n, t in enumerate(initial)] + found[len(left) :]


def _length(graph: Graph, stacks: Sequence[Tensor], length: Size | None) -> Index:
    """The number of steps."""
    for stack in stacks:
        if not stack.ndim:
            raise ShapeError(f"scan: xs have a dimension of steps, which {stack} lacks")
    sizes = [stack.node.shape[0] for stack in stacks]
    if length is not None:
        sizes.append(graph.shape((length,))[0])
    if not sizes:
        raise InputError("scan: without xs the length must be given")
    if any(size is not sizes[0] for size in sizes):
        raise ShapeError(f"scan: xs and length differ: {text(tuple(sizes))} steps")
    return sizes[0]


def _condition(value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.dtype is not boolean or value.ndim:
        raise ShapeError(f"a condition is a bool tensor of shape (), not {value!r}")
    return value


def _pair(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise InputError("the function of a scan returns (carry, y); y may be None")
    return result


# ---- tensors in tuples, lists and dicts


def _graph(*trees: Tree) -> Graph:
    return graph_of(*(leaf for tree in trees for leaf in _leaves(tree)))


def _leaves(tree: Tree) -> Iterator[Any]:
    if isinstance(tree, dict):
        tree = [tree[key] for key in tree]
    if isinstance(tree, (tuple, list)):
        for part in tree:
            yield from _leaves(part)
    elif tree is not None:
        yield tree


def _flat(
    tree: Tree, graph: Graph | None = None
) -> tuple[list[Tensor], Callable[[Sequence[Tensor]], Any]]:
    """The tensors of a tree, and what puts others in their places. Numbers become tensors where
    there is a graph."""
    found: list[Tensor] = []
    for leaf in _leaves(tree):
        if graph is not None and isinstance(leaf, (bool, int, float)):
            leaf = literal(graph, leaf, number_dtype(leaf))
        if not isinstance(leaf, Tensor):
            raise InputError(f"a loop is given tensors, not {leaf!r}")
        found.append(leaf)
    return found, lambda others: _filled(tree, iter(others))


def _filled(tree: Tree, leaves: Iterator[Tensor]) -> Any:
    if tree is None:
        return None
    if isinstance(tree, dict):
        return {key: _filled(part, leaves) for key, part in tree.items()}
    if isinstance(tree, (tuple, list)):
        parts = [_filled(part, leaves) for part in tree]
        named = hasattr(tree, "_fields")
        return type(tree)(*parts) if named else type(tree)(parts)
    return next(leaves)


def _same_tree(what: str, wanted: Tree, given: Tree, graph: Graph) -> list[Tensor]:
    """The tensors of a tree that must be built as another."""
    if _form(wanted) != _form(given):
        raise InputError(f"{what}: {_form(wanted)} is wanted, got {_form(given)}")
    return _flat(given, graph)[0]


def _form(tree: Tree) -> Any:
    """What is where, without the tensors."""
    if isinstance(tree, dict):
        return {key: _form(part) for key, part in tree.items()}
    if isinstance(tree, (tuple, list)):
        return [_form(part) for part in tree]
    return None if tree is None else "tensor"
