"""Recurrent layers under torch.compile: whole, of any length. Loops and conditions too."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from luminal.torch import report, reset

torch.manual_seed(0)
LAYERS = [
    ("LSTM", dict(proj_size=3, bias=False, num_layers=2)),
    ("GRU", dict(bidirectional=True, batch_first=True)),
    ("RNN", dict(nonlinearity="relu")),
]


@pytest.fixture(autouse=True)
def seen():
    """Dynamo sees into recurrent layers only where it is asked to."""
    torch._dynamo.reset(), reset()
    with torch._dynamo.config.patch(allow_rnn=True):
        yield
    torch._dynamo.reset(), reset()


def flat(result):
    y, states = result
    return [y, *(states if isinstance(states, tuple) else (states,))]


@pytest.mark.parametrize(("name", "options"), LAYERS)
def test_a_layer_is_one_operation(name, options):
    model = getattr(nn, name)(4, 5, **options).eval()
    compiled = torch.compile(model, backend="luminal", dynamic=True, options={"strict": True})
    with torch.no_grad():
        for steps in (5, 80):
            x = torch.randn(steps, 2, 4)
            for mine, right in zip(flat(compiled(x)), flat(model(x))):
                torch.testing.assert_close(mine, right, rtol=1e-5, atol=1e-5)
                assert mine.stride() == right.stride()
    assert not report().fallbacks and report().native < 40 and report().parts <= 2


def test_in_a_model_with_states_of_its_own():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.layer = nn.Embedding(9, 4), nn.LSTM(4, 6, batch_first=True)
            self.head = nn.Linear(6, 3)

        def forward(self, ids, state):
            y, state = self.layer(self.table(ids), state)
            return self.head(y), state

    model, state = Tagger().eval(), (torch.randn(1, 2, 6), torch.randn(1, 2, 6))
    compiled = torch.compile(model, backend="luminal", options={"strict": True})
    ids = torch.randint(9, (2, 100))
    with torch.no_grad():
        (y, (h, c)), (want, (want_h, want_c)) = compiled(ids, state), model(ids, state)
    for mine, right in zip((y, h, c), (want, want_h, want_c)):
        torch.testing.assert_close(mine, right, rtol=1e-5, atol=1e-5)
    assert report().graphs == 1 and not report().fallbacks


def test_what_is_trained_is_expanded():
    model, x = nn.GRU(3, 4), torch.randn(3, 2, 3)
    grads = []
    for run in (model, torch.compile(model, backend="luminal")):
        model.zero_grad()
        run(x)[0].square().sum().backward()
        grads.append([weight.grad.clone() for weight in model.parameters()])
    for mine, right in zip(*grads):
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-5)


# ---- operations whose operands are graphs


def compared(function, *given, strict=True):
    compiled = torch.compile(function, backend="luminal", options={"strict": strict})
    with torch.no_grad():
        mine, right = compiled(*given), torch.compile(function, backend="eager")(*given)
    torch.testing.assert_close(mine, right, rtol=1e-5, atol=1e-5)


def test_scans_of_different_bodies_are_different_programs():
    from torch._higher_order_ops.scan import scan

    weight, x = torch.randn(3, 3), torch.randn(6, 2, 3)
    for function in (torch.tanh, torch.sin):

        def step(c, row, function=function):
            new = function(c @ weight + row)
            return new, new * c

        compared(lambda h, x, step=step: scan(step, h, x), torch.zeros(2, 3), x)
        compared(lambda h, x, step=step: scan(step, h, x, reverse=True), torch.ones(2, 3), x)
    assert report().native and not report().fallbacks


def test_while_loops_and_conditions():
    def power(x):
        return torch.while_loop(
            lambda n, y: (n < 5) & (y.abs().sum() < 50), lambda n, y: (n + 1, y @ x),
            (torch.tensor(0), x * 0.5),
        )  # fmt: skip

    compared(power, torch.randn(3, 3))
    for sign in (1, -1):
        compared(
            lambda x: torch.cond(x.sum() > 0, torch.sin, torch.exp, (x,)), sign * torch.ones(3)
        )
    assert report().native and not report().fallbacks


def test_a_body_that_may_raise_an_error_is_left_to_pytorch():
    table = torch.randn(7, 2)

    def look(x):
        return torch.while_loop(
            lambda n, y: n < 3,
            lambda n, y: (n + 1, y + table.index_select(0, n.reshape(1)).sum()),
            (torch.tensor(0), x),
        )

    with pytest.warns(RuntimeWarning, match="while_loop"):
        compared(look, torch.zeros(2), strict=False)
