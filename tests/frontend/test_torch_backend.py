"""torch.compile(backend=luminal.torch.backend) against eager: values, mutation, sizes, training."""

import copy
import math
import sys
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import luminal.torch
from luminal.graph.display import reachable
from luminal.torch import backend, report


def compiled(function, **options):
    return torch.compile(function, backend=backend, **options)


def close(got, expected, tolerance=1e-5):
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_a_module_runs_as_one_program():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).eval()
    x = torch.randn(5, 8)
    with torch.no_grad():
        close(compiled(model)(x), model(x))
    assert report().parts == 1
    assert not report().fallbacks and not report().failures


def test_image_model_with_batch_norm():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
    ).eval()  # fmt: skip
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        close(compiled(model)(x), model(x))
    assert not report().fallbacks


def test_changed_weights_are_seen():
    model = nn.Linear(4, 4)
    run, x = compiled(model), torch.randn(3, 4)
    with torch.no_grad():
        close(run(x), model(x))
        model.weight.mul_(2)
        close(run(x), model(x))
        model.weight = nn.Parameter(torch.randn(4, 4))
        close(run(x), model(x))


def test_one_program_serves_layers_with_other_weights():
    layers = [nn.Linear(4, 4) for _ in range(3)]
    x = torch.randn(2, 4)

    @torch.compile(backend=backend)
    def apply(x, weight, bias):
        return F.linear(x, weight, bias).relu()

    with torch.no_grad():
        for _ in range(6):
            for layer in layers:
                close(apply(x, layer.weight, layer.bias), layer(x).relu())
    assert report().graphs == 1


def test_sizes_vary_without_recompiling():
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

    run = compiled(attend, dynamic=True)
    with torch.no_grad():
        for batch, length in ((2, 5), (3, 9), (4, 17)):
            qkv = [torch.randn(batch, 6, length, 8) for _ in range(3)]
            for tensor in qkv:
                torch._dynamo.mark_static(tensor, 3)
            close(run(*qkv), attend(*qkv))
    assert report().graphs == 1


@torch.library.custom_op("luminal_tests::strange", mutates_args=())
def strange(x: torch.Tensor) -> torch.Tensor:
    return torch.special.i0(x)


@strange.register_fake
def _(x):
    return torch.empty_like(x)


def test_unknown_operations_run_in_pytorch_and_are_reported():
    def half_known(x):
        y = strange(x * 2) + 1
        return y.exp() / 3, torch.linalg.inv(y @ y.T + torch.eye(3))

    x = torch.randn(3, 4)
    with torch.no_grad():
        for got, expected in zip(compiled(half_known)(x), half_known(x)):
            close(got, expected, 1e-4)
    ops = {fallback.op for fallback in report().fallbacks}
    assert any("strange" in op for op in ops)
    assert "aten.mul.Tensor" not in ops
    assert "test_torch_backend.py" in str(report())


def test_a_part_that_our_compiler_refuses_runs_in_pytorch(monkeypatch):
    from luminal.errors import Unsupported
    from luminal.graph.graph import Graph

    def refuse(*args, **kwargs):
        raise Unsupported("on purpose")

    monkeypatch.setattr(Graph, "compile", refuse)
    x = torch.randn(3)
    close(compiled(lambda x: x.sin() + 1)(x), x.sin() + 1)
    assert report().failures and "on purpose" in report().failures[0]


def test_a_fault_costs_one_operation_not_the_graph(monkeypatch):
    from luminal.errors import Unsupported
    from luminal.graph.graph import Graph

    def refuse_sines(graph, **options):
        if any(node.op == "sin" for node in reachable(t.node for t in graph.outputs)):
            raise Unsupported("on purpose")
        return whole(graph, **options)

    whole = Graph.compile
    monkeypatch.setattr(Graph, "compile", refuse_sines)
    chain = [torch.exp, torch.sqrt] * 70

    def function(x):
        for n, step in enumerate(chain):
            x = step(x) * (1 + x.sin() if n == 40 else 0.5)
        return x

    x = torch.rand(3)
    close(compiled(function)(x), function(x))
    assert sum(report().fallbacks.values()) == 1


