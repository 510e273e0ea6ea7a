"""The language of the e-graph: two sorts, its operations, what is known about every class.

E: the value of an expression at a point of its axes; T: a buffer. Literals are integers (i) and
floats (f). Axis sets are bit masks; maps, domains, indices and the names of opaque operations are
numbers of things interned in `encode.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

OPERATIONS: dict[str, str] = {
    "Load": "T",  # the buffer at the reader's own point
    "Read": "Ti",  # ... at map
    "Gather": "TiE",  # ... at map, in which the slot is the value of E
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
    "Input": "i",  # leaf
    "Store": "E",  # the value in memory
    "Scatter": "iTEE",  # map, base, slot, values
}
BUFFER_SORT = frozenset(("Input", "Store", "Scatter"))
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
    **{op: (kinds, "T" if op in BUFFER_SORT else "E") for op, kinds in OPERATIONS.items()},
    "term": ("i", "E"),
    "buffer": ("i", "T"),
    "ax": ("E", "&"),  # the axes that a value depends on
    "axT": ("T", "&"),
    "fixed": ("E", ""),  # known before the program runs
    "fixedT": ("T", ""),
    "scale": ("E", ""),  # fixed, and no number that makes a sum overflow or vanish by itself
    "scaleT": ("T", ""),
    "varies": ("E", ""),  # some leaf below it is another one at each run
    "variesT": ("T", ""),
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
    "Load", "Read", "Store", "Const", "Literal", "Add", "Mul", "Div", "Recip", "Exp2", "Log2",
    "Unary", "Binary", "Ternary", "Sum", "Max", "Fold",
)  # fmt: skip

_SAME = ("Load", "Read", "Store")

_AXES = {"E": "ax", "T": "axT"}
_FIXED = {"E": "fixed", "T": "fixedT"}
_SCALE = {"E": "scale", "T": "scaleT"}
VARIES = {"E": "varies", "T": "variesT"}


def knowledge() -> Iterator[tuple[str, str]]:
    """The rules of what is known of every class, its axes, and whether it is fixed or varies:
    facts and action."""
    for op, kinds in OPERATIONS.items():
        names = [f"x{i}" for i in range(len(kinds))]
        fact = f"(= e ({' '.join([op, *names])}))"
        own = "T" if op in BUFFER_SORT else "E"
        mapped = op in ("Read", "Gather", "Scatter")
        known = [
            (f"m{i}", f"(= m{i} ({_AXES[k]} x{i}))") for i, k in enumerate(kinds)
            if k in _AXES and not (mapped and (k == "T" or own == "T"))
        ]  # fmt: skip
        mask = f"(mentions x{_MENTIONED[op]})" if op in _MENTIONED else "0"
        for name, _ in known:
            mask = name if mask == "0" else f"(| {mask} {name})"
        if op in _BOUND:
            mask = f"(& {mask} (not-i64 x{_BOUND[op]}))"
        yield " ".join([fact, *(f for _, f in known)]), f"(set ({_AXES[own]} e) {mask})"
        if op == "Input":
            yield f"{fact} (= 0 (given x0))", f"({_FIXED[own]} e)"
            yield f"{fact} (= 0 (given x0))", f"({_SCALE[own]} e)"
        if op in _FIXED_OPS:
            facts = [f"({_FIXED[k]} x{i})" for i, k in enumerate(kinds) if k in _FIXED]
            yield " ".join([fact, *facts]), f"({_FIXED[own]} e)"
            if op in _SAME:  # a view of a number is that number
                facts = [f.replace("(fixed", "(scale") for f in facts]
            if facts:
                yield " ".join([fact, *facts]), f"({_SCALE[own]} e)"
        if op == "Const":
            yield f"{fact} {MODERATE.format('x1')}", "(scale e)"
        varying = [f"({VARIES[k]} x{i})" for i, k in enumerate(kinds) if k in VARIES]
        for found in ["(= 1 (given x0))"] if op == "Input" else varying:
            yield f"{fact} {found}", f"({VARIES[own]} e)"
