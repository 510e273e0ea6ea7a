"""Attention of com.microsoft over batches without padding, pages and blocks."""

from itertools import pairwise

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper
from onnx_models import info, load, model, numbers

import luminal

HEADS, KV, WIDTH = 4, 2, 16
LENGTHS = [1, 2, 4]
OFFSETS = np.int32([[0, 4, 5, 8], [9, 10, 11, 1], [2, 3, 6, 7]])
ENDS = np.int32([0, 1, 3, 7])
ROT = np.arange(64)[:, None] / (10.0 ** np.arange(8))[None, :]
ANGLES = {"cos": np.cos(ROT).astype("f4"), "sin": np.sin(ROT).astype("f4")}


def made(operator, inputs, held, outputs=("y",), feeds=(), **attributes):
    node = helper.make_node(operator, inputs.split(" "), outputs, domain="com.microsoft",
                            num_heads=HEADS, **attributes)  # fmt: skip
    return model([node], list(feeds), list(outputs), held, domains=["com.microsoft"])


def attention(q, k, v, bias=None, seen=None, scale=None):
    """(new, heads, width) over (keys, kv heads, width), bias (heads, new, keys)."""
    q, k, v = (torch.from_numpy(np.ascontiguousarray(x)).transpose(0, 1) for x in (q, k, v))
    k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
    mask = bias if seen is None else seen
    mask = None if mask is None else torch.from_numpy(np.ascontiguousarray(mask))
    return F.scaled_dot_product_attention(q, k, v, mask, scale=scale).transpose(0, 1).numpy()


def apart(parts, bias):
    """Attention of each of the sequences by itself: (tokens, heads width)."""
    found = []
    for n, (first, last) in enumerate(pairwise(ENDS)):
        each = [p[first:last].reshape(last - first, HEADS, -1) for p in parts]
        size = last - first
        found.append(attention(*each, bias[n % len(bias), :, :size, :size]).reshape(size, -1))
    return np.concatenate(found)


def test_batches_without_padding():
    """Against the attention of each sequence: ONNX Runtime has them for GPUs only."""
    bias = numbers(1, HEADS, 4, 4, seed=5)
    held = {"o": OFFSETS, "e": ENDS, "p": bias, "b": numbers(3 * 64, seed=3),
            "w": numbers(24, 3 * 64, seed=2, low=-0.3, high=0.3)}  # fmt: skip
    x = numbers(7, 24)
    joined = x @ held["w"] + held["b"]
    wanted = apart(np.split(joined, 3, 1), bias)
    proto = made("PackedAttention", "x w b o e p", held, feeds=[info("x", ["tokens", 24])])
    np.testing.assert_allclose(load(proto).run({"x": x})[0], wanted, 1e-4, 1e-4)
    parts = dict(zip("qkv", np.split(x @ held["w"], 3, 1)))
    few = {name: held[name] for name in "obep"}
    proto = made("PackedMultiHeadAttention", "q k v b o e p", parts | few)
    np.testing.assert_allclose(load(proto).run({})[0], wanted, 1e-4, 1e-4)
    stacked = np.stack([p.reshape(7, HEADS, 16) for p in np.split(joined, 3, 1)], 2)
    proto = made("PackedMultiHeadAttention", "x    o e p", {"x": stacked} | few | {"b": OFFSETS})
    np.testing.assert_allclose(load(proto).run({})[0], wanted, 1e-4, 1e-4)


def turned(x, place):
    """x (tokens, heads, width) by the angles of their places."""
    cos, sin = (ANGLES[name][place][:, None] for name in ("cos", "sin"))
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


