"""Hand-made regions in which rules act that ordinary networks seldom need."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from plan_nets import Program

from luminal.graph.dtype import DType, boolean, f32, i64
from luminal.graph.index import Index
from luminal.graph.space import Space
from luminal.rewrite.terms import SLOT, Leaf, Map, Region, Root, ScatterMap, Terms

N, K = 6, 4
CASES: dict[str, Callable[[Maker], list[int]]] = {}


class Maker:
    """Writes terms over the axes a0 (6), a1 (4), a2 (5), a3 (6)."""

    def __init__(self) -> None:
        space = Space({}, {"a0": N, "a1": K, "a2": N - 1, "a3": N})
        self.terms = Terms(space)
        self.dtypes: dict[int, DType] = {}

    def input(self, *axes: str, dtype: DType = f32, constant: bool = False) -> int:
        leaf = Leaf(len(self.dtypes), axes, constant)
        self.dtypes[leaf.number] = dtype
        return self.terms.add("input", (), leaf, dtype)

    def __call__(self, op: str, *args: int | float, dtype: DType = f32) -> int:
        return self.terms.add(op, tuple(map(self.term, args)), None, dtype)

    def term(self, x: int | float) -> int:
        return self.terms.add("const", (), x, f32) if isinstance(x, float) else x

    def over(self, op: str, x: int, *axes: str) -> int:
        return self.terms.add(op, (x,), axes, self.terms.nodes[x].dtype)

    def guard(self, condition: Index | int, x: int | float, y: int | float) -> int:
        children = (self.term(x), self.term(y))
        return self.terms.add("guard", children, (Index.of(condition),), f32)

    def index(self, index: Index, dtype: DType = i64) -> int:
        return self.terms.add("index", (), index, dtype)

    def at(self, x: int, slot: int | None = None, **moved: Index) -> int:
        """x, kept in memory, at other indices."""
        dtype = self.terms.nodes[x].dtype
        axes = sorted(self.terms.axes[x])
        found = Map(tuple((a, moved.get(a, Index.of(a))) for a in axes))
        children = (x,) if slot is None else (x, slot)
        return self.terms.add("read" if slot is None else "gather", children, found, dtype)


def case(build: Callable[[Maker], list[int]]) -> Callable[[Maker], list[int]]:
    CASES[build.__name__] = build
    return build


def rule_case(name: str) -> Program:
    make = Maker()
    return as_program(make, CASES[name](make))


def as_program(make: Maker, found: list[int]) -> Program:
    """These terms as the roots of one region."""
    roots = tuple(Root(t, tuple(sorted(make.terms.axes[t]))) for t in found)
    numbers = tuple(range(len(make.dtypes)))
    region = Region("case", make.terms, roots, numbers, tuple(range(len(roots))))
    return Program(region, make.dtypes, {})


SHIFTED = Index.of("a2") + 1  # stays inside a0


@case
def views_of_computed_values(m: Maker) -> list[int]:
    x, y = m.input("a0", "a1"), m.input("a0")
    less = m("less", x, y, dtype=boolean)
    values = [
        m("div", x, y), m("recip", x), m("log2", x), m("sqrt", x), m("max", x, y),
        m("select", less, x, y),
        m.guard(Index.of("a0") - 2, x, y), m("cast", m.index(Index.of("a0") * 2)),
        m.over("max", x, "a1"), m("mul", m("exp2", x), y),
    ]  # fmt: skip
    return [m.at(v, a0=SHIFTED) for v in values]


@case
def a_window_leaves_the_buffer(m: Maker) -> list[int]:
    x = m("exp2", m.input("a0"))
    inside = m.at(x, a0=Index.of("a3") - 2)
    padded = m.guard(Index.of("a3") - 2, inside, -1.0)
    again = m.at(padded, a3=Index.of("a0") + 1)
    return [padded, m.guard(N - 2 - Index.of("a0"), again, 3.0)]


@case
def a_dead_branch_varies_along_other_axes(m: Maker) -> list[int]:
    row, column = m("sqrt", m.input("a0")), m("sqrt", m.input("a1"))
    which = m.guard(-Index.of("a2"), column, row)  # a2 = 0: the column, whatever the row is
    columns = m.at(which, a2=Index.of(0))
    return [m.at(columns, a0=Index.of("a3"), a1=Index.of("a2") // 2)]


@case
def gathers(m: Maker) -> list[int]:
    x, i = m.input("a0", "a1"), m.input("a3", dtype=i64)
    picked = m.at(x, slot=i, a0=Index.of(SLOT))
    plain = m.at(x, slot=m.index(Index.of("a2") + 1), a0=Index.of(SLOT))
    outside = m.at(x, slot=m.index(Index.of("a3") + 2), a0=Index.of(SLOT))
    return [m.at(picked, a3=SHIFTED), plain, outside]


@case
def guards(m: Maker) -> list[int]:
    x, y = m.input("a0"), m.input("a0")
    inner = m.guard(Index.of("a0") - 3, x, y)
    return [
        m.guard(0, x, y), m.guard(-1, x, y), m.guard(Index.of("a0") - 1, x, x),
        m.guard(4 - Index.of("a0"), inner, y),
    ]  # fmt: skip


@case
def constants(m: Maker) -> list[int]:
    x = m.input("a0")
    return [
        m("add", x, m("add", 2.0, 3.0)), m("mul", x, m("mul", 2.0, 3.0)), m("div", x, 1.0),
        m("add", m("mul", 1.0, x), -0.0), m("add", 0.0, x), m("mul", 0.0, x),
    ]  # fmt: skip


@case
def scattered_values_read_at_one_place(m: Maker) -> list[int]:
    entries = (("a0", Index.of("a0")), ("a3", Index.of(SLOT)))
    found = ScatterMap(entries, ("a0", "a1"), "set")
    children = (m.term(0.0), m.index(Index.of("a1")), m.input("a0", "a1"))
    scattered = m.terms.add("scatter", children, found, f32)
    corner = Map((("a0", Index.of("a0")), ("a3", Index.of(2))))
    read = m.terms.add("read", (scattered,), corner, f32)
    return [read, m.at(m("sqrt", scattered), a3=Index.of(2))]


@case
def factors_leave_sums(m: Maker) -> list[int]:
    p, q = m.input("a0", "a1"), m.input("a1", "a3")
    r = m.input("a0", constant=True)
    products = [
        m("div", m("mul", p, q), r), m("mul", m("mul", r, p), q), m("mul", q, m("mul", r, p)),
        m("mul", m("div", p, r), q), m("mul", q, m("div", p, r)), m("mul", r, m("mul", p, q)),
        m("mul", m("mul", p, q), r), m("mul", m("mul", p, r), q), m("mul", q, m("mul", p, r)),
    ]  # fmt: skip
    return [m.over("sum", x, "a1") for x in products]


@case
def sums_of_products_with_weights(m: Maker) -> list[int]:
    x, w = m.input("a0", "a1"), m.input("a1", "a3", constant=True)
    products = [m.over("sum", m("mul", *pair), "a1") for pair in ((x, w), (w, x))]
    return [*(m.over("sum", each, "a0") for each in products), *products]


@case
def normalisers_of_weights_leave_sums(m: Maker) -> list[int]:
    x, q, r = m.input("a0", "a1"), m.input("a1", "a3"), m.input("a0")
    p = m("exp2", m("add", x, m("mul", m.over("max", x, "a1"), -1.0)))
    products = [
        m("mul", m("mul", p, r), q), m("mul", m("mul", r, p), q), m("mul", q, m("mul", p, r)),
        m("mul", q, m("mul", r, p)), m("mul", m("div", p, r), q), m("mul", q, m("div", p, r)),
    ]  # fmt: skip
    return [m.over("sum", x, "a1") for x in products]


@case
def weights_take_factors(m: Maker) -> list[int]:
    x, y = m.input("a0", "a1"), m.input("a0", "a3")
    w, c = m.input("a1", "a3", constant=True), m.input("a3", constant=True)
    b = m.input("a3", constant=True)
    first = m.over("sum", m("mul", x, w), "a1")
    second = m.over("sum", m("mul", w, x), "a1")
    return [
        m("mul", c, m("add", first, b)), m("mul", c, first), m("mul", second, c), m("div", y, c),
        m("mul", m("add", y, b), c), m("mul", m("mul", y, b), c),
    ]  # fmt: skip


@case
def weights_of_a_maximum(m: Maker) -> list[int]:
    x, f = m.input("a0", "a1"), m.input("a1", "a3")
    top = m.over("max", x, "a1")
    p = m("exp2", m("add", x, m("mul", top, -1.0)))
    q = m("exp2", m("mul", m("add", x, m("mul", top, -1.0)), 0.5))
    sums = [m.over("sum", m("mul", f, p), "a1"), m.over("sum", p, "a1"),
            m.over("sum", m("mul", q, f), "a1")]  # fmt: skip
    return [*sums, top]


@case
def spellings_of_weights_of_a_maximum(m: Maker) -> list[int]:
    x, f = m.input("a0", "a1"), m.input("a1", "a3")
    minus = m("mul", m.over("max", x, "a1"), -1.0)
    lowest = m("add", m.over("min", x, "a1"), m("mul", x, -1.0))
    below = m("add", minus, x)
    halved = m("div", below, 2.0)
    powers = [m("exp2", below), m("exp2", lowest), m("exp2", m("mul", halved, 3.0))]
    weight = m("exp2", m("mul", below, 3.0))
    log = m("mul", m("log2", m.over("sum", weight, "a1")), 1 / 3.0)
    top = m("add", m.over("max", x, "a1"), log)
    shares = [
        m("exp2", m("mul", m("add", x, m("mul", top, -1.0)), 3.0)),
        m("exp2", m("mul", m("add", below, m("mul", log, -1.0)), 3.0)),
    ]
    return [m.over("sum", m("mul", f, p), "a1") for p in (*powers, *shares)]


@case
def shares_of_powers_with_any_shift(m: Maker) -> list[int]:
    """Weights are divided by their sum: a shift of exponents all over a row does not matter."""
    x, f, r = m.input("a0", "a1"), m.input("a1", "a3"), m.input("a0")
    guarded = m("select", m("equal", r, 2.0, dtype=boolean), r, m.over("max", x, "a1"))
    scores = m.over("sum", m("mul", m.input("a0", "a2"), m.input("a1", "a2")), "a2")
    found = []
    for u in (m("add", x, guarded), m("mul", m("add", x, guarded), -0.5), m("mul", scores, 0.5)):
        e = m("exp2", u)
        z = m.over("sum", e, "a1")
        inverse, top = m("recip", z), m.over("sum", m("mul", e, f), "a1")
        dropped = m("mul", m("mul", m("div", e, z), m.input("a0", "a1")), f)
        log = m("mul", m("log2", z), -1.0)
        normal = m("exp2", m("mul", m("add", u, log), 1.0))
        found += [m("div", top, z), m("mul", top, inverse), m.over("sum", dropped, "a1")]
        found += [m.over("sum", m("mul", p, f), "a1") for p in (normal, m("mul", e, inverse))]
    return found


@case
def a_logarithm_is_chosen(m: Maker) -> list[int]:
    x, f, t = m.input("a0", "a1"), m.input("a1", "a3"), m.input("a0")
    top = m.over("max", x, "a1")
    below = m("mul", m("add", x, m("mul", top, -1.0)), 3.0)
    log = m("mul", m("log2", m.over("sum", m("exp2", below), "a1")), 1 / 3.0)
    chosen = m("select", m("equal", t, 1.0, dtype=boolean), top, m("add", top, log))
    share = m("exp2", m("mul", m("add", x, m("mul", chosen, -1.0)), 3.0))
    return [m.over("sum", m("mul", share, f), "a1")]


def masked_rows(case: Program) -> dict[int, np.ndarray]:
    """Scores with ties, minus infinity in places and in a whole row, and huge negative numbers."""
    scores = np.zeros((N, K), np.float32)
    scores[0] = [1, 1, -np.inf, 0]
    scores[1] = -np.inf
    scores[2] = np.finfo(np.float32).min
    scores[3] = [np.finfo(np.float32).min, 5, -3e38, 2]
    scores[4] = [-np.inf, -np.inf, -np.inf, 7]
    return {0: scores, 1: np.ones((K, N), np.float32)}


@case
def layers_with_many_constants(m: Maker) -> list[int]:
    """Two layers, each with a weight, a mean, two scales and a shift, read at another place."""
    x = m.input("a0", "a1")
    for inner, outer in (("a1", "a2"), ("a2", "a1")):
        weight = m.input(inner, outer, constant=True)
        mean, first, second, shift = (m.input(outer, constant=True) for _ in range(4))
        x = m("add", m.over("sum", m("mul", x, weight), inner), m("mul", mean, -1.0))
        x = m("add", m("mul", x, m("mul", m("recip", first), second)), shift)
    return [x, m.at(x, a1=K - 1 - Index.of("a1"))]
