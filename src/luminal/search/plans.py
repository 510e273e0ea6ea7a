"""The search for better plans of a region: seconds that were measured take the model's place.

The model proposes plans that cut the region differently. Their kernels are measured with default
schedules, each once, and plans are chosen anew with those seconds, until the best one is made of
measured kernels only.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..kernel.kernel import Kernel
from ..rewrite.by_range import Alternative, Ranged, alternatives, joined
from ..rewrite.lower_plan import Step, lower_plan
from ..rewrite.optimise import Extractor, Key
from ..rewrite.plan import Cyclic, FusedKernel, Plan

WIDTH = 3  # plans that are measured in a round
ROUNDS = 3
SHOWN = 3
CLEAR = 0.98  # of the time: less is no reason for another plan

Seconds = Callable[[Kernel], float | None]  # of a call; None where it cannot be measured


@dataclass(frozen=True)
class Chosen:
    """A plan of a region with its kernels, at the usual sizes. seconds: the sum of its kernels
    where they were measured, else modelled. settled: an earlier search has chosen it. usual: sizes
    that have several usual values."""

    extractor: Extractor
    plan: Plan
    steps: Sequence[Step]
    seconds: float
    settled: bool = False
    usual: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @staticmethod
    def of(extractor: Extractor, plan: Plan, settled: bool = False) -> Chosen:
        """As the model sees it."""
        return Chosen(extractor, plan, lower_plan(plan), plan.cost, settled)

    @cached_property
    def plans(self) -> list[Alternative]:
        """The plan, and others where sizes far from the usual ones are better off with them."""
        return alternatives(self.extractor, self.plan, self.usual)

    @cached_property
    def by_range(self) -> list[Ranged]:
        """The steps of all plans, each for its sizes."""
        parts = [
            (each, self.steps if each.plan is self.plan else lower_plan(each.plan))
            for each in self.plans
        ]
        return joined(parts)

    @property
    def described(self) -> list[str]:
        """The plans, for people."""
        return [each.plan.describe() for each in self.plans]

    @property
    def text(self) -> tuple[str, list[int], list[int]]:
        """What the plan can be made of again: (fingerprint of the classes, choice, stored)."""
        return self.extractor.fingerprint(), self.plan.choice, sorted(self.plan.stored)


def recalled(extractor: Extractor, text: Sequence[object]) -> Chosen | None:
    """The plan of `Chosen.text`; None where the region is not what it was then."""
    try:
        fingerprint, choice, stored = text
        if fingerprint != extractor.fingerprint():
            return None
        plan = extractor.plan(choice, stored)  # type: ignore[arg-type]
        return Chosen.of(extractor, plan, settled=True)
    except (Cyclic, IndexError, TypeError, ValueError):
        return None


def measured_plans(own: Chosen, seconds: Seconds, until: float | None = None) -> list[Chosen]:
    """`own`, the model's plan, then others whose kernels were measured like its, fastest first.
    until: when to stop, by the monotonic clock."""
    extractor, measured, tried = own.extractor, dict[Key, float](), list[Chosen]()
    plans = [] if own.settled else extractor.plans(WIDTH)
    if len(plans) < 2:
        return [own]
    for _ in range(ROUNDS):
        seen = [(chosen.plan.choice, chosen.plan.stored) for chosen in tried]
        fresh = [plan for plan in plans if (plan.choice, plan.stored) not in seen]
        for plan in fresh:
            if tried and until is not None and time.monotonic() > until:
                break
            tried.append(replace(_measured(extractor, plan, seconds, measured), usual=own.usual))
        plans = extractor.plans(WIDTH, _comparable(extractor, plans, measured)) if fresh else []
    others = sorted(tried[1:], key=lambda chosen: chosen.seconds)
    return [replace(own, seconds=tried[0].seconds), *others]


def clearly_better(found: Sequence[Chosen]) -> Chosen:
    """The best of what `measured_plans` has found: the model's own where none is clearly faster."""
    own, *others = found
    return others[0] if others and others[0].seconds < CLEAR * own.seconds else own


def compared(found: Sequence[Chosen]) -> str:
    """What was compared, in one line."""
    texts = [f"{len(_running(c.plan))} kernels {1e6 * c.seconds:.1f} us" for c in found]
    shown = ", ".join(texts[1 : 1 + SHOWN])
    return f"{len(texts)} plans measured: the model's {texts[0]}; then {shown}"


def _running(plan: Plan) -> list[FusedKernel]:
    """The kernels of every run."""
    return [piece for piece in plan.pieces if not plan.classes.constant[piece.roots[0]]]


def _measured(
    extractor: Extractor, plan: Plan, seconds: Seconds, measured: dict[Key, float]
) -> Chosen:
    """The plan with the seconds of its kernels, which join `measured`."""
    steps, total = lower_plan(plan), 0.0
    for piece in _running(plan):
        taken = [seconds(s.kernel) for s in steps if s.root == piece.roots[0] and not s.constant]
        known = [t for t in taken if t is not None]
        if len(known) < len(taken):  # some cannot be measured
            total += extractor.modelled(piece)
        if len(known) < len(taken) or not taken:  # others make a concatenation
            continue
        measured.setdefault(piece.key, sum(known))
        total += sum(known)
    return Chosen(extractor, plan, steps, total)


def _comparable(
    extractor: Extractor, plans: Sequence[Plan], measured: Mapping[Key, float]
) -> dict[Key, float]:
    """Measured seconds on the model's scale: unmeasured kernels stand a fair chance beside them."""
    pieces = {piece.key: piece for plan in plans for piece in _running(plan)}
    shares = [
        measured[key] / extractor.modelled(piece)
        for key, piece in pieces.items() if key in measured
    ]  # fmt: skip
    scale = statistics.median(shares) if shares else 1.0
    return {key: taken / scale for key, taken in measured.items()}
