"""Where eager raises an error for values, so does a compiled function: the same error."""

import re

import pytest
import torch
from torch.nn import functional as F

import luminal
from luminal.torch import backend, report

X, ROW = torch.randn(4, 3), torch.ones(1, 3)

INDEXED = {
    "embedding": (lambda at: F.embedding(at, X), False),
    "bag": (lambda at: F.embedding_bag(at.view(1, -1), X), False),
    "gather": (lambda at: X.gather(0, at.view(1, -1)), False),
    "index": (lambda at: X[at] + X[1, at % 3], True),
    "select": (lambda at: X.index_select(0, at), False),
    "scatter": (lambda at: X.scatter(0, at.view(1, -1), 1.0), False),
    "scatter_add": (lambda at: X.scatter_add(0, at.view(1, -1), ROW), False),
    "index_add": (lambda at: X.index_add(0, at, ROW), False),
    "index_put": (lambda at: X.index_put((at,), ROW), True),
    "take": (lambda at: X.take(at * 3), True),
    "sorter": (lambda at: torch.searchsorted(X[0], 1.0, sorter=at.expand(3)), False),
}  # fmt: skip


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return type(error), str(error)


def same_outcome(function, run, *arguments):
    expected, got = outcome(function, *arguments), outcome(run, *arguments)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(got, expected, equal_nan=True)
    else:
        assert got == expected
    return not isinstance(expected, torch.Tensor)


@pytest.mark.parametrize("name", INDEXED)
def test_an_index_out_of_range_raises_what_eager_raises(name):
    function, from_end = INDEXED[name]
    run = torch.compile(function, backend=backend)
    raised = {at: same_outcome(function, run, torch.tensor([at])) for at in (2, 9, 1, -9, -1)}
    assert raised[9] and raised[-9] and not raised[2] and not raised[1]
    assert raised[-1] is not from_end
    assert report().parts == 1 and not report().fallbacks and not report().failures


def test_an_assertion():
    def function(at):
        torch._assert_async((at < 3).all(), "too large")
        return at + 1

    run = torch.compile(function, backend=backend)
    assert [same_outcome(function, run, torch.tensor([1, at])) for at in (2, 3)] == [False, True]
    assert not report().fallbacks and not report().failures


@pytest.mark.parametrize("op", [
    torch.floor_divide, torch.remainder, torch.fmod,
    lambda x, y: torch.div(x, y, rounding_mode="trunc"), lambda x, y: 7 % y, lambda x, y: x // 0,
    lambda x, y: x / y,
])  # fmt: skip
def test_whole_numbers_divided_by_zero(op):
    run = torch.compile(op, backend=backend)
    for whole in (True, False):
        for divisor in (2, 0, 3):
            values = torch.tensor([8, 5]), torch.tensor([1, divisor])
            values = values if whole else [v.float() for v in values]
            same_outcome(op, run, *values)


@pytest.mark.parametrize(
    ("shape", "reduction"),
    [((5, 3), "mean"), ((3,), "sum"), ((2, 3, 4, 2), "none"), ((2, 3, 2), "mean")], ids=str,
)
def test_targets_that_are_no_class(shape, reduction):
    """In training too; where all are ignored the mean is no number."""
    torch.manual_seed(0)
    x, weight = torch.randn(shape, requires_grad=True), torch.rand(3)
    right = torch.randint(3, shape[:1] + shape[2:] if len(shape) > 1 else ())
    for rest in ({}, {"weight": weight, "ignore_index": 1}, {"label_smoothing": 0.1}):
        whole = lambda x, y, rest=rest: F.cross_entropy(x, y, reduction=reduction, **rest)  # noqa: E731
        run = torch.compile(whole, backend=backend)
        ignored = torch.full_like(right, rest.get("ignore_index", -100))
        for target in (right, ignored, torch.ones_like(right)):
            same_outcome(whole, run, x, target)
            got, wanted = (torch.autograd.grad(f(x, target).sum(), x)[0] for f in (run, whole))
            torch.testing.assert_close(got, wanted, equal_nan=True)
        for wrong in (3, -1):
            target = right.clone()
            target.view(-1)[-1] = wrong
            error, text = outcome(run, x, target)
            assert (error, text) == outcome(whole, x, target) and error is IndexError
    assert not report().fallbacks and not report().failures


