"""Modules beside PyTorch's: the state goes over by name, the outputs must agree."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from luminal import nn, ops, train
from luminal.backend.reference import evaluate
from luminal.errors import InputError, WeightsError
from luminal.graph import Graph, Tensor
from luminal.graph.values import array_of


def value(tensor: Tensor, feeds: dict[Tensor, Any] | None = None, **sizes: int) -> np.ndarray:
    return evaluate(tensor.graph, [tensor.node], feeds or {}, sizes)[tensor.node]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def numpy_state(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """The state with every parameter random, so that ones and zeros cannot hide a mistake."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.dtype.is_floating_point:
                tensor.copy_(
                    torch.rand_like(tensor) if "var" in name else torch.randn_like(tensor) * 0.3
                )
    return {name: t.numpy() for name, t in module.state_dict().items()}


# ---- rotary positions and the cache


def test_decoder_block_like_llama() -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=11,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
    )
    torch.manual_seed(0)
    theirs = LlamaForCausalLM(config).eval().model
    graph = Graph()
    rotary = nn.RotaryEmbedding(graph, 8, 64)
    block = nn.DecoderBlock(graph, 32, 4, 2, 48, rotary)
    block.load_state_dict(numpy_state(theirs.layers[0]))
    x = graph.tensor((1, 6, 32))
    array = normal(1, 6, 32)
    with torch.no_grad():
        theirs.norm = torch.nn.Identity()
        expected = theirs(inputs_embeds=torch.from_numpy(array)).last_hidden_state.numpy()
    np.testing.assert_allclose(value(block(x), {x: array}), expected, rtol=2e-5, atol=2e-5)


def test_cache_step_by_step_equals_all_at_once() -> None:
    graph = Graph()
    graph.dim("p", 0, 15)
    graph.dim("s", 1, 16)
    rotary = nn.RotaryEmbedding(graph, 8, 16)
    block = nn.DecoderBlock(graph, 32, 4, 2, 48, rotary)
    cache = nn.KVCache(graph, 1, 2, 16, 8)
    whole, part = graph.tensor((1, 7, 32)), graph.tensor((1, "s", 32))
    step = block(part, cache, "p").output()
    array = normal(1, 7, 32)
    expected = value(block(whole), {whole: array})
    states = {
        cache.keys: np.zeros((1, 2, 16, 8), np.float32),
        cache.values: np.zeros((1, 2, 16, 8), np.float32),
    }
    got, position = [], 0
    for size in (3, 1, 1, 2):
        chunk = array[:, position : position + size]
        nodes = [step.node] + [new.node for _, new in graph.states]
        result = evaluate(graph, nodes, {part: chunk, **states}, {"p": position})
        states = {state: result[new.node] for state, new in graph.states}
        got.append(result[step.node])
        position += size
    np.testing.assert_allclose(np.concatenate(got, 1), expected, rtol=1e-5, atol=1e-5)


# ---- the tree


class Net(nn.Module):
    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.body = nn.ModuleList(nn.Linear(graph, 4, 4) for _ in range(2))
        self.head = nn.Sequential(graph, nn.Linear(graph, 4, 2), nn.ReLU(graph))
        self.norm = nn.BatchNorm(graph, 2)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.body:
            x = layer(x)
        return self.norm(self.head(x))


NAMES = [
    "body.0.weight",
    "body.0.bias",
    "body.1.weight",
    "body.1.bias",
    "head.0.weight",
    "head.0.bias",
    "norm.weight",
    "norm.bias",
    "norm.running_mean",
    "norm.running_var",
]


def test_dotted_names() -> None:
    graph = Graph()
    net = Net(graph)
    assert list(net.state_dict()) == NAMES
    assert [name for name, _ in net.named_parameters()] == NAMES[:-2]
    assert [t.node.attribute.name for t in graph.parameters] == NAMES
    assert len(list(net.parameters())) == 8
    assert [name for name, _ in net.named_modules()][:3] == ["", "body", "body.0"]


def test_tied_parameters_are_one() -> None:
    graph = Graph()
    net = nn.ModuleDict({"a": nn.Linear(graph, 3, 3), "b": nn.Linear(graph, 3, 3)})
    net["b"].weight = net["a"].weight
    assert len(list(net.parameters())) == 3
    assert np.shares_memory(net.state_dict()["a.weight"], net.state_dict()["b.weight"])


