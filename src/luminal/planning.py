"""Plans of the distinct regions of a program, with their kernels as data. Where cores are free,
helpers (see making.py) do a part of them, as of the kernels behind them: `done_by_all`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from .children import Helpers
from .progress import Line
from .rewrite.by_range import Ranged
from .rewrite.optimise import extractor
from .rewrite.rates import CostModel
from .rewrite.terms import Region
from .runtime.report import Report
from .search.plans import Chosen
from .search.tune import Tuning

J = TypeVar("J")


@dataclass(frozen=True)
class Planned:
    """by_range: the steps of all plans of a region, each for its sizes. described: the plans, for
    people."""

    by_range: Sequence[Ranged]
    described: Sequence[str]


@dataclass(frozen=True)
class Planning:
    """A region to be planned. usual: sizes that have several usual values."""

    region: Region
    usual: Mapping[str, Sequence[int]]

    def chosen(self, tuning: Tuning) -> Chosen:
        """The plan that an earlier search has measured, else the model's: e-graph, extraction,
        kernels."""
        choices = extractor(self.region, CostModel.of(tuning.target))
        known = tuning.recall(self.region.key, choices)
        return replace(known or Chosen.of(choices, choices.plans()[0]), usual=self.usual)

    def planned(self, tuning: Tuning) -> Planned:
        chosen = self.chosen(tuning)
        return Planned(chosen.by_range, chosen.described)


def plan_regions(
    jobs: Sequence[Planning], tuning: Tuning, report: Report, others: Helpers
) -> Mapping[str, Planned]:
    """By the keys of regions, which helpers share."""

    def here(job: Planning) -> Planned:
        with report.stage("plan"):
            return job.planned(tuning)

    order = sorted(jobs, key=lambda job: -len(job.region.terms.nodes))
    made = done_by_all(order, here, others, report, "planning region")  # the largest begins first
    found = {job.region.key: planned for job, planned in made}
    return {job.region.key: found[job.region.key] for job in jobs}


def done_by_all(
    jobs: Sequence[J], here: Callable[[J], Any], others: Helpers, report: Report, doing: str
) -> list[tuple[J, Any]]:
    """What `here` makes of each job, or a helper, which takes some. doing: for people."""
    made = list[tuple[J, Any]]()
    with Line(len(jobs)) as line:
        for done, job in enumerate(others.shared(jobs)):
            line.tell(done, f"{doing} {done + 1}/{len(jobs)}")
            made.append((job, here(job)))
    with report.stage("helpers"):
        made += others.results()
    known = {id(job) for job, _ in made}  # a helper was lost, or failed: it shows here
    return made + [(job, here(job)) for job in jobs if id(job) not in known]