def test_weights_and_sizes_are_looked_at_too():
    class Table(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(torch.randn(6, 2))
            self.register_buffer("places", torch.tensor([0, 5]))

        def forward(self, x):
            return self.table[self.places] + F.embedding(torch.arange(x.shape[0]), self.table)[:2]

    model = Table()
    run = torch.compile(model, backend=backend, dynamic=True)
    with torch.no_grad():
        assert not same_outcome(model, run, torch.ones(4, 1))
        assert same_outcome(model, run, torch.ones(8, 1))
        assert not same_outcome(model, run, torch.ones(5, 1))
        model.places[1] = 6
        assert same_outcome(model, run, torch.ones(4, 1))


def test_a_weight_that_divides_what_is_given():
    class Divided(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("by", torch.tensor([3, 4]))

        def forward(self, x):
            return (x * 2) // self.by

    model = Divided()
    run = torch.compile(model, backend=backend)
    values = torch.arange(6).view(3, 2)
    assert not same_outcome(model, run, values)
    model.by[1] = 0
    assert same_outcome(model, run, values)
    assert report().parts == 1 and not report().failures


def test_nobody_looks_where_that_is_asked_for():
    run = torch.compile(lambda at: X[at], backend=backend, options={"range_checks": False})
    assert run(torch.tensor([9])).shape == (1, 3)


def test_a_step_of_training_raises_in_its_forward_pass():
    table = torch.randn(4, 2, requires_grad=True)

    def loss(at):
        return F.embedding(at, table).square().sum()

    run = torch.compile(loss, backend=backend)
    run(torch.tensor([1])).backward()
    with pytest.raises(IndexError, match=re.escape("index out of range in self")):
        run(torch.tensor([4]))


def test_what_is_checked_may_be_a_result_too():
    def rows(at):
        return F.embedding(at, X), ((at < 0) | (at >= len(X))).any(), at * 2

    run = torch.compile(rows, backend=backend, options={"strict": True})
    given = torch.tensor([1, 2])
    torch.testing.assert_close(run(given), rows(given))
    assert same_outcome(rows, run, torch.tensor([1, 9]))


def test_sizes_that_were_found_equal_are_one_where_pytorch_takes_over():
    """A negative number is no size of a program; `end` was replaced by `start` in its guards."""

    def function(x, y, less, start, end):
        x = x.clone()
        x[start:end].fill_(1.5)
        return x, F.pad(y, (3, less))

    given = (torch.randn(4, 3), torch.randn(2, 9), -2, 2, 2)
    with pytest.warns(RuntimeWarning, match="outside its bounds"):
        found = torch.compile(function, backend=backend, dynamic=True)(*given)
    torch.testing.assert_close(found, function(*given))


@pytest.mark.parametrize("fill", ["clamp_min", "clamp_max", "fill", "full_like"])
@pytest.mark.filterwarnings("ignore")
def test_numbers_that_no_byte_holds(fill):
    function = getattr(torch, fill)
    for number in (255, 256):
        run = torch.compile(lambda x, n=number: function(x, n), backend=backend, dynamic=False)
        same_outcome(lambda x, n=number: function(x, n), run, torch.tensor([1, 255]).byte())


def test_limits_that_no_byte_holds():
    x = luminal.Graph().tensor(2, "u8")
    with pytest.raises(luminal.InputError, match="300 is no u8: it has 0 to 255"):
        luminal.ops.clamp(x, 0, 300)
    with pytest.raises(luminal.InputError, match="256 is no u8"):
        luminal.ops.where(x > 3, x, 256)