def test_train_and_eval() -> None:
    graph = Graph()
    net = nn.Sequential(graph, nn.Linear(graph, 4, 4), nn.Dropout(graph, 0.5))
    x = graph.tensor((50, 4))
    assert not any(module.training for module in net.modules())
    plain = net(x)
    assert net.train().training and net[1].training
    dropped = net(x)
    net.eval()
    assert net(x) is plain
    array = normal(50, 4)
    zeros = (value(dropped, {x: array}) == 0).mean()
    assert 0.3 < zeros < 0.7


@pytest.mark.parametrize("momentum, uses", [(0.1, 1), (0.1, 2), (None, 2)])
def test_batch_norm_updates_its_statistics(momentum: float | None, uses: int) -> None:
    graph, theirs = Graph(), torch.nn.BatchNorm1d(3, momentum=momentum).train()
    norm = nn.BatchNorm1d(graph, 3, momentum=momentum).train()
    fed = {graph.tensor((8, 3)): normal(8, 3, seed=n) for n in range(uses)}
    for x, array in fed.items():
        expected = theirs(torch.from_numpy(array)).detach()
        np.testing.assert_allclose(value(norm(x), fed), expected, rtol=1e-5, atol=1e-5)
    states = {state.node.attribute.name: value(new, fed) for state, new in graph.states}
    np.testing.assert_allclose(states["running_mean"], theirs.running_mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(states["running_var"], theirs.running_var, rtol=1e-5, atol=1e-6)


def test_load_refuses_and_changes_nothing() -> None:
    net = Net(Graph())
    before = {n: v.copy() for n, v in net.state_dict().items()}
    state = {n: v + 1 for n, v in before.items()}
    bad = {
        "1 missing: body.0.bias": {n: v for n, v in state.items() if n != "body.0.bias"},
        "1 unexpected: extra": {**state, "extra": np.zeros(1)},
        r"head.0.weight: expected shape \(2, 4\), got \(4, 2\)": {
            **state,
            "head.0.weight": np.zeros((4, 2)),
        },
        "norm.bias": {**state, "norm.bias": np.array(["a", "b"])},
        "norm.bias: Tensor is not": {**state, "norm.bias": torch.zeros(4).to_sparse()},
    }
    for message, given in bad.items():
        with pytest.raises(WeightsError, match=message):
            net.load_state_dict(given)
    for name, old in before.items():
        np.testing.assert_array_equal(net.state_dict()[name], old)
    net.load_state_dict({"head.0.bias": np.ones(2), "extra": np.zeros(1)}, strict=False)
    np.testing.assert_array_equal(net.state_dict()["head.0.bias"], [1, 1])


def test_initial_values_are_seeded() -> None:
    def weights(seed: int | None) -> np.ndarray:
        graph = Graph()
        if seed is not None:
            nn.init.seed(graph, seed)
        return nn.Linear(graph, 64, 32).state_dict()["weight"]

    assert np.array_equal(weights(None), weights(None)) and np.array_equal(
        weights(0), weights(None)
    )
    assert not np.array_equal(weights(1), weights(2))
    assert np.abs(weights(3)).max() <= 1 / 8 and weights(3).std() == pytest.approx(
        1 / 8 / 3**0.5, rel=0.1
    )
    with nn.uninitialised(), pytest.raises(InputError, match="has no value yet"):
        weights(1)


def test_transformers_start_as_those_of_pytorch() -> None:
    mine = nn.Transformer(Graph(), 32, 2, 1, 1, 64).state_dict()
    for name, theirs in torch.nn.Transformer(32, 2, 1, 1, 64).state_dict().items():
        assert np.abs(mine[name]).max() == pytest.approx(float(theirs.abs().max()), 0.15), name
    attention = nn.MultiheadAttention(Graph(), 256, 2, add_bias_kv=True).state_dict()
    assert attention["bias_k"].std() == pytest.approx(1 / 16, 0.2)


def test_half_precision_parameters() -> None:
    graph = Graph()
    layer = nn.Linear(graph, 4, 3, dtype="bf16")
    layer.load_state_dict({"weight": normal(3, 4), "bias": normal(3)})
    x = graph.tensor((2, 4), "bf16")
    assert layer(x).dtype.name == "bf16"
    assert layer.state_dict()["weight"].dtype == layer.weight.dtype.numpy


# ---- what modules hold


class Plain(nn.Module):
    def __init__(self, entry: Any) -> None:
        super().__init__()
        self.entries = entry


def test_plain_containers_are_refused() -> None:
    graph = Graph()
    layer, parameter = nn.Linear(graph, 2, 2), graph.parameter(3)
    for entry in ([layer], (nn.ReLU(), layer), {"a": layer}):
        with pytest.raises(InputError, match="are lost; use ModuleList"):
            Plain(entry)
    with pytest.raises(InputError, match="ParameterList"):
        Plain([parameter])
    late = Plain([])
    late.entries.append(layer)
    with pytest.raises(InputError, match="lost"):
        late.state_dict()


def test_lists_and_dicts() -> None:
    graph = Graph()
    layers = nn.ModuleList([nn.Linear(graph, 2, 2)])
    layers.extend([nn.ReLU(), nn.Linear(graph, 2, 3)]).insert(0, nn.Identity())
    assert [type(m).__name__ for m in layers[1:]] == ["Linear", "ReLU", "Linear"]
    assert list(layers.state_dict()) == ["1.weight", "1.bias", "3.weight", "3.bias"]
    del layers[0]
    layers[1] = nn.GELU()
    assert list(layers.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    parameters = nn.ParameterList([graph.parameter(2), graph.parameter(3)])
    named = nn.ParameterDict({"a": graph.parameter(2)})
    assert [name for name, _ in parameters.named_parameters()] == ["0", "1"]
    assert "a" in named and dict(named.items())["a"] is named["a"]
    net = nn.Sequential({"first": nn.Linear(graph, 2, 2), "then": nn.ReLU()})
    assert list(net.state_dict()) == ["first.weight", "first.bias"]


def test_buffers() -> None:
    graph = Graph()
    module = nn.Module()
    module.register_buffer("kept", graph.constant(np.arange(3.0, dtype=np.float32)))
    module.register_buffer("other", graph.parameter(2).set(np.ones(2, np.float32)), False)
    module.register_buffer("none", None)
    assert not list(module.parameters()) and len(list(module.buffers())) == 2
    assert list(module.state_dict()) == ["kept"] and module.none is None
    module.load_state_dict({"kept": np.ones(3)})
    assert np.array_equal(module.state_dict()["kept"], [1, 1, 1])


def test_apply_dtypes_and_copies() -> None:
    graph = Graph()
    net = nn.Sequential(nn.Linear(graph, 2, 2), nn.BatchNorm1d(graph, 2))
    seen: list[nn.Module] = []
    net.apply(seen.append)
    assert seen == [net[0], net[1], net]
    before = net.state_dict()
    copied = deepcopy(net)
    assert copied[0].weight is not net[0].weight and copied[0].weight.graph is graph
    assert all(np.array_equal(copied.state_dict()[n], v) for n, v in before.items())
    net.half()
    assert net[0].weight.dtype.name == net[1].running_var.dtype.name == "f16"
    assert len(graph.parameters) == 12 and net.get_submodule("1") is net[1]
    with pytest.raises(InputError, match="not copied"):
        deepcopy(graph)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float8_e4m3fn], ids=str)
