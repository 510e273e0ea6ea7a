"""Kernels and loop programs as text, for people: `explain()`, the documents, error messages."""

from __future__ import annotations

from collections.abc import Iterator

from ..kernel.kernel import (
    Apply,
    Constant,
    Expression,
    Guard,
    Kernel,
    Load,
    Position,
    Read,
    Value,
)
from ..kernel.program import For, Instruction, Parallel, Program, Statement, Val, When

INFIX = {"add": "+", "mul": "*", "div": "/", "less": "<", "equal": "==", "floor_div": "//",
         "mod": "%", "and": "&", "or": "|", "xor": "^"}  # fmt: skip


def expression_text(expression: Expression) -> str:
    """An expression as a formula."""
    if isinstance(expression, Constant):
        return f"{expression.value:.8g}" if expression.dtype.is_float else str(expression.value)
    if isinstance(expression, Position):
        return f"[{expression.index}]"
    if isinstance(expression, Load):
        slots = {name: expression_text(slot) for name, slot in expression.slots}
        index = ", ".join(map(str, expression.index))
        for name, slot in slots.items():
            index = index.replace(name, slot)
        return f"{expression.buffer}[{index}]"
    if isinstance(expression, Read):
        return expression.value + " so far" * expression.so_far
    if isinstance(expression, Guard):
        tests = " and ".join(f"{condition} >= 0" for condition in expression.conditions)
        body, other = expression_text(expression.body), expression_text(expression.other)
        return f"({body} if {tests} else {other})"
    return _apply_text(expression)


def _apply_text(expression: Apply) -> str:
    args = [expression_text(a) for a in expression.args]
    if expression.op in INFIX:
        return f"({args[0]} {INFIX[expression.op]} {args[1]})"
    name = f"cast.{expression.dtype}" if expression.op == "cast" else expression.op
    return f"{name}({', '.join(args)})"


def value_text(value: Value) -> str:
    """One line: what a value is, over which axes, where it is stored."""
    axes = " ".join(value.axes)
    body = expression_text(value.body)
    if value.reduction is not None:
        kind = value.reduction.op
        kind = f"running {kind}" if value.reduction.scan else kind
        kind = f"online {kind}" if value.reduction.rescale is not None else kind
        body = f"{kind} over {' '.join(value.over)} of {body}"
    limits = "".join(
        f", {axis} in {low if low is not None else 0} .. {high if high is not None else 'end'}"
        for axis, (low, high) in value.domain.items()
    )
    store = value.store
    kept = "" if store is None else f" -> {store.buffer}[{', '.join(map(str, store.index))}]"
    return f"{value.name}[{axes}] = {body}{limits}{kept}"


def kernel_text(kernel: Kernel) -> str:
    """Axes, buffers and values, one a line."""
    axes = ", ".join(f"{axis}: {extent}" for axis, extent in kernel.axes.items())
    lines = [f"axes {axes}"]
    for buffer in kernel.buffers:
        shape = ", ".join(map(str, buffer.shape))
        lines.append(f"{buffer.name}: {buffer.dtype}[{shape}]" + " constant" * buffer.constant)
    return "\n".join(lines + [value_text(value) for value in kernel.values])


def program_text(program: Program) -> str:
    """A loop program, indented by its loops."""
    return "\n".join(_statements(program.body, ""))


def _statements(body: list[Statement], indent: str) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, Instruction):
            yield indent + _instruction_text(statement)
            continue
        if isinstance(statement, When):
            yield f"{indent}when {statement.condition.name}:"
        else:
            kind = f"parallel {statement.level}," if isinstance(statement, Parallel) else "for"
            yield f"{indent}{kind} {statement.var.name} < {statement.count.name}:"
        if isinstance(statement, For):
            for phi, initial, following, result in statement.carried:
                kept = f"{initial.name}, then {following.name}; after: {result.name}"
                yield f"{indent}  carry {_typed(phi)} = {kept}"
        yield from _statements(statement.body, indent + "  ")


def _instruction_text(instruction: Instruction) -> str:
    args = ", ".join([a.name for a in instruction.args] + [f"#{n}" for n in instruction.attrs])
    head = "" if instruction.out is None else f"{_typed(instruction.out)} = "
    return f"{head}{instruction.op} {args}".rstrip()


def _typed(value: Val) -> str:
    dtype = f"in {value.memory}" if value.dtype is None else str(value.dtype)
    lanes = "".join(f" x {axis}:{size}" for axis, size in value.lanes)
    return f"{value.name} ({dtype}{lanes})"
