"""Whether the outputs of a kernel are right, judged by what it means in NumPy and by nothing that
was compiled.

How far off an element may be is measured on the meaning itself: it is evaluated again with every
inexact result pushed away, up and down (`backend.reference.rounding`). What that leaves alone must
be right to some units in the last place, what it moves may move so far, and an element that turns
from a number into none (inf - inf in another order) is not judged. Of large kernels a sample of the
output's positions is evaluated: ends, tails and random ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from ..backend.reference.kernels import evaluate
from ..backend.reference.rounding import Rounding
from ..graph.dtype import DType
from ..kernel.kernel import (
    Apply,
    Constant,
    Expression,
    Guard,
    Kernel,
    Read,
    Rewriter,
    Store,
    Value,
    indices,
    walk,
)
from ..kernel.narrow import whole_weights
from ..kernel.work import extents_at, usual_sizes
from .inputs import KINDS, Arrays, arrays
from .left import said_elsewhere

POINTS = 1 << 17  # of one array that are evaluated, of one reduction that is no contraction
PRODUCTS = 1 << 24  # of a contraction
GRID = 1 << 26  # points of one array that NumPy is asked to hold where no axis can be sampled
FEW = 8  # positions of an axis that are looked at, at least
TAIL = 17  # of them at its end, at most
UNITS = {1: 4, 2: 4, 4: 64, 8: 64}  # bytes of a float -> units in the last place always allowed
WAYS = 2  # random ones, each with its opposite
SPREAD = 4  # times the distance that rounding was seen to make
LUCK = 4  # times the distance of the luckiest quarter: roundings may cancel by chance


@dataclass(frozen=True)
class Judge:
    """Compares outputs with the expected ones. looked: the elements that are compared; of these,
    wanted: their values, slack: how far off each may be."""

    looked: Arrays
    wanted: Arrays
    slack: Arrays

    def fault(self, outputs: Arrays) -> str:
        """What is wrong with these outputs; empty if nothing is."""
        return next(iter(self.faults(outputs).values()), "")

    def faults(self, outputs: Arrays) -> dict[str, str]:
        """output -> what is wrong with it, of those that are wrong."""
        found = {}
        for name, looked in self.looked.items():
            wanted, slack = self.wanted[name], self.slack[name]
            got = outputs[name][looked]
            wrong = np.flatnonzero(~_near(got, wanted, slack))
            wrong = wrong[_distance(got[wrong], wanted[wrong]) > slack[wrong]]
            if len(wrong):
                first = wrong[0]
                at = [int(i) for i in np.argwhere(looked)[first]]
                one = f"{name}{at} is {got[first]} instead of {wanted[first]}"
                found[name] = f"{one}, {len(wrong)} elements wrong"
        return found

    def within(self, others: Arrays) -> Judge:
        """Of the elements for which these would be right, too: others nobody looks at, so that it
        is open how much of their sums is walked."""
        looked, wanted, slack = {}, {}, {}
        for name, mask in self.looked.items():
            near = ~(_distance(others[name][mask], self.wanted[name]) > self.slack[name])
            looked[name], wanted[name] = mask.copy(), self.wanted[name][near]
            looked[name][mask], slack[name] = near, self.slack[name][near]
        return Judge(looked, wanted, slack)

    def completed(self, right: Arrays) -> Judge:
        """Where only a sample is evaluated, the other elements are held against outputs that this
        judge has found right there."""
        every, wanted, slack = {}, {}, {}
        for name, looked in self.looked.items():
            size = _magnitude(right[name])
            usual = size[looked].mean() if looked.any() else 0.0
            share = np.max(self.slack[name] / (size[looked] + usual + 1e-30), initial=0)
            every[name] = np.ones(looked.shape, np.bool_)
            wanted[name] = right[name].copy()
            wanted[name][looked] = self.wanted[name]
            slack[name] = 2 * share * (size + usual)
            slack[name][looked] = self.slack[name]
        return Judge(every, {n: a.reshape(-1) for n, a in wanted.items()},
                     {n: a.reshape(-1) for n, a in slack.items()})  # fmt: skip


@dataclass
class Case:
    """Inputs of one test, and who judges the outputs. sampled: not all outputs are evaluated."""

    sizes: dict[str, int]
    kind: str
    given: Arrays
    judge: Judge
    sampled: bool


def cases(kernel: Kernel, seed: int, flushes: bool = False) -> Iterator[Case]:
    """Calm and hostile inputs at the usual sizes and, where there are run-time sizes, at others.
    flushes: subnormal floats may count as zeros."""
    for others, sizes in enumerate(_sizes_to_check(kernel)):
        at = samples(kernel, sizes, seed)
        extents = extents_at(kernel, sizes)
        looked_at = {extents[axis]: where for axis, where in at.items()}
        for number, kind in enumerate(KINDS[:2] if others else KINDS):
            given = arrays(kernel, sizes, seed + number, kind, looked_at)
            yield Case(sizes, kind, given, judge(kernel, given, sizes, at, flushes), bool(at))


def judge(
    kernel: Kernel, given: Arrays, sizes: Mapping[str, int], at: Mapping[str, np.ndarray],
    flushes: bool = False, seed: int = 0,
) -> Judge:  # fmt: skip
    """What the outputs must hold, at sampled positions of some axes."""
    looked = _looked(kernel, given, sizes, at)
    right = expected(kernel, given, sizes, at)
    hostile = not all(_finite(array) for array in given.values())

    def meant(kernel: Kernel) -> tuple[Kernel, Kernel]:
        return (_unbounded(kernel), _skipping(kernel)) if hostile else (kernel, kernel)

    ways = [expected(other, given, sizes, at, Rounding(seed + number, sign, flushes=zeros))
            for number in range(WAYS) for other, sign in zip(meant(kernel), (1, -1))
            for zeros in {False, flushes}]  # fmt: skip
    if (whole := whole_weights(kernel)) != kernel:  # schedules may multiply what was not rounded
        ways += [expected(other, given, sizes, at) for other in meant(whole)]
    made = judged(looked, right, ways, {name: _units(kernel, name) for name in looked})
    if not said_elsewhere(kernel):
        return made
    return made.within(expected(_unbounded(kernel), given, sizes, at))


def judged(
    looked: Arrays, right: Arrays, ways: Sequence[Arrays], units: Mapping[str, float]
) -> Judge:
    """A judge of the elements that all ways to compute them make numbers or none alike. units: the
    relative error that is always allowed."""
    wanted, slack = {}, {}
    for name, mask in looked.items():
        values = right[name][mask]
        off = np.max([_distance(way[name][mask], values) for way in ways], axis=0)
        alike = np.isfinite(off)
        mask[mask] = alike
        wanted[name], off = values[alike], off[alike]
        slack[name] = units[name] * _magnitude(wanted[name]) + SPREAD * _lucky(off)
    return Judge(looked, wanted, slack)


def _lucky(off: np.ndarray) -> np.ndarray:
    """Roundings may cancel by chance: no distance is much less than the others."""
    moved = off[off > 0]
    return np.maximum(off, LUCK * np.quantile(moved, 0.25)) if moved.size else off


def _looked(
    kernel: Kernel, given: Arrays, sizes: Mapping[str, int], at: Mapping[str, np.ndarray]
) -> Arrays:
    """The elements that are evaluated."""
    if not at:
        return {name: np.ones(given[name].shape, np.bool_) for name in kernel.outputs}
    blank = {name: np.zeros_like(given[name]) for name in kernel.outputs}
    evaluate(_marking(kernel), blank, sizes, at)
    return {name: array != 0 for name, array in blank.items()}


def expected(
    kernel: Kernel, given: Arrays, sizes: Mapping[str, int],
    at: Mapping[str, np.ndarray] | None = None, rounding: Rounding | None = None,
) -> Arrays:  # fmt: skip
    """What the kernel's outputs must hold, by its meaning."""
    read = given if rounding is None else {name: rounding.read(a) for name, a in given.items()}
    copies = {name: array.copy() if name in kernel.outputs else array
              for name, array in read.items()}  # fmt: skip
    with np.errstate(all="ignore"):
        evaluate(kernel, copies, sizes, at, rounding)
    return {name: copies[name] for name in kernel.outputs}


