"""Checkpoints whose matrices are quantised: what `quantization_config` of a config.json means.

    gptq                integers along columns, scales and zero points of groups of rows
    awq                 the same, along rows, the columns of a word in an order of its own
    compressed-tensors  integers, FP8, NVFP4, MXFP4 or MXFP8 (as vLLM's package of this name does)
    fp8, fbgemm_fp8     E4M3 and scales of blocks, of rows, or one (DeepSeek V3, Qwen 3)
    bitsandbytes        nf4, fp4 and int8
    mxfp4               E2M1 and an exponent for 32 of them (gpt-oss)
    bitnet              -1, 0 and 1, and one scale

Integers stay as they are wherever a kind of `luminal.models.llm.storage` has their form. FP8, nf4,
fp4, groups in an order of their own and 8 bits with zero points are floats from here on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import Unsupported, WeightsError
from .fields import Fields, parse_json
from .gguf_blocks import E2M1, mx_scales
from .packed import Packed
from .quants import Quants

State = dict[str, Any]  # name -> an array, or Packed
AWQ_ORDER = [0, 4, 1, 5, 2, 6, 3, 7]  # where the columns of a word are
DROPPED = (".input_scale", ".activation_scale", ".k_scale", ".v_scale", ".output_scale",
           ".input_global_scale", ".k_proj.output_scale")  # fmt: skip
FP8 = tuple(np.dtype(kind) for kind in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2))
UNITS = (32, 64, 128)  # weights that share a scale and a zero point: q4u32 and so on


def decoded(state: Mapping[str, np.ndarray], config: Fields, floats: str) -> State:
    """The tensors of a checkpoint with its matrices under their usual names. config: its
    quantization_config. floats: "bf16", say: what is stored where integers are not. Raises
    Unsupported or WeightsError."""
    method = config.text("quant_method", "bitsandbytes" if config.has("load_in_4bit") else None)
    if method not in METHODS:
        raise Unsupported(
            f"{config.where}: weights quantised by {method!r}; there are {', '.join(METHODS)}; or "
            "take the original checkpoint with quant=, or a GGUF file"
        )
    found = METHODS[method](dict(state), config, floats)
    return {name: value for name, value in found.items() if not name.endswith(DROPPED)}


# ---- integers in groups


def unpacked(words: np.ndarray, bits: int) -> np.ndarray:
    """i32 (..., n) -> u8 (..., n * 32 / bits): a stream of bits, the low ones first."""
    raw = np.ascontiguousarray(words).view(np.uint8)
    if bits == 8:
        return raw
    if bits in (2, 4):
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        return ((raw[..., None] >> shifts) & (2**bits - 1)).reshape(*raw.shape[:-1], -1)
    stream = np.unpackbits(raw, axis=-1, bitorder="little")
    digits = stream.reshape(*raw.shape[:-1], -1, bits)
    return (digits << np.arange(bits, dtype=np.uint8)).sum(-1, dtype=np.uint8)


def grouped(
    quants: Callable[[], np.ndarray], zeros: np.ndarray, scales: np.ndarray, inside: int,
    bits: int, floats: str, order: np.ndarray | None = None,
) -> Packed:  # fmt: skip
    """weight = (quant - zero) * scale. quants: u8 (out, in), made. zeros, scales: (out, groups).
    order: of each column the group, where they do not follow each other."""
    out, groups = scales.shape
    group, shape = inside // groups, (out, inside)
    middle = 2 ** (bits - 1)
    symmetric = bool((zeros == middle).all())
    plain = scales.dtype == np.float16
    if order is not None or group % 32 or inside % groups or (bits > 4 and not symmetric):
        where = np.arange(inside) // max(group, 1) if order is None else order

        def wide() -> np.ndarray:
            found = quants().astype(np.float32) - zeros.astype(np.float32)[:, where]
            return _rounded(found * scales.astype(np.float32)[:, where], floats)

        return Packed(shape, floats, wide)
    if not plain:
        scales = scales.astype(np.float32)

    def blocks(numbers: np.ndarray) -> np.ndarray:
        return np.repeat(numbers, group // 32, -1)

    def even() -> Quants:
        found = quants().reshape(out, -1, 32)
        if bits > 4:
            return Quants((found - np.uint8(middle)).view(np.int8), blocks(scales))
        return Quants(found, blocks(scales), shift=middle)

    def uneven() -> Quants:
        found = quants().reshape(out, -1, 32).view(np.int8)
        return Quants(found - blocks(zeros).astype(np.int8)[..., None], blocks(scales))

    def in_units() -> Quants:
        zeroes = blocks(zeros).astype(np.uint8)
        found = quants().reshape(out, -1, 32)
        return Quants(found, np.ones_like(zeroes), zeroes, 0, scales, scales)

    if symmetric:
        kind = {True: "q4", False: "q8"}[bits <= 4]
        return Packed(shape, kind if plain else f"{kind}f", even)
    if plain and (group in UNITS or group == 256):
        return Packed(shape, "q4k" if group == 256 else f"q4u{group}", in_units)
    return Packed(shape, "q8" if plain else "q8f", uneven)


def _rounded(values: np.ndarray, kind: str) -> np.ndarray:
    """f32 as one of our float types."""
    return values.astype({"bf16": ml_dtypes.bfloat16, "f16": np.float16}.get(kind, np.float32))


def _gptq(state: State, config: Fields, floats: str) -> State:
    """qweight (in * bits / 32, out), qzeros (groups, out * bits / 32), scales (groups, out), g_idx
    (in,). In the first form of the format a zero point is stored less one."""
    bits = config.count("bits", high=8)
    if bits not in (2, 3, 4, 8):
        raise config.wrong("bits", "2, 3, 4 or 8")
    more = 0 if config.text("checkpoint_format", "gptq") == "gptq_v2" else 1
    for name in [name for name in state if name.endswith(".qweight")]:
        stem = name.removesuffix(".qweight")
        words, scales = state.pop(name), _part(state, f"{stem}.scales").T
        zeros = unpacked(_part(state, f"{stem}.qzeros"), bits)[:, : len(scales)].T + np.int16(more)
        order, inside = state.pop(f"{stem}.g_idx", None), len(words) * 32 // bits
        _check(stem, scales.shape == zeros.shape and len(scales) == words.shape[1])
        usual = np.arange(inside) // (inside // scales.shape[1])
        if order is not None and np.array_equal(order, usual):
            order = None

        def quants(words: np.ndarray = words) -> np.ndarray:
            return np.ascontiguousarray(unpacked(words.T, bits))

        state[f"{stem}.weight"] = grouped(quants, zeros, scales, inside, bits, floats, order)
    return state


def _awq(state: State, config: Fields, floats: str) -> State:
    """qweight (in, out / 8), qzeros (groups, out / 8), scales (groups, out), of 4 bits."""
    if config.count("bits", config.count_if("w_bit")) != 4:
        raise config.wrong("bits", "4")
    if config.text("version", "gemm").lower() != "gemm":
        raise Unsupported(f"{config.where}: AWQ {config.text('version')!r}; there is 'gemm'")

    def columns(words: np.ndarray) -> np.ndarray:
        found = unpacked(words, 4).reshape(len(words), -1, 8)[..., AWQ_ORDER]
        return found.reshape(len(words), -1).T

    for name in [name for name in state if name.endswith(".qweight")]:
        stem = name.removesuffix(".qweight")
        words, scales = state.pop(name), _part(state, f"{stem}.scales").T
        zeros = columns(_part(state, f"{stem}.qzeros"))
        _check(stem, zeros.shape == scales.shape)

        def quants(words: np.ndarray = words) -> np.ndarray:
            return np.ascontiguousarray(columns(words))

        state[f"{stem}.weight"] = grouped(quants, zeros, scales, len(words), 4, floats)
    return state


def _part(state: State, name: str) -> np.ndarray:
    """A tensor that belongs to another. Raises WeightsError."""
    if name not in state:
        raise WeightsError(f"tensor {name!r} is missing")
    found: np.ndarray = state.pop(name)
    return found


def _check(stem: str, fits: bool) -> None:
    if not fits:
        raise WeightsError(f"the tensors of {stem!r} do not fit each other")


# ---- floats of eight and four bits


def _fp8(state: State, config: Fields, floats: str) -> State:
    """weight E4M3 (out, in), times weight_scale_inv (of blocks) or weight_scale."""
    for name in [n for n, v in state.items() if n.endswith(".weight") and v.dtype in FP8]:
        at = f"{name}_scale_inv" if f"{name}_scale_inv" in state else f"{name}_scale"
        state[name] = _scaled(state[name], _part(state, at), config, floats)
    return state


def _scaled(weight: np.ndarray, scale: np.ndarray, config: Fields, floats: str) -> Packed:
    """Scales: one, of rows (out, 1), of groups of columns, or of blocks of both; u8 ones are
    exponents (E8M0). Blocks are of weight_block_size; without it, of the least size by which they
    cover the weight."""
    size = config.counts_if("weight_block_size")
    if scale.dtype == np.uint8:
        scale = scale.view(ml_dtypes.float8_e8m0fnu)

    def make() -> np.ndarray:
        wide = scale.astype(np.float32)
        for axis, length in enumerate(weight.shape if wide.size > 1 else ()):
            block = size[axis] if size is not None else -(-length // wide.shape[axis])
            if wide.shape[axis] > 1:
                wide = np.repeat(wide, block, axis).take(range(length), axis)
        return _rounded(weight.astype(np.float32) * wide, floats)

    if scale.size > 1 and scale.ndim != weight.ndim:
        raise WeightsError(f"{config.where}: scales of shape {scale.shape} of {weight.shape}")
    return Packed(weight.shape, floats, make)


def _e2m1_pairs(raw: np.ndarray) -> np.ndarray:
    """u8 (..., n) -> twice the values i8 (..., 2 n); of a byte the low half comes first."""
    return E2M1[np.stack([raw & 15, raw >> 4], -1).reshape(*raw.shape[:-1], -1)]


def _mxfp4(state: State, config: Fields, floats: str) -> State:
    """NAME_blocks u8 (..., out, in / 32, 16), NAME_scales u8 (..., out, in / 32)."""
    for name in [name for name in state if name.endswith("_blocks")]:
        stem, raw = name.removesuffix("_blocks"), state.pop(name)
        state[stem] = _mx(raw, _part(state, f"{stem}_scales"))
    return state


def _mx(raw: np.ndarray, exponents: np.ndarray) -> Packed:
    """raw: (..., blocks, 16). exponents: (..., blocks)."""
    shape = (*raw.shape[:-2], raw.shape[-2] * 32)
    return Packed(shape, "q8b", lambda: Quants(_e2m1_pairs(raw), mx_scales(exponents)))


# ---- compressed-tensors


def _compressed(state: State, config: Fields, floats: str) -> State:
    for name in list(state):
        stem, _, part = name.rpartition(".")
        if part == "weight_packed" and state[name].dtype == np.int32:
            state[f"{stem}.weight"] = _integers(state, stem, config, floats)
        elif part == "weight_packed":
            state[f"{stem}.weight"] = _four_bit_floats(state, stem)
        elif part == "weight" and f"{name}_scale" in state:
            state[name] = _whole(state, stem, config, floats)
    return state


def _integers(state: State, stem: str, config: Fields, floats: str) -> Packed:
    """weight_packed i32 (out, in * bits / 32) of numbers that 2 ** (bits - 1) was added to;
    weight_scale (out, groups) or one, weight_zero_point (out * bits / 32, groups), weight_shape."""
    words, scales = _part(state, f"{stem}.weight_packed"), _part(state, f"{stem}.weight_scale")
    out, inside = (int(n) for n in _part(state, f"{stem}.weight_shape"))
    if scales.size == 1:
        scales = np.broadcast_to(scales.reshape(1, 1), (out, 1))
    bits = next((b for b in range(2, 9) if words.shape == (out, -(-inside * b // 32))), 0)
    _check(stem, bool(bits) and scales.ndim == 2 and len(scales) == out)
    order = state.pop(f"{stem}.weight_g_idx", None)
    zeros = np.full(scales.shape, 2 ** (bits - 1), np.uint8)
    if (point := state.pop(f"{stem}.weight_zero_point", None)) is not None:
        zeros = unpacked(point.T, bits)[:, :out].T if point.dtype == np.int32 else point + zeros
    _check(stem, zeros.shape == scales.shape)

    def quants() -> np.ndarray:
        return np.ascontiguousarray(unpacked(words, bits)[:, :inside])

    return grouped(quants, zeros, scales, inside, bits, floats, order)


def _whole(state: State, stem: str, config: Fields, floats: str) -> Packed:
    """weight i8 or FP8 (out, in), weight_scale; an i8 may have a weight_zero_point."""
    weight, scale = state[f"{stem}.weight"], _part(state, f"{stem}.weight_scale")
    zeros = state.pop(f"{stem}.weight_zero_point", None)
    if weight.dtype in FP8:
        return _scaled(weight, scale, config, floats)
    _check(stem, weight.dtype == np.int8)
    scales = np.broadcast_to(scale.reshape(-1, scale.shape[-1] if scale.ndim == 2 else 1),
                             (len(weight), scale.shape[-1] if scale.ndim == 2 else 1))  # fmt: skip
    points = np.zeros(scales.shape, np.int8) if zeros is None else zeros.reshape(scales.shape)
    return _bytes(weight, points, scales, floats)


def _bytes(weight: np.ndarray, zeros: np.ndarray, scales: np.ndarray, floats: str) -> Packed:
    """weight i8 (out, in), zero points i8."""

    def quants() -> np.ndarray:
        return weight.view(np.uint8) ^ np.uint8(128)

    return grouped(quants, zeros + np.int16(128), scales, weight.shape[1], 8, floats)


def _four_bit_floats(state: State, stem: str) -> Packed:
    """weight_packed u8 (out, in / 2) of E2M1; weight_scale E8M0 of 32 weights (MXFP4), or E4M3 of
    16, divided by weight_global_scale (NVFP4)."""
    raw, scale = _part(state, f"{stem}.weight_packed"), _part(state, f"{stem}.weight_scale")
    if scale.dtype not in FP8:
        return _mx(raw.reshape(len(raw), -1, 16), scale.view(np.uint8))
    whole = _part(state, f"{stem}.weight_global_scale").astype(np.float32)

    def make() -> Quants:
        quants = _e2m1_pairs(raw).reshape(len(raw), -1, 16)
        return Quants(quants, scale.astype(np.float32) / whole * np.float32(0.5))

    return Packed((len(raw), 2 * raw.shape[1]), "q8g", make)


# ---- ternary


def _bitnet(state: State, config: Fields, floats: str) -> State:
    """weight u8 (out / 4, in), of a byte the low bits for the first quarter of the rows; numbers
    that 1 was added to. weight_scale: what they are multiplied by, or divided by (bitlinear)."""
    divided = config.text("linear_class", "bitlinear") == "bitlinear"
    for name in [name for name in state if name.endswith(".weight_scale")]:
        weight = name.removesuffix("_scale")
        packed, scale = _part(state, weight), _part(state, name).astype(np.float32).reshape(-1)
        _check(weight, packed.dtype == np.uint8 and packed.ndim == 2 and scale.size == 1)
        scales = np.full((4 * len(packed), 1), 1 / scale[0] if divided else scale[0], np.float32)

        def quants(packed: np.ndarray = packed) -> np.ndarray:
            return np.concatenate([(packed >> at & 3) + np.uint8(1) for at in (0, 2, 4, 6)])

        zeros = np.full(scales.shape, 2, np.uint8)
        state[weight] = grouped(quants, zeros, scales, packed.shape[1], 2, floats)
    return state


# ---- bitsandbytes


def _bitsandbytes(state: State, config: Fields, floats: str) -> State:
    """weight u8 of two numbers of a table a byte, the high half first, times weight.absmax of each
    block, itself of 8 bits perhaps; or weight i8 and SCB, what 127 stands for in each row."""
    for name in [name for name in state if ".weight.quant_state.bitsandbytes__" in name]:
        weight = name.partition(".quant_state.")[0]
        told = Fields(parse_json(state.pop(name).tobytes(), name), name)
        state[weight] = _four_bits(state, weight, told, floats)
    for name in [name for name in state if name.endswith(".SCB")]:
        weight = name.removesuffix("SCB") + "weight"
        scales = (state.pop(name).astype(np.float32) / np.float32(127)).reshape(-1, 1)
        state.pop(name.removesuffix("SCB") + "weight_format", None)
        zeros = np.zeros(scales.shape, np.int8)
        state[weight] = _bytes(_part(state, weight), zeros, scales, floats)
    return state


def _four_bits(state: State, name: str, told: Fields, floats: str) -> Packed:
    raw, table = _part(state, name), _part(state, f"{name}.quant_map")
    sizes, shape = _part(state, f"{name}.absmax"), tuple(told.counts("shape", 2))
    block = told.count("blocksize")
    nested = state.pop(f"{name}.nested_absmax", None)
    codes = state.pop(f"{name}.nested_quant_map", None)
    _check(name, raw.size * 2 == shape[0] * shape[1] and table.shape == (16,))

    def make() -> np.ndarray:
        largest = sizes.astype(np.float32)
        if nested is not None and codes is not None:
            each = np.repeat(nested, told.count("nested_blocksize"))[: sizes.size]
            largest = codes[sizes] * each + np.float32(told.number("nested_offset"))
        flat = raw.reshape(-1)
        values = table[np.stack([flat >> 4, flat & 15], -1).reshape(-1)].astype(np.float32)
        values *= np.repeat(largest, block)[: values.size]
        return _rounded(values.reshape(shape), floats)

    return Packed(shape, floats, make)


METHODS: dict[str, Callable[[State, Fields, str], State]] = {
    "gptq": _gptq, "awq": _awq, "compressed-tensors": _compressed, "fp8": _fp8,
    "fbgemm_fp8": _fp8, "bitsandbytes": _bitsandbytes, "mxfp4": _mxfp4,
    "bitnet": _bitnet,
}  # fmt: skip
