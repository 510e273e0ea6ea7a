"""Gradients through loops, against PyTorch's through unrolled steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import luminal
from luminal import nn, ops
from luminal.errors import Unsupported
from luminal.graph.loops import parts
from luminal.graph.order import post_order
from luminal.train import backward, jvp

torch.manual_seed(0)


def compared(cx, loss, wrt, given, wanted, threads=2):
    """given: arrays of the inputs; wanted: PyTorch's gradients, after the loss."""
    results = [loss.output(), *(g.output() for g in backward(loss, wrt))]
    for device in ("reference", "cpu"):
        rt = cx.compile(device, threads=threads, cache=False)
        rt(*given)
        for mine, right in zip(results, wanted, strict=True):
            np.testing.assert_allclose(rt[mine], right.detach().numpy(), rtol=2e-4, atol=2e-4)


def agree(cx, made, given, wanted):
    for t in made:
        t.output()
    for device in ("reference", "cpu"):
        rt = cx.compile(device, threads=2, cache=False)
        rt(*(x.numpy() for x in given))
        for mine, right in zip(made, wanted, strict=True):
            np.testing.assert_allclose(rt[mine], right.numpy(), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [1, 4])
def test_carries_rows_slices_and_what_lies_around(steps, reverse):
    cx = luminal.Graph()
    x, w, h = cx.tensor(("s", 2, 3)), cx.tensor((3, 3)), cx.tensor((2, 3))

    def step(carry, row):
        state, count = carry
        new = ops.tanh(state @ w.T + row * count)
        return (new, count + 1), new * state

    (last, _), rows = ops.scan(step, (h, 1), x, reverse=reverse)
    loss = (last * 2 + rows.sum(0)).sum()
    given = [torch.randn(shape) for shape in ((steps, 2, 3), (3, 3), (2, 3))]
    xs, weight, state = leaves = [value.clone().requires_grad_() for value in given]
    total = torch.zeros(2, 3)
    for count, row in enumerate(xs.flip(0) if reverse else xs, 1):
        new = torch.tanh(state @ weight.T + row * count)
        total, state = total + new * state, new
    right = (state * 2 + total).sum()
    wanted = right, *torch.autograd.grad(right, leaves)
    compared(cx, loss, [x, w, h], [value.numpy() for value in given], wanted)


def test_a_scan_in_a_scan():
    cx = luminal.Graph()
    x, y = cx.tensor((3, 2)), cx.tensor((4, 2))

    def outer(c, row):
        inner = ops.scan(lambda d, other: (ops.sin(d * other + row), d * c), c, y, reverse=True)
        return inner[0], inner[1].sum(0)

    last, rows = ops.scan(outer, ops.ones(cx, (2,)), x)
    given = [torch.randn(3, 2), torch.randn(4, 2)]
    xs, ys = leaves = [value.clone().requires_grad_() for value in given]
    c, total = torch.ones(2), torch.zeros(2)
    for row in xs:
        d = c
        for other in ys.flip(0):
            total, d = total + d * c, torch.sin(d * other + row)
        c = d
    right = (c + total).sum()
    wanted = right, *torch.autograd.grad(right, leaves)
    arrays = [value.numpy() for value in given]
    compared(cx, (last + rows.sum(0)).sum(), [x, y], arrays, wanted)


def test_a_scan_in_a_scan_twice():
    """The steps of the outer loop sum up rows of an inner one: not once before them."""
    cx = luminal.Graph()
    x, w, h = cx.tensor((2, 3)), cx.tensor(()), cx.tensor(())

    def outer(c, row):
        return ops.scan(lambda d, v: (ops.sin(d * w) + v, None), c, row)[0], None

    (first,) = backward(ops.scan(outer, h, x)[0], [w])
    given = [torch.randn(2, 3), torch.randn(()), torch.randn(())]
    xs, weight, state = (value.clone().requires_grad_() for value in given)
    c = state
    for row in xs:
        for v in row:
            c = torch.sin(c * weight) + v
    (right,) = torch.autograd.grad(c, [weight], create_graph=True)
    wanted = right, *torch.autograd.grad(right, [xs, weight, state])
    compared(cx, first, [x, w, h], [value.numpy() for value in given], wanted)


def test_products_in_a_scan_in_a_scan_that_read_both_states():
    cx = luminal.Graph()
    w, h = cx.tensor((3, 3)), cx.tensor((3,))

    def outer(c, _):
        inner = ops.scan(lambda d, _: (ops.sin(w * d @ c), None), c, length=2)
        return inner[0], None

    loss = ops.scan(outer, h, length=2)[0].sum()
    given = [torch.randn(3, 3), torch.randn(3)]
    weight, state = leaves = [value.clone().requires_grad_() for value in given]
    for _ in range(2):
        d = state
        for _ in range(2):
            d = torch.sin(weight * d @ state)
        state = d
    wanted = state.sum(), *torch.autograd.grad(state.sum(), leaves)
    compared(cx, loss, [w, h], [value.numpy() for value in given], wanted)


