"""Operations whose operands are graphs: torch.cond, torch.while_loop, scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ... import ops
from ...errors import Unsupported
from ...graph.tensor import Tensor

if TYPE_CHECKING:
    from .record import Recorder

Function = Callable[[Sequence[Any]], list[Any]]  # values of a graph's inputs: its results


def is_higher(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.HigherOrderOperator)


def module_of(node: fx.Node) -> fx.GraphModule:
    """The graph that an operand is. Raises Unsupported."""
    module = None
    if node.op == "get_attr" and node.graph.owning_module is not None:
        module = getattr(node.graph.owning_module, str(node.target), None)
    if not isinstance(module, fx.GraphModule):
        raise Unsupported("an operand that is no graph")
    return module


def bodies_of(node: fx.Node) -> list[tuple[str, fx.GraphModule]]:
    """The graphs that an operation is given, with their names."""
    given = node.all_input_nodes if is_higher(node) else []
    return [(str(n.target), module_of(n)) for n in given if n.op == "get_attr"]


def text_of(module: fx.GraphModule) -> str:
    """Equal for graphs that do the same: with those that they are given."""
    inner = [text_of(body) for node in module.graph.nodes for _, body in bodies_of(node)]
    return "\n".join([str(module.graph), *inner])


def apply(recorder: Recorder, node: fx.Node) -> Any:
    """What an operation gives. Raises Unsupported."""
    rule = TABLE.get(node.target)
    if rule is None or node.kwargs:
        raise Unsupported("no rule for it")
    return rule(recorder, *node.args)


def _function(recorder: Recorder, node: fx.Node) -> Function:
    module = module_of(node)
    return lambda given: recorder.inlined(module, given)


def _tensors(recorder: Recorder, nodes: Sequence[fx.Node]) -> list[Tensor]:
    found = [recorder.value(node) for node in nodes]
    if not all(isinstance(value, Tensor) for value in found):
        raise Unsupported("it carries what is no tensor")
    return found


def _scan(
    recorder: Recorder, combine: fx.Node, init: Sequence[fx.Node], xs: Sequence[fx.Node],
    others: Sequence[fx.Node],
) -> list[Tensor]:  # fmt: skip
    step, around = _function(recorder, combine), [recorder.value(node) for node in others]
    count = len(init)

    def one(carry: list[Tensor], x: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        made = step([*carry, *x, *around])
        return made[:count], made[count:]

    carry, ys = ops.scan(one, _tensors(recorder, init), _tensors(recorder, xs))
    return [*carry, *ys]


def _while_loop(
    recorder: Recorder, condition: fx.Node, body: fx.Node, carried: Sequence[fx.Node],
    others: Sequence[fx.Node],
) -> list[Tensor]:  # fmt: skip
    goes, step = _function(recorder, condition), _function(recorder, body)
    around = [recorder.value(node) for node in others]
    found: list[Tensor] = ops.while_loop(
        lambda c: goes([*c, *around])[0].reshape(()),
        lambda c: step([*c, *around]),
        _tensors(recorder, carried),
    )
    return found


def _cond(
    recorder: Recorder, pred: fx.Node, yes: fx.Node, no: fx.Node, operands: Sequence[fx.Node]
) -> list[Tensor]:
    given = [recorder.value(node) for node in operands]
    (holds,) = _tensors(recorder, [pred])
    chosen, other = (_function(recorder, node) for node in (yes, no))
    found: list[Tensor] = ops.cond(holds.reshape(()), lambda: chosen(given), lambda: other(given))
    return found


TABLE: dict[Any, Callable[..., list[Tensor]]] = {
    torch.ops.higher_order.scan: _scan,
    torch.ops.higher_order.while_loop: _while_loop,
    torch.ops.higher_order.cond: _cond,
}
