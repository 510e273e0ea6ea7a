"""The laws, one a line: `before --> after  if conditions`, or `pattern asks (relation ...)`.

`(inv k x)`: x depends on no axis of k; `(dep k x)`: on some. `(weight x)`: known before the program
runs and an array; `(fixed x)`: known before the program runs; `(single x)`: so, and a sum only if
the program has it (of those that laws make there are exponentially many); `(varies x)`: not fixed,
or not all that it is made of: what constants alone make is computed once, as it is written.
`(at x)` is x, in memory, read through the map m; `e` is the class of the left side; the other short
forms stand in `law.py`. Index arithmetic is functions that a law calls (`encode.py`). In the
families of MIRRORED a sum or product stands for both orders of its operands.

Values are partial functions: a read outside of its buffer, or where a condition of its map fails,
is undefined, and so is what is computed from it (a guard takes the side it chooses). Both sides of
a law are defined at the same points: "equal where both are defined" is not transitive, and a class
held together by it proves false equalities.

A law in `read`, `push` and `exact` holds for every value, inf, NaN and -0.0 included.
`algebra`, `fold` and `online` are exact in real arithmetic and re-associate roundings. None of them
undoes scaling that a program computes: a factor leaves a sum only if it is a load-time constant in
a contraction (kernels of quantised products do the same; `(scale r)`: a number only from 3e-8 to
1e15), or divides weights of at most 1 (flash attention). What may overflow where the program as
written does not: products and sums with such constants (a folded batch norm), and sums of weighted
values near the largest number. `online` makes weights of zero in a row of minus infinities alone,
where the program as written has NaN. Shares of powers (`share`) are taken for online ones under a
sum only: beside an infinite score a single one is 0, but their sum is NaN. No law loses digits
(variance as E[x^2] - m^2 would).
"""

from __future__ import annotations

import re
from functools import cache

from .language import knowledge
from .law import rules_of
from .matching import Rule, parse

READ = """
(Read x m) --> (Read x (own m x))  if (>= (own m x) 0) (!= (own m x) m)
(Read x m) --> x  if (= -1 (own m x))
"""

PUSH = """
(at (Add p q)) --> (Add (at p) (at q))
(at (Mul p q)) --> (Mul (at p) (at q))
(at (Div p q)) --> (Div (at p) (at q))
(at (Recip p)) --> (Recip (at p))
(at (Exp2 p)) --> (Exp2 (at p))
(at (Log2 p)) --> (Log2 (at p))
(at (Unary o p)) --> (Unary o (at p))
(at (Binary o p q)) --> (Binary o (at p) (at q))
(at (Ternary o c p q)) --> (Ternary o (at c) (at p) (at q))
(at (Index i)) --> (Index (index_at i m))  if (>= (index_at i m) 0)
(at (Read u n)) --> (Read u (compose n m))  if (= n (own n u))
(at (Gather u n i)) --> (Gather u (compose n m) (at i))
(at (Sum k p)) --> (Sum k (Read p (extend m k)))  if (>= (extend m k) 0)
(at (Max k p)) --> (Max k (Read p (extend m k)))  if (>= (extend m k) 0)
"""

EXACT = """
(Mul x (Const d 1.0)) --> x
(Div x (Const d 1.0)) --> x
(Mul (Const d p) x) --> (Mul x (Const d p))
(Add (Const d p) x) --> (Add x (Const d p))
"""

ALGEBRA = """
(Mul (Mul x (Const d p)) (Const d q)) --> (Mul x (Const d (* p q)))  if (moderate p) (moderate q)
(Sum k (Mul (Mul p q) r)) --> (Mul (Sum k (Mul p q)) r)  if (inv k r) (scale r) (dep k p) (dep k q)
(Sum k (Div (Mul p q) r)) --> (Div (Sum k (Mul p q)) r)  if (inv k r) (scale r) (dep k p) (dep k q)
(Sum k (Sum j (Mul p w))) --> (Sum j (Mul (Sum k p) w))
    if (varies p) (weight w) (inv k w) (dep k p)
(Sum k x) asks (under k x)  if (varies x)
(Mul p q) asks (under k p)  if (under k e) (dep k p) (varies p)
(Mul (Mul p r) q) --> (Mul (Mul p q) r)  if (under k e) (inv k r) (scale r) (dep k q) (dep k p)
(Mul (Div p r) q) --> (Div (Mul p q) r)  if (under k e) (inv k r) (scale r) (dep k q) (dep k p)
"""

FOLD = """
(Mul (Add x y) c) --> (Add (Mul x c) (Mul y c))  if (varies x) (fixed y) (weight c)
(Add (Add x y) z) --> (Add x (Add y z))  if (varies x) (fixed y) (single z)
(Mul (Sum k (Mul x w)) c) --> (Sum k (Mul x (Mul w c)))
    if (varies x) (fixed w) (weight c) (dep k w) (inv k c)
"""