def test_steps_in_steps_that_count_alike():
    cx, x = luminal.Graph(), torch.tensor(1.0, requires_grad=True)
    a, one = cx.tensor(()), cx.literal(1, "i64")

    def outer(c, _):
        _, rows = ops.scan(lambda m, _: (m + 1, c.sin()), one, length=2)
        return rows.sum(0), None

    v, _ = ops.scan(outer, a, length=2)
    wanted = (2 * (2 * x.sin()).sin()).sin()
    given = [np.float32(1)]
    compared(cx, v.sin(), [a], given, [wanted, *torch.autograd.grad(wanted, x)])


@pytest.mark.parametrize("shape", [(), (2,)])
def test_what_lies_around_is_every_row_of_two(shape):
    cx, w = luminal.Graph(), torch.rand(shape, requires_grad=True)
    s = cx.dim("s", 0, 9)
    a, stack = cx.tensor(shape), cx.tensor((s,))
    _, rows = ops.scan(lambda c, x: (c + x, (a, a)), cx.constant(0.0), stack)
    loss = sum(row.sum(0).sin().sum() for row in rows)
    wanted = 2 * (3 * w).sin().sum()
    given = [w.detach().numpy(), np.ones(3, np.float32)]
    compared(cx, loss, [a], given, [wanted, *torch.autograd.grad(wanted, w)])


def test_what_lies_around_is_counted_once():
    """A step reads w and what was made of it outside: the second has its gradient outside."""
    cx = luminal.Graph()
    x, w = cx.tensor((3, 2)), cx.tensor((2,))
    loss = ops.scan(lambda c, row: (c * w.sin() + w * row, row), w * 2, x)[0].sum()
    given = [torch.randn(3, 2), torch.randn(2)]
    rows, weight = leaves = [value.clone().requires_grad_() for value in given]
    state = weight * 2
    for row in rows:
        state = state * weight.sin() + weight * row
    wanted = state.sum(), *torch.autograd.grad(state.sum(), leaves)
    compared(cx, loss, [x, w], [value.numpy() for value in given], wanted)


def test_recurrent_layers_train():
    for name in ("LSTM", "GRU", "RNN"):
        right = getattr(torch.nn, name)(3, 4, 2, bidirectional=True)
        cx = luminal.Graph()
        module = getattr(nn, name)(cx, 3, 4, 2, bidirectional=True)
        module.load_state_dict({k: v.detach().numpy() for k, v in right.state_dict().items()})
        x, names = cx.tensor((5, 2, 3)), [name for name, _ in right.named_parameters()]
        loss = (module(x)[0] ** 2).sum()
        array = torch.randn(5, 2, 3)
        want = (right(array)[0] ** 2).sum()
        wanted = want, *torch.autograd.grad(want, list(right.parameters()))
        mine = dict(module.named_parameters())
        compared(cx, loss, [mine[name] for name in names], [array.numpy()], wanted)


def test_states_that_a_gradient_needs_are_made_by_the_same_loop():
    cx = luminal.Graph()
    x = cx.tensor((5, 3))
    last, rows = ops.scan(lambda c, r: (ops.sin(c) * r, c + r), ops.ones(cx, (3,)), x)
    backward((last * rows.sum(0)).sum(), [x])[0].output()
    last.output()
    report = cx.compile(cache=False)._report
    assert len(report.plan.loops) == 2
    steps = [n for loop in report.plan.loops for n in range(loop.start, loop.stop)]
    names = [report.kernels[report.plan.calls[n].kernel].name for n in steps]
    assert not any("copy" in name for name in names)  # what is carried on is stacked where it is


def test_what_a_step_backwards_need_not_do():
    """Products of the steps are kept, and the gradients of what all steps read are products over
    all of them, behind the loop."""
    cx = luminal.Graph()
    x, w, b, h = (cx.tensor(s) for s in (("s", 2, 16), (16, 16), (16,), (2, 16)))
    cx.dim("s", 1, 64)

    def step(state, row):
        return ops.tanh(ops.linear(state, w, b) + row), None

    last, _ = ops.scan(step, h, x)
    loss = (last**2).sum()
    given = [torch.randn(*shape) * 0.3 for shape in ((5, 2, 16), (16, 16), (16,), (2, 16))]
    xs, weight, bias, state = leaves = [value.clone().requires_grad_() for value in given]
    for row in xs:
        state = torch.tanh(torch.nn.functional.linear(state, weight, bias) + row)
    right = (state**2).sum()
    wanted = right, *torch.autograd.grad(right, leaves)
    compared(cx, loss, [x, w, b, h], [value.numpy() for value in given], wanted)
    back = parts([node for node in cx.nodes if node.op == "loop"][-1])
    assert len(back.carried) == 1  # neither the gradient of w nor that of b
    inside = post_order(back.made, lambda node: node.inputs)
    assert sum(n.op == "sum" for n in inside) == 1  # the gradient of the state
    assert all(n not in inside for n in (x.node, b.node))  # what is kept is the whole sum


def test_what_loops_have_no_derivative_for():
    cx = luminal.Graph()
    x = cx.tensor((3,))
    y = ops.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x)
    with pytest.raises(Unsupported, match="scan"):
        backward(y.sum(), [x])


