"""A slow, obvious interpreter of loop programs: every statement in NumPy.

It checks what native code does not: each access lies inside its buffer, each name is defined. f16
and bf16 are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from luminal.backend.reference.arrays import Array
from luminal.errors import VerifyError
from luminal.graph.scalars import REDUCTIONS, SCALARS, compute
from luminal.kernel.program import (
    LINE,
    For,
    Instruction,
    Parallel,
    Program,
    Statement,
    Tile,
    Val,
    When,
    start_of,
)
from luminal.kernel.target import MatrixInstruction

from .tiles import exact

Steps: TypeAlias = Iterator[None]
Order: TypeAlias = Callable[[Sequence[Steps]], Iterable[Steps]]
Position = tuple[Array, int, str]  # elements, number of one, name of the memory


def interpret(
    program: Program, arrays: Mapping[str, Array], sizes: Mapping[str, int], threads: int = 1,
    instructions: tuple[MatrixInstruction, ...] = (), order: Order = reversed,
) -> None:  # fmt: skip
    """Run a program on its buffers, in place.

    `arrays`: buffer -> contiguous array; one with a layout must have been packed. `threads`: the
    units are shared out in contiguous ranges, each with tiles of its own. `instructions`: the
    matrix instructions that the program may use. `order`: of the threads of a unit, each of which
    runs as far as the next barrier alone. Raises VerifyError for an access outside a buffer.
    """
    matrix = {i.name: i for i in instructions}
    for thread in range(threads):
        run = _Run(program, arrays, sizes, (thread, threads), matrix, order)
        _done(run.body(program.body))


def _index(var: Val, number: int) -> Any:
    assert var.dtype is not None
    return var.dtype.numpy.type(number)


def _flat(array: Array, name: str) -> Array:
    if not array.flags.c_contiguous:
        raise VerifyError(f"the buffer {name} is not contiguous")
    return array.reshape(-1)


def _done(steps: Steps) -> None:
    """Run to the end; there is no barrier outside of threads."""
    for _ in steps:
        raise VerifyError("a barrier without threads")


class _Run:
    """One thread: names and what they hold (arrays shaped like their lanes)."""

    def __init__(
        self, program: Program, arrays: Mapping[str, Array], sizes: Mapping[str, int],
        thread: tuple[int, int], matrix: Mapping[str, MatrixInstruction], order: Order,
    ) -> None:  # fmt: skip
        self.thread, self.matrix, self.order = thread, matrix, order
        self.own = [tile for tile in program.tiles if tile.space == "own"]
        self.names: dict[str, Any] = {}
        self.number = 0
        self.given: dict[int, Any] | None = None  # of the threads of a unit
        self.groups: list[list[tuple[Array, Array, Array]]] = [[]]  # of copies under way
        for buffer in program.buffers:
            array = arrays[buffer.name]
            if array.dtype != buffer.dtype.numpy:
                raise VerifyError(f"{buffer.name} is {array.dtype}, not {buffer.dtype}")
            self.names[start_of(buffer.name).name] = _flat(array, buffer.name), 0, buffer.name
        self.tiles = [self.tile(tile) for tile in program.tiles]
        for size in program.sizes:
            self.names[f"%d_{size}"] = np.int64(sizes[size])

    def tile(self, tile: Tile) -> Array:
        """NaN until it is written. Masked tails may reach a line further in one's own."""
        count = tile.elements + (tile.space == "own") * LINE // tile.dtype.bytes
        array = np.full(count * tile.dtype.bytes, 0xFF, np.uint8).view(tile.dtype.numpy)
        self.names[start_of(tile.name).name] = array, 0, tile.name
        return array

    def value(self, val: Val) -> Any:
        if not val.literal:
            if val.name not in self.names:
                raise VerifyError(f"{val.name} is not defined")
            return self.names[val.name]
        assert val.dtype is not None
        number: int | float = float(val.name) if val.dtype.is_float else int(val.name)
        return np.full([n for _, n in val.lanes], number, val.dtype.numpy)

    # ---- statements

    def body(self, statements: list[Statement]) -> Steps:
        """Yields at barriers."""
        for statement in statements:
            if isinstance(statement, Instruction):
                if statement.op == "barrier":
                    yield
                elif statement.op == "exchange":
                    yield from self.exchange(statement)
                elif statement.op in self.matrix and self.given is not None:
                    staged = self.matrix[statement.op].staged
                    yield from (self.staged if staged else self.multiply)(statement)
                elif statement.op in ("copy", "commit", "await"):
                    self.copies(statement)
                else:
                    self.execute(statement)
            elif isinstance(statement, When):
                if self.value(statement.condition):
                    yield from self.body(statement.body)
            elif isinstance(statement, For):
                yield from self.loop(statement)
            elif statement.level == "units":
                self.units(statement)
            else:
                self.together(statement)

    def units(self, units: Parallel) -> None:
        """The units, last first, each with tiles as they were before all of them: none may need
        another, nor write what another writes."""
        thread, threads = self.thread
        count = int(self.value(units.count))
        before = [tile.copy() for tile in self.tiles]
        for unit in reversed(range(thread * count // threads, (thread + 1) * count // threads)):
            for tile, empty in zip(self.tiles, before):
                tile.view(np.uint8)[:] = empty.view(np.uint8)
            self.names[units.var.name] = _index(units.var, unit)
            _done(self.body(units.body))

    def together(self, threads: Parallel) -> None:
        """Each thread up to the next barrier, one after the other."""
        running = []
        self.given = {}
        for number in range(int(self.value(threads.count))):
            one = copy(self)
            one.names = {**self.names, threads.var.name: np.int64(number)}
            one.groups = [[]]
            for tile in self.own:
                one.tile(tile)
            running.append(one.body(threads.body))
            one.number = number
        while running:
            stopped = [next(one, False) is None for one in self.order(running)]
            if any(stopped) and not all(stopped):
                raise VerifyError("a barrier that some threads do not come to")
            running = running if all(stopped) else []
        self.given = None

    def exchange(self, ins: Instruction) -> Steps:
        """Each thread gives, then each takes."""
        assert ins.out is not None and self.given is not None
        self.given[self.number] = self.value(ins.args[0])
        yield
        self.names[ins.out.name] = self.given[self.number ^ ins.attrs[0]]
        yield

    def copies(self, ins: Instruction) -> None:
        """What is under way is NaN until it is waited for."""
        if ins.op == "commit":
            self.groups.append([])
        elif ins.op == "await":
            while len(self.groups) > ins.attrs[0] + 1:
                for array, where, values in self.groups.pop(0):
                    array[where] = values
        else:
            assert ins.out is not None
            values = self.load(replace(ins, args=ins.args[1:]), ins.out)
            array, start, _ = self.value(ins.args[0])
            where = self._checked(ins, ins.args[0], start + np.arange(ins.out.width), True)
            array[where] = np.nan
            self.groups[-1].append((array, where, values))

    def staged(self, ins: Instruction) -> Steps:
        """A product of tiles, whose blocks of 16 bytes are numbered `block xor row mod 8`."""
        assert ins.out is not None and self.given is not None
        self.given[self.number] = self.value(ins.args[0])
        yield
        made, sides = self.matrix[ins.op], []
        group, number = divmod(self.number, made.threads)
        rows, columns = made.fragments[0].places()
        sums = np.zeros((made.rows, made.columns), np.float32)
        for thread in range(made.threads):
            sums[rows[thread], columns[thread]] = self.given[group * made.threads + thread]
        for position, count in zip(ins.args[1:], (made.rows, made.columns)):
            array, start, _ = self.value(position)
            blocks = array[start : start + count * made.collapse].reshape(count, 8, -1)
            lines = np.arange(count)[:, None]
            sides.append(blocks[lines, np.arange(8) ^ lines % 8].reshape(count, -1))
        sums = made.specification(sums, *sides)
        self.names[ins.out.name] = sums[rows[number], columns[number]]
        yield

    def multiply(self, ins: Instruction) -> Steps:
        """Each thread gives its elements of three matrices, then each takes some of the result:
        those of its group."""
        assert ins.out is not None and self.given is not None
        self.given[self.number] = [self.value(a) for a in ins.args]
        yield
        instruction, sides = self.matrix[ins.op], []
        group, number = divmod(self.number, instruction.threads)
        shapes = ((instruction.rows, instruction.columns), (instruction.rows, instruction.collapse),
                  (instruction.columns, instruction.collapse))  # fmt: skip
        for n, (shape, way) in enumerate(zip(shapes, instruction.fragments)):
            elements = np.stack([self.given[group * instruction.threads + t][n]
                                 for t in range(instruction.threads)])  # fmt: skip
            sides.append(np.zeros(shape, elements.dtype))
            sides[-1][way.places()] = elements
        made = instruction.specification(*sides)
        rows, columns = instruction.fragments[0].places()
        self.names[ins.out.name] = made[rows[number], columns[number]]
        yield

    def loop(self, loop: For) -> Steps:
        state = [self.value(initial) for _, initial, _, _ in loop.carried]
        for turn in range(int(self.value(loop.count))):
            self.names[loop.var.name] = _index(loop.var, turn)
            for (phi, *_), now in zip(loop.carried, state):
                self.names[phi.name] = now
            yield from self.body(loop.body)
            state = [self.value(following) for _, _, following, _ in loop.carried]
        for (*_, result), now in zip(loop.carried, state):
            self.names[result.name] = now

    def execute(self, ins: Instruction) -> None:
        if ins.op in ("store", "scatter", "scatter_at"):
            self.store(ins)
            return
        if ins.op == "settle":
            return
        if ins.op == "gemm":
            self.gemm(ins)
            return
        if ins.op == "prefetch":
            return
        assert ins.out is not None
        if ins.op in ("load", "gather", "gather_at"):
            self.names[ins.out.name] = self.load(ins, ins.out)
        elif ins.op == "offset":
            array, start, name = self.value(ins.args[0])
            self.names[ins.out.name] = (array, start + int(self.value(ins.args[1])), name)
        else:
            args = [self.value(a) for a in ins.args]
            with np.errstate(all="ignore"):
                self.names[ins.out.name] = self.pure(ins, ins.out, args)

    # ---- values

    def pure(self, ins: Instruction, out: Val, args: list[Any]) -> Any:
        shape = [n for _, n in out.lanes]
        assert out.dtype is not None
        wanted = out.dtype.numpy
        if ins.op in SCALARS:
            return np.asarray(compute(ins.op, out.dtype, *args)).reshape(shape)
        if ins.op in self.matrix:
            if self.matrix[ins.op].rows > 1:
                return exact(self.matrix[ins.op])(*(np.asarray(arg) for arg in args))
            lanes = len(shape)
            pair = [np.asarray(a).reshape([*shape, -1]) for a in args[1:]]
            assert all(p.ndim == lanes + 1 for p in pair)
            return self.matrix[ins.op].specification(args[0], *pair)
        if ins.op == "fma":
            return _fused(args, wanted)
        if ins.op == "expand":
            axes = [axis for axis, _ in ins.args[0].lanes]
            view = [n if axis in axes else 1 for axis, n in out.lanes]
            return np.broadcast_to(np.asarray(args[0]).reshape(view), shape)
        if ins.op == "iota":
            return (np.arange(shape[0]) * ins.attrs[0]).astype(wanted)
        if ins.op == "shuffle":
            return np.concatenate([a.reshape(-1) for a in args])[list(ins.attrs)].reshape(shape)
        if ins.op == "settled":
            return args[0]
        if ins.op == "pack":
            return np.array(args, wanted).reshape(shape)
        if ins.op.startswith("across."):
            rows = args[0].reshape(*shape, -1)
            return np.asarray(REDUCTIONS[ins.op[7:]].reduce(rows, -1)).astype(wanted)
        raise VerifyError(f"no operation {ins.op}")

    # ---- memory

    def positions(self, ins: Instruction, position: Val, moved: Val) -> Array:
        """The elements that the lanes of an access are."""
        start = self.value(position)[1]
        if ins.op in ("gather_at", "scatter_at"):
            offsets = ins.args[1 if ins.op == "gather_at" else 2]
            return np.asarray(start + self.value(offsets).reshape(-1))
        lanes = np.arange(moved.width)
        if ins.op in ("gather", "scatter"):
            places = np.unravel_index(lanes, [n for _, n in moved.lanes])
            lanes = sum(place * stride for place, stride in zip(places, ins.attrs[1:]))
        return np.asarray(start + ins.attrs[0] + lanes)

    def kept(self, mask: tuple[Val, ...], width: int) -> Array:
        return np.broadcast_to(np.reshape(self.value(mask[0]) if mask else True, -1), width)

    def load(self, ins: Instruction, out: Val) -> Array:
        assert out.dtype is not None
        where = self.positions(ins, ins.args[0], out)
        mask = ins.args[2:] if ins.op == "gather_at" else ins.args[1:]
        keep = self.kept(mask, out.width)
        array = self._checked(ins, ins.args[0], where[keep])
        found = np.zeros(out.width, out.dtype.numpy)
        found[keep] = array[where[keep]]
        return found.reshape([n for _, n in out.lanes])

    def store(self, ins: Instruction) -> None:
        val = ins.args[0]
        where = self.positions(ins, ins.args[1], val)
        mask = ins.args[3:] if ins.op == "scatter_at" else ins.args[2:]
        keep = self.kept(mask, val.width)
        array = self._checked(ins, ins.args[1], where[keep])
        values = np.broadcast_to(self.value(val), [n for _, n in val.lanes]).reshape(-1)
        for lane in np.flatnonzero(keep):  # in order: the last lane wins
            array[where[lane]] = values[lane]

    def gemm(self, ins: Instruction) -> None:
        m, n, k, *leading = (int(self.value(a)) for a in ins.args[3:])
        shapes = ((m, k), (k, n), (m, n))
        views = []
        for position, shape, ld, turned in zip(ins.args, shapes, leading, (*ins.attrs, 0)):
            rows, columns = shape[::-1] if turned else shape
            start = self.value(position)[1]
            where = start + ld * np.arange(rows)[:, None] + np.arange(columns)
            array = self._checked(ins, position, where.reshape(-1))
            matrix = np.ndarray((rows, columns), np.float32, array[start:].data, 0, (4 * ld, 4))
            views.append(matrix.T if turned else matrix)
        if m and n:
            np.matmul(views[0], views[1], out=views[2])

    def _checked(
        self, ins: Instruction, position: Val, where: Array, places: bool = False
    ) -> Array:
        """The elements of a memory, if all of these lie inside, or these places themselves. Loads
        of a line are always allowed: no buffer is smaller."""
        array, _, name = self.value(position)
        length, line = len(array), LINE // array.itemsize
        if ins.op in ("load", "gather", "gather_at") and length < line:
            array = np.concatenate([array, np.zeros(line - length, array.dtype)])
        bad = (where < 0) | (where >= len(array))
        if bad.any():
            at = int(where[bad][0])
            raise VerifyError(f"{ins.op} of element {at} of {name}, which has {length}")
        return np.asarray(where if places else array)


def _fused(args: list[Any], dtype: Any) -> Array:
    """acc + a * b in one rounding (f64: by long double, which is as near as NumPy comes)."""
    wide = np.longdouble if dtype == np.float64 else np.float64
    acc, a, b = (np.asarray(x).astype(wide) for x in args)
    return np.asarray(np.add(acc, np.multiply(a, b))).astype(dtype)
