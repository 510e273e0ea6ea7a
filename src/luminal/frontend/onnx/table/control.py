"""If, Loop, Scan. A branch that is known is recorded in place; a short loop is written out, a
longer one is a loop of the program; what changes shape from step to step the host repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import ops
from ....errors import DTypeError, InputError, ShapeError, Unsupported
from ....graph.dtype import i64
from ....graph.index import Index
from ....graph.tensor import Tensor
from ....ops import control
from ....ops.base import dim_of
from ..known import ToHost, Unknown
from ..operators import Body, Operator, plain
from .base import Typed, op

if TYPE_CHECKING:
    from ..record import Recorder

FEW = 4  # steps that are written out
LONG = 6400  # operators times steps: so many are written out where no loop of ours serves
LONGEST = 2**62


@op("If")
def branch(at: Recorder, condition: Tensor, then_branch: Body, else_branch: Body) -> Any:
    chosen = then_branch if at.array(condition).reshape(()).item() else else_branch
    assert at.operator is not None
    return at.place(chosen, (), at.operator.outputs)


@op("Loop")
def loop(
    at: Recorder, trips: Tensor | None, condition: Tensor | None, *states: Any, body: Body
) -> Any:
    operator = at.operator
    assert operator is not None
    count = _trips(at, trips)
    goes = True if condition is None else _constant(at, condition)
    if goes is False:
        count = 0
    steady = goes is not None and count is not None and (count == 0 or _goes_on(body))
    if goes and not steady and len(body.outputs) - 1 > len(states):
        count = _followed(at, count, body, len(states))
        steady = count is not None
    collected = len(body.outputs) - 1 - len(states)
    if steady and isinstance(count, int) and count <= FEW and (count or not collected):
        return at.next(_written_out(operator, body, count))
    try:
        if steady:
            return _counted(at, count, states, body)
        if not collected:
            return _conditional(at, trips, condition, states, body)
    except (Unknown, ToHost, ShapeError, DTypeError, InputError):
        at.operator = operator  # its carry changes shape, or its steps need values: others do it
    if steady and isinstance(count, int) and count and count * len(body.operators) <= LONG:
        return at.next(_written_out(operator, body, count))
    return at.on_host()


def _followed(at: Recorder, most: Any, body: Body, carried: int) -> int | None:
    """How many steps are made, where the condition depends on nothing but counters, whose values
    are known: they are followed to the end."""
    count = 0
    needed, operators = _slice(body, carried)
    values = {k: at.value(at.given(2 + k)) for k in needed}
    part = replace(
        body, operators=operators, inputs=(*body.inputs[:2], *(body.inputs[2 + k] for k in needed)),
        outputs=(body.outputs[0], *(body.outputs[1 + k] for k in needed)),
    )  # fmt: skip
    here = at.operator
    try:
        while count < (most if isinstance(most, int) else LONG):
            number = at.constant(np.array(count, np.int64))
            go, *new = at.inline(part, [number, at.constant(np.array(True)), *values.values()])
            known = [at.array(_tensor(v)) for v in (go, *new)]
            count += 1
            if not known[0].reshape(()):
                return count
            values = dict(zip(needed, map(at.constant, known[1:])))
    except (Unknown, ToHost, ShapeError, DTypeError, InputError):
        at.operator = here
        return None
    return count if isinstance(most, int) else None


def _slice(body: Body, carried: int) -> tuple[list[int], tuple[Operator, ...]]:
    """The states on which the condition depends, and the operators that make it and them."""
    wanted, needed, kept = {body.outputs[0]}, list[int](), set[int]()
    while True:
        before = len(wanted)
        for place, operator in reversed(list(enumerate(body.operators))):
            if wanted.intersection(operator.outputs):
                kept.add(place)
                wanted |= operator.reads
        needed = [k for k in range(carried) if body.inputs[2 + k] in wanted]
        wanted.update(body.outputs[1 + k] for k in needed)
        if len(wanted) == before:
            return needed, tuple(body.operators[place] for place in sorted(kept))


def _counted(at: Recorder, count: Any, states: Sequence[Any], body: Body) -> Any:
    """One body for so many steps."""
    kinds = [at.value(at.given(2 + k)) for k in range(len(states))]
    true = at.typed(at.graph.literal(True))

    def step(carry: Any, number: Tensor) -> Any:
        given = [at.typed(number), true, *map(_like, carry, kinds)]
        _, *results = at.inline(body, given)
        new = [_tensor(r) for r in results]
        return tuple(new[: len(carry)]), tuple(new[len(carry) :])

    last, rows = control.scan(step, tuple(map(_tensor, kinds)), ops.arange(at.graph, 0, count))
    return *map(_like, last, kinds), *rows


def _conditional(
    at: Recorder, trips: Tensor | None, condition: Tensor | None, states: Sequence[Any], body: Body
) -> Any:
    """As long as the condition holds and steps are left."""
    kinds = [at.value(at.given(2 + k)) for k in range(len(states))]
    zero = at.graph.literal(0, i64)
    goes = at.graph.literal(True) if condition is None else condition.reshape(())

    def on(carry: Any) -> Tensor:
        return (
            carry[1] if trips is None else ops.logical_and(carry[1], carry[0] < trips.reshape(()))
        )

    def step(carry: Any) -> Any:
        number, go, *rest = carry
        given = [at.typed(number), at.typed(go), *map(_like, rest, kinds)]
        more, *results = at.inline(body, given)
        return ops.add(number, 1), _tensor(more).reshape(()), *map(_tensor, results)

    _, _, *last = control.while_loop(on, step, (zero, goes, *map(_tensor, kinds)))
    return (*map(_like, last, kinds),)


def _tensor(value: Any) -> Tensor:
    if not isinstance(value, Typed):
        raise InputError("a loop that carries sequences")
    return value.tensor


def _like(tensor: Tensor, kind: Any) -> Typed:
    return Typed(tensor, kind.kind)


def _trips(at: Recorder, trips: Tensor | None) -> Any:
    """How many: a number, or one that sizes tell."""
    if trips is None:
        return None
    try:
        found = at.size(trips)
    except Unknown:
        return None
    return found if isinstance(found, Index) else min(max(found, 0), LONGEST)


def _constant(at: Recorder, condition: Tensor) -> bool | None:
    try:
        return bool(at.array(condition).reshape(()).item())
    except Unknown:
        return None


def _goes_on(body: Body) -> bool:
    """The body's condition is the one it was given, or a constant that is true."""
    name = body.outputs[0]
    for _ in range(len(body.operators) + 1):
        if len(body.inputs) > 1 and name == body.inputs[1]:
            return True
        made = next((o for o in body.operators if name in o.outputs), None)
        if made is None:
            held = body.constants.get(name)
            if held is None:
                return False
            from ..reading import array_of

            return bool(np.asarray(array_of(held, None)).reshape(-1).all())
        if made.name == "Identity":
            name = made.inputs[0]
        elif made.name == "Constant":
            return bool(np.asarray(next(iter(made.attributes.values()))).reshape(-1).all())
        else:
            return False
    return False


