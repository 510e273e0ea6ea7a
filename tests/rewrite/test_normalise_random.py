"""Random graphs mean the same as graphs and as terms over named axes."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from programs import programs

from luminal.graph import reference
from luminal.rewrite.evaluate import run
from luminal.rewrite.normalise import normalise


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_terms_mean_what_the_graph_means(program):
    graph, outputs, feeds = program
    expected = reference.evaluate(graph, outputs, feeds)
    found = run(normalise(graph.space, outputs), feeds)
    for node in outputs:
        np.testing.assert_array_equal(found[node], expected[node])