def test_parts_are_tried_for_a_limited_time(monkeypatch):
    tried = []

    def refuse(*args, **kwargs):
        tried.append(args)
        raise RuntimeError("on purpose")

    monkeypatch.setattr("luminal.graph.graph.Graph.compile", refuse)
    monkeypatch.setattr(sys.modules["luminal.frontend.torch.backend"], "MOST_SECONDS", 0.0)
    x = torch.randn(3)
    close(compiled(lambda x: x.sin().cos() + 1)(x), x.sin().cos() + 1)
    assert len(tried) == 1


def test_known_places_are_read_as_views():
    """Upsampling, flips and strides are indices that the graph knows: no kernel computes them."""
    table = torch.randn(30, 5)

    def function(x):
        up = F.interpolate(x, scale_factor=2.0)
        odd = F.interpolate(x, size=(7, 11))
        return up, odd, x[:, :, torch.arange(5, -1, -1), 1::2], F.embedding(torch.arange(9), table)

    def neither(x):
        return x[:, :, torch.arange(4) ** 2 % 6], x[..., torch.arange(-3, 0)]

    x = torch.randn(2, 3, 6, 8)
    for run in (function, neither):
        for got, expected in zip(compiled(run)(x), run(x)):
            assert torch.equal(got, expected)
    assert not report().fallbacks
    program = next(iter(sys.modules["luminal.frontend.torch.backend"]._programs.values()))
    loads = [e for made in program._run.kernels for v in made.kernel.values for e in v.loads]
    assert loads and not any(e.slots for e in loads)


def test_mutation_and_aliases():
    def change(x, y):
        x.add_(1)
        y[1:] = x[1:] * 2
        return x.view(-1)[1:], y.t()

    ours, theirs = torch.randn(3, 4), torch.zeros(3, 4)
    ours2, theirs2 = ours.clone(), theirs.clone()
    got, expected = compiled(change)(ours, theirs), change(ours2, theirs2)
    close(ours, ours2)
    close(theirs, theirs2)
    for a, b in zip(got, expected):
        close(a, b)
        assert a.stride() == b.stride()
    assert got[0].untyped_storage().data_ptr() == ours.untyped_storage().data_ptr()


def test_results_belong_to_the_caller():
    run = compiled(lambda x: x * 2)
    first = run(torch.ones(4))
    second = run(torch.full((4,), 3.0))
    assert first.tolist() == [2.0] * 4 and second.tolist() == [6.0] * 4


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x + 1, (x + 1).clone()),
        lambda x: (lambda h: (h, h * 1))(x + 1),
        lambda x: (lambda h: (h, F.dropout(h, 0.5, False) * 1.0))(x + 1),
        lambda x: (torch.ones(3), torch.ones(3) * 1),
    ],
)
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("device", ["auto", "reference"])
def test_equal_results_do_not_share_memory(function, trained, device):
    a, b = compiled(function, options={"device": device})(torch.zeros(3, requires_grad=trained))
    a.detach().zero_()
    assert b.tolist() == [1.0] * 3


@pytest.mark.parametrize("shape", [(2, 3, 4, 5)])
def test_layouts_in_and_out(shape):
    def function(x):
        return x + 1, x.permute(0, 2, 3, 1).contiguous(), x.mT * 2

    x = torch.randn(shape).to(memory_format=torch.channels_last)
    for got, expected in zip(compiled(function)(x), function(x)):
        close(got, expected)
        assert got.stride() == expected.stride()
    strided = torch.randn(4, 6, 8, 10)[::2, ::2, ::2, ::2]
    close(compiled(function)(strided)[0], strided + 1)


def test_bfloat16_rounds_once_per_operation():
    x, y = torch.randn(64).bfloat16(), torch.randn(64).bfloat16()

    def function(x, y):
        return (x * y + x) / 3, x.sum(), (x * y).mean()

    for got, expected in zip(compiled(function)(x, y), function(x, y)):
        assert got.dtype is torch.bfloat16
        assert torch.equal(got, expected)