def _written_out(operator: Operator, body: Body, count: int) -> list[Operator]:
    prefix = f"{next(name for name in operator.outputs if name)}/"
    states = list(operator.inputs[2:])
    carried = len(states)
    collected: list[list[str]] = [[] for _ in body.outputs[1 + carried :]]
    made: list[Operator] = []
    for number in range(count):
        here = f"{prefix}{number}/"
        made.append(plain("Constant", [], [here + "number"], value=np.array(number, np.int64)))
        made.append(plain("Constant", [], [here + "goes"], value=np.array(True)))
        results = [f"{here}result{k}" for k in range(len(body.outputs) - 1)]
        made.append(_call(body, [here + "number", here + "goes", *states], ["", *results]))
        states = results[:carried]
        for names, result in zip(collected, results[carried:]):
            names.append(result)
    for outer, inner in zip(operator.outputs, states):
        if outer:
            made.append(plain("Identity", [inner], [outer]))
    made += _stacked(operator.outputs[carried:], collected, [0] * len(collected), prefix)
    return made


def _call(body: Body, arguments: Sequence[str], results: Sequence[str]) -> Operator:
    """A body recorded in place when its turn comes."""
    made = plain("Body", arguments, results, body=body)
    name = next(result for result in results if result)
    return Operator(made.domain, made.name, made.inputs, made.outputs, made.attributes, 21, name,
                    made.versions)  # fmt: skip


@op("Body", domain="")
def inlined(at: Recorder, *operands: Any, body: Body) -> Any:
    assert at.operator is not None
    return at.place(body, at.operator.inputs, at.operator.outputs)


def _stacked(
    outer: Sequence[str], collected: Sequence[Sequence[str]], axes: Sequence[int], prefix: str
) -> list[Operator]:
    made = []
    for k, (name, parts, axis) in enumerate(zip(outer, collected, axes)):
        if not name:
            continue
        if not parts:
            raise ShapeError("a loop of no rounds has no outputs to collect")
        sequence = f"{prefix}collected{k}"
        made.append(plain("SequenceConstruct", parts, [sequence]))
        made.append(plain("ConcatFromSequence", [sequence], [name], axis=axis, new_axis=1))
    return made