ONLINE = """
(Add (Fold o k x) (minus x)) --> (below k (minus x))  if (is-minimum o)
(Mul (Add r (Mul (Log2 s) (Const d b))) (Const d -1.0))
    --> (Add (minus r) (Mul (Log2 s) (Const d (* -1.0 b))))  if (= s (Sum k (Exp2 u)))
(Add x (Add r (Mul (Log2 s) (Const d b)))) --> (Add (Add x r) (Mul (Log2 s) (Const d b)))
    if (= s (Sum k (Exp2 u))) (inv k r) (dep k x)
(Exp2 (Mul (Sum j x) (Const d c))) asks (power k e (Sum j x) e c)  if (under k e) (positive c)
(Exp2 (Add x r)) asks (power k e x r 1.0)  if (under k e) (shift k x r)
(Exp2 (Mul (Add x r) (Const d c))) asks (power k e x r c)
    if (under k e) (shift k x r) (positive c)
(Exp2 (Mul (Add x r) (Const d c))) asks (power k e (minus x) (minus r) (* -1.0 c))
    if (under k e) (shift k x r) (positive (* -1.0 c))
(Exp2 (Mul (Div (Add x r) (Const d b)) (Const d c))) asks (power k e x r (/ c b))
    if (under k e) (shift k x r) (positive b) (positive c)
(Exp2 u) --> (Wexp k x c)  if (power k e x (minus (Max k x)) c)
(Exp2 (Mul (Add u (Mul (Log2 s) (Const d b))) (Const d c)))
    --> (Mul (Wexp k x a) (Exp2 (Mul (Log2 s) (Const d (* b c)))))
    if (= s (OSum k x a (One))) (= (Wexp k x a) (Exp2 (Mul u (Const d c)))) (< b 0.0)
(Sum k (Wexp k x c)) --> (OSum k x c (One))
(Sum k (Mul (Wexp k x c) f)) --> (OSum k x c f)
(Sum k (Mul (Mul (Wexp k x c) r) q)) --> (Mul (OSum k x c q) r)  if (inv k r)
(Sum k (Mul (Div (Wexp k x c) r) q)) --> (Div (OSum k x c q) r)  if (inv k r)
(Div p s) asks (share k e x c)  if (= s (Sum k p)) (power k p x r c)
(Mul p (Recip s)) asks (share k e x c)  if (= s (Sum k p)) (power k p x r c)
(Exp2 (Mul (Add u (Mul (Log2 s) (Const d b))) (Const d c))) asks (share k e x a)
    if (= s (Sum k p)) (= p (Exp2 (Mul u (Const d c)))) (power k p x r a) (inverse b c)
(Sum k (Mul p f)) --> (Div (OSum k x c f) (OSum k x c (One)))  if (share k p x c)
(Mul (Mul p f) g) --> (Mul p (Mul f g))  if (share k p x c) (under k e) (dep k f) (dep k g)
(Div (Sum k (Mul p f)) s) --> (Div (OSum k x c f) (OSum k x c (One)))
    if (= s (Sum k p)) (power k p x r c)
(Mul (Sum k (Mul p f)) (Recip s)) --> (Div (OSum k x c f) (OSum k x c (One)))
    if (= s (Sum k p)) (power k p x r c)
(Exp2 (Mul (Add x (minus (Ternary o t p q))) (Const d c)))
    --> (Ternary o t (Exp2 (Mul (Add x (minus p)) (Const d c)))
                     (Exp2 (Mul (Add x (minus q)) (Const d c))))  if (varies x)
(Sum k (Mul (Ternary o t (Exp2 p) (Exp2 q)) f))
    --> (Ternary o t (Sum k (Mul (Exp2 p) f)) (Sum k (Mul (Exp2 q) f)))  if (inv k t)
"""

FAMILIES: dict[str, str] = {
    "read": READ,
    "push": PUSH,
    "exact": EXACT,
    "algebra": ALGEBRA,
    "fold": FOLD,
    "online": ONLINE,
}
DEFAULT = tuple(FAMILIES)
MIRRORED = ("algebra", "fold", "online")


def laws(family: str) -> list[str]:
    """The laws of a family as they are written, each in one line."""
    return re.sub(r"\n +(if )?", r"  \1", FAMILIES[family]).strip().splitlines()


def rules(law: str, family: str) -> list[Rule]:
    """A law as rules of the engine."""
    return rules_of(law, family, family in MIRRORED)


@cache
def program(families: tuple[str, ...] = DEFAULT) -> tuple[Rule, ...]:
    """The rules of these families, and those of what is known of every class."""
    known = (Rule("analysis", parse(f"({facts})"), parse(act)) for facts, act in knowledge())
    found = (r for family in families for law in laws(family) for r in rules(law, family))
    return (*known, *found)
