"""The rules of a loop program: names are defined once and before use, operands fit their
operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..errors import VerifyError
from ..graph.dtype import DType, boolean, i32, i64
from ..graph.scalars import REDUCTIONS, SCALARS
from ..kernel.program import (
    For,
    Instruction,
    Parallel,
    Program,
    Statement,
    Val,
    When,
    instructions,
    start_of,
    statements,
)  # fmt: skip

T = TypeVar("T")
INDICES = (i32, i64)
LOADS, STORES = ("load", "gather", "gather_at"), ("store", "scatter", "scatter_at")


def verify(program: Program) -> None:
    """Raise VerifyError at the first statement that breaks a rule."""
    _Verifier(program).run()


def require(holds: bool, message: str) -> None:
    if not holds:
        raise VerifyError(message)


class _Verifier:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.defined: dict[str, Val] = {}
        self.all: set[str] = set()
        self.memories = program.memories
        named = len(program.buffers) + len(program.tiles)
        require(len(self.memories) == named, "two memories have one name")
        for name in self.memories:
            self._define(start_of(name))
        for size in program.sizes:
            self._define(Val(f"%d_{size}", i64))

    def run(self) -> None:
        loops = (s for s in statements(self.program.body) if isinstance(s, Parallel))
        units = [s for s in loops if s.level == "units"]
        outside: list[Statement] = [s for s in self.program.body if not isinstance(s, Parallel)]
        require(len(units) == 1, f"a program has one loop over units, not {len(units)}")
        require(units[0] in self.program.body, "the loop over units stands at the top")
        stores = [s for s in instructions(outside) if s.out is None]
        require(not stores, "a store stands outside the loop over units")
        self._body(self.program.body)

    # ---- names

    def _define(self, val: Val) -> None:
        require(not val.literal, f"the literal {val.name} is defined")
        require(val.name not in self.all, f"{val.name} is defined twice")
        self.all.add(val.name)
        self.defined[val.name] = val

    def _use(self, val: Val) -> None:
        if val.literal:
            self._literal(val)
            return
        found = _some(self.defined.get(val.name), f"{val.name} is used where it is not defined")
        same = (found.dtype, found.lanes, found.memory) == (val.dtype, val.lanes, val.memory)
        require(same, f"{val.name} is used with another dtype, lanes or memory")

    def _literal(self, val: Val) -> None:
        dtype = _some(val.dtype, "a literal has no dtype")
        try:
            number = float(val.name) if dtype.is_float else int(val.name)
        except ValueError:
            raise VerifyError(f"{val.name!r} is no {dtype}") from None
        inside = dtype.is_float or dtype.lowest <= number <= dtype.highest
        require(inside, f"{val.name} does not fit {dtype}")

    # ---- statements

    def _body(self, body: list[Statement]) -> None:
        for statement in body:
            if isinstance(statement, Instruction):
                self._instruction(statement)
            elif isinstance(statement, When):
                self._use(statement.condition)
                require(_is_scalar(statement.condition, boolean), "a condition is a scalar bool")
                self._scope(statement.body, [])
            else:
                self._loop(statement)

    def _scope(self, body: list[Statement], before: list[Val], uses: tuple[Val, ...] = ()) -> None:
        outer = dict(self.defined)
        for val in before:
            self._define(val)
        self._body(body)
        for val in uses:
            self._use(val)
        self.defined = outer

    def _loop(self, loop: For | Parallel) -> None:
        self._use(loop.count)
        require(_is_index(loop.count) and loop.var.dtype is loop.count.dtype, "counts are indices")
        carried = loop.carried if isinstance(loop, For) else []
        for phi, initial, following, result in carried:
            self._use(initial)
            kinds = {(v.dtype, v.lanes) for v in (phi, initial, following, result)}
            require(len(kinds) == 1, f"{phi.name} changes its dtype or lanes in a loop")
        phis, following_vals = [c[0] for c in carried], tuple(c[2] for c in carried)
        self._scope(loop.body, [loop.var, *phis], following_vals)
        for *_, result in carried:
            self._define(result)

    def _instruction(self, ins: Instruction) -> None:
        for a in ins.args:
            self._use(a)
        try:
            self._check(ins)
        except VerifyError as error:
            raise VerifyError(f"{ins.out.name if ins.out else ''} = {ins.op}: {error}") from None
        if ins.out is not None:
            self._define(ins.out)

    def _access(self, ins: Instruction) -> None:
        """Elements are read and written as what they are."""
        for position in (a for a in ins.args if a.dtype is None):
            memory = self.memories.get(position.memory)
            require(memory is not None, f"there is no memory {position.memory!r}")
            moved = ins.args[0] if ins.op in STORES else ins.out
            read = ins.op in (*LOADS, *STORES, "copy", "prefetch", "offset")
            if read and moved is not None and memory is not None and moved.dtype is not None:
                require(moved.dtype is memory.dtype, f"{position.memory} holds {memory.dtype}")

    def _check(self, ins: Instruction) -> None:
        op = ins.op
        self._access(ins)
        if op in SCALARS:
            _elementwise(ins)
        elif op.startswith("across."):
            _across(ins)
        elif op in SIGNATURES:
            _operands(ins, *SIGNATURES[op])
            _CHECKS.get(op, lambda _: None)(ins)
            masked = len(ins.args) == len(SIGNATURES[op][1]) - 1 and SIGNATURES[op][1][-1] == "?"
            fits = not masked or ins.args[-1].lanes or self.program.threads
            require(bool(fits), "a scalar is masked, and no thread's")
        else:  # a matrix instruction
            require(len(ins.args) == 3, f"no operation {op} of {len(ins.args)} operands")
            require(KINDS["o"](ins.args[0], _out(ins)), "the accumulator has other lanes or dtype")
            require(_multiplied(ins, self.program.threads), "operand lanes")


def is_matrix(ins: Instruction) -> bool:
    """Whether it is a matrix instruction, which the threads of a unit execute together."""
    known = ins.op in SCALARS or ins.op in SIGNATURES
    return not known and not ins.op.startswith("across.")


def _multiplied(ins: Instruction, threads: int | None) -> bool:
    """The operands of a matrix instruction have the lanes of its result and collapsed ones; or one
    has its rows, the other its columns; or all are registers of a thread."""
    lanes, (a, b) = _out(ins).lanes, ins.args[1:]
    if b.dtype is None:
        rows = a.dtype is None or threads or a.lanes[:1] == lanes[:1]
        return bool(rows) and len(lanes) == (1 if threads else 2)
    if threads:
        return len(lanes) == len(a.lanes) == len(b.lanes) == 1
    if a.lanes[: len(lanes)] == b.lanes[: len(lanes)] == lanes:
        return True
    return (a.lanes[:1], b.lanes[:1]) == (lanes[:1], lanes[1:]) and a.lanes[1:] == b.lanes[1:]


def _some(found: T | None, message: str) -> T:
    if found is None:
        raise VerifyError(message)
    return found


def _out(ins: Instruction) -> Val:
    return _some(ins.out, "it has no result")


def _is_scalar(val: Val, dtype: DType | None) -> bool:
    return val.dtype is dtype and not val.lanes


def _is_index(val: Val) -> bool:
    return val.dtype in INDICES and not val.lanes


# ---- operands


KINDS: dict[str, Callable[[Val, Val], bool]] = {  # (operand, what is made or stored)
    "p": lambda a, moved: _is_scalar(a, None),  # a position
    "i": lambda a, moved: _is_index(a),
    "n": lambda a, moved: _is_scalar(a, i64),
    "v": lambda a, moved: a.dtype is not None,  # any value
    "o": lambda a, moved: (a.dtype, a.lanes) == (moved.dtype, moved.lanes),  # of the result's kind
    "w": lambda a, moved: a.dtype in INDICES and a.lanes == moved.lanes,  # where its lanes are
    "m": lambda a, moved: a.dtype is boolean and a.lanes in (moved.lanes, ()),  # a mask
}
SIGNATURES: dict[str, tuple[str, str, int]] = {  # result, operands, attributes
    "fma": ("v", "ooo", 0), "expand": ("v", "v", 0), "iota": ("v", "", 1),
    "shuffle": ("v", "vv", -1), "pack": ("v", "v*", 0), "offset": ("p", "pi", 0),
    "load": ("v", "pm?", 1), "gather": ("v", "pm?", -1), "gather_at": ("v", "pwm?", 0),
    "store": ("", "vpm?", 1), "scatter_at": ("", "vpwm?", 0), "prefetch": ("", "p", 1),
    "scatter": ("", "vpm?", -1),
    "gemm": ("", "pppnnnnnn", 2), "barrier": ("", "", 0), "exchange": ("v", "o", 1),
    "copy": ("v", "ppm?", -1), "commit": ("", "", 0), "await": ("", "", 1),
    "settle": ("", "", 1), "settled": ("v", "o", 0),
}  # fmt: skip


def _operands(ins: Instruction, result: str, kinds: str, attrs: int) -> None:
    """attrs: how many; -1: any number. In kinds `?` makes the last operand optional, `*` any
    number of them."""
    count = len(ins.args)
    if kinds.endswith("*"):
        kinds = kinds[0] * count
    elif kinds.endswith("?"):
        kinds = kinds[:-1] if count == len(kinds) - 1 else kinds[:-2]
    require((ins.out is None) == (not result), "it has a result or none")
    require(count == len(kinds), f"it has {count} operands")
    require(attrs in (-1, len(ins.attrs)), f"it has {len(ins.attrs)} attributes")
    moved = ins.out or ins.args[0] if ins.out or ins.args else None
    assert moved is not None or not kinds
    for number, kind in enumerate(kinds):
        fits = moved is not None and KINDS[kind](ins.args[number], moved)
        require(fits, f"operand {number} does not fit ({kind})")
    require(ins.out is None or KINDS[result](ins.out, ins.out), "its result does not fit")


def _elementwise(ins: Instruction) -> None:
    row, out = SCALARS[ins.op], _out(ins)
    require(len(ins.args) == row.arity, f"{len(ins.args)} operands for {row.arity}")
    require(all(a.lanes == out.lanes for a in ins.args), "operands have other lanes")
    dtypes = [a.dtype for a in ins.args]
    if ins.op == "cast":
        require(out.dtype is not None and dtypes[0] is not None, "a position is cast")
        return
    if ins.op == "select":
        require(dtypes.pop(0) is boolean, "a select needs a bool")
    operand = _some(dtypes[0], "a position is computed with")
    require(len(set(dtypes)) == 1, f"operands differ: {dtypes}")
    wanted = boolean if row.result == "bool" else dtypes[0]
    require(out.dtype is wanted, f"the result is {out.dtype}, not {wanted}")
    if ins.op != "select":
        require(not operand.is_half, f"{operand} is computed with")
    require(row.domain != "float" or operand.is_float, f"{operand} is no float")
    require(row.domain != "integer" or not operand.is_float, f"{operand} is a float")


def _across(ins: Instruction) -> None:
    require(ins.op[7:] in REDUCTIONS, "no such reduction")
    require(len(ins.args) == 1 and bool(ins.args[0].lanes), "it reduces lanes")
    out, lanes = _out(ins), ins.args[0].lanes
    require(out.dtype is ins.args[0].dtype, "its result is of another dtype")
    require(out.lanes == lanes[: len(out.lanes)] != lanes, "its result has the outermost lanes")


def _fma(ins: Instruction) -> None:
    require(str(_out(ins).dtype) in ("f32", "f64"), "dtype")


def _expand(ins: Instruction) -> None:
    (value,), out = ins.args, _out(ins)
    require(out.dtype is value.dtype, "it changes the dtype")
    kept = [lane for lane in out.lanes if lane in value.lanes]
    require(tuple(kept) == value.lanes, f"{value.lanes} are not lanes of {out.lanes} in order")


def _iota(ins: Instruction) -> None:
    dtype = _out(ins).dtype
    require(dtype is not None and dtype.is_integer, "it counts in integers")
    require(len(_out(ins).lanes) == 1, "one lane axis")


def _shuffle(ins: Instruction) -> None:
    a, b = ins.args
    require(KINDS["o"](a, b), "the second operand has other lanes or dtype")
    require(len(ins.attrs) == _out(ins).width, "one pick for each lane")
    require(all(0 <= i < 2 * a.width for i in ins.attrs), "a pick outside the operands")


def _pack(ins: Instruction) -> None:
    out = _out(ins)
    require(len(ins.args) == out.width, "one scalar for each lane")
    require(all(_is_scalar(a, out.dtype) for a in ins.args), "it packs scalars of one dtype")


def _apart(ins: Instruction) -> None:
    moved = ins.out or ins.args[0]
    require(len(ins.attrs) == 1 + len(moved.lanes), "a stride for each lane axis")


def _offset(ins: Instruction) -> None:
    require(_out(ins).memory == ins.args[0].memory, "its result lies in another memory")


_CHECKS: dict[str, Callable[[Instruction], None]] = {
    "fma": _fma, "expand": _expand, "iota": _iota, "shuffle": _shuffle, "pack": _pack,
    "offset": _offset, "gather": _apart, "scatter": _apart,
}  # fmt: skip