@op("Scan")
def scan(
    at: Recorder, *operands: Any, body: Body, num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None, directions: Sequence[int] | None = None,
) -> Any:  # fmt: skip
    operator = at.operator
    assert operator is not None
    if at.version < 9:
        _check_whole(at, operands[0], operands[-1])
        return at.next(_batched(operator, operands, body, num_scan_inputs, directions))
    carried = len(operands) - num_scan_inputs
    axes = list(scan_input_axes or [0] * num_scan_inputs)
    back = list(scan_input_directions or [0] * num_scan_inputs)
    out_axes = list(scan_output_axes or [0] * (len(body.outputs) - carried))
    out_back = list(scan_output_directions or [0] * (len(body.outputs) - carried))
    size = operands[carried].shape[dim_of(operands[carried], axes[0])]
    if isinstance(size, Index) or not 0 < size <= FEW:
        try:
            return _scanned(at, carried, body, axes, back, out_axes, out_back)
        except (Unknown, ToHost, ShapeError, DTypeError, InputError):
            at.operator = operator
    if isinstance(size, Index) or size * len(body.operators) > LONG:
        return at.on_host()
    return at.next(_scan_out(operator, body, size, carried, axes, back, out_axes, out_back))


def _scanned(
    at: Recorder, carried: int, body: Body, axes: Sequence[int], back: Sequence[int],
    out_axes: Sequence[int], out_back: Sequence[int],
) -> Any:  # fmt: skip
    """One body for all steps."""
    count = carried + len(axes)
    values = [at.value(at.given(k)) for k in range(count)]
    stacks = []
    for value, axis, reverse in zip(values[carried:], axes, back):
        moved = _tensor(value).movedim(axis, 0)
        stacks.append(moved.flip(0) if reverse else moved)

    def step(carry: Any, x: Any) -> Any:
        given = [_like(t, v) for t, v in zip((*carry, *x), values)]
        new = [_tensor(r) for r in at.inline(body, given)]
        return tuple(new[:carried]), tuple(new[carried:])

    last, rows = control.scan(step, tuple(map(_tensor, values[:carried])), tuple(stacks))
    turned = [row.flip(0) if r else row for row, r in zip(rows, out_back)]
    placed = [row.movedim(0, axis) for row, axis in zip(turned, out_axes)]
    return *map(_like, last, values), *placed


def _scan_out(
    operator: Operator, body: Body, count: int, carried: int, axes: Sequence[int],
    backwards: Sequence[int] | None, out_axes: Sequence[int] | None,
    out_backwards: Sequence[int] | None,
) -> list[Operator]:  # fmt: skip
    prefix = f"{next(name for name in operator.outputs if name)}/"
    states, scanned = list(operator.inputs[:carried]), operator.inputs[carried:]
    back = list(backwards or [0] * len(scanned))
    number_out = len(body.outputs) - carried
    collected: list[list[str]] = [[] for _ in range(number_out)]
    made: list[Operator] = []
    for step in range(count):
        here, parts = f"{prefix}{step}/", []
        for k, (name, axis) in enumerate(zip(scanned, axes)):
            place = count - 1 - step if back[k] else step
            index, part = f"{here}place{k}", f"{here}part{k}"
            made.append(plain("Constant", [], [index], value=np.array(place, np.int64)))
            made.append(plain("Gather", [name, index], [part], axis=axis))
            parts.append(part)
        results = [f"{here}result{k}" for k in range(len(body.outputs))]
        made.append(_call(body, [*states, *parts], results))
        states = results[:carried]
        for names, result in zip(collected, results[carried:]):
            names.append(result)
    for names, reverse in zip(collected, out_backwards or [0] * number_out):
        if reverse:
            names.reverse()
    for outer, inner in zip(operator.outputs, states):
        if outer:
            made.append(plain("Identity", [inner], [outer]))
    where = list(out_axes or [0] * number_out)
    return made + _stacked(operator.outputs[carried:], collected, where, prefix)


def _check_whole(at: Recorder, lengths: Tensor | None, x: Tensor) -> None:
    if lengths is not None and (at.array(lengths) != int(x.shape[1])).any():
        raise Unsupported("Scan of opset 8 with sequence_lens: sequences are scanned to their ends")


def _batched(
    operator: Operator, operands: Sequence[Any], body: Body, number: int,
    directions: Sequence[int] | None,
) -> list[Operator]:  # fmt: skip
    """Version 8: a batch of scans; the first operand has their lengths, which are all whole."""
    names, tensors = operator.inputs[1:], operands[1:]
    carried = len(names) - number
    size = int(tensors[carried].shape[0])
    prefix = f"{next(name for name in operator.outputs if name)}/"
    made: list[Operator] = []
    columns: list[list[str]] = [[] for _ in operator.outputs]
    for b in range(size):
        here = f"{prefix}batch{b}/"
        made.append(plain("Constant", [], [here + "b"], value=np.array(b, np.int64)))
        parts = [f"{here}in{k}" for k in range(len(names))]
        for name, part in zip(names, parts):
            made.append(plain("Gather", [name, here + "b"], [part], axis=0))
        results = [f"{here}out{k}" for k in range(len(operator.outputs))]
        made.append(plain("Scan", parts, results, body=body, num_scan_inputs=number,
                          scan_input_directions=list(directions or [0] * number)))  # fmt: skip
        for column, result in zip(columns, results):
            column.append(result)
    return made + _stacked(operator.outputs, columns, [0] * len(columns), prefix)