@pytest.mark.parametrize("reverse", [False, True])
def test_tangents_of_carries_rows_slices_and_what_lies_around(reverse):
    """All at once and one by one, of gradients too, and the gradient of a tangent."""
    cx = luminal.Graph()
    shapes = (("s", 2, 3), (3, 3), (2, 3))
    inputs, along = [cx.tensor(s) for s in shapes], [cx.tensor(s) for s in shapes]

    def step(carry, row):
        state, count = carry
        new = ops.tanh(state @ inputs[1].T + row * count)
        return (new, count + 1), new * state

    (last, _), rows = ops.scan(step, (inputs[2], 1), inputs[0], reverse=reverse)
    results = [last, rows]
    made = jvp(results, inputs, along)
    for x, t in zip(inputs, along):
        made += jvp(results, [x], [t])
    slopes = backward((last * rows.sum(0)).sum(), inputs[:2])
    made += jvp(slopes, inputs[:2], along[:2])
    made += backward((made[0] * made[1].sum(0)).sum(), [inputs[1]])

    def right(x, w, state):
        kept = []
        for count, row in enumerate(x.flip(0) if reverse else x, 1):
            new = torch.tanh(state @ w.T + row * count)
            kept.append(new * state)
            state = new
        return state, torch.stack(kept[::-1] if reverse else kept)

    def product(x, w, state):
        last, rows = right(x, w, state)
        return (last * rows.sum(0)).sum()

    def pushed_product(w):
        last, rows = func.jvp(right, (given[0], w, given[2]), ahead)[1]
        return (last * rows.sum(0)).sum()

    func = torch.func
    given, ahead = ([torch.randn(s) for s in ((4, 2, 3), (3, 3), (2, 3))] for _ in range(2))
    given, ahead = tuple(given), tuple(ahead)
    still = [torch.zeros_like(t) for t in ahead]
    wanted = [*func.jvp(right, given, ahead)[1]]
    for n in range(3):
        wanted += func.jvp(right, given, (*still[:n], ahead[n], *still[n + 1 :]))[1]
    slope = func.grad(product, (0, 1))
    wanted += func.jvp(slope, given, (*ahead[:2], still[2]))[1]
    wanted.append(func.grad(pushed_product)(given[1]))
    agree(cx, made, [*given, *ahead], wanted)


def test_tangents_through_a_loop_in_a_loop_and_a_while_loop():
    """What does not change has none: the number that is carried, the row of it."""
    cx = luminal.Graph()
    x, t = cx.tensor((3,)), cx.tensor((3,))

    def doubled(c, row):
        (inner, _), sines = ops.scan(lambda d, y: ((ops.sin(d[0] * y), d[1]), d[0]), (c, row), x)
        return inner, (sines.sum(0), row)

    last, (rows, same) = ops.scan(doubled, x * 2, cx.constant(np.ones((2, 3), "f")))
    grown = ops.while_loop(lambda c: c.sum() < 9, lambda c: c * c + 0.5, x)
    made = jvp([last, rows, same, grown], [x], [t])

    def right(x):
        last, rows = x * 2, []
        for _ in range(2):
            inner, sines = last, []
            for y in x:
                sines.append(inner)
                inner = torch.sin(inner * y)
            last = inner
            rows.append(sum(sines))
        grown = x
        while grown.sum() < 9:
            grown = grown * grown + 0.5
        return last, torch.stack(rows), torch.ones(2, 3), grown

    given, ahead = torch.tensor([0.5, 0.7, 0.9]), torch.randn(3)
    agree(cx, made, [given, ahead], torch.func.jvp(right, (given,), (ahead,))[1])
    (zero,) = jvp([same], [x], [t])
    assert zero.node.op == "view"  # zeros


def test_a_loop_beside_its_tangents():
    """Two loops whose steps make the same values, each of its own carry, around inner loops."""
    cx = luminal.Graph()
    x, t = cx.tensor((3,)), cx.tensor((3,))

    def outer(c, row):
        a = ops.sin(c * row)
        inner, _ = ops.scan(lambda d, y: (d * y + a, None), a, x)
        return inner + a * a, None

    rows = torch.arange(6.0).view(2, 3)
    last, _ = ops.scan(outer, x, cx.constant(rows.numpy()))

    def right(x):
        c = x
        for row in rows:
            a = torch.sin(c * row)
            inner = a
            for y in x:
                inner = inner * y + a
            c = inner + a * a
        return c

    given = torch.tensor([0.5, 0.7, 0.9]), torch.tensor([1.0, 2.0, 3.0])
    wanted = torch.func.jvp(right, given[:1], given[1:])
    agree(cx, [last, *jvp([last], [x], [t])], given, wanted)


def test_states_do_not_change_in_each_step():
    cx = luminal.Graph()
    norm, x = luminal.nn.BatchNorm1d(cx, 3).train(), cx.tensor((5, 4, 3))
    with pytest.raises(Unsupported, match="running_mean would change in each step"):
        ops.scan(lambda c, row: (c + norm(row), None), x[0], x)
