"""Fifty steps of small networks on the CPU: the losses are PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from luminal import Graph, Tensor, nn, ops, train

STEPS = 50


class Mlp(nn.Module):
    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(graph, 8, 32), nn.Linear(graph, 32, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(ops.gelu(self.first(x)))


class TorchMlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 32), torch.nn.Linear(32, 5)

    def forward(self, x: Any) -> Any:
        return self.second(F.gelu(self.first(x)))


class Convnet(nn.Module):
    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.first = nn.Conv2d(graph, 1, 4, 3, padding=1)
        self.second = nn.Conv2d(graph, 4, 8, 3, stride=2)
        self.last = nn.Linear(graph, 8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = ops.max_pool2d(ops.relu(self.first(x)), 2)
        return self.last(ops.relu(self.second(x)).mean((2, 3)))


class TorchConvnet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.second = torch.nn.Conv2d(4, 8, 3, stride=2)
        self.last = torch.nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        return self.last(F.relu(self.second(x)).mean((2, 3)))


class Gpt(nn.Module):
    """An embedding, one block of a decoder, tied logits of the last position."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(graph, 5, 16), nn.Embedding(graph, 8, 16)
        self.norm1, self.norm2 = nn.LayerNorm(graph, 16), nn.LayerNorm(graph, 16)
        self.qkv, self.out = nn.Linear(graph, 16, 48), nn.Linear(graph, 16, 16)
        self.up, self.down = nn.Linear(graph, 16, 32), nn.Linear(graph, 32, 16)

    def forward(self, x: Tensor) -> Tensor:
        return gpt(self, ops, x, x.graph.iota((8,), "i0"))


class TorchGpt(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = torch.nn.Embedding(5, 16), torch.nn.Embedding(8, 16)
        self.norm1, self.norm2 = torch.nn.LayerNorm(16), torch.nn.LayerNorm(16)
        self.qkv, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x: Any) -> Any:
        return gpt(self, F, x, torch.arange(8))


def gpt(m: Any, f: Any, x: Any, places: Any) -> Any:
    x = m.table(x) + m.places(places)
    q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in m.qkv(m.norm1(x)).chunk(3, -1))
    mixed = f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    x = x + m.out(mixed)
    x = x + m.down(f.gelu(m.up(m.norm2(x))))
    return x[:, -1] @ m.table.weight.T


NETS = {
    "mlp": (Mlp, TorchMlp, (8,), "f32"),
    "convnet": (Convnet, TorchConvnet, (1, 10, 10), "f32"),
    "gpt": (Gpt, TorchGpt, (8,), "i64"),
}


@pytest.fixture
def one_thread():
    """PyTorch's: its threads wait busily while ours work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", NETS)
def test_losses_are_those_of_pytorch(name: str, one_thread: None) -> None:
    make, make_torch, shape, kind = NETS[name]
    random, batch = np.random.default_rng(0), 12
    torch.manual_seed(0)
    theirs = make_torch()
    graph = Graph()
    graph.dim("batch", 1, 64)
    mine = make(graph)
    mine.load_state_dict(theirs.state_dict())
    x, y = graph.tensor(("batch", *shape), kind), graph.tensor(("batch",), "i64")
    loss = ops.cross_entropy(mine(x), y)
    train.Step(loss, mine.parameters(), train.AdamW(3e-3), train.clip_norm(1.0))
    rt = graph.compile(threads=2)
    optimizer = torch.optim.AdamW(theirs.parameters(), 3e-3)
    for number in range(STEPS):
        rows = batch - number % 3
        size = (rows, *shape)
        made = random.integers(0, 5, size) if kind == "i64" else random.standard_normal(size)
        rt[x] = data = made.astype(np.int64 if kind == "i64" else np.float32)
        rt[y] = target = random.integers(0, 5, rows)
        rt.run()
        optimizer.zero_grad()
        value = F.cross_entropy(theirs(torch.from_numpy(data)), torch.from_numpy(target))
        value.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.step()
        np.testing.assert_allclose(rt[loss], value.detach(), rtol=2e-4, err_msg=f"step {number}")
    for key, tensor in mine.named_parameters():
        if key == "qkv.bias":  # the keys' gradient is 0 but for rounding, which Adam enlarges
            continue
        wanted = theirs.state_dict()[key]
        np.testing.assert_allclose(rt[tensor], wanted, rtol=5e-3, atol=5e-4, err_msg=key)


def test_gradients_of_weights_used_again_and_again_are_sums_of_products():
    """Not of a product of all three axes in memory."""
    cx = Graph()
    x, w = cx.tensor((40, 48)), cx.tensor((48, 48))
    h = x
    for _ in range(5):
        h = ops.tanh(h @ w)
    loss = (h * h).sum()
    (gradient,) = train.backward(loss, [w])
    gradient.output()
    rt = cx.compile(cache=False, threads=1)
    assert all(m.elements.evaluate({}) <= 48 * 48 for m in rt._report.plan.memories)
    given = [torch.randn(40, 48), torch.randn(48, 48) * 0.1]
    _, weight = leaves = [value.clone().requires_grad_() for value in given]
    h = leaves[0]
    for _ in range(5):
        h = torch.tanh(h @ weight)
    (right,) = torch.autograd.grad((h * h).sum(), [weight])
    np.testing.assert_allclose(rt(*(v.numpy() for v in given)), right, rtol=2e-4, atol=1e-5)