def test_state_of_torch_that_numpy_lacks(kind: torch.dtype) -> None:
    theirs = torch.nn.Linear(3, 4).to(kind)
    layer = nn.Linear(Graph(), 3, 4, dtype="bf16")
    for state in (theirs.state_dict(), dict(theirs.named_parameters())):
        layer.load_state_dict(state)
        got = layer.state_dict()["weight"].astype(np.float32)
        assert np.array_equal(got, theirs.weight.detach().float().numpy())


def test_a_row_of_padding_is_not_trained() -> None:
    graph = Graph()
    table = nn.Embedding(graph, 4, 2, padding_idx=1)
    (slope,) = train.backward(table(graph.constant([0, 1, 1, 3])).sum(), [table.weight])
    np.testing.assert_array_equal(value(slope)[:, 0], [1, 0, 0, 1])


def test_embedding_bag_rounds_once() -> None:
    """In bf16: weights of samples are multiplied and added up in f32."""
    graph, rng = Graph(), np.random.default_rng(0)
    table = torch.from_numpy(rng.standard_normal((30, 16))).bfloat16()
    weights = torch.from_numpy(rng.standard_normal((8, 12))).bfloat16()
    index = torch.from_numpy(rng.integers(0, 30, (8, 12)))
    given = [graph.constant(array_of(t)) for t in (index, table, weights)]
    got = value(ops.embedding_bag(*given[:2], mode="sum", per_sample_weights=given[2]))
    exact = (table.double()[index] * weights.double().unsqueeze(-1)).sum(1)
    assert np.array_equal(got.astype(np.float32), exact.bfloat16().float().numpy())


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_the_row_of_padding_starts_as_zero(kind: Any) -> None:
    graph = Graph()
    table = graph.values[kind(graph, 3, 4, padding_idx=1).weight.node]
    assert [bool(row.any()) for row in table] == [True, False, True]