def test_random_numbers_follow_the_seed():
    run = compiled(lambda x: F.dropout(x, 0.5, True) + torch.rand(1000))
    x = torch.ones(1000)
    torch.manual_seed(3)
    first, other = run(x), run(x)
    torch.manual_seed(3)
    assert torch.equal(run(x), first)
    assert not torch.equal(first, other)


def test_inference_draws_the_numbers_of_eager_in_its_order():
    """The second draw is needed first: by what is computed from the last."""

    def function(x):
        first, second, third = torch.rand(3), torch.randn(4), x.sigmoid().bernoulli()
        noise = torch.empty(5).cauchy_() * second.sum()
        return (third * second).exp(), F.dropout(x + first.sum(), 0.5, True), noise

    x = torch.linspace(-1, 1, 4)
    results = []
    for run in (function, compiled(function)):
        torch.manual_seed(3)
        results.append([*run(x), *run(x)])
    for got, expected in zip(*reversed(results)):
        assert torch.allclose(got, expected, 1e-5)
    assert report().parts == 2


def test_a_condition_that_must_hold_is_computed_natively():
    def function(x):
        torch._check_tensor_all(x > 0)
        return x * 2

    run, x = compiled(function), torch.tensor([1.0, 2])
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        assert run(x).tolist() == [2, 4] and report().native == 3
        with pytest.raises(RuntimeError):
            run(-x)


