"""The laws, one a line: `before --> after  if conditions`, or `pattern asks (need ...)`.

`(inv k x)`: x depends on no axis of k; `(dep k x)`: on some. `(weight x)`: known before the program
runs and an array; `(fixed x)`: known before the program runs. `(at x)` is x, kept in memory, read
through the map m; `e` is the class of the left side. A law asks for index arithmetic that Python
does (`encode.py`) and another one fires when the answer is in its table.

Values are partial functions: a read outside of its buffer, or where a condition of its map fails,
is undefined, and so is what is computed from it (a guard takes the side it chooses). Both sides of
a law are defined at the same points: "equal where both are defined" is not transitive, and a class
held together by it proves false equalities.

A law in `read`, `guard`, `push` and `exact` holds for every value, inf, NaN and -0.0 included.
`algebra`, `fold` and `online` are exact in real arithmetic and re-associate roundings. None of them
undoes scaling that a program computes: a factor leaves a sum only if it is a load-time constant in
a contraction (kernels of quantised products do the same), or divides weights of at most 1 (flash
attention). What may overflow where the program as written does not: products and sums with such
constants (a folded batch norm), and sums of weighted values near the largest number. `online` makes
weights of zero in a row of minus infinities alone, where the program as written has NaN. No law
loses digits (variance as E[x^2] - m^2 would).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from .language import OPERATIONS, declarations

READ = """
(Store (Load t)) --> t
(Load (Store x)) --> x
(Read t m) asks (need 1 m (axT t))
(Read t m) --> (Read t r)  if (= r (restrict m (axT t))) (>= r 0) (!= r m)
(Read t m) --> (Load t)  if (= -1 (restrict m (axT t)))
(Gather t m (Index i)) asks (need 6 m i)
(Gather t m (Index i)) --> (Read t r)  if (= r (fill m i))
"""

GUARD = """
(Guard d p q) --> p  if (= 1 (state d))
(Guard d p q) --> q  if (= 0 (state d))
(Guard d p p) --> p
(Guard d (Guard f p q) q) asks (need 5 d f)
(Guard d (Guard f p q) q) --> (Guard g p q)  if (= g (both d f))
(Guard d (Read t m) q) asks (need 7 d m)
(Guard d (Read t m) q) --> (Guard d (Read t i) q)  if (= i (inside d m))
(Guard d p (Read t m)) asks (need 8 d m)
(Guard d p (Read t m)) --> (Guard d p (Read t o))  if (= o (outside d m))
"""

PUSH = """
(at (Add p q)) --> (Add (at p) (at q))
(at (Mul p q)) --> (Mul (at p) (at q))
(at (Div p q)) --> (Div (at p) (at q))
(at (Recip p)) --> (Recip (at p))
(at (Exp2 p)) --> (Exp2 (at p))
(at (Unary o p)) --> (Unary o (at p))
(at (Binary o p q)) --> (Binary o (at p) (at q))
(at (Ternary o c p q)) --> (Ternary o (at c) (at p) (at q))
(at (Guard d p q)) asks (need 2 d m)
(at (Guard d p q)) --> (Guard f (at p) (at q))  if (= f (domain_at d m))
(at (Index i)) asks (need 3 i m)
(at (Index i)) --> (Index j)  if (= j (index_at i m))
(at (Read u n)) asks (need 0 n m)  if (= n (restrict n (axT u)))
(at (Read u n)) --> (Read u c)  if (= n (restrict n (axT u))) (= c (compose n m))
(at (Gather u n i)) asks (need 0 n m)
(at (Gather u n i)) --> (Gather u c (at i))  if (= c (compose n m))
(at (Sum k p)) asks (need 4 m k)
(at (Sum k p)) --> (Sum k (Read (Store p) f))  if (= f (extend m k)) (>= f 0)
(at (Max k p)) asks (need 4 m k)
(at (Max k p)) --> (Max k (Read (Store p) f))  if (= f (extend m k)) (>= f 0)
"""

EXACT = """
(Add (Const d p) (Const d q)) --> (Const d (+ p q))  if (!= 0.0 (+ p q)) (moderate p) (moderate q)
(Mul (Const d p) (Const d q)) --> (Const d (* p q))  if (moderate p) (moderate q)
(Mul x (Const d 1.0)) --> x
(Div x (Const d 1.0)) --> x
(Mul (Const d p) x) --> (Mul x (Const d p))
(Add (Const d p) x) --> (Add x (Const d p))
"""

ALGEBRA = """
(Mul (Mul x (Const d p)) (Const d q)) --> (Mul x (Const d (* p q)))  if (moderate p) (moderate q)
(Sum k (Mul (Mul p q) r)) --> (Mul (Sum k (Mul p q)) r)  if (inv k r) (fixed r) (dep k p) (dep k q)
(Sum k (Div (Mul p q) r)) --> (Div (Sum k (Mul p q)) r)  if (inv k r) (fixed r) (dep k p) (dep k q)
(Sum k x) asks (under k x)
(Mul p q) asks (under k p)  if (under k e) (dep k p)
(Mul (Mul p r) q) --> (Mul (Mul p q) r)  if (under k e) (inv k r) (fixed r) (dep k q) (dep k p)
(Mul (Div p r) q) --> (Div (Mul p q) r)  if (under k e) (inv k r) (fixed r) (dep k q) (dep k p)
"""

FOLD = """
(Mul (Add x y) c) --> (Add (Mul x c) (Mul y c))  if (fixed y) (weight c)
(Add (Add x y) z) --> (Add x (Add y z))  if (fixed y) (fixed z)
(Mul (Mul x y) z) --> (Mul x (Mul y z))  if (weight y) (weight z)
(Mul (Sum k (Mul x w)) c) --> (Sum k (Mul x (Mul w c)))  if (fixed w) (weight c) (dep k w) (inv k c)
(Div x c) --> (Mul x (Recip c))  if (weight c)
"""

ONLINE = """
(Add (Fold o k x) (Mul x (Const d -1.0))) --> (below k (Mul x (Const d -1.0)))  if (minimum o)
(Mul (Add (Max k x) l) (Const d -1.0)) --> (Add (minus (Max k x)) (minus l))
(Add x (Add (minus (Max k x)) l)) --> (Add (below k x) l)
(Exp2 (below k x)) --> (Wexp k x 1.0)
(Exp2 (Mul (below k x) (Const d c))) --> (Wexp k x c)  if (< 0.0 c)
(Exp2 (Mul (Div (below k x) (Const d b)) (Const d c))) --> (Wexp k x (/ c b))  if (positive b c)
(Exp2 (Mul (Add (below k x) (Mul (Log2 s) (Const d b))) (Const d c))) --> (Mul (Wexp k x c) (Exp2 (Mul (Log2 s) (Const d (* b c)))))  if (= s (OSum k x c (One))) (< b 0.0)
(Sum k (Wexp k x c)) --> (OSum k x c (One))
(Sum k (Mul (Wexp k x c) f)) --> (OSum k x c f)
(Sum k (Mul (Mul (Wexp k x c) r) q)) --> (Mul (OSum k x c q) r)  if (inv k r)
(Sum k (Mul (Div (Wexp k x c) r) q)) --> (Div (OSum k x c q) r)  if (inv k r)
"""

FAMILIES: dict[str, str] = {
    "read": READ,
    "guard": GUARD,
    "push": PUSH,
    "exact": EXACT,
    "algebra": ALGEBRA,
    "fold": FOLD,
    "online": ONLINE,
}
DEFAULT = tuple(FAMILIES)
MIRRORED = ("algebra", "fold", "online")  # families whose sums and products stand for both orders

_ABBREVIATIONS = (
    (re.compile(r"\(below k (x|\(Mul x \(Const d -1.0\)\))\)"), r"(Add \1 (minus (Max k \1)))"),
    (re.compile(r"\(minus (l|\(Max k (x|\(.*?-1.0\)\))\))\)"), r"(Mul \1 (Const d -1.0))"),
    (re.compile(r"\(minimum (\w)\)"), r"(= 1 (minimum \1))"),
    (re.compile(r"\(positive b c\)"), "(moderate b) (moderate c) (< 0.0 b) (< 0.0 c)"),
    (re.compile(r"\(inv (\S+) (\S+?)\)"), r"(= 0 (& \1 (ax \2)))"),
    (re.compile(r"\(dep (\S+) (\S+?)\)"), r"(!= 0 (& \1 (ax \2)))"),
    (re.compile(r"\(weight (\S+?)\)"), r"(fixed \1) (!= 0 (ax \1))"),
    (re.compile(r"\(at (\w+)\)"), r"(Read (Store \1) m)"),
    (
        re.compile(r"\(moderate (\w)\)"),
        r"(!= 0.0 \1) (< -1e15 \1) (< \1 1e15) (< 1e-15 (* \1 \1))",
    ),
)
_KEPT = "(= e (Read t m)) (= t (Store x)) (= a (axT t)) (!= 0 a) (= m (restrict m a)) (= x {})"
_INSIDE = "(= 0 (& (ax {}) (not-i64 {})))"


def laws(family: str) -> list[str]:
    """The laws of a family as they are written."""
    return FAMILIES[family].strip().splitlines()


def rules(law: str, family: str) -> list[str]:
    """A law as rules of the engine."""
    head, _, conditions = law.partition("  if ")
    before, arrow, after = head.partition(" --> ")
    if not arrow:
        before, _, after = head.partition(" asks ")
    kept = re.fullmatch(r"\(at (\(.*\))\)", before)
    if not kept:
        body = f"(= e {before}) {conditions}"
        if "(axT t)" in after:  # actions may not look into tables
            body += " (= a (axT t))"
        return [_rule(body, f"(union e {after})" if arrow else _bound(after), family)]
    body = f"{_KEPT.format(kept[1])} {conditions}"
    if not arrow:
        return [_rule(body, _bound(after), family)]
    body += "".join(map(_inside, re.findall(r"\((at|Store) (\w)\)", after)))
    if not after.endswith("(at p) (at q))") or after.startswith(("(Guard", "(Ternary")):
        return [_rule(body, f"(union e {after})", family)]
    return [_rule(body + more, action, family) for more, action in _two_operands(after)]


def _two_operands(after: str) -> Iterator[tuple[str, str]]:
    """An operation of two values is defined where both are. One that has all axes keeps the
    conditions of the map; the other, if it has fewer, is read without them."""
    yield " (= (ax p) (ax q))", f"(union e {after})"
    yield " (!= (ax p) (ax q)) (!= a (ax p)) (!= a (ax q))", f"(union e {after})"
    for wide, narrow in ("pq", "qp"):
        body = f" (= a (ax {wide})) (= b (ax {narrow})) (!= a b)"
        yield body, "(need 9 m b)"
        near = after.replace(f"(at {narrow})", f"(Read (Store {narrow}) n)")
        yield f"{body} (= n (near m b))", f"(union e {near})"


def _rule(body: str, action: str, family: str) -> str:
    text = f"(rule ({body}) ({action}) :ruleset {family})"
    for pattern, replacement in _ABBREVIATIONS:
        text = pattern.sub(replacement, text)
    return text


def _inside(operand: tuple[str, str]) -> str:
    """A map says nothing about axes that its buffer lacks. An alternative of the buffer's value may
    have operands that vary along such axes (the dead branch of a guard): it is not moved."""
    how, name = operand
    return " " + _INSIDE.format(name, "a" if how == "at" else "(| a k)")


def _bound(request: str) -> str:
    return request.replace("(axT t)", "a")


# ---- what is known of every class: its axes, and whether it is fixed

_MENTIONED = {"Read": 1, "Gather": 1, "Index": 0, "Guard": 0, "Scan": 0, "Input": 0, "Scatter": 0}
_BOUND = {"Sum": 0, "Max": 0, "OSum": 0, "Fold": 1}
_FIXED = (
    "Load", "Read", "Store", "Const", "Literal", "Add", "Mul", "Div", "Recip", "Exp2", "Unary",
    "Binary", "Ternary", "Sum", "Max", "Fold",
)  # fmt: skip


def _analysis() -> Iterator[str]:
    for op, kinds in OPERATIONS.items():
        names = [f"x{i}" for i in range(len(kinds))]
        fact = f"(= e ({' '.join([op, *names])}))"
        buffer = op in ("Input", "Store", "Scatter")
        mapped = op in ("Read", "Gather", "Scatter")
        table = {"E": "ax", "T": "axT"}
        known = [
            (f"m{i}", f"(= m{i} ({table[k]} x{i}))") for i, k in enumerate(kinds)
            if k in table and not (mapped and (k == "T" or buffer))
        ]  # fmt: skip
        if op in _MENTIONED:
            known.append(("n", f"(= n (mentions x{_MENTIONED[op]}))"))
        mask = "0"
        for name, _ in known:
            mask = name if mask == "0" else f"(| {mask} {name})"
        if op in _BOUND:
            mask = f"(& {mask} (not-i64 x{_BOUND[op]}))"
        facts = " ".join([fact, *(f for _, f in known)])
        yield f"(rule ({facts}) ((set ({'axT' if buffer else 'ax'} e) {mask})))"
        if op in _FIXED:
            of = {"E": "fixed", "T": "fixedT"}
            facts = " ".join([fact, *(f"({of[k]} x{i})" for i, k in enumerate(kinds) if k in of)])
            yield f"(rule ({facts}) (({'fixedT' if buffer else 'fixed'} e)))"


@cache
def program(families: tuple[str, ...] = DEFAULT) -> tuple[str, ...]:
    """Declarations and rules for an engine, one command a text."""
    analysis = (f"{text[:-1]} :ruleset analysis)" for text in _analysis())
    rulesets = (f"(ruleset {name})" for name in ("analysis", *families))
    texts = (r for family in families for law in laws(family) for r in rules(law, family))
    return (*declarations(), *rulesets, *analysis, *texts)
