"""The language of the e-graph: its operations, what is known about every class.

A class (E) is the value of an expression at a point of its axes. Literals are integers (i) and
floats (f). Axis sets are bit masks; maps, domains, indices and the names of opaque operations are
numbers of things interned in `encode.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from .terms import ELSEWHERE

OPERATIONS: dict[str, str] = {
    "Input": "i",  # leaf
    "Read": "Ei",  # a value in memory, at map
    "Gather": "EiE",  # ... at map, in which the slot is the value of the second
    "Const": "if",  # dtype, a finite float that is not -0.0
    "Literal": "i",  # any other constant
    "One": "",  # the weight of a plain online sum
    "Index": "i",  # an index expression as a value
    "Add": "EE",
    "Mul": "EE",
    "Div": "EE",
    "Recip": "E",
    "Exp2": "E",
    "Log2": "E",
    "Unary": "iE",  # an operation that no law knows: views move through it
    "Binary": "iEE",
    "Ternary": "iEEE",
    "Guard": "iEE",  # domain: the first where it holds, else the second
    "Sum": "iE",  # axes
    "Max": "iE",
    "Fold": "iiE",  # min, prod: name, axes
    "Scan": "iE",  # (name, axis) interned
    "Wexp": "iEf",  # axes k, x, c: 2^(c (x - max_k x))
    "OSum": "iEfE",  # axes k, x, c, f: sum_k f 2^(c (x - max_k x)), in one pass
    "Scatter": "iEEE",  # map, base, slot, values
}
VISIBLE = {  # of floats
    "add": "Add", "mul": "Mul", "div": "Div", "recip": "Recip", "exp2": "Exp2", "log2": "Log2",
}
SCALAR = {name: op for op, name in VISIBLE.items()}
OPAQUE = {1: "Unary", 2: "Binary", 3: "Ternary"}

# Functions of numbers that rules call; `encode.py` has them.
FUNCTIONS = {
    "compose": "ii",  # map, map -> the map of reading through both
    "restrict": "ii",  # map, mask -> the map on the axes of its buffer; -1: the identity
    "index_at": "ii",  # index, map -> the index seen through the map; -1: it does not stay inside
    "extend": "ii",  # map, mask -> the map that keeps reduced axes as they are; -1: not allowed
    "near": "ii",  # map, mask -> the map on some axes of its buffer, without conditions
    "mentions": "i",  # map, domain, index, leaf ... -> its axes
    "given": "i",  # leaf -> 1 if it is another one at each run
    "minimum": "i",  # reduction -> 1 if it is a minimum of floats
}

# name -> the sorts of its arguments, and of its value: a class, the axes that all given ones share
# (&), nothing (a relation)
TABLES: dict[str, tuple[str, str]] = {
    **{op: (kinds, "E") for op, kinds in OPERATIONS.items()},
    "term": ("i", "E"),
    "ax": ("E", "&"),  # the axes that a value depends on
    "fixed": ("E", ""),  # known before the program runs
    "single": ("E", ""),  # fixed, and of sums only those that the program has as it is written
    "scale": ("E", ""),  # fixed, and no number that makes a sum overflow or vanish by itself
    "varies": ("E", ""),  # some leaf below it is another one at each run
    "under": ("iE", ""),  # a factor somewhere inside a sum over these axes
    "power": ("iEEEf", ""),  # k e x r c: e = 2^(c (x + r)); r, or 0, is one over k
    "share": ("iEEf", ""),  # k e x c: e = 2^(c x) / sum_k 2^(c x)
}


# ---- what is known of every class: its axes, and whether it is fixed or varies

_MENTIONED = {"Read": 1, "Gather": 1, "Index": 0, "Guard": 0, "Scan": 0, "Input": 0, "Scatter": 0}
MODERATE = "(!= 0.0 {0}) (< -1e15 {0}) (< {0} 1e15) (< 1e-15 (* {0} {0}))"


def moderate(number: float) -> bool:
    """The same of a number."""
    return number * number > 1e-15 and abs(number) < 1e15


_BOUND = {"Sum": 0, "Max": 0, "OSum": 0, "Fold": 1}
_FIXED_OPS = (
    "Read", "Const", "Literal", "Add", "Mul", "Div", "Recip", "Exp2", "Log2", "Unary", "Binary",
    "Ternary", "Sum", "Max", "Fold",
)  # fmt: skip


def knowledge() -> Iterator[tuple[str, str]]:
    """The rules of what is known of every class, its axes, and whether it is fixed or varies:
    facts and action."""
    yield "(= e (term n)) (fixed e)", "(single e)"
    for op, kinds in OPERATIONS.items():
        names = [f"x{i}" for i in range(len(kinds))]
        fact = f"(= e ({' '.join([op, *names])}))"
        operands = [i for i, kind in enumerate(kinds) if kind == "E"]
        here = operands[ELSEWHERE.get(op.lower(), 0) :]
        known = [fact, *(f"(= m{i} (ax x{i}))" for i in here)]
        mask = f"(mentions x{_MENTIONED[op]})" if op in _MENTIONED else "0"
        for i in here:
            mask = f"m{i}" if mask == "0" else f"(| {mask} m{i})"
        if op in _BOUND:
            mask = f"(& {mask} (not-i64 x{_BOUND[op]}))"
        yield " ".join(known), f"(set (ax e) {mask})"
        if op == "Input":
            yield f"{fact} (= 0 (given x0))", "(fixed e)"
            yield f"{fact} (= 0 (given x0))", "(scale e)"
        if op in _FIXED_OPS:
            facts = [f"(fixed x{i})" for i in operands]
            yield " ".join([fact, *facts]), "(fixed e)"
            if op == "Read":  # a view of a number is that number
                facts = ["(scale x0)"]
            if facts:
                yield " ".join([fact, *facts]), "(scale e)"
        if op in _FIXED_OPS and op != "Add":
            yield " ".join([fact, *(f"(single x{i})" for i in operands)]), "(single e)"
        if op == "Const":
            yield f"{fact} {MODERATE.format('x1')}", "(scale e)"
        varying = [f"(varies x{i})" for i in operands]
        for found in ["(= 1 (given x0))"] if op == "Input" else varying:
            yield f"{fact} {found}", "(varies e)"
