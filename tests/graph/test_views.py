"""Every movement against NumPy or PyTorch, alone and composed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luminal.backend import reference
from luminal.errors import DimError, ShapeError
from luminal.graph.graph import Graph

torch = pytest.importorskip("torch")


def value(tensor, feeds, **sizes):
    return reference.evaluate(tensor.graph, [tensor.node], feeds, sizes)[tensor.node]


def numbers(*shape):
    return np.arange(1, np.prod(shape, dtype=int) + 1, dtype=np.float32).reshape(shape)


MOVES = [
    ("permute", lambda x: x.permute(2, 0, 1), lambda t: t.permute(2, 0, 1)),
    ("transpose", lambda x: x.transpose(0, -1), lambda t: t.transpose(0, -1)),
    ("T", lambda x: x.T, lambda t: t.permute(2, 1, 0)),
    ("movedim", lambda x: x.movedim(0, 2), lambda t: t.movedim(0, 2)),
    ("split", lambda x: x.reshape(2, 2, 6, 3), lambda t: t.reshape(2, 2, 6, 3)),
    ("merge", lambda x: x.flatten(0, 1), lambda t: t.flatten(0, 1)),
    ("odd", lambda x: x.reshape(8, 9), lambda t: t.reshape(8, 9)),
    ("minus one", lambda x: x.view(3, -1), lambda t: t.reshape(3, -1)),
    ("unflatten", lambda x: x.unflatten(1, (3, -1)), lambda t: t.unflatten(1, (3, -1))),
    ("ones", lambda x: x.reshape(1, 4, 6, 1, 3, 1), lambda t: t.reshape(1, 4, 6, 1, 3, 1)),
    ("squeeze", lambda x: x[1:2].squeeze(), lambda t: t[1:2].squeeze()),
    ("unsqueeze", lambda x: x.unsqueeze(-1), lambda t: t.unsqueeze(-1)),
    ("expand", lambda x: x[:, :1].expand(2, -1, 5, 3), lambda t: t[:, :1].expand(2, 4, 5, 3)),
    ("slice", lambda x: x[1:, ::2, -2:], lambda t: t[1:, ::2, -2:]),
    ("beyond", lambda x: x[-9:9, 5:2, 1:99], lambda t: t[-9:9, 5:2, 1:99]),
    ("backwards", lambda x: x[::-1, 4:0:-2], lambda t: torch.from_numpy(
        t.numpy()[::-1, 4:0:-2].copy())),
    ("integers", lambda x: x[-1, ..., None, 2], lambda t: t[-1, ..., None, 2]),
    ("flip", lambda x: x.flip(0, 2), lambda t: t.flip(0, 2)),
    ("roll", lambda x: x.roll(-2, 1), lambda t: t.roll(-2, 1)),
    ("repeat", lambda x: x.repeat(2, 1, 3, 2), lambda t: t.repeat(2, 1, 3, 2)),
    ("tile", lambda x: x.tile(2, 1), lambda t: t.tile(2, 1)),
    ("interleave", lambda x: x.repeat_interleave(3, 1), lambda t: t.repeat_interleave(3, 1)),
    ("unfold", lambda x: x.unfold(1, 3, 2), lambda t: t.unfold(1, 3, 2)),
    ("diagonal", lambda x: x.diagonal(1, 0, 1), lambda t: t.diagonal(1, 0, 1)),
    ("diagonal below", lambda x: x.diagonal(-2, 2, 1), lambda t: t.diagonal(-2, 2, 1)),
    ("pad", lambda x: x.pad([1, 2, 0, 3], -1.0),
     lambda t: torch.nn.functional.pad(t, [1, 2, 0, 3], value=-1.0)),
    ("crop", lambda x: x.pad([-1, 1, -2, 0]),
     lambda t: torch.nn.functional.pad(t, [-1, 1, -2, 0])),
]  # fmt: skip


@pytest.mark.parametrize("name, move, torch_move", MOVES, ids=[m[0] for m in MOVES])
def test_move(name, move, torch_move):
    graph = Graph()
    x, array = graph.tensor((4, 6, 3)), numbers(4, 6, 3)
    result = move(x)
    assert [n.op for n in graph.nodes].count("view") <= 2
    np.testing.assert_array_equal(
        value(result, {x: array}), torch_move(torch.from_numpy(array)).numpy()
    )


def test_dilate_and_windows():
    graph = Graph()
    x, array = graph.tensor((3, 7)), numbers(3, 7)
    spread = np.zeros((3, 13), np.float32)
    spread[:, ::2] = array
    np.testing.assert_array_equal(value(x.dilate(2, 1), {x: array}), spread)
    taps = value(x.windows([0, 1], [2, 3], [1, 2], [1, 2]), {x: array})
    assert taps.shape == (2, 2, 2, 3)
    for y, c, r, s in np.ndindex(*taps.shape):
        assert taps[y, c, r, s] == array[y + r, 2 * c + 2 * s]


STEPS = {
    "flip": (lambda x: x.flip(0), lambda a: np.flip(a, 0)),
    "permute": (lambda x: x.permute(*range(1, x.ndim), 0), lambda a: np.moveaxis(a, 0, -1)),
    "flatten": (lambda x: x.flatten(), lambda a: a.reshape(-1)),
    "split": (
        lambda x: x.unflatten(0, (2, -1)) if x.shape[0] % 2 == 0 else x,
        lambda a: a.reshape(2, a.shape[0] // 2, *a.shape[1:]) if a.shape[0] % 2 == 0 else a,
    ),
    "tail": (lambda x: x[1:], lambda a: a[1:]),
    "every other": (lambda x: x[::-2], lambda a: a[::-2]),
    "pad": (
        lambda x: x.pad([(1, 2)] + [(0, 0)] * (x.ndim - 1), 7),
        lambda a: np.pad(a, [(1, 2)] + [(0, 0)] * (a.ndim - 1), constant_values=7),
    ),
    "pad other": (
        lambda x: x.pad([(0, 0)] * (x.ndim - 1) + [(1, 1)], -0.0),
        lambda a: np.pad(a, [(0, 0)] * (a.ndim - 1) + [(1, 1)], constant_values=-0.0),
    ),
    "roll": (lambda x: x.roll(1, -1), lambda a: np.roll(a, 1, -1)),
    "repeat": (lambda x: x.tile(2), lambda a: np.tile(a, 2)),
    "merge": (
        lambda x: x.flatten(0, 1) if x.ndim > 1 else x,
        lambda a: a.reshape(-1, *a.shape[2:]) if a.ndim > 1 else a,
    ),
    "odd": (
        lambda x: x.reshape(-1, 3) if x.flatten().shape[0] % 3 == 0 else x,
        lambda a: a.reshape(-1, 3) if a.size and a.size % 3 == 0 else a,
    ),
    "unfold": (
        lambda x: x.unfold(0, 2, 1) if x.shape[0] >= 2 else x,
        lambda a: np.moveaxis(np.lib.stride_tricks.sliding_window_view(a, 2, 0), -1, -1)
        if a.shape[0] >= 2 else a,
    ),
    "diagonal": (
        lambda x: x.diagonal() if x.ndim > 1 else x,
        lambda a: np.diagonal(a) if a.ndim > 1 else a,
    ),
}  # fmt: skip


@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6), st.booleans())
@settings(max_examples=150, deadline=None)
def test_compositions(names, symbolic):
    graph = Graph()
    x, array = graph.tensor((4, 6)), numbers(4, 6)
    if symbolic:
        names = [n for n in names if n not in ("split", "odd", "unfold", "merge", "flatten")]
        x = graph.tensor(("s", 6))
    result, expected = x, array
    for name in names:
        move, same = STEPS[name]
        if expected.size == 0 or expected.size > 5000:
            break
        if not (symbolic and name in ("every other", "diagonal")):
            result, expected = move(result), same(expected)
    got = value(result, {x: array}, **({"s": 4} if symbolic else {}))
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


def test_symbolic_reshapes_leave_no_arithmetic():
    graph = Graph()
    x = graph.tensor(("b", "s", 64))
    assert x.reshape("b*s", 64).reshape("b", "s", 64) is x
    assert x.reshape(-1, 64).unflatten(0, ("b", -1)) is x
    heads = x.reshape("b", "s", 4, 16).permute(0, 2, 1, 3)
    assert heads.permute(0, 2, 1, 3).flatten(2) is x
    assert heads.shape == (graph.size("b"), 4, graph.size("s"), 16)
    assert [str(i) for i in heads.node.attribute.index] == ["i0", "i2", "16*i1 + i3"]


def test_identity_views_are_the_source():
    graph = Graph()
    x = graph.tensor((4, 1, 3))
    assert x.permute(0, 1, 2) is x and x[:] is x and x.expand(4, 1, 3) is x
    assert x.flip(0).flip(0) is x and x.roll(1, 0).roll(-1, 0) is x
    assert x.squeeze(1).unsqueeze(1) is x and x.pad([0, 0]) is x
    assert x.T.T is x


def test_view_outside_is_its_fill():
    graph = Graph()
    x = graph.tensor((3,))
    gone = x.pad([(5, 0)], 2.0)[:4]
    assert gone.node.inputs[0].op == "literal"
    np.testing.assert_array_equal(value(gone, {x: numbers(3)}), np.full(4, 2.0, np.float32))


def test_two_pads_of_one_fill_are_one_view():
    graph = Graph()
    x = graph.tensor((3, 3))
    one = x.pad([1, 1]).pad([0, 0, 1, 1])
    assert one.node.inputs == (x.node,)
    other = x.pad([1, 1]).pad([0, 0, 1, 1], 1.0)
    assert other.node.inputs[0].op == "view"
    again = x.pad([1, 1], 0.0).pad([0, 0, 1, 1], -0.0)
    assert again.node.inputs[0].op == "view"


def test_symbolic_slices():
    graph = Graph()
    graph.dim("p", 0, 64)
    x = graph.tensor((64, 2))
    part = x["p":"p + s"]
    assert part.shape == (graph.size("s"), 2)
    array = numbers(64, 2)
    np.testing.assert_array_equal(value(part, {x: array}, p=60, s=4), array[60:])
    with pytest.raises(DimError, match="p = 61"):
        value(part, {x: array}, p=61, s=4)
    y = graph.tensor(("s", 2))
    np.testing.assert_array_equal(value(y[:5], {y: numbers(3, 2)}), numbers(3, 2))
    np.testing.assert_array_equal(value(y[-2:], {y: numbers(3, 2)}), numbers(3, 2)[-2:])
    np.testing.assert_array_equal(value(y[-2:], {y: numbers(1, 2)}), numbers(1, 2))


def test_reshape_that_must_divide():
    graph = Graph()
    x = graph.tensor(("s",))
    pairs = x.reshape(-1, 2)
    np.testing.assert_array_equal(value(pairs, {x: numbers(6)}), numbers(3, 2))
    with pytest.raises(DimError, match="as many elements"):
        value(pairs, {x: numbers(5)})


def test_zero_sizes():
    graph = Graph()
    x = graph.tensor((0, 3))
    assert value(x.reshape(3, 0), {x: numbers(0, 3)}).shape == (3, 0)
    for empty in (x.roll(1, 0), x.tile(2, 1), x.flip(0), x[::2], x.T, x.unfold(0, 0, 1)):
        assert 0 in value(empty, {x: numbers(0, 3)}).shape
    assert value(x.repeat_interleave(0, 1), {x: numbers(0, 3)}).shape == (0, 0)
    np.testing.assert_array_equal(
        value(x.pad([(1, 1), (0, 0)], 5.0), {x: numbers(0, 3)}), np.full((2, 3), 5.0)
    )


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.reshape(5, 5),
        lambda x: x.reshape(-1, -1),
        lambda x: x.permute(0, 0),
        lambda x: x.expand(4, 7),
        lambda x: x[4],
        lambda x: x[0, 0, 0],
        lambda x: x.unfold(1, 7, 1),
        lambda x: x.transpose(0, 2),
        lambda x: x.pad([-4, -3]),
        lambda x: x.reshape("s", 24),
        lambda x: x["s + 4"],
        lambda x: x[::0],
        lambda x: x[::"s"],
        lambda x: x.narrow(0, 2, 3),
    ],
)
def test_wrong_moves_name_shape_and_line(move):
    x = Graph().tensor((4, 6))
    with pytest.raises(ShapeError, match=r"test_views\.py:\d+"):
        move(x)


def test_the_diagonal_of_a_square_is_as_long_as_its_side():
    graph = Graph()
    x = graph.tensor((graph.dim("s", 0, 8), "s"))
    assert x.diagonal().shape == x.shape[:1]
    assert (x.diagonal().unsqueeze(1) * x).shape == x.shape
