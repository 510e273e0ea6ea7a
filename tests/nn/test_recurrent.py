"""Recurrent layers of any length, against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import luminal
from luminal import nn

torch.manual_seed(0)
KINDS = {
    "LSTM": (dict(num_layers=2), dict(bidirectional=True, batch_first=True), dict(proj_size=3)),
    "GRU": (dict(num_layers=2, bias=False), dict(bidirectional=True, batch_first=True)),
    "RNN": (dict(nonlinearity="relu", bidirectional=True),),
}
CASES = [(name, options) for name, rows in KINDS.items() for options in rows]


def pair(cx, name, options, inputs=5, hidden=6):
    right = getattr(torch.nn, name)(inputs, hidden, **options).eval()
    module = getattr(nn, name)(cx, inputs, hidden, **options)
    module.load_state_dict({k: v.detach().numpy() for k, v in right.state_dict().items()})
    return module.eval(), right


def flat(result):
    outputs, states = result
    return outputs, *(states if isinstance(states, tuple) else (states,))


@pytest.mark.parametrize(("name", "options"), CASES)
def test_one_program_for_all_lengths(name, options):
    cx = luminal.Graph()
    module, right = pair(cx, name, options)
    shape = ("b", "s", 5) if options.get("batch_first") else ("s", "b", 5)
    for tensor in flat(module(cx.tensor(shape))):
        tensor.output()
    rt = cx.compile(threads=2)
    for s, b in ((1, 1), (2, 3), (33, 1), (8, 2)):
        x = torch.randn((b, s, 5) if options.get("batch_first") else (s, b, 5))
        with torch.no_grad():
            wanted = flat(right(x))
        for mine, want in zip(rt(x.numpy()), wanted):
            np.testing.assert_allclose(mine, want.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "options"), CASES[1::2])
def test_rows_of_different_lengths(name, options):
    cx = luminal.Graph()
    module, right = pair(cx, name, options)
    first = options.get("batch_first", False)
    x = torch.randn((3, 7, 5) if first else (7, 3, 5))
    count = right.num_layers * (1 + right.bidirectional)
    widths = [options.get("proj_size", 6), 6][: 2 if name == "LSTM" else 1]
    states = [torch.randn(count, 3, width) for width in widths]
    given = tuple(map(cx.constant, (state.numpy() for state in states)))
    lengths = torch.tensor([7, 1, 4])
    result = module(
        cx.tensor(tuple(x.shape)), given if len(given) > 1 else given[0], cx.tensor((3,), "i64")
    )
    for tensor in flat(result):
        tensor.output()
    pack = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, first, enforce_sorted=False)
    with torch.no_grad():
        packed, after = right(pack, tuple(states) if len(states) > 1 else states[0])
        padded, _ = torch.nn.utils.rnn.pad_packed_sequence(packed, first)
    found = cx.compile(threads=1)(x.numpy(), lengths.numpy())
    for mine, want in zip(found, flat((padded, after))):
        np.testing.assert_allclose(mine, want.numpy(), rtol=1e-5, atol=1e-5)
