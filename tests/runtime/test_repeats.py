"""What two kernels want in one layout is laid out once."""

from __future__ import annotations

import numpy as np

import luminal


def test_an_operand_that_two_products_want_turned_is_turned_once():
    cx = luminal.Graph()
    x, y = cx.tensor((1024, 1024)), cx.tensor((1024, 1024))
    weights = [cx.tensor((1024, 256)) for _ in range(3)]
    for left, weight in zip((x, x, y), weights):
        (left.T @ weight).output()
    rt = cx.compile(threads=2, cache=False)
    draw = np.random.default_rng(0)
    shapes = [(1024, 1024)] * 2 + [(1024, 256)] * 3
    given = [draw.standard_normal(shape, dtype=np.float32) for shape in shapes]
    for _ in range(2):
        given[0] = given[0] + 1
        right = [given[0].T @ given[2], given[0].T @ given[3], given[1].T @ given[4]]
        for mine, wanted in zip(rt(*given), right):
            np.testing.assert_allclose(mine, wanted, rtol=1e-3, atol=1e-2)
    plan = rt._report.plan
    first, second = plan.ports[:2]
    made = [plan.touched(call) for call in plan.calls]
    turned = [sorted(reads) for reads, _ in made if reads <= {first, second}]
    assert sorted(turned) in ([], [[first], [second]])  # nothing is turned, or each once