@pytest.mark.parametrize("given", [
    {}, {"do_rotary": 1, "local_window_size": 3}, {"is_causal": 0, "scale": 0.5},
], ids=["causal", "window", "both ways"])  # fmt: skip
def test_a_cache_in_pages(given):
    """Two sequences of 5 and 0 tokens get 2 and 3; against their attention one by one."""
    before, new, size = [5, 0], [2, 3], 4
    pages = np.int32([[2, 0, -1], [3, -1, -1]])
    cache = {name: numbers(5, size, KV, WIDTH, seed=n) for n, name in enumerate(("kc", "vc"))}
    tokens = {"q": numbers(5, HEADS * WIDTH, seed=3), "k": numbers(5, KV * WIDTH, seed=4),
              "v": numbers(5, KV * WIDTH, seed=5)}  # fmt: skip
    held = tokens | cache | {"ends": np.int32([0, 2, 5]), "before": np.int32(before)}
    held |= {"pages": pages} | (ANGLES if "do_rotary" in given else {})
    inputs = "q k v kc vc ends before pages" + (" cos sin" if "do_rotary" in given else "")
    proto = made("PagedAttention", inputs, held, ("y", "keys", "values"), kv_num_heads=KV, **given)
    y, keys, values = load(proto).run({})
    for n, (past, count, first) in enumerate(zip(before, new, (0, 2))):
        rows = slice(first, first + count)
        q, k, v = (tokens[name][rows].reshape(count, -1, WIDTH) for name in "qkv")
        place = past + np.arange(count)
        if "do_rotary" in given:
            q, k = turned(q, place), turned(k, place)
        k, v = (np.concatenate([old[pages[n]].reshape(-1, KV, WIDTH)[:past], more])
                for old, more in ((cache["kc"], k), (cache["vc"], v)))  # fmt: skip
        column = np.arange(past + count)
        seen = np.ones((count, past + count), bool)
        if given.get("is_causal", 1):
            seen &= column <= place[:, None]
        if "local_window_size" in given:
            seen &= column > place[:, None] - 3
        wanted = attention(q, k, v, seen=seen, scale=given.get("scale"))
        np.testing.assert_allclose(y[rows], wanted.reshape(count, -1), 1e-4, 1e-4)
        for mine, theirs in ((keys, k), (values, v)):
            lain = mine[pages[n]].reshape(-1, KV, WIDTH)[: past + count]
            np.testing.assert_allclose(lain, theirs, 1e-5, 1e-5)
    np.testing.assert_array_equal(keys[4], cache["kc"][4])  # of no sequence


@pytest.mark.parametrize("new, past, short", [(40, 0, 0), (1, 40, 3)], ids=["a prompt", "a token"])
def test_blocks_of_keys(new, past, short):
    """Two layouts of 4 x 4 blocks of 16, for four heads in turns. (Of prompts of different lengths
    ONNX Runtime 1.32 makes something else than of each alone.)"""
    rows = np.int32([[0, 1, 3, 5, 8], [0, 1, 3, 6, 9]])
    columns = np.int32([[0, 0, 1, 1, 2, 1, 2, 3, -1], [0, 0, 1, 0, 1, 2, 0, 2, 3]])
    total, lengths = past + new, np.int32([past + new, past + new - short])
    held = {"q": numbers(2, new, HEADS * WIDTH), "k": numbers(2, new, KV * WIDTH, seed=1),
            "v": numbers(2, new, KV * WIDTH, seed=2), "rows": rows, "columns": columns,
            "total": np.int32([total]), "lengths": lengths, **ANGLES}  # fmt: skip
    feeds = {"pk": numbers(2, KV, 64, WIDTH, seed=3), "pv": numbers(2, KV, 64, WIDTH, seed=4)}
    infos = [info(name, [2, KV, 64, WIDTH]) for name in feeds]
    proto = made("SparseAttention", "q k v pk pv rows columns total lengths cos sin", held,
                 ("y", "keys", "values"), infos, kv_num_heads=KV, sparse_block_size=16,
                 do_rotary=1)  # fmt: skip
    for mine, theirs in zip(load(proto).run(feeds), in_place(proto, feeds), strict=True):
        for n, length in enumerate(lengths):
            place = (slice(length - past),) if mine.ndim == 3 else (slice(None), slice(length))
            np.testing.assert_allclose(mine[n][place], theirs[n][place], 1e-4, 1e-4)


def in_place(proto, feeds):
    """What onnxruntime makes of a cache that is written where it lies."""
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    bound = session.io_binding()
    bound.bind_output("y")
    for (name, array), output in zip(feeds.items(), ("keys", "values")):
        value = onnxruntime.OrtValue.ortvalue_from_numpy(array.copy())
        bound.bind_ortvalue_input(name, value)
        bound.bind_ortvalue_output(output, value)
    session.run_with_iobinding(bound)
    return bound.copy_outputs_to_cpu()


def test_a_search_in_a_model_is_refused_with_advice():
    one = [info("i", [1, 1], TensorProto.INT32)], [info("o", [1, 1])]
    body = helper.make_graph([helper.make_node("Identity", ["i"], ["o"])], "decoder", *one)
    node = helper.make_node("BeamSearch", ["ids", "most", "", "beams", "back"], ["y"],
                            pad_token_id=0, eos_token_id=1, decoder=body, domain="com.microsoft")
    held = {name: np.int32([4]) for name in ("most", "beams", "back")}
    infos = [info("ids", [1, 3], TensorProto.INT32)]
    proto = model([node], infos, ["y"], held, domains=["com.microsoft"])
    with pytest.raises(luminal.Unsupported, match="Export the decoder alone"):
        load(proto)
