"""Random numbers: known bits, distributions, determinism."""

from __future__ import annotations

import numpy as np
import pytest

from luminal import ops
from luminal.backend.reference import evaluate
from luminal.errors import DTypeError, InputError
from luminal.graph import Graph, Tensor


def value(tensor: Tensor, feeds: dict[Tensor, np.ndarray] | None = None) -> np.ndarray:
    return evaluate(tensor.graph, [tensor.node], feeds or {})[tensor.node]


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [  # the test vectors of the Random123 library, threefry2x32 with 20 rounds
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((2**32 - 1, 2**32 - 1), (2**32 - 1, 2**32 - 1), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_known_answers(key: tuple, counter: tuple, expected: tuple) -> None:
    graph = Graph()
    words = [ops.full(graph, (1,), n, "u32") for n in (*key, *counter)]
    result = ops.random.threefry((words[0], words[1]), (words[2], words[3]))
    assert tuple(int(value(word)[0]) for word in result) == expected


def test_uniform_and_normal() -> None:
    graph = Graph()
    unit, normal = value(ops.rand(graph, (100, 200), seed=3)), value(ops.randn(graph, (100, 200)))
    assert unit.dtype == np.float32 and unit.min() >= 0 and unit.max() < 1
    assert abs(unit.mean() - 0.5) < 0.01 and abs(unit.var() - 1 / 12) < 0.002
    assert np.isfinite(normal).all()
    assert abs(normal.mean()) < 0.02 and abs(normal.std() - 1) < 0.02
    assert abs(np.corrcoef(unit[:, :-1].ravel(), unit[:, 1:].ravel())[0, 1]) < 0.02
    double = value(ops.rand(graph, (50,), dtype="f64"))
    assert double.dtype == np.float64 and len(np.unique(double)) == 50
    half = value(ops.rand(graph, (4000,), dtype="bf16"))
    assert half.max() < 1


def test_seed_and_stream() -> None:
    first, second = Graph(), Graph()
    a, b = ops.rand(first, (5,), seed=1), ops.rand(first, (5,), seed=1)
    assert not np.array_equal(value(a), value(b))  # streams of one graph differ
    assert np.array_equal(value(a), value(ops.rand(second, (5,), seed=1)))
    assert not np.array_equal(value(a), value(ops.rand(first, (5,), seed=2, stream=0)))
    large = ops.rand(first, (5,), seed=1 + (1 << 32), stream=0)
    assert not np.array_equal(value(a), value(large))


@pytest.fixture
def extremes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generator gives its largest, its smallest and another large word by turns."""

    def words(graph: Graph, shape: object, *_: object) -> tuple[Tensor, Tensor]:
        word = graph.constant(np.resize(np.array([2**32 - 1, 0, 0xFF << 24], "u4"), shape))  # type: ignore[call-overload]
        return word, word

    monkeypatch.setattr(ops.random, "random_words", words)


def everywhere(tensor: Tensor) -> list[np.ndarray]:
    tensor.output()
    devices = ("reference", "cpu")
    return [np.asarray(tensor.graph.compile(d, cache=False)()).astype("f8") for d in devices]


@pytest.mark.usefixtures("extremes")
def test_noise_is_finite() -> None:
    for found in everywhere(ops.gumbel(Graph(), (2,))):
        assert np.isfinite(found).all() and found[0] > 16 and found[1] < -2
    weights = np.array([[0, 1]] * 3, np.float32)
    for kind in ("f32", "f16", "bf16"):
        for found in everywhere(ops.multinomial(Graph().constant(weights).cast(kind))):
            assert (found == 1).all()
        for found in everywhere(ops.gumbel_softmax(Graph().constant(weights).cast(kind).log())):
            assert np.array_equal(found, weights)
    assert all(np.isfinite(found).all() for found in everywhere(ops.randn(Graph(), (2,))))


@pytest.mark.usefixtures("extremes")
@pytest.mark.parametrize("kind", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("ends", [(0, 1), (1.0, 2.0), (0, 3), (-1, 0), (10, 11), (0.1, 0.3)])
def test_uniform_stays_below_its_end(kind: str, ends: tuple[float, float]) -> None:
    low, high = ends
    for found in everywhere(ops.uniform(Graph(), (3,), low, high, dtype=kind)):
        assert low - 1e-3 <= found.min() and found.max() < high


def test_what_random_numbers_refuse() -> None:
    graph, seed = Graph(), {"seed": 0}
    wrongs = ({"seed": 1.5}, {"seed": 2**64}, {"seed": graph.literal(0.5)},
              seed | {"stream": 2**32}, seed | {"stream": -1}, seed | {"stream": 0.5})  # fmt: skip
    for wrong in wrongs:
        with pytest.raises(InputError, match=r"seed|stream"):
            ops.rand(graph, (2,), **wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="seed"):
        ops.manual_seed(graph, 0.5)  # type: ignore[arg-type]
    ops.rand(graph, (2,), seed=-(2**63)), ops.rand(graph, (2,), seed=np.uint64(2**64 - 1))  # type: ignore[arg-type]
    for low, high, kind in ((0, 257, "u8"), (-1, 3, "u8"), (0, 129, "i8"), (0, 3, "bool"),
                            (0, 2050, "f16"), (-258, 0, "bf16")):  # fmt: skip
        with pytest.raises(InputError, match="fit"):
            ops.randint(graph, low, high, (2,), dtype=kind)
    ops.randint(graph, -128, 128, (2,), dtype="i8"), ops.randint(graph, 0, 2049, (2,), dtype="f16")
    with pytest.raises(InputError, match="above"):
        ops.uniform(graph, (2,), 2, 1)
    for low, high, kind in ((-3e38, 3e38, "f32"), (0, 1e5, "f16"), (0, np.inf, "f64")):
        with pytest.raises(InputError, match=f"too wide for {kind}"):
            ops.uniform(graph, (2,), low, high, dtype=kind)
    with pytest.raises(InputError, match="not tensors"):
        ops.uniform(graph, (2,), graph.literal(0.0), 1.0)  # type: ignore[arg-type]


def test_seed_as_input() -> None:
    graph = Graph()
    seed = graph.tensor((), "i64")
    sample = ops.randint(graph, -3, 4, (1000,), seed=seed)
    one, two = (value(sample, {seed: np.int64(n)[...]}) for n in (1, 2))
    assert not np.array_equal(one, two)
    assert set(one) == set(range(-3, 4))


def test_gumbel_softmax() -> None:
    graph = Graph()
    logits = graph.constant(np.log(np.array([[0.2, 0.5, 0.3]] * 4000, np.float32)))
    hard, soft = (value(ops.gumbel_softmax(logits, 0.5, hard)) for hard in (True, False))
    assert set(np.unique(hard)) == {0, 1} and np.allclose(soft.sum(1), 1, atol=1e-5)
    assert np.allclose(hard.mean(0), [0.2, 0.5, 0.3], atol=0.03)


def test_dropout() -> None:
    graph = Graph()
    x = ops.ones(graph, (100, 100))
    assert ops.dropout(x, 0.3, training=False) is x
    dropped = value(ops.dropout(x, 0.3))
    assert abs((dropped == 0).mean() - 0.3) < 0.02
    np.testing.assert_allclose(dropped[dropped != 0], 1 / 0.7, rtol=1e-6)
    assert (value(ops.dropout(x, 1.0)) == 0).all()
    with pytest.raises(DTypeError, match="probability"):
        ops.dropout(x, 1.5)


def test_other_distributions() -> None:
    graph = Graph()
    assert sorted(value(ops.randperm(graph, 50))) == list(range(50))
    p = ops.full(graph, (5000,), 0.2)
    assert abs(value(ops.bernoulli(p)).mean() - 0.2) < 0.02
    assert abs(value(ops.exponential(graph, (5000,), 2.0)).mean() - 0.5) < 0.03
    weights = ops.full(graph, (4000, 3), 1.0) * graph.constant(np.array([1, 0, 3], np.float32))
    counts = np.bincount(value(ops.multinomial(weights))[:, 0], minlength=3)
    assert counts[1] == 0 and abs(counts[2] / 4000 - 0.75) < 0.03
