"""Calls that run unit by unit compute what they compute one after the other."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import luminal
from luminal import Graph, Tensor, ops
from luminal.graph.dtype import DType, bf16, f32
from luminal.graph.index import Index
from luminal.runtime import binding, chains
from luminal.runtime.executable import Executable
from luminal.runtime.watch import watched


def gradient_of_attention(
    heads: int, places: int = 64, width: int = 32, dtype: DType = f32, other: bool = False
) -> Graph:
    """From queries, keys, values and the gradient of what they give. other: something that needs
    none of it is computed for the first product behind."""
    graph = Graph()
    q, k, v, o = (graph.tensor((heads, places, width), dtype, name=name) for name in "qkvo")
    behind = graph.iota((heads, places, places), Index.of("i2") - Index.of("i1")) <= 0
    weights = ops.softmax(ops.where(behind, q @ k.mT, float("-inf")), -1)
    slopes = o @ v.mT
    slopes = weights * (slopes - (weights * slopes).sum(-1, keepdim=True))
    for result in (slopes @ (ops.softmax(k, -1) if other else k), slopes.mT @ q, weights.mT @ o):
        result.output()
    return graph


def compiled(graph: Graph, threads: int, chained: bool = True) -> Executable:
    """The program with values, after a run; with chains or without."""
    with pytest.MonkeyPatch.context() as patch:
        if not chained:
            patch.setattr(binding, "chains_of", lambda *_: [])
        made = graph.compile(threads=threads, cache=False, database=False)
        random = np.random.default_rng(0)
        for tensor in graph.inputs:
            shape = [int(size) for size in tensor.node.shape]
            made[tensor] = random.standard_normal(shape, np.float32).astype(tensor.dtype.numpy)
        made.run()
    return made


def found(made: Executable) -> list[chains.Chain]:
    return list(made._engine._binding.chains)


def assert_same(made: Executable, wanted: list[np.ndarray]) -> None:
    for name, array in zip(made.outputs, wanted):
        np.testing.assert_array_equal(made[name], array)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_what_heads_pass_on_stays_with_threads(threads: int) -> None:
    graph = gradient_of_attention(256)
    whole = compiled(graph, threads, chained=False)
    wanted = [whole[name] for name in whole.outputs]
    made = compiled(graph, threads)
    (chain,) = found(made)
    assert 256 % chain.units == 0 and len(chain.calls) >= 3 and chain.own
    assert made.peak_bytes < 0.7 * whole.peak_bytes
    assert_same(made, wanted)
    made.run()
    assert_same(made, wanted)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", [f32, bf16])
def test_what_needs_nothing_of_a_chain_runs_before_it(dtype: DType, threads: int) -> None:
    graph = gradient_of_attention(256, dtype=dtype, other=True)
    whole = compiled(graph, threads, chained=False)
    made = compiled(graph, threads)
    chain, running = found(made)[0], made._engine._binding.running
    first = running.index(chain.calls[0])
    assert running[first : first + len(chain.calls)] == chain.calls
    assert set(range(chain.calls[0], chain.calls[-1])) - {*chain.calls}
    assert sorted(running) == sorted(whole._engine._binding.running)
    for _ in range(2):
        assert_same(made, [whole[name] for name in whole.outputs])
        made.run()


def test_calls_of_a_chain_may_run_alone(tmp_path) -> None:
    """Timed, traced, watched; before and after them a run computes the same."""
    made = compiled(gradient_of_attention(256), 2)
    wanted = [made[name] for name in made.outputs]
    assert found(made)
    assert all(seconds >= 0 for _, seconds in made.time_kernels(1))
    assert_same(made, wanted)
    assert len({span.kernel for span in made.trace()}) == len(made.kernels)
    assert_same(made, wanted)
    names: list[str] = []

    class Watch:
        def __init__(self, name: str) -> None:
            names.append(name)

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    with watched(Watch):
        made.run()
    assert {*names} == {each.name for each in made.kernels}
    assert_same(made, wanted)
    made.run()
    assert_same(made, wanted)
    made.save(tmp_path / "made.luminal")
    loaded = luminal.load(tmp_path / "made.luminal")
    for name in made.inputs:
        loaded[name] = made[name]
    loaded.run()
    assert found(loaded) and not loaded.check()
    assert_same(loaded, wanted)


def test_few_bytes_are_no_chain() -> None:
    assert not found(compiled(gradient_of_attention(4, 32), 1))


def test_writers_of_one_memory_are_apart_along_some_dimension() -> None:
    whole, part = Index.of(8), Index.of(6)
    first, second, across = ((0, 3), (0, 5)), ((4, 7), (0, 5)), ((2, 5), (1, 1))

    def box(ends: tuple[tuple[int, int], ...], *shape: Index) -> chains.Box:
        return tuple((n, *pair) for n, pair in zip(shape, ends))

    assert chains._apart([box(first, whole, part), box(second, whole, part)])
    assert not chains._apart([box(first, whole, part), box(second, whole, whole)])
    assert not chains._apart([(), box(first, whole, part)])
    assert not chains._apart([(), ()])
    assert not chains._apart([box(e, whole, part) for e in (first, second, across)])


# ---- whatever follows whatever


def drawn(seed: int) -> Graph:
    """Some operations in a row on arrays of a few units; some of them mix the units. Arrays that
    are given may change with each run, in place."""
    random, graph = Random(seed), Graph()
    units, dtype = random.choice([(2,), (3,), (4,), (2, 3), (3, 2)]), random.choice([f32, bf16])

    def given(*sizes: int) -> Tensor:
        return graph.tensor((*units, *sizes), dtype)

    sizes = [3, 8, 24, 33]
    made = [given(random.choice(sizes), random.choice(sizes)) for _ in range(3)]
    states = list(made)
    for _ in range(random.randint(5, 12)):
        x, axis = random.choice(made[-3:]), random.choice([-1, -2])
        like = random.choice([y for y in made if y.node.shape == x.node.shape])
        wide = random.choice([y for y in made if y.shape[-1] == x.shape[-1]])
        weights = given(int(x.shape[-1]), random.choice(sizes))
        made.append(random.choice([
            x @ weights * 0.1, x @ wide.mT * 0.1, x @ wide.mT * 0.1, ops.softmax(x, axis),
            ops.cumsum(x, axis) * 0.1, x.mT, x * like + x.mean(axis, keepdim=True), x + x.flip(0),
        ]))  # fmt: skip
        if random.random() < 0.15:
            made[-1].output()
        if states and random.random() < 0.3:
            state = states.pop()
            graph.donate(state, random.choice([state * 0.5, ops.cumsum(state, -1) * 0.1 + 1]))
    made[-1].output()
    return graph


def test_random_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With chains wherever they may be, bit for bit as without."""
    monkeypatch.setattr(chains, "HELD", 0.0)
    monkeypatch.setattr(chains, "UNITS", 0.1)
    lengths = list[int]()
    for seed in range(60):
        graph = drawn(seed)
        whole = compiled(graph, 1 + seed % 3, chained=False)
        made = compiled(graph, 1 + seed % 3)
        lengths += [len(chain.calls) for chain in found(made)]
        for _ in range(2):
            assert_same(made, [whole[name] for name in whole.outputs])
            made.run()
            whole.run()
    assert lengths
