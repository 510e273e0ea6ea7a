"""What whole models need: layers that PyTorch keeps whole, mixtures of experts, growing caches."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from luminal.torch import backend, report, reset


def close(got, expected, tolerance=1e-5):
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("mask", ["none", "rows", "sequences", "both"])
def test_the_fast_path_of_encoders(mask):
    norm_first = mask in ("rows", "both")
    layer = nn.TransformerEncoderLayer(
        16, 2, 24, batch_first=True, norm_first=norm_first, activation="gelu"
    ).eval()
    x, masks = torch.randn(3, 5, 16), {}
    if mask in ("rows", "both"):
        masks["src_mask"] = torch.ones(5, 5).triu(1).bool()
    if mask in ("sequences", "both"):
        masks["src_key_padding_mask"] = torch.arange(5) >= torch.tensor([[5], [3], [4]])
    with torch.no_grad():
        close(torch.compile(layer, backend=backend)(x, **masks), layer(x, **masks))
    assert not report().fallbacks and report().parts == 1


class Experts(nn.Module):
    """Two of five experts for each token, computed in the order of experts."""

    def __init__(self, width=8, hidden=12, count=5):
        super().__init__()
        self.router = nn.Linear(width, count)
        self.up = nn.Parameter(torch.randn(count, width, hidden) / 3)
        self.down = nn.Parameter(torch.randn(count, hidden, width) / 3)

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(2)
        numbers, order = chosen.flatten().sort()
        ends = torch.histc(numbers.float(), len(self.up), 0, len(self.up) - 1).cumsum(0).int()
        grouped = torch.ops.transformers.grouped_mm_fallback
        mixed = grouped(grouped(x[order // 2], self.up, ends).relu(), self.down, ends)
        mixed = (mixed * weights.flatten()[order].unsqueeze(-1))[order.argsort()]
        return mixed.view(*chosen.shape, -1).sum(1)


def test_mixture_of_experts_and_its_gradient():
    pytest.importorskip("transformers.integrations.moe")
    model, x = Experts(), torch.randn(20, 8)
    mine = copy.deepcopy(model)
    run = torch.compile(mine, backend=backend)
    with torch.no_grad():
        close(run(x), model(x))
    assert not report().fallbacks and report().parts == 1
    run(x).square().sum().backward()
    model(x).square().sum().backward()
    for got, expected in zip(mine.parameters(), model.parameters()):
        close(got.grad, expected.grad, 1e-4)


@pytest.mark.parametrize("batch", [1, 2])
def test_generation_with_a_growing_cache(batch):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        pad_token_id=0, bos_token_id=1, eos_token_id=None,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    prompt = torch.randint(2, 64, (batch, 7))
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(prompt, **options)
    model.forward = torch.compile(model.forward, backend=backend)
    torch._dynamo.utils.counters.clear()
    assert torch.equal(model.generate(prompt, **options), expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2
    assert report().graphs <= 2, f"{report().graphs} compilations"


def test_sizes_that_guards_make_equal_are_one() -> None:
    """An image that was halved and doubled fits beside the image itself where its size is even."""

    def skip(x: torch.Tensor) -> torch.Tensor:
        up = F.interpolate(F.max_pool2d(x, 2), scale_factor=2.0)
        return torch.cat([up, x + up], 1)

    reset()
    compiled = torch.compile(skip, backend=backend, dynamic=True)
    for size in (4, 6, 10):
        x = torch.randn(1, 2, size, size + 4)
        torch.testing.assert_close(compiled(x), skip(x))
    found = report()
    assert found.graphs == 1 and not found.fallbacks


def test_attention_with_a_sink_and_a_growing_cache():
    """As gpt-oss has it: the sink takes part in the softmax, its column is dropped."""

    def attend(q, new, cache, sink):
        keys = torch.cat([cache, new], 1)
        scores = torch.cat([(q * keys).sum(2), sink], 1)
        weights = (scores - scores.amax(1, keepdim=True)).softmax(1)[:, :-1]
        return keys, weights.unsqueeze(2) * keys

    run, caches = torch.compile(attend, backend=backend, dynamic=True), [torch.randn(2, 3, 4)] * 2
    for _ in range(5):
        q, new, sink = torch.randn(2, 1, 4), torch.randn(2, 1, 4), torch.randn(2, 1)
        results = [f(q, new, c, sink) for f, c in zip((run, attend), caches)]
        caches = [keys for keys, _ in results]
        close(results[0][1], results[1][1])
