"""The interpreter and the verifier: each refuses what native code would do silently."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from lower_cases import TARGET, Case, gemm, run, schedule
from oracles.program import interpret
from oracles.schedules import layout_of

from luminal.errors import Illegal, VerifyError
from luminal.graph.dtype import DType, bf16, boolean, f32, i64
from luminal.graph.index import Index
from luminal.kernel.kernel import Buffer
from luminal.kernel.layout import Storage, pack, packed_shape
from luminal.kernel.program import (
    For,
    Instruction,
    Parallel,
    Program,
    Statement,
    Tile,
    Val,
    When,
    start_of,
)
from luminal.lowering.builder import integer, literal
from luminal.lowering.lower import lower
from luminal.lowering.verify import verify

X, Y, T = map(start_of, "XYT")
LANES = (("i", 4),)


def program(*body: Statement, dtype: DType = f32) -> Program:
    """A program over X[32], Y[32] and a tile T[16], all in one unit."""
    buffers = tuple(Buffer(n, dtype, (Index.of(32),)) for n in "XY")
    units = Parallel(Val("%u", i64, (), 1), integer(1), list(body))
    return Program("test", buffers, (), [units], (Tile("T", dtype, 16),))


def load(name: str, offset: int = 0, lanes=LANES, dtype: DType = f32) -> Instruction:
    return Instruction(Val(name, dtype, lanes), "load", (X,), (offset,))


def store(val: Val, offset: int = 0, *mask: Val) -> Instruction:
    return Instruction(None, "store", (val, Y, *mask), (offset,))


def result(p: Program, dtype: DType = f32) -> np.ndarray:
    verify(p)
    arrays = {"X": np.arange(32).astype(dtype.numpy), "Y": np.zeros(32, dtype.numpy)}
    interpret(p, arrays, {})
    return arrays["Y"]


A, B = Val("%a", f32, LANES), Val("%b", f32, LANES)


def test_add() -> None:
    got = result(program(load("%a"), Instruction(B, "add", (A, A)), store(B, 2)))
    assert list(got[2:6]) == [0, 2, 4, 6] and not got[6:].any()


def test_masks_keep_lanes_out() -> None:
    mask = Val("%m", boolean, LANES)
    lane, four = Val("%l", i64, LANES), literal(2, i64, LANES)
    body = [
        Instruction(lane, "iota", (), (1,)),
        Instruction(mask, "less", (lane, four)),
        Instruction(A, "load", (X, mask), (1,)),
        store(A, 0),
        store(literal(9, f32, LANES), 4, mask),
    ]
    assert list(result(program(*body))[:8]) == [1, 2, 0, 0, 9, 9, 0, 0]


def test_gather_and_scatter_in_order() -> None:
    where = Val("%w", i64, LANES)
    body = [
        Instruction(A, "gather", (X,), (1, 2)),
        Instruction(where, "iota", (), (0,)),
        Instruction(None, "scatter_at", (A, Y, where)),
    ]
    assert result(program(*body))[0] == 7  # the last lane wins


def test_shuffle_pack_expand_across() -> None:
    low, one = Val("%s", f32, LANES), Val("%o", f32)
    body = [
        load("%a"),
        Instruction(low, "shuffle", (A, A), (3, 2, 1, 4)),
        Instruction(one, "across.max", (low,)),
        Instruction(B, "expand", (one,)),
        store(B),
    ]
    assert list(result(program(*body))[:4]) == [3, 3, 3, 3]


def test_loops_carry_values() -> None:
    start, phi = literal(0, f32, LANES), Val("%phi", f32, LANES, 2)
    after, out = Val("%n", f32, LANES, 2), Val("%r", f32, LANES, 1)
    for count, want in ((3, 3), (0, 0)):
        inner: list[Statement] = [Instruction(after, "add", (phi, literal(1, f32, LANES)))]
        loop = For(Val("%i", i64, (), 2), integer(count), inner, [(phi, start, after, out)])
        assert result(program(loop, store(out)))[0] == want


def test_bf16_is_exact() -> None:
    a, wide = Val("%a", bf16, LANES), Val("%w", f32, LANES)
    half, back = Val("%h", f32, LANES), Val("%k", bf16, LANES)
    body = [
        Instruction(a, "load", (X,), (0,)),
        Instruction(wide, "cast", (a,)),
        Instruction(half, "mul", (wide, literal(1 + 2**-9, f32, LANES))),
        Instruction(back, "cast", (half,)),
        store(back),
    ]
    assert list(result(program(*body, dtype=bf16), bf16)[:4].astype(float)) == [0, 1, 2, 3]


@pytest.mark.parametrize("offset", [-1, 29, 1 << 20])
def test_accesses_outside_are_found(offset: int) -> None:
    with pytest.raises(VerifyError, match="X"):
        result(program(load("%a", offset), store(A)))
    with pytest.raises(VerifyError, match="Y"):
        result(program(load("%a"), store(A, offset)))


MALFORMED: dict[str, list[Statement]] = {
    "undefined": [store(A)],
    "defined twice": [load("%a"), load("%a"), store(A)],
    "other lanes": [load("%a"), Instruction(Val("%b", f32), "add", (A, A))],
    "other dtypes": [load("%a"), Instruction(B, "add", (A, literal(1, i64, LANES)))],
    "float bits": [load("%a"), Instruction(B, "xor", (A, A))],
    "an integer root": [Instruction(Val("%q", i64), "sqrt", (integer(4),))],
    "a mask of numbers": [load("%a"), store(A, 0, A)],
    "a condition of numbers": [When(integer(1), [])],
    "no such operation": [load("%a"), Instruction(B, "frobnicate", (A,))],
    "a parallel loop inside": [Parallel(Val("%v", i64), integer(1), [])],
    "out of its scope": [When(literal(1, boolean), [load("%a")]), store(A)],
    "a wrong literal": [store(Val("many", f32, LANES, 0, True))],
    "a literal too large": [Instruction(Val("%q", i64), "add", (literal(1 << 70, i64),) * 2)],
    "arithmetic in bf16": [
        Instruction(Val("%q", bf16), "add", (literal(1, bf16), literal(1, bf16)))
    ],
    "another dtype than the memory's": [Instruction(Val("%q", bf16), "load", (X,), (0,))],
    "an offset into another memory": [
        Instruction(replace(X, name="%q"), "offset", (Y, integer(1)))
    ],
    "no such memory": [Instruction(A, "load", (start_of("Z"),), (0,))],
    "a pick outside": [load("%a"), Instruction(B, "shuffle", (A, A), (0, 1, 2, 8))],
}


@pytest.mark.parametrize("name", MALFORMED)
def test_verifier_refuses(name: str) -> None:
    with pytest.raises(VerifyError):
        verify(program(*MALFORMED[name]))


def test_stores_belong_to_a_parallel_loop() -> None:
    p = program()
    p.body.insert(0, store(literal(1, f32)))
    with pytest.raises(VerifyError, match="outside"):
        verify(p)


def test_values_in_a_tile_start_as_nan() -> None:
    """A tile that is read before it is written does not look like zeros."""
    body = [Instruction(A, "load", (T,), (0,)), store(A)]
    assert np.isnan(result(program(*body))[:4]).all()


@pytest.mark.parametrize("text", ["1/4 0/1 1/1", "1/4 0/2 1/1 0/1", "0/8 1/2 0/1 1/1"])
def test_packing_agrees_with_offsets(text: str) -> None:
    layout = layout_of(text)
    array = np.arange(1, 36).reshape(5, 7)
    packed = pack(array, layout)
    assert packed.shape == packed_shape(array.shape, layout)
    storage = Storage((Index.of(5), Index.of(7)), layout)
    assert storage.size == packed.size
    from luminal.graph.space import Space

    offset = storage.offset((Index.of("i"), Index.of("j")), Space(axes={"i": 5, "j": 7}))
    flat = packed.reshape(-1)
    for i in range(5):
        for j in range(7):
            assert flat[offset.evaluate({"i": i, "j": j})] == array[i, j]
    assert flat.sum() == array.sum()  # padded with zeros


def test_matrix_instructions_by_their_specification() -> None:
    paths = {"acc": "n/16@ m/2 k/8 k/2! m/1! n/1# k/1$", "out": "n/16@ m/2 m/1! n/1#"}
    case = Case(gemm(4, 16, 8, bf16), schedule(paths))
    found = lower(case.kernel, case.schedule, TARGET)
    verify(found)
    run(case)
    with pytest.raises(Illegal, match="no instruction"):
        lower(case.kernel, case.schedule, replace(TARGET, instructions=()))