def _skipping(kernel: Kernel) -> Kernel:
    """The kernel without products with the zeros that a guard puts in the place of padding: a
    lowering may leave them out, and 0 * NaN then does not show."""

    def change(e: Expression) -> Expression:
        if isinstance(e, Apply) and e.op == "mul":
            for padded, factor in (e.args, e.args[::-1]):
                if guard := _zeros(padded):
                    return replace(guard, body=change(replace(e, args=(guard.body, factor))))
        return e

    return replace(kernel, values=tuple(map(Rewriter(change).value, kernel.values)))


def _zeros(e: Expression) -> Guard | None:
    """A guard with zeros; around casts, if it stands below these."""
    if isinstance(e, Apply) and e.op == "cast" and (guard := _zeros(e.args[0])):
        body = replace(e, args=(guard.body,))
        return replace(guard, body=body, other=Constant(0, e.dtype))
    return e if isinstance(e, Guard) and e.other == Constant(0, e.dtype) else None


def _unbounded(kernel: Kernel) -> Kernel:
    """The kernel with every point walked: a lowering may do so, and 0 * NaN then shows."""
    values = tuple(replace(v, domain={}) for v in kernel.values)
    return replace(kernel, values=values)


# ---- what an element is compared by


def _distance(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Absolute error; infinite where one is a number and the other none."""
    if wanted.dtype.kind in "iub":
        x, y = got.astype(np.float64), wanted.astype(np.float64)
        return np.where(got == wanted, 0.0, np.maximum(np.abs(x - y), 1.0))
    x, y = got.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(invalid="ignore"):
        off = np.abs(x - y)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    return np.where(same, 0.0, np.where(np.isfinite(off), off, np.inf))


def _magnitude(array: np.ndarray) -> np.ndarray:
    size = np.abs(array.astype(np.float64))
    return np.where(np.isfinite(size), size, 0.0)


def _finite(array: np.ndarray) -> bool:
    return array.dtype.kind in "iub" or bool(np.isfinite(array).all())


def _near(got: np.ndarray, wanted: np.ndarray, slack: np.ndarray) -> np.ndarray:
    """Elements that are surely right: no figure beside them is infinite or none."""
    if wanted.dtype.kind in "iub":
        return np.asarray(got == wanted)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.abs(got - wanted) <= slack)


def _units(kernel: Kernel, output: str) -> float:
    dtypes = (kernel.buffer(output).dtype, *(v.dtype for v in kernel.values))
    return allowed(dtypes[0], dtypes)


def allowed(output: DType, dtypes: Iterable[DType]) -> float:
    """Relative error that is always allowed: some units of the coarsest dtype that is computed
    in."""
    if not output.is_float:
        return 0.0
    return max(_epsilon(d) * UNITS[d.bytes] for d in (output, *dtypes) if d.is_float)


def _epsilon(dtype: DType) -> float:
    info: Any = ml_dtypes.finfo(dtype.numpy)
    return float(info.eps)


# ---- samples of large kernels


def checkable(kernel: Kernel, sizes: Mapping[str, int]) -> bool:
    """Whether the oracle can hold the kernel's values in memory."""
    at = samples(kernel, sizes, 0)
    extents = extents_at(kernel, sizes) | {axis: len(where) for axis, where in at.items()}
    return _load(kernel, extents) * POINTS <= GRID


def samples(kernel: Kernel, sizes: Mapping[str, int], seed: int) -> dict[str, np.ndarray]:
    """axis -> the positions that are evaluated, of kernels that are too large for all of them."""
    extents = extents_at(kernel, sizes)
    counts, free = dict(extents), _independent(kernel)
    while free and _load(kernel, counts) > 1:
        longest = max(free, key=lambda axis: counts[axis])
        if counts[longest] <= FEW:
            break
        counts[longest] = max(FEW, counts[longest] // 2)
    rng = np.random.default_rng(seed)
    return {axis: _positions(extents[axis], counts[axis], rng)
            for axis in free if counts[axis] < extents[axis]}  # fmt: skip


def _positions(extent: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Both ends, the tail, and others at random."""
    tail = min(TAIL, count // 2)
    others = 1 + rng.choice(extent - tail - 1, count - tail - 1, replace=False)
    return np.unique(np.r_[0, others, extent - tail : extent])


def _load(kernel: Kernel, extents: Mapping[str, int]) -> float:
    """How much of an evaluation it is, in times of what is readily done."""
    most = 0.0
    by_name = {v.name: v for v in kernel.values}
    for value in _skipping(kernel).values:
        arrays_: list[Iterable[str]] = [value.axes]
        points = POINTS
        if value.factors and value.dtype.is_float and isinstance(value.body, Apply):
            arrays_ += [_axes(factor, by_name) for factor in value.body.args]
            points = PRODUCTS
        held = max(math.prod(float(extents[a]) for a in axes if a in extents) for axes in arrays_)
        walked = math.prod(float(extents[a]) for a in value.points)
        most = max(most, held / POINTS, walked / points)
    return most


def _axes(expression: Expression, by_name: Mapping[str, Value]) -> frozenset[str]:
    """All names that an expression varies with."""
    own = frozenset(name for e in walk(expression) for i in indices(e) for name in i.names())
    reads = (by_name[e.value].axes for e in walk(expression) if isinstance(e, Read))
    return own.union(*reads)


def _independent(kernel: Kernel) -> list[str]:
    """Axes whose positions have nothing to do with each other: nothing is reduced over them, and
    each writes elements of its own."""
    stores = [(v, v.store) for v in kernel.values if v.store]
    made = {store.buffer for _, store in stores}
    if len(made) < len(stores) or any(e.buffer in made for v in kernel.values for e in v.loads):
        return []
    return [axis for axis in kernel.axes
            if not any(axis in v.over for v in kernel.values)
            and all(_writes_its_own(s, axis) for v, s in stores if axis in v.axes)]  # fmt: skip


def _writes_its_own(store: Store, axis: str) -> bool:
    mentioned = any(axis in index.names() for index in store.index)
    plain = store.mode == "set" and not store.slots
    return plain and mentioned and axis not in store.ordered


def _marking(kernel: Kernel) -> Kernel:
    """Writes ones wherever the kernel writes."""
    marked = [replace(v, body=Constant(1, v.dtype), reduction=None)
              for v in kernel.values if v.store]  # fmt: skip
    return replace(kernel, values=tuple(marked))


def _sizes_to_check(kernel: Kernel) -> list[dict[str, int]]:
    """Run-time sizes: the usual ones, an odd middle, the least and one, as far as the oracle holds
    them."""
    usual = usual_sizes(kernel)
    found = [usual]
    for wanted in ({n: usual[n] // 2 | 1 for n in usual}, dict.fromkeys(usual, 0),
                   dict.fromkeys(usual, 1)):  # fmt: skip
        found.append({n: int(min(high, max(low, wanted[n])))
                      for n, (low, high) in kernel.sizes.items()})  # fmt: skip
    return [s for i, s in enumerate(found) if s not in found[:i] and checkable(kernel, s)]
