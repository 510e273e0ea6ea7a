"""Operands that all units of work would lay out again are made once, before: one more kernel.

    acc[m, n] = sum_k a[m, k] f(b)[k, n]  -->  op[n, k] = f(b)[k, n]; acc = sum_k a[m, k] op[n, k]

The reader may choose how `op` lies, as it may for a constant: its schedule decides, and the kernel
before writes that layout (`laid_out`). Constants are packed when they are set, so this is for what
changes between calls: weights that are trained, activations, and the windows of an image, written
out or left in a copy of the image with its padding, which needs no conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from math import prod
from typing import TypeAlias

from ..graph.index import Atom, Index, atom_index, atom_names, names_of
from ..kernel.domains import derive_domains
from ..kernel.kernel import (
    Apply,
    Buffer,
    Constant,
    Expression,
    Guard,
    Kernel,
    Load,
    Read,
    Rewriter,
    Store,
    Value,
    indices,
    walk,
)
from ..kernel.merge import merge_axes, reindexed
from .divide import trimmed
from .facts import round_up

NAME = "once"  # how the buffers of this module are called

# axes of the kernel that makes an operand, its elements there, where the reader finds them, and the
# conditions under which it does
Made: TypeAlias = tuple[Mapping[str, Index], Expression, tuple[Index, ...], tuple[Index, ...]]
Form: TypeAlias = Callable[[Kernel, Expression, str], Made | None]


def operands_before(
    kernel: Kernel, value: Value, taken: Sequence[Expression], together: Sequence[str] = (),
    rows: Sequence[str] = (), whole: int = 1,
) -> Iterator[list[Kernel]]:  # fmt: skip
    """Kernels in the place of one: some that make operands of a product, and the one that reads
    them, last. What they write are buffers that it has as constants: of a free layout. taken: the
    factors as an instruction multiplies them. together: reduced axes whose neighbours would serve
    it if they lay side by side. rows: axes whose neighbours in an image would be on one line.
    whole: so many places at a time, as rows of a matrix, are read where neighbours of `together`
    lie side by side."""
    free = [n for n, side in enumerate(value.factors) if _movable(kernel, side)]
    some = [sides for count in (1, 2) for sides in combinations(free, count)]
    sides = tuple(map(_narrow, value.factors))
    yield from filter(None, (_apart(kernel, value, sides, each, None) for each in some))
    ends = {a: Index.of(round_up(int(n), whole)) for a in value.axes
            if (n := kernel.axes[a]).is_constant}  # fmt: skip
    forms = [partial(_joined, last=last, inside=inside, ends=ends if last else {})
             for last in ("", *together) for inside in (False, True)]  # fmt: skip
    forms += [partial(_turned, last=last, over=value.over) for last in rows]
    bodies = dict.fromkeys((sides, tuple(taken))) if some else ()
    each = (_apart(kernel, value, made, some[-1], form) for made, form in product(bodies, forms))
    yield from filter(None, each)


def movable(kernel: Kernel, value: Value) -> bool:
    """A product has operands that could be made before."""
    return any(_movable(kernel, side) for side in value.factors)


def _movable(kernel: Kernel, side: Expression) -> bool:
    """It depends on what changes between calls, and on nothing that is made for this kernel."""
    loads = [e for e in walk(side) if isinstance(e, Load)]
    alone = not any(isinstance(e, Read) or (isinstance(e, Load) and e.slots) for e in walk(side))
    given = (b for b in map(kernel.buffer, (e.buffer for e in loads)) if not b.constant)
    return alone and any(not b.name.startswith(NAME) for b in given)


def _apart(
    kernel: Kernel, value: Value, bodies: Sequence[Expression], sides: Sequence[int],
    form: Form | None,
) -> list[Kernel]:  # fmt: skip
    """A kernel for each of some operands, and the one that reads them. bodies: of both, without
    what the reader widens. form: windows are not spelled out, but what they look at is copied so;
    nothing where none of them are windows."""
    args, buffers, makers = list(value.factors), list(kernel.buffers), list[Kernel]()
    for n in sides:
        body, name = bodies[n], f"{NAME}{kernel.name}_{value.name}_{'ab'[n]}"
        windows = form(kernel, body, name) if form else None
        spelled = _spelled(kernel, value, body)
        if windows and not _fewer(windows, spelled):
            windows = None
        axes, copied, index, left = windows or spelled
        made = Buffer(name, body.dtype, tuple(axes.values()), constant=windows is None)
        buffers.append(made)
        store = Store(name, tuple(map(Index.of, axes)))
        copy = Value(name, tuple(axes), copied, body.dtype, store=store)
        both = (*kernel.buffers, replace(made, constant=False))
        maker = replace(kernel, axes={**kernel.axes, **axes}, buffers=both, values=(copy,))
        makers.append(trimmed(maker) if windows is None else merge_axes(trimmed(maker)))
        load: Expression = Load(name, index, body.dtype)
        load = Guard(left, load, Constant(0, body.dtype)) if left else load
        args[n] = load if body is args[n] else Apply("cast", (load,), args[n].dtype)
    if form and all(b.constant for b in buffers[len(kernel.buffers) :]):
        return []
    (bare,) = derive_domains(replace(kernel, values=(replace(value, domain={}),))).values
    known = {a: each for a, each in value.domain.items() if bare.domain.get(a) != each}
    reads = replace(value, body=Apply("mul", tuple(args), value.body.dtype), domain=known)
    values = tuple(reads if v is value else v for v in kernel.values)
    reader = trimmed(replace(kernel, buffers=tuple(buffers), values=values))
    return [*makers, _unasked(derive_domains(merge_axes(reader)))]


def _spelled(kernel: Kernel, value: Value, body: Expression) -> Made:
    """An element of its own for each point at which the operand varies; what lies side by side of
    that over which is summed does so here."""
    near = {e.index[-1].text for e in walk(body) if isinstance(e, Load) and e.index} & {*value.over}
    order = sorted(value.points, key=near.__contains__)
    axes = {a: kernel.axes[a] for a in order if a in kernel.axes_of(body)}
    return axes, body, tuple(map(Index.of, axes)), _asked(kernel, body)


def _joined(
    kernel: Kernel, body: Expression, name: str, last: str, inside: bool,
    ends: Mapping[str, Index] = {},
) -> Made | None:
    """What windows look at, once for each place, with its padding and what is chosen or computed
    there. A sum by which alone the operand knows several axes becomes one axis: the index of an
    image as it stands, or a sum inside of its floors and extrema. Its last dimension is that of
    memory, or what the axis `last` walks. Which taps of a window there are, as of strides
    backwards, the reader asks. ends: of axes that are walked farther than they go: places are added
    for the last sum, so that all that is read then is there."""
    left, places, space = _asked(kernel, body), dict[str, Index](), kernel.space()
    if isinstance(body, Guard):
        body = replace(body, conditions=tuple(c for c in body.conditions if c not in left))
    while found := next(_sums(kernel, body, inside), None):
        low, _ = space.bounds(found)
        spare = next((m[0] for m, c in found.terms if abs(c) == 1), None)
        sized = any(not kernel.axes[a].is_constant for a in found.names())
        if sized or spare is None or (inside and not _every(kernel, found)):
            return None
        axis = f"{name}_{len(places)}"
        places[axis] = found - int(low)
        rest = (Index.of(axis) - places[axis]) * dict(found.terms)[(spare,)]
        body = _moved(body, spare, atom_index(spare) + rest)
        if not found.names().isdisjoint(names_of(_given(body))):
            return None  # it also knows one of them alone
    given = _given(body)  # loads come first
    lies = [n for i in given for n in sorted(i.names())]
    at = {a: places.get(a, Index.of(a)) for a in (*kernel.axes, *places) if a in lies}
    load = {n for e in walk(body) if isinstance(e, Load) for i in e.index for n in i.names()}
    order = sorted(at, key=lambda a: lies.index(a) if a in load else -1)
    if last in order[:-1]:
        order = [a for a in order if a != last] + [last]
    elif last or not places:
        return None
    axes = {a: kernel.axes.get(a) or Index.of(int(space.bounds(at[a])[1]) + 1) for a in order}
    if ends and places:
        axis, beyond = [*places][-1], kernel.space(ends)
        size, axes[axis] = axes[axis], Index.of(int(beyond.bounds(at[axis])[1]) + 1)
        if size != axes[axis]:
            body = Guard((size - 1 - Index.of(axis),), body, Constant(0, body.dtype))
    return axes, body, tuple(at[a] for a in order), left


def _given(body: Expression) -> list[Index]:
    """All indices of an operand, those of its loads first."""
    parts = sorted(walk(body), key=lambda e: not isinstance(e, Load))
    return [i for e in parts for i in indices(e)]


def _sums(kernel: Kernel, body: Expression, inside: bool) -> Iterator[Index]:
    """The sums in which an operand knows several axes."""
    given, axes = _given(body), kernel.axes.keys()
    for i in given:  # also of what is added on the way
        alone = {m[0]: c for m, c in i.terms if len(m) == 1 and atom_names(m[0]) <= axes}
        atoms = [a for a in alone if inside and not isinstance(a, str)]
        given += [x for a in atoms for x in (a.first, a.second)]
        found = Index.build({(a,): c for a, c in alone.items() if a not in atoms})
        if len(found.names()) > 1:
            yield found


def _every(kernel: Kernel, found: Index) -> bool:
    """A sum of axes takes every number between its ends: there is something at each place."""
    reach, terms = 0, sorted((abs(c), str(m[0])) for m, c in found.terms)
    for step, axis in terms:
        if step > reach + 1:
            return False
        reach += step * (int(kernel.axes[axis]) - 1)
    return True


def _moved(body: Expression, atom: Atom, there: Index) -> Expression:
    """The operand with an index in the place of an atom."""

    def moved(i: Index) -> Index:
        if isinstance(atom, str):
            return i.substitute({atom: there})
        return i.rebuilt(lambda a: there if a == atom else atom_index(a))

    return reindexed(moved, lambda e: replace(e, index=tuple(map(moved, e.index)))).expression(body)


def _turned(
    kernel: Kernel, body: Expression, name: str, last: str, over: Sequence[str]
) -> Made | None:
    """An image, if the operand is windows of such a one or of what is made of each of its elements,
    and the taps of these are summed up: its last dimension the one that the axis `last` walks. What
    is padding the reader asks, and need not multiply."""
    ended = body if isinstance(body, Guard) else Guard((), body, Constant(0, body.dtype))
    load = _only_load(walk(ended.body))
    zero = isinstance(ended.other, Constant) and ended.other.value == 0
    if load is None or not zero:
        return None
    windows = [len(i.names()) > 1 for i in load.index]  # they are walked outside of the others
    if Index.of(last) not in load.index[:-1] or not any(windows):
        return None
    if any(_places(kernel, i, over) for i, window in zip(load.index, windows) if window):
        return None
    shape = kernel.buffer(load.buffer).shape
    order = sorted(
        range(len(shape)), key=lambda d: (load.index[d] == Index.of(last), not windows[d])
    )
    axes = {f"{name}_{d}": shape[d] for d in order}
    here = replace(load, index=tuple(Index.of(f"{name}_{d}") for d in range(len(shape))))
    copied = Rewriter(lambda e: here if e == load else e).expression(ended.body)
    return axes, copied, tuple(load.index[d] for d in order), ended.conditions


def _only_load(parts: Iterable[Expression]) -> Load | None:
    """The load without slots that is all that depends on where these stand, if it is."""
    found = {e for e in parts if isinstance(e, Load) or any(indices(e))}
    load = next(iter(found)) if len(found) == 1 else None
    return load if isinstance(load, Load) and not load.slots else None


def _places(kernel: Kernel, index: Index, over: Sequence[str]) -> bool:
    """Of a window, its places are summed up and not its taps: there are more of them."""
    space = kernel.space()
    known = {n: space.bounds(Index.of(n))[1] for n in index.names()}
    return all(n in over for n, size in known.items() if size == max(known.values()))


def _ends(kernel: Kernel, load: Load) -> list[tuple[Index, Index]]:
    """What is not negative where a load stays inside its buffer."""
    return [(i, size - 1 - i) for i, size in zip(load.index, kernel.buffer(load.buffer).shape)]


def _asked(kernel: Kernel, body: Expression) -> tuple[Index, ...]:
    """Conditions under which an operand is not 0, besides that it lies inside its buffer: the taps
    that a strided window has, backwards. Who knows them multiplies no zeros."""
    loads = {e for e in walk(body) if isinstance(e, Load)}
    if not isinstance(body, Guard) or len(loads) != 1:
        return ()
    inside = {c for both in _ends(kernel, *loads) for c in both}
    zero = isinstance(body.other, Constant) and body.other.value == 0
    return tuple(c for c in body.conditions if c not in inside) if zero else ()


def _unasked(reader: Kernel) -> Kernel:
    """What is spelled out is 0 where it is nothing: the loops are shorter, and nobody asks."""

    def change(e: Expression) -> Expression:
        if isinstance(e, Guard) and isinstance(e.body, Load):
            buffer = reader.buffer(e.body.buffer)
            return e.body if buffer.constant and buffer.name.startswith(NAME) else e
        return e

    rewriter = Rewriter(change)
    return replace(reader, values=tuple(map(rewriter.value, reader.values)))


def _fewer(made: Made, other: Made) -> bool:
    """It has fewer elements, as far as these are known."""
    counts = [prod(int(e) for e in axes.values() if e.is_constant) for axes, *_ in (made, other)]
    return counts[0] < counts[1]


def _narrow(side: Expression) -> Expression:
    """Without a widening cast, which stays with the reader."""
    if isinstance(side, Apply) and side.op == "cast":
        return side.args[0] if side.args[0].dtype.bytes < side.dtype.bytes else side
    return side
