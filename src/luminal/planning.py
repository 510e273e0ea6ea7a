"""Plans of the distinct regions of a program, with their kernels as data. Where cores are free,
helpers (see making.py) do a part of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .children import Helpers
from .progress import Line
from .rewrite.by_range import Ranged
from .rewrite.optimise import extractor
from .rewrite.rates import CostModel
from .rewrite.terms import Region
from .runtime.report import Report
from .search.plans import Chosen
from .search.tune import Tuning


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
    made, order = dict[str, Planned](), sorted(jobs, key=lambda job: -len(job.region.terms.nodes))
    with Line(len(jobs)) as line:
        for done, job in enumerate(others.shared(order)):  # the largest is not begun last
            line.tell(done, f"planning region {done + 1}/{len(jobs)}")
            with report.stage("plan"):
                made[job.region.key] = job.planned(tuning)
    with report.stage("helpers"):
        made |= {job.region.key: found for job, found in others.results()}
    for job in jobs:
        if job.region.key not in made:  # a helper was lost, or failed: it shows here
            made[job.region.key] = job.planned(tuning)
    return {job.region.key: made[job.region.key] for job in jobs}
