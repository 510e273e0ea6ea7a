"""Narrow keys and values: the bound of a row, what the logits lose, what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import luminal
from luminal import LLM, ops
from luminal.errors import Unsupported
from luminal.models.llm.cache import KINDS, ContiguousCache, cache_bytes
from luminal.models.llm.config import DecoderConfig
from luminal.models.llm.e4m3 import decoded, encoded
from luminal.models.llm.loading import load

from .checkpoints import checkpoint


def config(name: str = "llama2") -> DecoderConfig:
    return load(checkpoint(name)[0]).config


def test_a_row_is_off_by_half_a_step_at_most() -> None:
    """Attention over a single key gives its value as it was kept."""
    found, graph = config(), luminal.Graph()
    position = graph.dim("position", 0, 3)
    cache = ContiguousCache(graph, found, 4, 1, position, "int8")
    shape = (found.kv_heads, 1, found.head_dim)
    value = graph.tensor(shape, name="value")
    nothing = ops.zeros_like(value)  # llama2: as many heads as kv heads
    kept = cache.attend(0, nothing, nothing, value).output("kept")
    program = graph.compile(threads=1)
    for state in cache.states:
        program[state] = np.zeros(state.shape, state.dtype.numpy)
    given = np.random.default_rng(0).standard_normal(shape).astype(np.float32) ** 5
    given[0] = 0
    program[value] = given
    program.run(position=0)
    step = np.abs(given).max(-1, keepdims=True) / 127
    assert (np.abs(program[kept] - given) <= 0.5001 * step).all() and not program[kept][0].any()


def test_bytes_of_e4m3_are_the_nearest() -> None:
    """All of them are read, and written back; numbers between, ties, sizes beyond and NaN too."""
    every = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    whole = every.astype(np.float32)[~np.isnan(every.astype(np.float32))]
    ordered = np.unique(whole)
    middle = (ordered[1:] + ordered[:-1]) / 2  # ties
    near = [np.nextafter(middle, np.float32(side)) for side in (-np.inf, np.inf)]
    drawn = np.random.default_rng(0).standard_normal(500, np.float32) ** 9
    given = np.concatenate([whole, middle, *near, drawn, np.float32([1e9, -1e9, np.inf, np.nan])])
    graph = luminal.Graph()
    numbers, codes = graph.tensor(given.shape), graph.tensor(256, "u8")
    encoded(numbers).output()
    decoded(codes).output()
    program = graph.compile(threads=1)
    made = program(given, np.arange(256, dtype=np.uint8))
    expected = np.clip(given, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    same = made[0].view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(same, expected.astype(np.float32))
    np.testing.assert_array_equal(made[1], every.astype(np.float32))


def test_logits_move_by_a_few_percent_at_most() -> None:
    """Prompt and single tokens; f32 activations, so that nothing else is rounded."""
    directory, ids = checkpoint("llama3")[0], list(range(3, 43))
    rows = {}
    for kind in KINDS:
        llm = LLM(directory, precision="f32", context=64, threads=1, kv=kind)
        assert llm.logits(ids[:9]).shape == (9, 320)
        parts = [llm.program.feed(ids[9:30], 21), *(llm.program.feed([i]) for i in ids[30:])]
        rows[kind] = np.concatenate(parts)
    size = np.linalg.norm(rows["f32"])
    assert 1e-4 < np.linalg.norm(rows["int8"] - rows["f32"]) / size < 0.02
    assert 1e-4 < np.linalg.norm(rows["fp8"] - rows["f32"]) / size < 0.06
    assert 1e-6 < np.linalg.norm(rows["f16"] - rows["f32"]) / size < 1e-3
    prompts = ["the fox", "the dog sleeps"]  # many at once, in pages of 8 bits too
    assert llm.generate(prompts, 5) == [llm.generate(prompt, 5) for prompt in prompts]


def test_bytes_and_what_is_refused() -> None:
    found = config()  # heads of 16 numbers: 20 bytes instead of 64
    assert cache_bytes(found, 10, "int8") / cache_bytes(found, 10) == 20 / 64
    assert cache_bytes(found, 10, "fp8") / cache_bytes(found, 10) == 1 / 4
    assert cache_bytes(found, 10, "f16") / cache_bytes(found, 10) == 1 / 2
    graph = luminal.Graph()
    states = ContiguousCache(graph, found, 10, 1, graph.dim("position", 0, 9), "int8").states
    sizes = [np.prod(state.shape) * state.dtype.bytes for state in states]
    assert sum(sizes) == cache_bytes(found, 10, "int8")
    with pytest.raises(Unsupported, match="kv='int4'; there are f32, f16, int8, fp8"):
        LLM(checkpoint("llama2")[0], kv="int4")


def test_the_cache_is_exact_where_weights_and_activations_are() -> None:
    directory = checkpoint("llama2")[0]
    asked = [(None, "f32"), (None, "quantised"), ("q8", "f32"), ("q8", "quantised")]
    kinds = [load(directory, quant, precision=precision).kv for quant, precision in asked]
    assert kinds == ["f32", "f32", "f32", "f16"]
    assert load(directory, "q8", kv="f32", precision="quantised").kv == "f32"
