"""Small models on `device="cuda:sim"`, beside the CPU: encoders, convolutions, a recurrent network,
decoders with a cache over several formats of weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from llm.checkpoints import FAMILIES, checkpoint, make_model

from luminal import LLM, nn, ops
from luminal.backend.cuda.simulator import found_compiler
from luminal.graph import Graph, Tensor
from luminal.graph.dtype import boolean, i64
from luminal.models.bert import Bert, BertConfig

pytestmark = pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")


def bert(graph: Graph) -> Tensor:
    """Shaped as MiniLM, in small."""
    graph.dim("b", 1, 4)
    graph.dim("s", 1, 32)
    config = BertConfig(100, 64, 2, 4, 128, max_position_embeddings=32)
    ids = graph.tensor(("b", "s"), i64, name="ids")
    return Bert(graph, config)(ids, graph.tensor(("b", "s"), boolean, name="mask"))


def cnn(graph: Graph) -> Tensor:
    x = graph.tensor((2, 3, 16, 16), name="x")
    first, second = nn.Conv2d(graph, 3, 8, 3, padding=1), nn.Conv2d(graph, 8, 16, 3, stride=2)
    hidden = ops.max_pool2d(ops.relu(nn.BatchNorm2d(graph, 8).eval()(first(x))), 2)
    return ops.softmax(nn.Linear(graph, 16, 10)(ops.relu(second(hidden)).mean((2, 3))), -1)


def unet_block(graph: Graph) -> Tensor:
    """A residual block, attention over the pixels, twice the size, a convolution."""
    x = graph.tensor((1, 16, 8, 8), name="x")
    norm, conv = nn.GroupNorm(graph, 4, 16), nn.Conv2d(graph, 16, 16, 3, padding=1)
    h = x + conv(ops.silu(norm(x)))
    pixels = h.reshape((1, 16, 64)).permute((0, 2, 1))
    q, k, v = (nn.Linear(graph, 16, 16)(pixels) for _ in range(3))
    mixed = ops.scaled_dot_product_attention(q, k, v).permute((0, 2, 1)).reshape((1, 16, 8, 8))
    up = ops.interpolate(h + mixed, scale_factor=2, mode="nearest")
    return nn.Conv2d(graph, 16, 4, 3, padding=1)(up)


def lstm(graph: Graph) -> Tensor:
    graph.dim("s", 1, 16)
    found, _ = nn.LSTM(graph, 6, 12, num_layers=2)(graph.tensor(("s", 2, 6), name="x"))
    return found


MODELS: dict[str, tuple[Callable[[Graph], Tensor], dict[str, int]]] = {
    "bert": (bert, {"b": 2, "s": 9}), "cnn": (cnn, {}), "unet block": (unet_block, {}),
    "lstm": (lstm, {"s": 7}),
}  # fmt: skip


def inputs(name: str) -> tuple[Graph, Tensor, dict[Tensor, np.ndarray]]:
    """A model, its output, what it is given."""
    make, sizes = MODELS[name]
    graph, rng = Graph(), np.random.default_rng(0)
    y = make(graph).output("y")
    given = {}
    for source in graph.sources:
        shape = [int(n.evaluate(sizes)) for n in source.node.shape]
        if source.dtype is i64:
            given[source] = rng.integers(0, 100, shape)
        elif source.dtype is boolean:
            given[source] = np.arange(shape[-1]) < [[shape[-1]], [shape[-1] - 3]]
        elif source.node.attribute.kind == "input" or source.node.attribute.value is None:
            given[source] = rng.standard_normal(shape).astype(np.float32) / 4
    return graph, y, given


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) for n in MODELS])
def test_model(name: str) -> None:
    graph, y, given = inputs(name)
    found = []
    for device in ("cuda:sim", "cpu"):
        rt = graph.compile(device)
        for tensor, array in given.items():
            rt[tensor] = array
        rt.run()
        found.append(rt[y])
    np.testing.assert_allclose(found[0], found[1], rtol=2e-4, atol=2e-5)


# ---- decoders


def weights(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict]:
    """Two layers of llama, and how they are read."""
    if kind in ("f32", "bf16", "q8", "q4"):
        options = {"precision": kind}
        if kind.startswith("q"):
            options = {"quant": kind, "precision": "bf16"}  # that of a GPU where none is asked for
        return checkpoint("llama3")[0], options
    gguf = pytest.importorskip("llm.test_gguf")
    name, own = FAMILIES["llama2"]
    monkeypatch.setitem(FAMILIES, "llama2", (name, own | gguf.WIDE))
    model, file = make_model("llama2"), folder / "model.gguf"
    gguf.convert(model, file, lambda name: "" if "norm" in name else kind)
    return file, {"precision": "f32"}


KINDS = ("f32", "bf16", "q8", "Q8_0", "Q4_K")


@pytest.mark.parametrize(
    "kind", [k if k == "f32" else pytest.param(k, marks=pytest.mark.slow) for k in KINDS]
)
def test_llama(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt, then a token at a time over the cache."""
    path, options = weights(kind, tmp_path, monkeypatch)
    ids, seen = list(range(3, 24)), []
    for device in ("cuda:sim", "cpu"):
        program = LLM(path, context=64, device=device, **options).program
        logits = [program.feed(ids, len(ids)).copy()]
        logits += [program.feed([token], 1).copy() for token in (5, 7, 11)]
        seen.append(np.concatenate(logits))
    bound = 2e-2 if kind in ("bf16", "q8") else 1e-4
    np.testing.assert_allclose(seen[0], seen[1], atol=bound * np.abs(seen[1]).max(), rtol=0)
