"""A memory budget chooses among the parts under `checkpoint()`; the results stay."""

from __future__ import annotations

import numpy as np
import pytest

from luminal import Graph, InputError, Unsupported, ops, train
from luminal.train.budget import Part, _fitting, settle

WIDTHS = (64, 256, 128)  # inside of each part


def trained(memory: int | None) -> tuple[list[float], list[Part]]:
    """Losses of a few steps."""
    graph, random = Graph(), np.random.default_rng(0)
    x, weights = graph.tensor((32, 64)), []
    y = x
    for width in WIDTHS:
        shapes = ((64, width), (width, 64))
        pair = [graph.parameter(s).set(0.1 * random.standard_normal(s, np.float32)) for s in shapes]
        y = train.checkpoint(
            lambda y, a, b: y + ops.gelu(ops.layer_norm(y, (64,)) @ a) @ b, y, *pair
        )
        weights += pair
    step = train.Step((y * y).mean(), weights, train.SGD(0.1), memory=memory)
    rt, losses = graph.compile(threads=1), []
    for _ in range(3):
        rt[x] = random.standard_normal((32, 64), np.float32)
        rt.run()
        losses.append(float(rt[step.loss]))
    return losses, step.parts


def test_a_budget_decides_what_is_computed_again() -> None:
    wanted, none = trained(None)
    _, parts = trained(1 << 30)
    assert not none and not any(part.again for part in parts)
    sizes = sorted(part.bytes for part in parts)
    assert sizes[0] < sizes[1] < sizes[2]  # as the widths inside
    for budget in (sizes[2], sizes[1] + sizes[2]):
        losses, parts = trained(int(budget))
        kept = sum(part.bytes for part in parts if not part.again)
        assert kept + max((p.bytes for p in parts if p.again), default=0.0) <= budget
        assert any(part.again for part in parts)
        np.testing.assert_allclose(losses, wanted, rtol=1e-5)


def test_dear_parts_are_kept_first() -> None:
    node = Graph().tensor((1,)).node
    parts = [Part(node, 10.0, seconds) for seconds in (1.0, 3.0, 2.0)]
    assert [part.seconds for part in _fitting(parts, 30)] == [3.0, 2.0, 1.0]
    assert [part.seconds for part in _fitting(parts, 25)] == [3.0]
    assert not _fitting(parts, 15)


def test_what_no_budget_can_hold_is_said() -> None:
    with pytest.raises(InputError, match="one part alone takes"):
        trained(1000)
    graph = Graph()
    w = graph.parameter((4,))
    with pytest.raises(InputError, match=r"under train.checkpoint\(\): there is none"):
        train.Step((w * w).sum(), [w], train.SGD(0.1), memory=1 << 20)


def test_a_part_with_a_loop_is_refused():
    x = Graph().tensor((3, 2))
    y = train.checkpoint(lambda a: ops.scan(lambda c, r: (c + r, c), a[0], a)[1] * 2.0, x)
    with pytest.raises(Unsupported, match="parts with loops"):
        settle(y.sum(), 10**9)
