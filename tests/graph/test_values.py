"""What may be put in: every misfit is an error that names the input and says why."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from luminal.backend.sizes import settle_sizes
from luminal.errors import DimError, InputError
from luminal.graph.dtype import ALL, DType, bf16, boolean, f16, f32, i8, i16, i32, i64, u8, u16
from luminal.graph.index import Index
from luminal.graph.values import as_array, implied_sizes, lossless, solve

S, T = Index.of("s"), Index.of("t")


def test_a_fitting_array_is_used_in_place() -> None:
    array = np.zeros((2, 3), np.float32)
    assert as_array("x", f32, array) is array
    array.flags.writeable = False
    assert np.shares_memory(as_array("x", f32, array), array)


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_unaligned_and_strided_arrays_are_copied(shift: int) -> None:
    raw = np.arange(100, dtype=np.uint8)
    unaligned = raw[shift : shift + 16].view(np.float32)
    assert as_array("x", f32, unaligned).flags.aligned
    strided = np.arange(12, dtype=np.float32).reshape(3, 4).T[::-1]
    result = as_array("x", f32, strided)
    assert result.flags.c_contiguous and np.array_equal(result, strided)
    turned = as_array("x", f32, strided.astype(">f4"))  # bytes in the other order
    assert turned.dtype is f32.numpy and np.array_equal(turned, strided)


def test_lossless_agrees_with_all_values_of_small_types() -> None:
    small = [i8, u8, i16, u16, f16, bf16]
    for source in small:
        bits = np.arange(2 ** (8 * source.bytes), dtype=f"u{source.bytes}")
        values = bits.view(source.numpy).astype(np.float64)
        values = values[~np.isnan(values)]
        for wanted in ALL:
            if wanted.kind != "bool" and lossless(source, wanted):
                with np.errstate(all="ignore"):
                    kept = values.astype(wanted.numpy).astype(np.float64)
                assert np.array_equal(kept, values), (source, wanted)


@pytest.mark.parametrize(("name", "wanted"), [
    ("float8_e4m3fn", f32), ("float8_e5m2", f16), ("float8_e4m3fn", bf16), ("float8_e8m0fnu", bf16),
    ("float4_e2m1fn", f32), ("int4", f32), ("int4", i8), ("uint4", u8),
])  # fmt: skip
def test_small_types_that_are_none_of_ours_fit_where_every_value_does(
    name: str, wanted: DType
) -> None:
    small = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, name))
    found = as_array("x", wanted, small)
    assert found.dtype is wanted.numpy
    np.testing.assert_array_equal(found.astype(np.float64), small.astype(np.float64))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "bfloat16"])
def test_types_of_pytorch_that_numpy_lacks(name: str) -> None:
    bits = torch.arange(0, 120, dtype=torch.uint8)
    given = bits.view(getattr(torch, name))[::2]
    np.testing.assert_array_equal(as_array("x", f32, given), given.float().numpy())


@pytest.mark.parametrize(
    ("wanted", "value", "reason"),
    [
        (f32, np.zeros(3), "float64 does not fit without loss"),
        (i32, np.zeros(3, np.int64), "int64 does not fit"),
        (i64, np.zeros(3, np.float32), "float32 does not fit"),
        (f16, np.zeros(3, ml_dtypes.float8_e8m0fnu), "float8_e8m0fnu does not fit without loss"),
        (i8, np.zeros(3, ml_dtypes.float8_e5m2), "float8_e5m2 does not fit"),
        (u8, np.zeros(3, ml_dtypes.int4), "int4 does not fit"),
        (f32, np.zeros(3, "V1"), "does not fit"),
        (f32, torch.zeros(3).to_sparse(), "Tensor is not an array"),
        (f32, np.zeros(3, np.complex64), "wants an array of numbers"),
        (f32, ["a"], "wants an array of numbers"),
        (f32, [[1.0], [1.0, 2.0]], "is not an array"),
        (i64, [1.5], "values given are float64"),
        (boolean, [1, 2], "values given are int64"),
        (u8, [300], "outside its range"),
        (f32, object(), "wants an array of numbers"),
    ],
)
def test_values_that_do_not_fit(wanted: DType, value: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        as_array("x", wanted, value)
    assert "'x'" in str(caught.value)


def test_python_numbers_take_the_dtype() -> None:
    assert as_array("x", f32, [1, 2.5]).tolist() == [1.0, 2.5]
    assert as_array("x", bf16, 3).shape == ()
    assert as_array("x", i64, []).dtype == np.int64
    assert np.isnan(as_array("x", f32, float("nan")))


def test_sizes_are_solved_from_shapes() -> None:
    assert solve(S * 2 + 1, 7) == ("s", 3)
    assert solve(S * 2 + 1, 6) == ("s", None)
    assert solve(S + T, 6) is None and solve(S * T, 6) is None and solve(S // 2, 6) is None
    assert implied_sizes("x", (S, Index.of(4), S + 1), (3, 4, 4)) == {"s": 3}


@pytest.mark.parametrize("actual", [(3,), (3, 5), (3, 4, 1)])
def test_shapes_that_do_not_fit(actual: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"'x' wants shape \(s, 4\), got"):
        implied_sizes("x", (S, Index.of(4)), actual)


def test_contradicting_dimensions_of_one_input() -> None:
    with pytest.raises(InputError, match="dimension 1 is 4"):
        implied_sizes("x", (S, S), (3, 4))


BOUNDS = {"s": (1, 16), "t": (0, 8)}


def test_sizes_come_from_inputs_and_from_run() -> None:
    assert settle_sizes(BOUNDS, {"t": 0}, [("x", {"s": 3}), ("y", {"s": 3})]) == {"s": 3, "t": 0}


@pytest.mark.parametrize(
    ("given", "told", "reason"),
    [
        ({"s": 3, "u": 1}, {}, "no size is called 'u'"),
        ({"s": 3}, {}, "size 't' is not known"),
        ({"s": 17, "t": 1}, {}, r"s = 17 \(given to run\(\)\) is outside its bounds 1 .. 16"),
        ({"t": 1}, {"s": 0}, r"s = 0 \(from input 'x'\) is outside"),
        ({"s": 3, "t": 1}, {"s": 4}, "s = 3 .* but input 'x' has 4"),
        ({"s": 3.0, "t": 1}, {}, "must be an integer"),
        ({"s": True, "t": 1}, {}, "must be an integer"),
    ],
)
def test_sizes_that_do_not_fit(given: Any, told: dict[str, int], reason: str) -> None:
    with pytest.raises(DimError, match=reason):
        settle_sizes(BOUNDS, given, [("x", told)])


def test_arrays_that_speak_dlpack_only():
    class Foreign:
        def __init__(self, array):
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    array = np.arange(6, dtype=np.float32)
    taken = as_array("x", f32, Foreign(array))
    assert np.shares_memory(taken, array)
