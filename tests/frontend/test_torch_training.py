"""Training through the backend against eager; threads, memory of many calls."""

import copy
import gc
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from luminal.torch import backend, report


class Gpt(nn.Module):
    """Two blocks of a decoder with learned positions; next-token logits."""

    def __init__(self, width=32, heads=4, vocabulary=40, length=16):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, causal=True) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).flatten(0, 1)


class Block(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        parts = self.qkv(self.first(x)).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)
        q, k, v = parts.unbind(2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


class ResNet(nn.Module):
    """A residual block with batch norm between a stem and a head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.a, self.b = (nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(2))
        self.na, self.nb = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, image):
        x = self.stem(image)
        x = F.relu(x + self.nb(self.b(F.relu(self.na(self.a(x))))))
        return self.head(x.mean((2, 3)))


class Vit(nn.Module):
    """Patches, a class token, one encoder block."""

    def __init__(self, width=24):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.block, self.head = Block(width, 3, causal=False), nn.Linear(width, 5)

    def forward(self, image):
        x = self.patches(image).flatten(2).mT
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1)
        return self.head(self.block(x)[:, 0])


class Lstm(nn.Module):
    """A cell written out over the sequence."""

    def __init__(self, width=16):
        super().__init__()
        self.cell, self.head, self.width = nn.LSTMCell(3, width), nn.Linear(width, 5), width

    def forward(self, sequence):
        state = (sequence.new_zeros(sequence.shape[0], self.width),) * 2
        for step in sequence.unbind(1):
            state = self.cell(step, state)
        return self.head(state[0])


def batches(name, count=4):
    made = []
    for _ in range(count):
        if name == "gpt":
            tokens = torch.randint(0, 40, (4, 13))
            made.append((tokens[:, :-1], tokens[:, 1:].flatten()))
        else:
            shape = (4, 6, 3) if name == "lstm" else (4, 3, 8, 8)
            made.append((torch.randn(shape), torch.randint(0, 5, (4,))))
    return made


MODELS = {"gpt": Gpt, "resnet": ResNet, "vit": Vit, "lstm": Lstm}


def curve(model, data, steps, wrap):
    """Losses of a training run with Adam, and the gradients of its first step."""
    run, optimizer = wrap(model), torch.optim.Adam(model.parameters(), 3e-3)
    losses, gradients = [], []
    for step in range(steps):
        inputs, labels = data[step % len(data)]
        loss = F.cross_entropy(run(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        gradients = gradients or [p.grad.clone() for p in model.parameters()]
        optimizer.step()
        losses.append(loss.item())
    return losses, gradients


def follow(name, steps):
    """Train eagerly and compiled; compare losses, gradients and what is left in the buffers."""
    model, data = MODELS[name](), batches(name)
    other = copy.deepcopy(model)
    expected, wanted = curve(model, data, steps, lambda m: m)
    losses, gradients = curve(other, data, steps, lambda m: torch.compile(m, backend=backend))
    for mine, theirs in zip(gradients, wanted):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=2e-5)
    assert losses == pytest.approx(expected, rel=2e-2, abs=2e-3)
    assert losses[-1] < 0.9 * losses[0]
    for (key, mine), theirs in zip(other.named_buffers(), model.buffers()):
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-2, msg=key)
    assert report().graphs == 2 and not report().fallbacks and not report().failures


@pytest.mark.parametrize("name", MODELS)
def test_a_few_steps_follow_eager(name):
    follow(name, 20)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_two_hundred_steps_follow_eager(name):
    follow(name, 200)


def test_ten_thousand_calls_in_several_threads_need_no_more_memory():
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8)).eval()
    run = torch.compile(model, backend=backend, dynamic=True)
    inputs = [torch.randn(n, 16) for n in (2, 3, 5, 8)]
    with torch.no_grad():
        expected = [model(x) for x in inputs]
        for x in inputs:
            run(x)
    wrong = []

    def work(count):
        with torch.no_grad():
            for number in range(count):
                got = run(inputs[number % 4])
                if not torch.allclose(got, expected[number % 4], atol=1e-5):
                    wrong.append(number)

    def many(count):
        threads = [threading.Thread(target=work, args=(count // 4,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gc.collect()
        with open("/proc/self/statm") as file:
            return 4096 * int(file.read().split()[1])

    many(1000)
    before = many(1000)
    after = many(10_000)
    assert not wrong
    assert after - before < 4 << 20


def test_images_of_run_time_sizes_are_trained_without_fallbacks():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, 2, 1),
        nn.AvgPool2d(3, 2, 1), nn.AvgPool2d(2, 1, 1, count_include_pad=False),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(2),
    )  # fmt: skip
    eager, run = copy.deepcopy(model), torch.compile(model, backend=backend, dynamic=True)
    for count, side in ((2, 16), (3, 25)):
        x = torch.randn(count, 3, side, side)
        for each, function in ((model, run), (eager, eager)):
            each.zero_grad()
            function(x).square().mean().backward()
        for p, q in zip(model.parameters(), eager.parameters()):
            torch.testing.assert_close(p.grad, q.grad)
    assert not report().fallbacks and not report().failures
