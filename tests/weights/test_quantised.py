"""Quantised checkpoints: matrices written as each method's own package would, read back exactly."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from luminal.errors import Unsupported, WeightsError
from luminal.models.llm.storage import FLOATS, FORMATS, block_fields
from luminal.weights.fields import Fields
from luminal.weights.packed import Packed, stacked
from luminal.weights.quantised import decoded
from luminal.weights.quants import Quants, half

OUT, IN = 64, 256
RANDOM = np.random.default_rng(0)
State = dict[str, np.ndarray]
Case = tuple[dict[str, Any], State, np.ndarray, str]  # config, tensors, values, kind


def stream(values: np.ndarray, bits: int, axis: int) -> np.ndarray:
    """Numbers packed into i32 along an axis, the first in the low bits, bit by bit."""
    rows = np.moveaxis(values.astype(np.uint64), axis, -1)
    words = np.zeros((*rows.shape[:-1], rows.shape[-1] * bits // 32), np.uint64)
    for place in range(rows.shape[-1]):
        for bit in range(bits):
            word, at = divmod(place * bits + bit, 32)
            words[..., word] |= (rows[..., place] >> np.uint64(bit) & np.uint64(1)) << np.uint64(at)
    return np.moveaxis(words.astype(np.uint32).view(np.int32), -1, axis)


def numbers(bits: int, group: int, symmetric: bool, dtype: Any) -> tuple[np.ndarray, ...]:
    """Quants (out, in), zeros and scales (out, groups), and what they mean."""
    quants = RANDOM.integers(0, 2**bits, (OUT, IN))
    shape = (OUT, IN // group)
    zeros = np.full(shape, 2 ** (bits - 1)) if symmetric else RANDOM.integers(1, 2**bits, shape)
    scales = (RANDOM.random(shape) / 50 + 0.001).astype(dtype)
    each = np.arange(IN) // group
    wide = (quants - zeros[:, each]).astype(np.float32) * scales.astype(np.float32)[:, each]
    return quants, zeros, scales, wide


def gptq(bits: int, group: int, symmetric: bool, kind: str, order: bool = False) -> Case:
    quants, zeros, scales, values = numbers(bits, group, symmetric, np.float16)
    each = np.arange(IN) // group
    if order:
        each = RANDOM.permutation(each)
        wide = (quants - zeros[:, each]).astype(np.float32)
        values = wide * scales.astype(np.float32)[:, each]
    state = {"qweight": stream(quants.T, bits, 0), "scales": scales.T, "g_idx": each.astype("i4"),
             "qzeros": stream(zeros.T - 1, bits, 1)}  # fmt: skip
    return {"quant_method": "gptq", "bits": bits}, state, values, kind


def awq(group: int, kind: str) -> Case:
    quants, zeros, scales, values = numbers(4, group, False, np.float16)
    order = [0, 2, 4, 6, 1, 3, 5, 7]  # the column whose quant is the n-th of a word

    def pack(columns: np.ndarray) -> np.ndarray:
        mixed = columns.reshape(len(columns), -1, 8)[..., order].reshape(columns.shape)
        return stream(mixed, 4, 1)

    state = {"qweight": pack(quants.T), "qzeros": pack(zeros.T), "scales": scales.T}
    return {"quant_method": "awq", "bits": 4, "version": "gemm"}, state, values, kind


def compressed(bits: int, group: int, symmetric: bool, dtype: Any, kind: str) -> Case:
    quants, zeros, scales, values = numbers(bits, group, symmetric, dtype)
    state = {"weight_packed": stream(quants, bits, 1), "weight_scale": scales,
             "weight_shape": np.array([OUT, IN])}  # fmt: skip
    if not symmetric:
        state["weight_zero_point"] = stream(zeros, bits, 0)
    return {"quant_method": "compressed-tensors"}, state, values, kind


def compressed_whole() -> Case:
    config, state, _, kind = compressed(4, IN, True, np.float16, "q4")
    state["weight_scale"] = np.full(1, 0.25, np.float16)
    quants = np.stack([state["weight_packed"].view(np.uint8) >> at & 15 for at in (0, 4)], -1)
    return config, state, (quants.reshape(OUT, IN) - np.float32(8)) * np.float32(0.25), kind


def compressed_bytes() -> Case:
    raw = RANDOM.integers(-128, 128, (OUT, IN)).astype(np.int8)
    scales = RANDOM.random((OUT, 1)).astype(ml_dtypes.bfloat16)
    values = raw.astype(np.float32) * scales.astype(np.float32)
    state = {"weight": raw, "weight_scale": scales}
    return {"quant_method": "compressed-tensors"}, state, values, "q8f"


def fp8(method: str, name: str, block: tuple[int, int] | None) -> Case:
    raw = RANDOM.standard_normal((OUT, IN)).astype(ml_dtypes.float8_e4m3fn)
    rows, columns = block or (1, IN)
    scales = RANDOM.random((-(-OUT // rows), -(-IN // columns))).astype(np.float32)
    each = np.repeat(np.repeat(scales, rows, 0), columns, 1)[:OUT, :IN]
    config = {"quant_method": method}
    config |= {"weight_block_size": list(block)} if block else {}
    return config, {"weight": raw, name: scales}, raw.astype(np.float32) * each, "f32"


def mxfp8() -> Case:
    raw = RANDOM.standard_normal((OUT, IN)).astype(ml_dtypes.float8_e4m3fn)
    exponents = RANDOM.integers(110, 140, (OUT, IN // 32), dtype=np.uint8)
    scales = 2.0 ** (np.repeat(exponents, 32, 1).astype(np.float32) - 127)
    state = {"weight": raw, "weight_scale": exponents}
    return {"quant_method": "compressed-tensors"}, state, raw.astype(np.float32) * scales, "f32"


def nvfp4() -> Case:
    codes = RANDOM.integers(0, 16, (OUT, IN))
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    plain = table[codes & 7] * np.where(codes & 8, -1, 1)
    scales = RANDOM.uniform(1, 200, (OUT, IN // 16)).astype(ml_dtypes.float8_e4m3fn)
    whole = np.array([512.0], np.float32)
    values = plain * np.repeat(scales.astype(np.float32) / whole, 16, 1)
    state = {"weight_packed": (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8),
             "weight_scale": scales, "weight_global_scale": whole}  # fmt: skip
    return {"quant_method": "compressed-tensors"}, state, values.astype(np.float32), "q8g"


def four_bits(nested: bool) -> Case:
    table = np.sort(RANDOM.uniform(-1, 1, 16)).astype(np.float32)
    codes = RANDOM.integers(0, 16, OUT * IN)
    count = OUT * IN // 64
    sizes = RANDOM.random(count).astype(np.float32)
    told = {"shape": [OUT, IN], "blocksize": 64, "dtype": "float32", "quant_type": "nf4"}
    state = {"weight": (codes[::2] << 4 | codes[1::2]).astype(np.uint8)[:, None],
             "weight.absmax": sizes, "weight.quant_map": table}  # fmt: skip
    if nested:
        inner, map_ = RANDOM.integers(0, 256, count), RANDOM.random(256).astype(np.float32)
        each = RANDOM.random(-(-count // 256)).astype(np.float32)
        told |= {"nested_blocksize": 256, "nested_offset": 0.25}
        state |= {"weight.absmax": inner.astype(np.uint8), "weight.nested_absmax": each,
                  "weight.nested_quant_map": map_}  # fmt: skip
        sizes = map_[inner] * np.repeat(each, 256)[:count] + np.float32(0.25)
    values = (table[codes] * np.repeat(sizes, 64)).reshape(OUT, IN)
    text = np.frombuffer(json.dumps(told).encode(), np.uint8)
    state["weight.quant_state.bitsandbytes__nf4"] = text
    return {"quant_method": "bitsandbytes", "load_in_4bit": True}, state, values, "f32"


def eight_bits() -> Case:
    raw = RANDOM.integers(-127, 128, (OUT, IN)).astype(np.int8)
    most = RANDOM.random(OUT).astype(np.float32)
    values = raw.astype(np.float32) * (most / np.float32(127))[:, None]
    state = {"weight": raw, "SCB": most, "weight_format": np.zeros(1, np.uint8)}
    return {"quant_method": "bitsandbytes", "load_in_8bit": True}, state, values, "q8f"


def ternary(linear: str) -> Case:
    codes, scale = RANDOM.integers(0, 3, (OUT, IN)), np.array([1.75], ml_dtypes.bfloat16)
    quarters = codes.reshape(4, OUT // 4, IN)
    packed = (quarters << np.array([0, 2, 4, 6])[:, None, None]).sum(0).astype(np.uint8)
    factor = np.float32(1 / 1.75 if linear == "bitlinear" else 1.75)
    config = {"quant_method": "bitnet", "linear_class": linear}
    return config, {"weight": packed, "weight_scale": scale}, (codes - 1) * factor, "q4f"


CASES: dict[str, Callable[[], Case]] = {
    "gptq": lambda: gptq(4, 64, True, "q4"),
    "gptq-asymmetric": lambda: gptq(4, 32, False, "q4u32"),
    "gptq-order": lambda: gptq(4, 32, True, "f32", order=True),
    "gptq-3": lambda: gptq(3, 128, True, "q4"),
    "gptq-2": lambda: gptq(2, 256, False, "q4k"),
    "gptq-8": lambda: gptq(8, 128, True, "q8"),
    "awq": lambda: awq(128, "q4u128"),
    "awq-odd": lambda: awq(8, "f32"),
    "compressed-4": lambda: compressed(4, 128, True, ml_dtypes.bfloat16, "q4f"),
    "compressed-4-zeros": lambda: compressed(4, 64, False, ml_dtypes.bfloat16, "q8f"),
    "compressed-4-channel": lambda: compressed(4, IN, False, np.float16, "q4k"),
    "compressed-5": lambda: compressed(5, 32, True, ml_dtypes.bfloat16, "q8f"),
    "compressed-6": lambda: compressed(6, 32, False, np.float16, "f32"),
    "compressed-4-whole": compressed_whole,
    "compressed-8": compressed_bytes,
    "compressed-fp8": lambda: fp8("compressed-tensors", "weight_scale", None),
    "compressed-mxfp8": mxfp8,
    "compressed-nvfp4": nvfp4,
    "fp8": lambda: fp8("fp8", "weight_scale_inv", (48, 96)),
    "fbgemm": lambda: fp8("fbgemm_fp8", "weight_scale", None),
    "nf4": lambda: four_bits(False),
    "nf4-nested": lambda: four_bits(True),
    "int8": eight_bits,
    "bitnet": lambda: ternary("bitlinear"),
    "bitnet-auto": lambda: ternary("autobitlinear"),
}


def read(config: dict[str, Any], state: State, floats: str = "f32") -> Packed:
    named = {f"a.b.{name}": value for name, value in state.items()}
    found = decoded({**named, "a.norm.weight": np.ones(3)}, Fields(config, "config.json"), floats)
    assert found.keys() == {"a.b.weight", "a.norm.weight"}
    return found["a.b.weight"]


@pytest.mark.parametrize("name", CASES)
def test_values_are_exact(name: str) -> None:
    """Those of the matrix, of its rows, and of the arrays that a model stores."""
    config, state, values, kind = CASES[name]()
    got = read(config, state)
    assert got.shape == values.shape and got.kind == kind
    np.testing.assert_array_equal(np.asarray(got), values)
    np.testing.assert_array_equal(np.asarray(got[7:30]), values[7:30])
    pair = stacked([got[:16], got[48:]])
    np.testing.assert_array_equal(np.asarray(pair), np.stack([values[:16], values[48:]]))
    if kind not in FLOATS:
        made = got.make()
        assert isinstance(made, Quants)
        fields, format = block_fields(made, kind), FORMATS[kind]
        assert fields["quants"].shape[-1] == format.block * format.bits // 8
        for field, (each, dtype) in format.fields.items():
            stored = fields[field]
            assert stored.shape == (OUT, IN // each)
            assert stored.dtype.name == {"f16": "float16", "f32": "float32", "u8": "uint8"}[dtype]


def test_mxfp4() -> None:
    """Expert by expert, as transformers reads it: the low half of a byte comes first."""
    raw = RANDOM.integers(0, 256, (3, 8, 2, 16), dtype=np.uint8)
    exponents = RANDOM.integers(100, 140, (3, 8, 2), dtype=np.uint8)
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = np.stack([raw & 15, raw >> 4], -1).reshape(3, 8, 2, 32)
    plain = table[codes & 7] * np.where(codes & 8, -1, 1)
    values = plain * 2.0 ** (exponents.astype(int) - 127)[..., None]
    state = {"experts.up_blocks": raw, "experts.up_scales": exponents}
    got = decoded(state, Fields({"quant_method": "mxfp4"}, "c"), "f32")["experts.up"]
    assert got.kind == "q8b"
    np.testing.assert_array_equal(np.asarray(got), values.reshape(3, 8, 64))
    np.testing.assert_array_equal(np.asarray(got[:, ::2]), values.reshape(3, 8, 64)[:, ::2])


def test_floats_are_rounded_to_the_type_of_the_checkpoint() -> None:
    config, state, values, _ = CASES["fp8"]()
    got = read(config, state, "bf16")
    assert got.kind == "bf16"
    np.testing.assert_array_equal(got.make(), values.astype(ml_dtypes.bfloat16))


def test_what_is_damaged_or_not_known() -> None:
    config, state, _, _ = CASES["gptq"]()
    with pytest.raises(WeightsError, match="scales' is missing"):
        read(config, {"qweight": state["qweight"]})
    with pytest.raises(WeightsError, match="do not fit each other"):
        read(config, state | {"qzeros": state["qzeros"][:1]})
    with pytest.raises(WeightsError, match="bits must be"):
        read(config | {"bits": 5}, state)
    with pytest.raises(Unsupported, match="quantised by 'other'"):
        read({"quant_method": "other"}, state)


@pytest.mark.parametrize("width, start", [(20, 2), (18, 0), (17, 1), (20, 3)])
@pytest.mark.parametrize("place", [0, 1])
def test_halves_are_found_wherever_they_lie(width: int, start: int, place: int) -> None:
    """Also where none of two bytes may: they are copied there, and only there."""
    raw = RANDOM.integers(0, 256, 1 + 3 * 4 * width, np.uint8)[place : place + 3 * 4 * width]
    found = half(raw.reshape(3, 4, width), start)
    odd = width % 2 or (raw.ctypes.data + start) % 2
    assert np.shares_memory(found, raw) is not bool(odd)
    blocks = raw.reshape(3, 4, width)
    wanted = [[block[start : start + 2].tobytes() for block in row] for row in blocks]
    assert [[number.tobytes() for number in row] for row in found] == wanted
