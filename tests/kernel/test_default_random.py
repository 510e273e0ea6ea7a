"""Random kernels: prepared, scheduled, lowered and interpreted, they compute what they mean."""

import math
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import default_cases as cases
from default_cases import I, add, const, load, mul, op, read, store, value
from test_default import TARGETS, assert_right

from luminal.graph.dtype import f32, f64, i32
from luminal.kernel.kernel import Guard, Reduction

EXTENTS = st.sampled_from([0, 1, 2, 3, 5, 7, 8, 16, 17, 33, 40])
NAMES = "abcd"


class Maker:
    """Draws the parts of a kernel."""

    def __init__(self, draw):
        self.draw, self.buffers, self.values = draw, [], []
        count = draw(st.integers(1, 4))
        self.axes = {a: draw(EXTENTS) for a in NAMES[:count]}
        if draw(st.booleans()):  # a run-time size
            self.axes[NAMES[count - 1]] = "s"
        self.dtype = draw(st.sampled_from([f32, f32, f32, f64, i32]))

    def subset(self, axes, least=0):
        axes = list(axes)
        chosen = self.draw(st.lists(st.sampled_from(axes), unique=True)) if axes else []
        if len(chosen) < least:
            chosen = axes[:least]
        return tuple(chosen)

    def load(self, axes):
        """A buffer over some axes, in some order, perhaps shifted and guarded, perhaps constant."""
        chosen = self.subset(axes)
        name = f"X{len(self.buffers)}"
        constant = self.draw(st.booleans())
        kind = self.draw(st.sampled_from(["plain", "plain", "shift", "flip", "stride"]))
        shape, index, guards = [], [], []
        for a in chosen:
            extent = I(self.axes[a])
            i, n = I(a), extent
            if kind == "shift":
                i = i + self.draw(st.integers(-2, 2))
                guards += [i, extent - 1 - i]
            elif kind == "flip":
                i = extent - 1 - i
            elif kind == "stride":
                i, n = i * 2 + 1, extent * 2
            shape.append(n)
            index.append(i)
        self.buffers.append(cases.buffer(name, *shape, dtype=self.dtype, constant=constant))
        body = load(name, *index, dtype=self.dtype)
        return Guard(tuple(guards), body, self.number()) if guards else body

    def number(self):
        return const(self.draw(st.sampled_from([0, 0, 1, -2])), self.dtype)

    def leaf(self, axes):
        """A load, or an earlier value at fewer axes."""
        ready = [v for v in self.values if set(v.axes) <= set(axes)]
        if ready and self.draw(st.booleans()):
            v = self.draw(st.sampled_from(ready))
            return read(v.name, v.dtype)
        return self.load(axes)

    def expression(self, axes, depth=2):
        if depth == 0 or self.draw(st.integers(0, 3)) == 0:
            return self.leaf(axes)
        name = self.draw(st.sampled_from(["add", "mul", "max", "min"]))
        return op(name, self.expression(axes, depth - 1), self.expression(axes, depth - 1))

    def reduced(self, number):
        over = self.subset(self.axes, least=1)
        kept = self.subset([a for a in self.axes if a not in over])
        every = (*kept, *over)
        name = self.draw(st.sampled_from(["sum", "sum", "sum", "max", "min"]))
        body = self.expression(every)
        if name == "sum" and self.draw(st.booleans()):
            body = mul(self.leaf(every), self.leaf(every))
        start = self.number() if self.draw(st.integers(0, 4)) == 0 else None
        scan = len(over) == 1 and self.draw(st.integers(0, 4)) == 0
        self.values.append(value(f"v{number}", every if scan else kept, body,
                                 Reduction(name, over, start, scan=scan)))  # fmt: skip

    def mapped(self, number):
        axes = self.subset(self.axes)
        self.values.append(value(f"v{number}", axes, self.expression(axes)))

    def kernel(self):
        for number in range(self.draw(st.integers(0, 3))):
            make = self.reduced if self.draw(st.booleans()) else self.mapped
            make(number)
        axes = tuple(self.draw(st.permutations(list(self.axes))))
        body = self.expression(axes)
        for v in self.values:  # nothing is left unread
            body = add(body, read(v.name, v.dtype))
        order = tuple(self.draw(st.permutations(axes)))
        self.buffers.append(cases.buffer("Y", *(self.axes[a] for a in order), dtype=self.dtype))
        self.values.append(value("out", axes, body, store=store("Y", *order)))
        return cases.kernel("random", self.buffers, self.axes, self.values, {"s": (0, 40)})


@st.composite
def kernels(draw):
    return Maker(draw).kernel()


def rounding(kernel, sizes):
    """Relative error that the order of additions may make: a quarter of 2^-24 a term, where drawn
    sums have more terms than 2e-5 allows for (up to 400,000)."""
    extents = {a: int(n.evaluate(sizes)) for a, n in kernel.axes.items()}
    return max(2e-5, 2.0**-26 * max(math.prod(extents[a] for a in v.over) for v in kernel.values))


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@given(kernels(), st.sampled_from([0, 1, 5, 19]))
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_kernels_run_right(target, kernel, size):
    sizes = {"s": size}
    assert_right(kernel, sizes, target, rtol=rounding(kernel, sizes))
