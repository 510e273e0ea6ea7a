"""What one program of a process has made serves the next."""

import numpy as np
import pytest

from luminal import Graph, earlier, making

RANDOM = np.random.default_rng(0)
WIDTH = 16


def network(layers: int, last: str = "relu", **options: object):
    """Equal layers over rows of any number, and what stands behind them."""
    cx = Graph()
    h = cx.tensor((cx.dim("rows", 1, 64), WIDTH), name="x")
    weights = [cx.tensor((WIDTH, WIDTH), name=f"w{n}") for n in range(layers)]
    for weight in weights:
        h = (h @ weight).softmax(-1) + h
    getattr(h.sum(-1), last)().output("y")
    program = cx.compile(cache=False, database=False, **{"threads": 1, **options})
    values = [RANDOM.normal(size=(WIDTH, WIDTH)).astype(np.float32) for _ in weights]
    for weight, value in zip(weights, values):
        program[weight] = value
    program["x"] = given = RANDOM.normal(size=(5, WIDTH)).astype(np.float32)
    program.run()
    for value in values:
        e = np.exp((s := given @ value) - s.max(-1, keepdims=True))
        given = given + e / e.sum(-1, keepdims=True)
    wanted = {"relu": lambda v: np.maximum(v, 0), "square": np.square}[last](given.sum(-1))
    np.testing.assert_allclose(program["y"], wanted, rtol=1e-4, atol=1e-5)
    return program


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch):
    """How many jobs are done."""
    jobs, make = [], making.make
    monkeypatch.setattr(making, "make", lambda job, *rest: jobs.append(job) or make(job, *rest))
    return jobs


def test_only_what_is_new_is_made(made):
    network(2)
    first = len(made)
    assert first >= 2
    assert network(5).check() == []
    assert len(made) == first
    program = network(3, "square")
    assert first < len(made) < 2 * first
    assert len({kernel.name for kernel in program.report.kernels}) == len(program.report.kernels)


@pytest.mark.parametrize("options", [{"seed": 1}, {"threads": 2}])
def test_what_kernels_depend_on_tells_them_apart(made, options):
    network(2)
    first = len(made)
    network(2, **options)
    assert len(made) == 2 * first


def test_a_search_makes_its_own(made):
    network(2)
    first = len(made)
    network(2, search=1)
    assert len(made) > first


def test_how_many_are_kept_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(earlier, "MOST", 1)
    network(2)
    assert len(earlier._DONE) == 1
    earlier.forget()
    assert not earlier._DONE


def test_a_kernel_serves_beside_others_with_larger_tiles(made):
    """Threads hold tiles at one place in all kernels of a program, however much each needs."""

    def attention(*widths: int):
        cx = Graph()
        for n, width in enumerate(widths):
            q, k, v = (cx.tensor((64, width), name=f"{name}{n}") for name in "qkv")
            ((q @ k.mT).softmax(-1) @ v).output(f"y{n}")
        program = cx.compile(cache=False, database=False, threads=2)
        assert program.check() == []
        return {tile.bytes for each in program.kernels for tile in each.program.tiles}

    small, jobs = attention(32), len(made)
    assert small < attention(32, 256) and len(made) > jobs
    before = len(made)
    attention(256)
    assert len(made) == before
