"""Operations that were once left to PyTorch, and gradients: equal to eager's, and native."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from luminal.frontend.torch import table
from luminal.torch import backend, report


def close(got, expected, tolerance=1e-4):
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def put(x, mask, values):
    x = x.clone()
    x[mask] = values
    return x


def special(x):
    functions = (torch.lgamma, torch.digamma, torch.special.log_ndtr, torch.special.i0)
    return [function(x) for function in functions]


def strided_views(x):
    """Offsets count from the start of the memory, strides pass over what a view leaves out."""
    first, second = x.split(2)
    overlapping = x.as_strided((3, 2), (1, 1), 2)
    views = [second.as_strided((5,), (1,)), first.as_strided((5,), (1,), 2)]
    views += [overlapping.as_strided((3, 2), (1, 1), 1), (x * 2).T[1:].as_strided((3,), (1,))]
    return [view + 1 for view in views]


MASK = torch.tensor([[True, False, True], [False, False, True]])
WEIGHTS, INDEX = torch.randn(10, 4), torch.tensor([1, 7, 2, 2, 9, 0, 3])
STARTS = torch.tensor([0, 2, 2, 5])
NAN = float("nan")
WHOLE = torch.randint(0, 4, (9, 50))
CASES = {
    "adaptive maximum": (
        lambda x: F.adaptive_max_pool2d(x, (3, 2), return_indices=True), torch.randn(2, 3, 7, 5),
    ),
    "histogram": (lambda x: torch.histc(x, 7, -1, 1), torch.randn(100)),
    "mode": (lambda x: torch.mode(x, 0), WHOLE),
    "median of integers": (lambda x: torch.median(x, 1), WHOLE),
    "sorted values only": (torch.msort, WHOLE.T),
    "largest values only": (lambda x: torch.topk(x, 3)[0], WHOLE),
    "median of numbers": (
        lambda x: torch.nanmedian(x, 1), torch.tensor([[1.0, NAN, 3, 2], [NAN, 5, 4, 6]]),
    ),
    "nonzero": (lambda x: torch.nonzero_static(x, size=9), WHOLE[:3, :4]),
    "norms of rows": (lambda i, w: F.embedding(i, w, max_norm=1.0), INDEX, WEIGHTS),
    "bag sums": (lambda i, w, o: F.embedding_bag(i, w, o, mode="sum"), INDEX, WEIGHTS, STARTS),
    "bag means": (
        lambda i, w, o: F.embedding_bag(i, w, o, padding_idx=2), INDEX, WEIGHTS, STARTS,
    ),
    "bag maxima": (lambda i, w, o: F.embedding_bag(i, w, o, mode="max"), INDEX, WEIGHTS, STARTS),
    "a row at a mask": (put, torch.zeros(2, 3, 5), MASK, torch.randn(5)),
    "rows at a mask": (put, torch.zeros(2, 3, 5), MASK, torch.randn(3, 5)),
    "running log of sums": (
        lambda x: x.logcumsumexp(1), torch.tensor([[1.0, 2, -200, 3], [-torch.inf, 0, 1, 2]]),
    ),
    "strided views": (strided_views, torch.arange(24.0).view(4, 6)),
    "strided views of columns": (strided_views, torch.arange(24.0).view(6, 4).T),
    "special functions": (special, torch.linspace(0.1, 9, 20)),
    "divisors": (lambda x, y: (x.gcd(y), x.lcm(y)), WHOLE * 6, WHOLE.flip(0) * -4),
    "functions of many numbers": (
        lambda x: (x.abs().log1p(), x.abs().acosh(), torch.lgamma(x)),
        torch.linspace(-3, 3, 1000, dtype=torch.float64),
    ),
    "a window of constants": (
        lambda x: x * torch.signal.windows.kaiser(20, beta=12.0), torch.randn(20),
    ),
    "the sign of zero": (
        lambda x, b: (1 / x.abs(), 1 / torch.copysign(b, b)), torch.tensor([0.0, -0.0, -2]),
        torch.tensor([True, False]),
    ),
    "places in a scalar": (lambda x: torch.nonzero_static(x, size=2), torch.tensor(True)),
    "neighbouring numbers": (
        lambda x, y: (torch.nextafter(x, y), torch.frexp(x)),
        torch.tensor([0.0, -0.0, 1, -2, 1e-40, 3.4e38, torch.inf, NAN, 0.3]),
        torch.tensor([1.0, -1, 0, -3, 0, torch.inf, 0, 1, 0.3]),
    ),
    "segments": (
        lambda x, n: [
            torch.segment_reduce(x, how, lengths=n, unsafe=True)
            for how in ("sum", "mean", "max", "min", "prod")
        ],
        torch.randn(6, 4), torch.tensor([2, 0, 3, 1]),
    ),
    "distances of pairs": (F.pdist, torch.randn(5, 3)),
    "points of a volume": (
        lambda x, at: [
            F.grid_sample(x, at, mode, padding, align_corners=corners)
            for mode, padding, corners in (
                ("bilinear", "zeros", False), ("nearest", "border", True),
                ("bilinear", "reflection", False),
            )
        ],
        torch.randn(2, 3, 4, 5, 6), 1.3 * torch.randn(2, 2, 3, 4, 3),
    ),
    "windows at drawn distances": (
        lambda x, at: [
            torch.ops.aten.fractional_max_pool2d(x, [2, 3], [4, 5], at),
            torch.ops.aten.fractional_max_pool2d(x, [3, 2], [1, 2], at),
        ],
        torch.randn(2, 3, 9, 11), torch.rand(2, 3, 2),
    ),
    "digits and limits of half precision": (
        lambda x: (x.round(decimals=1), x.logit(1e-3)),
        torch.tensor([2.34375, 0.9414, 0.8359, -3.8594, 0.9995, 0.0005], dtype=torch.bfloat16),
    ),
    "a view of nothing": (lambda x: (x.reshape(-1), x.view(-1, 3)), torch.ones(0, 3)),
    "smooth resizing": (
        lambda x: [
            F.interpolate(x, size, mode=mode, antialias=True)
            for size in ((5, 3), (20, 4)) for mode in ("bilinear", "bicubic")
        ],
        torch.randn(2, 3, 11, 8),
    ),
    "loss of a projection": (
        lambda x, w, t: F.linear_cross_entropy(x, w, t), torch.randn(7, 4), torch.randn(5, 4),
        torch.tensor([0, 4, 1, 1, 3, 2, 0]),
    ),
    "triangular systems": (
        lambda a, b: [
            torch.linalg.solve_triangular(a, b, upper=False),
            torch.linalg.solve_triangular(a, b.mT, upper=True, left=False, unitriangular=True),
        ],
        torch.randn(2, 7, 7) / 3 + 2 * torch.eye(7), torch.randn(7, 3),
    ),
    "a factor of integers is cut": (
        lambda x: torch.addcmul(x, x, x, value=1.75), torch.arange(-3, 4),
    ),
    "limits that are no u8": (
        lambda x: x.clamp(-1, 0.5), torch.tensor([0, 3], dtype=torch.uint8),
    ),
    "powers of two beyond all floats": (
        lambda x, at: [torch.ldexp(x.to(kind), at) for kind in (torch.float32, torch.float64)],
        torch.tensor([0.5, 1.5, -2, torch.inf, 3e38, 1e-45]),
        torch.tensor([128, -1000, -150, 1000, -276, 149])[:, None],
    ),
    "written by strides": (
        lambda x, y: x.as_strided_scatter(y, (2, 2), (3, 1), 1), torch.randn(4, 3), WEIGHTS[:2, :2],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operation(name):
    function, *inputs = CASES[name]
    with torch.no_grad():
        close(torch.compile(function, backend=backend)(*inputs), function(*inputs))
    assert not report().fallbacks and not report().failures


def test_draws_follow_their_weights():
    """Drawn natively, where something is trained."""
    weights, trained = torch.tensor([[0.1, 0, 0.7, 0.2], [0, 1, 0, 0]]), nn.Parameter(torch.ones(1))

    @torch.compile(backend=backend)
    def draw(weights):
        many, few = torch.multinomial(weights, 2000, True), torch.multinomial(weights[:1], 3)
        return many, few, trained * 2

    torch.manual_seed(0)
    many, few, _ = draw(weights)
    shares = torch.stack([torch.bincount(row, minlength=4) / 2000 for row in many])
    close(shares, weights, 0.05)
    assert (shares[weights == 0] == 0).all() and sorted(few[0].tolist()) == [0, 2, 3]
    torch.manual_seed(0)
    assert torch.equal(draw(weights)[0], many) and not torch.equal(draw(weights)[0], many)
    assert not report().fallbacks and not report().failures


def test_strides_over_memory_that_is_laid_out_otherwise():
    x, y = torch.randn(4, 3).t(), torch.randn(2, 2)

    def write(x, y):
        return x.as_strided_scatter(y, (2, 2), (3, 1), 1)

    close(torch.compile(write, backend=backend)(x, y), write(x, y))


class Layer(nn.Module):
    """A function of an image, of modules with weights, or both."""

    def __init__(self, function, *inner):
        super().__init__()
        self.scale, self.inner = nn.Parameter(torch.ones(1)), nn.Sequential(*inner)
        self.function = function

    def forward(self, x):
        return self.function(self.inner(x * self.scale))


def same(x):
    return x


def points(x, n=2):
    """(batch, height, width, n) from an image of at least n channels, some beyond -1 .. 1."""
    return x[:, :n].permute(0, 2, 3, 1)


GRADIENTS = {
    "transposed convolution": Layer(same, nn.ConvTranspose2d(3, 4, 3, 2, 1, 1)),
    "transposed convolution, padded by its stride": Layer(
        same, nn.ConvTranspose2d(3, 2, 3, dilation=2, output_padding=1)
    ),
    "average with a ragged edge": Layer(
        lambda x: F.avg_pool2d(x, 2, ceil_mode=True, padding=1, count_include_pad=False)
    ),
    "average in three dimensions": Layer(lambda x: F.avg_pool3d(x, (1, 2, 2))),
    "adaptive average": Layer(lambda x: F.adaptive_avg_pool2d(x, 4)),
    "adaptive maximum": Layer(lambda x: F.adaptive_max_pool2d(x, 4)),
    "padding": Layer(lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate")),
    "smooth resizing": Layer(lambda x: F.interpolate(x, (4, 12), mode="bicubic", antialias=True)),
    "distances": Layer(lambda x: sum(torch.cdist(x, x.flip(2), p) for p in (1.0, 2.0, 3.0))),
    "bags": Layer(
        lambda x: sum(
            F.embedding_bag(INDEX, x.reshape(-1, 9), STARTS, mode=mode, padding_idx=2)
            for mode in ("sum", "mean")
        )
    ),
    "bags with factors": Layer(
        lambda x: F.embedding_bag(
            INDEX, x.reshape(-1, 9), STARTS, mode="sum", per_sample_weights=x.reshape(-1)[:7]
        )
    ),
    "fractional maximum": Layer(
        lambda x: F.fractional_max_pool2d(x, 2, 4, _random_samples=torch.full((2, 3, 2), 0.3))
    ),
    "sampling at points": Layer(
        lambda x: sum(
            F.grid_sample(x, points(x), "bilinear", padding, align_corners=corners)
            for padding, corners in (("zeros", False), ("border", True), ("reflection", False))
        )
    ),
    "sampling in three dimensions": Layer(
        lambda x: F.grid_sample(x.unsqueeze(2), points(x, 3).unsqueeze(1), align_corners=False)
    ),
    "nearest element": Layer(
        lambda x: F.grid_sample(x, points(x), "nearest", align_corners=False) + x.sgn()
    ),
    "absolute value": Layer(lambda x: x.abs().logcumsumexp(1)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient(name):
    x, results = torch.randn(2, 3, 9, 9), []
    for wrap in (lambda model: model, lambda model: torch.compile(model, backend=backend)):
        model = copy.deepcopy(GRADIENTS[name])
        out = wrap(model)(x)
        out.square().mean().backward()
        results.append((out.detach(), [weight.grad for weight in model.parameters()]))
    close(results[1], results[0])
    assert not report().fallbacks and not report().failures


@torch._dynamo.config.patch(allow_rnn=True)  # monkeypatch would leave it deleted
def test_an_lstm_trains_natively():
    """Where Dynamo is allowed to see into it: else it runs in PyTorch, outside the graph."""
    model, x = nn.LSTM(3, 4, batch_first=True), torch.randn(2, 3, 3)
    results = []
    for run in (model, torch.compile(model, backend=backend)):
        model.zero_grad()
        out, _ = run(x)
        out.square().sum().backward()
        results.append((out.detach(), [weight.grad.clone() for weight in model.parameters()]))
    close(results[1], results[0])
    assert report().graphs == 2 and not report().fallbacks
    assert torch.backends.mkldnn.enabled


@pytest.mark.parametrize("op", [torch.fmod, torch.remainder, torch.gcd])
def test_integer_divisions_are_exact_for_all_pairs_of_bytes(op):
    """The most negative number, too, whose absolute value is itself."""
    values = torch.arange(-128, 128, dtype=torch.int8)
    grid = torch.meshgrid(values, values[values != 0], indexing="ij")
    x, y = (part.contiguous() for part in grid)
    defined = ~((x == -128) & (y == -1))  # the quotient is no byte: a trap of the processor
    compiled = torch.compile(op, backend=backend)
    assert torch.equal(compiled(x[defined], y[defined]), op(x[defined], y[defined]))
    assert not report().fallbacks


@pytest.mark.parametrize("foreach", [False, True])
def test_a_compiled_step_of_adamw_is_native(foreach):
    torch.manual_seed(0)
    mine = nn.Linear(4, 3)
    other = copy.deepcopy(mine)
    x = torch.randn(5, 4)
    for model, wrap in ((mine, lambda f: torch.compile(f, backend=backend)), (other, lambda f: f)):
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2, foreach=foreach)
        step = wrap(optimizer.step)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            step()
    for ours, theirs in zip(mine.parameters(), other.parameters()):
        close(ours, theirs, 1e-5)
    assert not report().fallbacks and not report().failures


def test_operations_on_lists_are_those_of_each_tensor():
    def f(x, y, w):
        made = [torch._foreach_add(x, y, alpha=2), torch._foreach_mul(x, [2, 3]),
                torch._foreach_addcdiv(x, y, w, [1, 2]), torch._foreach_addcmul(x, y, w, value=3),
                torch._foreach_lerp(x, y, 0.3), torch._foreach_maximum(x, 0.5),
                torch._foreach_pow(2.0, x), torch._foreach_norm(x, 1)]  # fmt: skip
        torch._foreach_zero_(y)
        torch._foreach_copy_(w, x)
        return made

    lists = [[torch.randn(2, 3) + 4 * n, torch.rand(5)] for n in range(3)]
    theirs = copy.deepcopy(lists)
    close(torch.compile(f, backend=backend)(*lists), f(*theirs), 1e-5)
    close(lists, theirs, 1e-5)
    assert not report().fallbacks


@pytest.mark.parametrize("transform", [torch.func.jacfwd, torch.func.hessian])
def test_forward_differentiation_is_native(transform):
    f = transform(lambda x: (x.sin() * x.sum()).prod() + x.softmax(-1)[0])
    x = torch.randn(4)
    close(torch.compile(f, backend=backend)(x), f(x), 1e-5)
    assert not report().fallbacks


@pytest.mark.parametrize("kind", "tuvw")
def test_polynomials_of_bytes_do_not_wrap(kind):
    function = getattr(torch.special, f"shifted_chebyshev_polynomial_{kind}")
    x = torch.tensor([0, 1, 200], dtype=torch.uint8)
    close(torch.compile(lambda x: function(x, 2), backend=backend)(x), function(x, 2))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_list_of_no_dimensions_is_all_of_them(dynamic):
    """But for `any` and `all`, which then combine nothing."""

    def f(x):
        sums = [function(x, [], keepdim=True) for function in (torch.sum, torch.mean, torch.amax)]
        return *sums, torch.var(x, []), torch.norm(x, dim=[]), x.any([], True), x.all([])

    x = torch.tensor([[0.0, 3.0], [1.0, 2.0]])
    for got, expected in zip(torch.compile(f, backend=backend, dynamic=dynamic)(x), f(x)):
        close(got, expected)
    assert not report().fallbacks


def test_a_shape_that_is_not_pytorchs_is_refused_where_sizes_vary(monkeypatch):
    """At the sizes of the trace it is another one."""
    monkeypatch.setitem(table.RULES, "sin.default", lambda x: x[:1])
    x = torch.randn(3, 2)
    close(torch.compile(torch.sin, backend=backend, dynamic=True)(x), x.sin())
    assert report().fallbacks
