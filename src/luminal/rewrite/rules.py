"""The laws, one a line: what is matched, then `before --> after`.

`(inv k x)`: x depends on no axis of k; `(dep k x)`: on some. `(at x)` is x, kept in memory, read through
the map m. A law in `read`, `guard`, `push` and `exact` holds for every value, inf, NaN and -0.0
included. `algebra`, `fold` and `online` are exact in real arithmetic and re-associate roundings: they
may differ where a step in between overflows, underflows or is infinite (a masked score is not such a
step). `weak` loses digits (variance as E[x^2] - m^2) and is used only when asked for.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .language import declarations

ANALYSIS = """
(rule ((= t (Input i)) (= m (mentions i))) ((set (axT t) m)))
(rule ((= t (Store e)) (= m (ax e))) ((set (axT t) m)))
(rule ((= t (Scatter s b i v)) (= m (mentions s))) ((set (axT t) m)))
(rule ((= e (Load t)) (= m (axT t))) ((set (ax e) m)))
(rule ((= e (Read t i)) (= m (range i))) ((set (ax e) m)))
(rule ((= e (Gather t i x)) (= m (range i)) (= n (ax x))) ((set (ax e) (| m n))))
(rule ((= e (Const d v))) ((set (ax e) 0)))
(rule ((= e (Literal i))) ((set (ax e) 0)))
(rule ((= e (One))) ((set (ax e) 0)))
(rule ((= e (Index i)) (= m (mentions i))) ((set (ax e) m)))
(rule ((= e (Add p q)) (= m (ax p)) (= n (ax q))) ((set (ax e) (| m n))))
(rule ((= e (Mul p q)) (= m (ax p)) (= n (ax q))) ((set (ax e) (| m n))))
(rule ((= e (Div p q)) (= m (ax p)) (= n (ax q))) ((set (ax e) (| m n))))
(rule ((= e (Recip p)) (= m (ax p))) ((set (ax e) m)))
(rule ((= e (Exp2 p)) (= m (ax p))) ((set (ax e) m)))
(rule ((= e (Unary o p)) (= m (ax p))) ((set (ax e) m)))
(rule ((= e (Binary o p q)) (= m (ax p)) (= n (ax q))) ((set (ax e) (| m n))))
(rule ((= e (Ternary o c p q)) (= l (ax c)) (= m (ax p)) (= n (ax q))) ((set (ax e) (| l (| m n)))))
(rule ((= e (Guard d p q)) (= l (mentions d)) (= m (ax p)) (= n (ax q))) ((set (ax e) (| l (| m n)))))
(rule ((= e (Sum k p)) (= m (ax p))) ((set (ax e) (& m (not-i64 k)))))
(rule ((= e (Max k p)) (= m (ax p))) ((set (ax e) (& m (not-i64 k)))))
(rule ((= e (Fold o k p)) (= m (ax p))) ((set (ax e) (& m (not-i64 k)))))
(rule ((= e (Scan o p)) (= m (ax p)) (= n (mentions o))) ((set (ax e) (| m n))))
(rule ((= e (Wexp k p c)) (= m (ax p))) ((set (ax e) m)))
(rule ((= e (OSum k p c f)) (= m (ax p)) (= n (ax f))) ((set (ax e) (& (| m n) (not-i64 k)))))
(rule ((= e (Load t)) (fixedT t)) ((fixed e)))
(rule ((= e (Read t m)) (fixedT t)) ((fixed e)))
(rule ((= t (Store e)) (fixed e)) ((fixedT t)))
(rule ((= e (Const d v))) ((fixed e)))
(rule ((= e (Literal i))) ((fixed e)))
(rule ((= e (Add p q)) (fixed p) (fixed q)) ((fixed e)))
(rule ((= e (Mul p q)) (fixed p) (fixed q)) ((fixed e)))
(rule ((= e (Div p q)) (fixed p) (fixed q)) ((fixed e)))
(rule ((= e (Recip p)) (fixed p)) ((fixed e)))
(rule ((= e (Exp2 p)) (fixed p)) ((fixed e)))
(rule ((= e (Unary o p)) (fixed p)) ((fixed e)))
(rule ((= e (Binary o p q)) (fixed p) (fixed q)) ((fixed e)))
"""

READ = """
(rewrite (Store (Load t)) t)                                                  ; store(load t) --> t
(rewrite (Load (Store e)) e)                                                  ; load(store e) --> e
(rule ((= e (Read t m)) (= a (axT t))) ((need 1 m a)))                        ; asks for the next two
(rule ((= e (Read t m)) (= r (restrict m (axT t))) (>= r 0) (!= r m)) ((union e (Read t r)))) ; t[m] --> t[m on the axes of t]
(rule ((= e (Read t m)) (= -1 (restrict m (axT t)))) ((union e (Load t))))    ; t[identity] --> t
(rule ((= e (Gather t m (Index i)))) ((need 6 m i)))                          ; asks for the next
(rule ((= e (Gather t m (Index i))) (= r (fill m i))) ((union e (Read t r)))) ; t[m, slot = index] --> t[m with the index]
"""

GUARD = """
(rule ((= e (Guard d p q)) (= 1 (state d))) ((union e p)))                    ; always ? p : q --> p
(rule ((= e (Guard d p q)) (= 0 (state d))) ((union e q)))                    ; never ? p : q --> q
(rewrite (Guard d p p) p)                                                     ; d ? p : p --> p
(rule ((= e (Guard d (Guard f p q) q))) ((need 5 d f)))                       ; asks for the next
(rule ((= e (Guard d (Guard f p q) q)) (= g (both d f))) ((union e (Guard g p q)))) ; d ? (f ? p : q) : q --> d and f ? p : q
(rule ((= e (Guard d p q)) (= p (Read t m)) (= q (Read t n)) (!= m n)) ((need 7 m n))) ; asks for the next
(rule ((= e (Guard d p q)) (= p (Read t m)) (= q (Read t n)) (= d (whole_domain m n)) (= w (whole m n))) ((union e (Read t w)))) ; d ? t[m if d] : t[m if not d] --> t[m]
"""

PUSH = """
(rule ((seen e x m) (= x (Add p q))) ((union e (Add (at p) (at q)))))         ; (at p + q) --> (at p) + (at q)
(rule ((seen e x m) (= x (Mul p q))) ((union e (Mul (at p) (at q)))))         ; (at p q) --> (at p) (at q)
(rule ((seen e x m) (= x (Div p q))) ((union e (Div (at p) (at q)))))         ; (at p / q) --> (at p) / (at q)
(rule ((seen e x m) (= x (Recip p))) ((union e (Recip (at p)))))              ; (at 1 / p) --> 1 / (at p)
(rule ((seen e x m) (= x (Exp2 p))) ((union e (Exp2 (at p)))))                ; (at 2^p) --> 2^(at p)
(rule ((seen e x m) (= x (Unary o p))) ((union e (Unary o (at p)))))          ; (at f p) --> f (at p)
(rule ((seen e x m) (= x (Binary o p q))) ((union e (Binary o (at p) (at q))))) ; (at f p q) --> f (at p) (at q)
(rule ((seen e x m) (= x (Ternary o c p q))) ((union e (Ternary o (at c) (at p) (at q))))) ; (at f c p q) --> f (at c) (at p) (at q)
(rule ((seen e x m) (= x (Guard d p q))) ((need 2 d m)))                      ; asks for the next
(rule ((seen e x m) (= x (Guard d p q)) (= f (domain_at d m))) ((union e (Guard f (at p) (at q))))) ; (at d ? p : q) --> d.m ? (at p) : (at q)
(rule ((seen e x m) (= x (Index i))) ((need 3 i m)))                          ; asks for the next
(rule ((seen e x m) (= x (Index i)) (= j (index_at i m))) ((union e (Index j)))) ; (at index) --> index.m
(rule ((seen e x m) (= x (Read u n)) (= n (restrict n (axT u)))) ((need 0 n m))) ; asks for the next
(rule ((seen e x m) (= x (Read u n)) (= n (restrict n (axT u))) (= c (compose n m))) ((union e (Read u c)))) ; (at u[n]) --> u[n.m]
(rule ((seen e x m) (= x (Gather u n i))) ((need 0 n m)))                     ; asks for the next
(rule ((seen e x m) (= x (Gather u n i)) (= c (compose n m))) ((union e (Gather u c (at i))))) ; (at u[n, i]) --> u[n.m, (at i)]
(rule ((seen e x m) (= x (Sum k p))) ((need 4 m k)))                          ; asks for the next
(rule ((seen e x m) (= x (Sum k p)) (= f (extend m k)) (>= f 0)) ((union e (Sum k (Read (Store p) f))))) ; (at sum_k p) --> sum_k p[m, k], m injective
(rule ((seen e x m) (= x (Max k p))) ((need 4 m k)))                          ; asks for the next
(rule ((seen e x m) (= x (Max k p)) (= f (extend m k)) (>= f 0)) ((union e (Max k (Read (Store p) f))))) ; (at max_k p) --> max_k p[m, k], m injective
"""

EXACT = """
(rewrite (Add (Const d p) (Const d q)) (Const d (+ p q)) :when ((!= 0.0 (+ p q)) (< -1e30 (+ p q)) (< (+ p q) 1e30))) ; p + q --> their sum
(rewrite (Mul (Const d p) (Const d q)) (Const d (* p q)) :when ((moderate p) (moderate q))) ; p q --> their product
(rewrite (Mul x (Const d 1.0)) x)                                             ; x 1 --> x
(rewrite (Div x (Const d 1.0)) x)                                             ; x / 1 --> x
(rewrite (Mul (Const d p) x) (Mul x (Const d p)))                             ; p x --> x p
(rewrite (Add (Const d p) x) (Add x (Const d p)))                             ; p + x --> x + p
"""

ALGEBRA = """
(rewrite (Mul (Mul x (Const d p)) (Const d q)) (Mul x (Const d (* p q))) :when ((moderate p) (moderate q))) ; (x p) q --> x (p q)
(rule ((= e (Sum k (Mul p q))) (inv k q)) ((union e (Mul (Sum k p) q))))      ; sum_k p q --> (sum_k p) q, q free of k
(rule ((= e (Sum k (Mul q p))) (inv k q)) ((union e (Mul (Sum k p) q))))      ; sum_k q p --> (sum_k p) q, q free of k
(rule ((= e (Sum k (Div p q))) (inv k q)) ((union e (Div (Sum k p) q))))      ; sum_k p / q --> (sum_k p) / q, q free of k
(rule ((= s (Sum k e))) ((under k e)))                                        ; where the next may act
(rule ((under k e) (= e (Mul p q)) (dep k p)) ((under k p)))                  ; ... and its factors
(rule ((under k e) (= e (Mul p q)) (dep k q)) ((under k q)))                  ; ... and its factors
(rule ((under k e) (= e (Mul (Mul p r) q)) (inv k r) (dep k q) (dep k p)) ((union e (Mul (Mul p q) r)))) ; (p r) q --> (p q) r
(rule ((under k e) (= e (Mul (Mul r p) q)) (inv k r) (dep k q) (dep k p)) ((union e (Mul (Mul p q) r)))) ; (r p) q --> (p q) r
(rule ((under k e) (= e (Mul q (Mul p r))) (inv k r) (dep k q) (dep k p)) ((union e (Mul (Mul q p) r)))) ; q (p r) --> (q p) r
(rule ((under k e) (= e (Mul q (Mul r p))) (inv k r) (dep k q) (dep k p)) ((union e (Mul (Mul q p) r)))) ; q (r p) --> (q p) r
(rule ((under k e) (= e (Mul (Div p r) q)) (inv k r) (dep k q) (dep k p)) ((union e (Div (Mul p q) r)))) ; (p / r) q --> (p q) / r
(rule ((under k e) (= e (Mul q (Div p r))) (inv k r) (dep k q) (dep k p)) ((union e (Div (Mul q p) r)))) ; q (p / r) --> (q p) / r
"""

FOLD = """
(rule ((= e (Mul (Add x y) c)) (fixed y) (fixed c) (!= 0 (ax c))) ((union e (Add (Mul x c) (Mul y c))))) ; (x + y) c --> x c + y c, y and c known
(rule ((= e (Mul c (Add x y))) (fixed y) (fixed c) (!= 0 (ax c))) ((union e (Add (Mul x c) (Mul y c))))) ; c (x + y) --> x c + y c, y and c known
(rewrite (Add (Add x y) z) (Add x (Add y z)) :when ((fixed y) (fixed z)))     ; (x + y) + z --> x + (y + z), y and z known
(rule ((= e (Mul (Mul x y) z)) (fixed y) (fixed z) (!= 0 (ax y)) (!= 0 (ax z))) ((union e (Mul x (Mul y z))))) ; (x y) z --> x (y z), y and z known
(rule ((= e (Mul (Sum k (Mul x w)) c)) (fixed w) (fixed c) (!= 0 (ax c)) (dep k w) (inv k c)) ((union e (Sum k (Mul x (Mul w c)))))) ; (sum_k x w) c --> sum_k x (w c), w and c known
(rule ((= e (Mul c (Sum k (Mul x w)))) (fixed w) (fixed c) (!= 0 (ax c)) (dep k w) (inv k c)) ((union e (Sum k (Mul x (Mul w c)))))) ; c (sum_k x w) --> sum_k x (w c), w and c known
(rule ((= e (Mul (Sum k (Mul w x)) c)) (fixed w) (fixed c) (!= 0 (ax c)) (dep k w) (inv k c)) ((union e (Sum k (Mul x (Mul w c)))))) ; (sum_k w x) c --> sum_k x (w c), w and c known
(rule ((= e (Div x c)) (fixed c) (!= 0 (ax c))) ((union e (Mul x (Recip c))))) ; x / c --> x (1 / c), c known, with axes
"""

ONLINE = """
(rewrite (Exp2 (Mul (Add x (Mul (Max k x) (Const d -1.0))) (Const d c))) (Wexp k x c) :when ((< 0.0 c))) ; 2^((x - max_k x) c) --> wexp(k, x, c), c > 0
(rewrite (Exp2 (Add x (Mul (Max k x) (Const d -1.0)))) (Wexp k x 1.0))        ; 2^(x - max_k x) --> wexp(k, x, 1)
(rewrite (Sum k (Wexp k x c)) (OSum k x c (One)))                             ; sum_k wexp --> online sum of 1
(rewrite (Sum k (Mul (Wexp k x c) f)) (OSum k x c f))                         ; sum_k wexp f --> online sum of f
(rewrite (Sum k (Mul f (Wexp k x c))) (OSum k x c f))                         ; sum_k f wexp --> online sum of f
"""

WEAK = """
(rewrite (Sum k (Add p q)) (Add (Sum k p) (Sum k q)))                         ; sum_k p + q --> sum_k p + sum_k q
(rule ((= e (Sum k (Mul (Add p q) y))) (inv k q) (dep k y)) ((union e (Add (Sum k (Mul p y)) (Mul (Sum k y) q))))) ; sum_k (p + q) y --> sum_k p y + (sum_k y) q
(rule ((= e (Sum k (Mul y (Add p q)))) (inv k q) (dep k y)) ((union e (Add (Sum k (Mul y p)) (Mul (Sum k y) q))))) ; sum_k y (p + q) --> sum_k y p + (sum_k y) q
"""

FAMILIES: dict[str, str] = {
    "read": READ,
    "guard": GUARD,
    "push": PUSH,
    "exact": EXACT,
    "algebra": ALGEBRA,
    "fold": FOLD,
    "online": ONLINE,
    "weak": WEAK,
}
DEFAULT = ("read", "guard", "push", "exact", "algebra", "fold", "online")
EXACT_FAMILIES = frozenset(("read", "guard", "push", "exact"))

_ABBREVIATIONS = (
    (re.compile(r"\(inv (\S+) (\S+?)\)"), r"(= 0 (& \1 (ax \2)))"),
    (re.compile(r"\(dep (\S+) (\S+?)\)"), r"(!= 0 (& \1 (ax \2)))"),
    (re.compile(r"\(at (\w+)\)"), r"(Read (Store \1) m)"),
    (re.compile(r"\(seen e x m\)"), "(= e (Read t m)) (= t (Store x)) (= m (restrict m (axT t)))"),
    (
        re.compile(r"\(moderate (\w)\)"),
        r"(!= 0.0 \1) (< -1e15 \1) (< \1 1e15) (< 1e-15 (* \1 \1))",
    ),
)


def laws(family: str) -> list[tuple[str, str]]:
    """(engine text without its ruleset, `before --> after`) of every rule of a family."""
    found = []
    for line in FAMILIES[family].strip().splitlines():
        text, _, meaning = line.partition(";")
        found.append((_expand(text.strip()), meaning.strip()))
    return found


def _expand(text: str) -> str:
    for pattern, replacement in _ABBREVIATIONS:
        text = pattern.sub(replacement, text)
    return text


def _within(text: str, ruleset: str) -> str:
    assert text.endswith(")")
    return f"{text[:-1]} :ruleset {ruleset})"


@lru_cache(maxsize=None)
def program(families: tuple[str, ...] = DEFAULT) -> tuple[str, ...]:
    """Declarations and rules for an engine, one command a text."""
    texts = [*declarations(), "(ruleset analysis)"]
    texts += [_within(line, "analysis") for line in ANALYSIS.strip().splitlines()]
    for family in families:
        texts.append(f"(ruleset {family})")
        texts += [_within(text, family) for text, _ in laws(family)]
    return tuple(texts)