LENGTHS = {
    "then native": lambda x, n: x[: n.max().item()] * 2,
    "a view": lambda x, n: x[: n.max().item()],
    "of a copy": lambda x, n: x[:, :2].flatten()[: n.max().item() // 2],
    "two": lambda x, n: torch.cat([x[: n.max().item()].sin(), x[n.min().item() :] @ x.T @ x]),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_lengths_that_depend_on_values(name):
    run, x = compiled(LENGTHS[name]), torch.randn(5, 4)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        for n in (torch.tensor([3, 2]), torch.tensor([-1, -2])):
            close(run(x, n), LENGTHS[name](x, n))
    assert report().native and not report().failures


def test_a_part_that_reads_what_is_computed_from_it_is_a_fault_of_ours(monkeypatch):
    monkeypatch.setattr("luminal.frontend.torch.record.tells_sizes", lambda node: False)
    run, x = compiled(LENGTHS["a view"]), torch.randn(5, 4)
    with torch._dynamo.config.patch(capture_scalar_outputs=True), pytest.warns(RuntimeWarning):
        close(run(x, torch.tensor([3, 2])), x[:3])
    assert "computed from it" in report().failures[0]


def test_slices_from_the_end_and_sizes_that_guards_make_equal():
    def function(x):
        size = x.shape[0]
        ends = x[-min(8, size) :], x[: min(8, size)], x[min(4, size) : -1]
        halves = torch.stack([x[::2], x[1::2]], 1).flatten(0, 1)  # as long as x if x is even
        return *ends, halves.expand(2, size) + x

    run = torch.compile(function, backend=backend, dynamic=True)
    for size in (20, 6):
        x = torch.randn(size)
        for got, expected in zip(run(x), function(x)):
            assert torch.equal(got, expected)
    assert not report().fallbacks and not report().failures


def test_images_of_a_size_known_at_run_time_grow_by_half():
    run = torch.compile(lambda x: F.interpolate(x, scale_factor=1.5), backend=backend, dynamic=True)
    for shape in ((2, 3, 6, 8), (2, 3, 9, 7)):
        x = torch.randn(shape)
        assert torch.equal(run(x), F.interpolate(x, scale_factor=1.5))
    assert not report().fallbacks and not report().failures


def test_sizes_that_floats_were_rounded_to():
    def f(x):
        n = x.shape[0]
        thirds, halves = (math.ceil(n / 3), math.floor(n / 3)), (round(n / 2), round(n / 4 * 1.5))
        sizes = (*thirds, *halves, int(n * 2.5), math.ceil(7 / n), n // math.ceil(n / 4))
        return [x.sum() + x.new_zeros(size) for size in sizes]

    run = torch.compile(f, backend=backend, dynamic=True)
    for n in (9, 10, 11, 12, 13, 14, 15, 49):
        x = torch.ones(n)
        assert [t.tolist() for t in run(x)] == [t.tolist() for t in f(x)]
    assert not report().fallbacks


def test_results_that_are_views_of_results_share_memory():
    def function(x):
        y = x * 2
        return y, y.T, y[1], x.unbind(0)[1]

    x = torch.randn(3, 4)
    y, turned, row, given = compiled(function)(x)
    y.zero_()
    x.fill_(7.0)
    assert not turned.any() and not row.any() and (given == 7.0).all()


def test_results_that_are_views_of_what_is_no_result_share_memory():
    def function(x):
        y, z = x * 2, x.t().reshape(12)
        z[0] = 7.0
        return y.T, y.view(12), z[::2], z.unsqueeze(0)

    turned, flat, some, every = compiled(function)(torch.ones(3, 4))
    flat.zero_()
    every.zero_()
    assert not turned.any() and not some.any()


@pytest.mark.parametrize("trained", [False, True])
def test_inputs_that_overlap_are_changed_and_returned(trained):
    def function(x, y, w):
        return x.add_(1), y.mul_(2), x.sum() + y.sum() * w

    def called(function):
        x, w = torch.arange(12.0).view(4, 3), torch.tensor(3.0, requires_grad=trained)
        return *function(x[:2], x[1:], w), x

    for got, expected in zip(called(compiled(function)), called(function), strict=True):
        close(got, expected)
        assert got.stride() == expected.stride()
        assert got.storage_offset() == expected.storage_offset()


def test_returned_views_with_sizes_of_a_run_share_memory():
    def function(x):
        pairs = (x * 2).view(x.shape[0] // 2, 2)
        later = x[1:]
        rest = x.expand(3, x.shape[0]), pairs[:, 1], pairs + 1, later[::2], later
        return x.view(x.shape[0] // 2, 2)[:, 1], *rest

    x = torch.randn(12)
    results = torch.compile(function, backend=backend, dynamic=True)(x)
    for got, expected in zip(results, function(x)):
        assert torch.equal(got, expected) and got.stride() == expected.stride()
    results[0].zero_()
    assert (x[1::2] == 0).all() and not report().fallbacks


def test_options_are_checked():
    run = torch.compile(lambda x: x + 1, backend=backend, options={"treads": 2})
    with pytest.raises(Exception, match="treads"):
        run(torch.ones(3))
    run = torch.compile(lambda x: x + 1, backend=backend, options={"threads": 1})
    assert run(torch.ones(3)).tolist() == [2.0] * 3


def test_the_same_graph_is_compiled_once():
    for _ in range(2):
        torch._dynamo.reset()
        compiled(lambda x: x.tanh() * 3)(torch.ones(3))
    assert report().parts == 2 and report().reused == 1
    luminal.torch.reset()
    assert report().parts == 0


def test_calls_from_several_threads():
    run = compiled(lambda x: (x * 2).softmax(0))
    run(torch.zeros(50))
    faults = []

    def work(number):
        x = torch.full((50,), float(number))
        x[number] = 50.0
        expected = (x * 2).softmax(0)
        for _ in range(50):
            if not torch.allclose(run(x), expected):
                faults.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.inner = nn.Embedding(11, 16), nn.Linear(16, 48)
        self.out = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 5))

    def forward(self, tokens):
        parts = self.inner(self.embed(tokens)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2)
        return self.out(x).mean(1)


def _image_net():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 5),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["attention", "image"])
def test_training_follows_eager(name):
    model = Attention() if name == "attention" else _image_net()
    make = {"attention": lambda: torch.randint(0, 11, (6, 7)), "image": None}[name]
    data = [make() if make else torch.randn(6, 1, 8, 8) for _ in range(3)]
    labels = torch.randint(0, 5, (6,))
    curves, states = [], []
    for wrap in (lambda m: m, compiled):
        mine = copy.deepcopy(model)
        run, optimizer = wrap(mine), torch.optim.SGD(mine.parameters(), 0.1)
        losses = []
        for step in range(12):
            loss = F.cross_entropy(run(data[step % 3]), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        curves.append(losses)
        states.append(mine.state_dict())
    assert curves[0] == pytest.approx(curves[1], abs=1e-4)
    assert curves[1][-1] < curves[1][0]
    for key, value in states[0].items():
        close(states[1][key], value, 1e-3)
    assert report().graphs == 2 and not report().fallbacks


def test_sizes_as_numbers():
    def function(x):
        n = x.shape[0]
        return torch.arange(n) + n, x * n, torch.full((n,), 2.0) / n, torch.cat([x[:0], x])

    run = compiled(function, dynamic=True)
    for n in (4, 7):
        x = torch.randn(n, 3)
        for got, expected in zip(run(x), function(x)):
            assert got.dtype == expected.dtype
            close(got, expected)
    assert report().graphs == 1 and not report().fallbacks


def test_a_fault_at_the_first_run_is_reported(monkeypatch):
    from luminal.runtime.executable import Executable

    def fail(*args, **kwargs):
        raise KeyError("on purpose")

    monkeypatch.setattr(Executable, "launch", fail)
    run, x = compiled(lambda x: x.sin() + 1), torch.randn(3)
    close(run(x), x.sin() + 1)
    close(run(x), x.sin() + 1)
    assert len(report().failures) == 1 and "on purpose" in report().failures[0]


def test_parts_of_two_stages_with_an_unknown_operation_between():
    def function(x):
        a = x.relu() * 2
        values, vectors = torch.linalg.eigh(a @ a.T)
        return values.sqrt().sum() + a.mean(), vectors.abs().sum()

    x = torch.rand(3, 3) + torch.eye(3)
    for got, expected in zip(compiled(function)(x), function(x)):
        close(got, expected, 1e-3)
    assert report().parts == 2


def test_sizes_beyond_our_bounds_run_in_pytorch(monkeypatch):
    from luminal.frontend.torch import sizes

    monkeypatch.setattr(sizes, "LARGEST", 8)
    run = compiled(lambda x: x.cumsum(0) * 2, dynamic=True)
    for n in (2, 3, 20, 4, 30):
        x = torch.randn(n, 3)
        close(run(x), x.cumsum(0) * 2)
    assert report().graphs == 1 and len(report().failures) == 1


def test_grouped_attention_and_its_gradient():
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    leaves = [torch.randn(2, heads, 5, 8, requires_grad=True) for heads in (4, 2, 2)]
    got, expected = compiled(attend)(*leaves), attend(*leaves)
    close(got, expected)
    ours = torch.autograd.grad(got.square().sum(), leaves)
    for mine, theirs in zip(ours, torch.autograd.grad(expected.square().sum(), leaves)):
        close(mine, theirs, 1e-4)
    assert not report().fallbacks


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_rows_in_which_nothing_may_be_seen_have_gradients_of_zero(kind):
    seen = torch.ones(5, 6, dtype=torch.bool).tril(-1)
    mask = seen if kind is torch.bool else torch.zeros(5, 6).masked_fill(~seen, -torch.inf)
    leaves = [torch.randn(1, 2, length, 8, requires_grad=True) for length in (5, 6, 6)]
    expected = F.scaled_dot_product_attention(*leaves, mask)
    got = compiled(F.scaled_dot_product_attention)(*leaves, mask)
    ours = torch.autograd.grad(got.square().sum(), leaves)
    for mine, theirs in zip(ours, torch.autograd.grad(expected.square().sum(), leaves)):
        close(mine, theirs, 1e-4)
    assert not report().fallbacks


def test_results_that_depend_on_weights_only():
    model, x = nn.Linear(3, 3), torch.randn(2, 3)

    def function(x):
        return model(x), model.weight * 2, model.weight.sum()

    run = compiled(function)
    with torch.no_grad():
        for _ in range(3):
            for got, expected in zip(run(x), function(x)):
                close(got, expected)
            model.weight.mul_(1.5)


def test_small_and_odd_inputs_are_read_where_they_lie():
    run = compiled(lambda x, y: (x * 2 + y, x.sum()), dynamic=True)
    for length in (2, 3, 5):
        page = torch.zeros(2048)
        x = page[1024 - length :][:length].copy_(torch.arange(length))  # near the end of a page
        y = torch.randn(2 * length)[::2]
        close(run(x, y), (x * 2 + y, x.sum()))
