"""Loops, conditions, claims, memory, lanes and matrix instructions in native code."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.backend import cpu
from luminal.errors import CompileError, Unsupported
from luminal.graph.dtype import ALL, BY_NAME, DType, bf16, boolean, f32, f64, i8, i32, i64
from luminal.kernel.program import For, Instruction, Parallel, Program, Tile, Val, When

from . import native
from .test_elementwise import check, hostile

STEP = native.literal


def alone(buffers, statements, sizes=()) -> Program:
    """Statements run once, by one thread."""
    once = Parallel(Val("%once", i64), native.literal(1, i64), statements)
    return Program("kernel", tuple(buffers), tuple(sizes), [once])


@pytest.mark.parametrize("count", (0, 1, 7))
@pytest.mark.parametrize("dynamic", (True, False))
def test_loop_with_carried_values(count: int, dynamic: bool) -> None:
    """Sum and product of 1 .. count beside each other, and the initials where nothing runs."""
    body, var = native.Body(), Val("%i", i64)
    total, product = Val("%total", i64), Val("%product", f32)
    number = body.emit("add", (var, STEP(1, i64)), i64)
    more = body.emit("add", (total, number), i64)
    times = body.emit("mul", (product, body.emit("cast", (number,), f32)), f32)
    sum_out, product_out = Val("%sum_out", i64), Val("%product_out", f32)
    carried = [
        (total, STEP(5, i64), more, sum_out),
        (product, STEP("2.0", f32), times, product_out),
    ]
    loop = For(var, Val("%d_n", i64) if dynamic else STEP(count, i64), body.statements, carried)
    after = native.Body("after")
    after.effect("store", (sum_out, native.start("sum")), (1,))
    after.effect("store", (product_out, native.start("product")), (0,))
    buffers = [native.buffer("sum", i64, 8), native.buffer("product", f32, 16)]
    program = alone(buffers, [loop, *after.statements], ("n",) if dynamic else ())
    arrays = {"sum": np.zeros(8, np.int64), "product": np.zeros(16, np.float32)}
    native.run(program, arrays, native.target_of("host"), {"n": count})
    assert arrays["sum"][1] == 5 + count * (count + 1) // 2
    assert arrays["product"][0] == 2 * np.prod(np.arange(1, count + 1))


def test_nested_loops_with_a_condition() -> None:
    """out[i * 4 + j] = 1 where i < j."""
    i, j, inner = Val("%i", i64), Val("%j", i64), native.Body("in")
    row = inner.emit("mul", (i, STEP(4, i64)), i64)
    place = inner.emit("offset", (native.start("out"), inner.emit("add", (row, j), i64)), None)
    condition = inner.emit("less", (i, j), boolean)
    write = native.Body("w")
    write.effect("store", (STEP("1.0", f32), place), (0,))
    inner.statements.append(When(condition, write.statements))
    loops = For(i, STEP(4, i64), [For(j, STEP(4, i64), inner.statements)])
    arrays = {"out": np.zeros(16, np.float32)}
    native.run(alone([native.buffer("out", f32, 16)], [loops]), arrays, native.target_of("host"))
    assert np.array_equal(arrays["out"].reshape(4, 4), np.triu(np.ones((4, 4)), 1))


@pytest.mark.parametrize("threads", (1, 2, 3))
@pytest.mark.parametrize("count", (0, 1, 2, 5, 1000))
def test_every_unit_is_taken_once(threads: int, count: int) -> None:
    """Two parallel loops one after the other; each unit adds 1 to its own place."""
    statements = []
    for number, name in enumerate(("a", "b")):
        body, unit = native.Body(f"c{number}_"), Val(f"%unit{number}", i64)
        place = body.emit("offset", (native.start(name), unit), None)
        old = body.emit("load", (place,), i32, attrs=(0,))
        body.effect("store", (body.emit("add", (old, STEP(1, i32)), i32), place), (0,))
        statements.append(Parallel(unit, Val("%d_n", i64), body.statements))
    buffers = (native.buffer("a", i32, 1024), native.buffer("b", i32, 1024))
    program = Program("kernel", buffers, ("n",), statements)
    arrays = {name: np.zeros(1024, np.int32) for name in "ab"}
    for _ in range(3):
        native.run(program, arrays, native.target_of("host"), {"n": count}, threads)
    for array in arrays.values():
        assert (array[:count] == 3).all() and not array[count:].any()


def test_a_parallel_loop_inside_a_loop_is_refused() -> None:
    units = Parallel(Val("%u", i64), STEP(2, i64), [])
    program = Program("kernel", (), (), [For(Val("%i", i64), STEP(2, i64), [units])])
    with pytest.raises(Unsupported, match="parallel"):
        cpu.render(program, cpu.host(1))


def test_an_unknown_operation_is_refused() -> None:
    program = alone([], [Instruction(Val("%x", f32), "frobnicate", ())])
    with pytest.raises(Unsupported, match="frobnicate"):
        cpu.render(program, cpu.host(1))


def test_each_thread_has_its_own_tiles() -> None:
    """Threads write their units' numbers to a tile and read them back."""
    body, unit = native.Body(), Val("%unit", i64)
    tiles = (Tile("first", i64, 3), Tile("second", i64, 9))
    for tile in tiles:
        body.effect("store", (unit, native.start(tile.name)), (tile.elements - 1,))
    ends = [(native.start(t.name), t.elements - 1) for t in tiles]
    parts = [body.emit("load", (start,), i64, attrs=(last,)) for start, last in ends]
    place = body.emit("offset", (native.start("out"), unit), None)
    body.effect("store", (body.emit("add", parts, i64), place), (0,))
    units = Parallel(unit, STEP(4096, i64), body.statements)
    program = Program("kernel", (native.buffer("out", i64, 4096),), (), [units], tiles)
    arrays = {"out": np.zeros(4096, np.int64)}
    native.run(program, arrays, native.target_of("host"), threads=2)
    assert np.array_equal(arrays["out"], 2 * np.arange(4096))


# ---- memory


@pytest.mark.parametrize("target", native.TARGETS)
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_masked_and_strided_access(dtype: DType, target: str) -> None:
    """Masked lanes read as 0 and are not written; the last lane wins where scatters collide."""
    a, count = hostile(dtype, 11, 256), 64
    keep = np.random.default_rng(1).integers(0, 2, count).astype(bool)
    offsets = np.random.default_rng(2).integers(0, 256, count)
    places = np.random.default_rng(3).integers(0, 16, count)
    arrays = {
        "keep": keep, "a": a.copy(), "at": offsets, "to": places,
        **{n: np.zeros(count, dtype.numpy) for n in ("load", "gather", "strided", "gather_at")},
        "store": a[:count].copy(), "scatter": np.zeros(16, dtype.numpy),
    }  # fmt: skip
    for width in (1, 2, 16):

        def build(body: native.Body, at, width: int = width) -> None:
            mask = body.emit("load", (at("keep"),), boolean, width, (0,))
            here, x = at("a"), at("gather")
            value = body.emit("load", (here, mask), dtype, width, (0,))
            body.effect("store", (value, at("load")), (0,))
            value = body.emit("gather", (here, mask), dtype, width, (3, 2))
            body.effect("store", (value, x), (0,))
            value = body.emit("gather", (here,), dtype, width, (3, 2))
            body.effect("store", (value, at("strided")), (0,))
            where = body.emit("load", (at("at"),), i64, width, (0,))
            value = body.emit("gather_at", (native.start("a"), where), dtype, width)
            body.effect("store", (value, at("gather_at")), (0,))
            body.effect("store", (value, at("store"), mask), (0,))
            where = body.emit("load", (at("to"),), i64, width, (0,))
            body.effect("scatter_at", (value, native.start("scatter"), where, mask))

        kinds = {"keep": boolean, "at": i64, "to": i64}
        buffers = [native.buffer(n, kinds.get(n, dtype), len(v)) for n, v in arrays.items()]
        mine = {n: v.copy() for n, v in arrays.items()}
        native.run(native.blocks(buffers, width, build), mine, native.target_of(target))
        zero = np.zeros(count, dtype.numpy)
        check("load", mine["load"], np.where(keep, a[:count], zero))
        lanes = np.arange(count) // width * width + 3 + 2 * (np.arange(count) % width)
        check("gather", mine["gather"], np.where(keep, a[lanes], zero))
        check("strided", mine["strided"], a[lanes])
        taken = a[offsets]
        check("gather_at", mine["gather_at"], taken)
        check("store", mine["store"], np.where(keep, taken, a[:count]))
        scattered = np.zeros(16, dtype.numpy)
        for lane in np.flatnonzero(keep):
            scattered[places[lane]] = taken[lane]
        check("scatter_at", mine["scatter"], scattered)


def test_lanes_a_known_stride_apart_are_loaded_one_by_one() -> None:
    """What the processor has for it takes two to five times as long."""

    def build(body: native.Body, at) -> None:
        body.effect("store", (body.emit("gather", (at("a"),), f32, 16, (0, 9)), at("out")), (0,))

    program = native.blocks([native.buffer(n, f32, 256) for n in ("a", "out")], 16, build)
    text = cpu.render(program, native.target_of("host"))
    assert "gather" not in text and text.count("insertelement") >= 16


def test_a_masked_scalar_load_touches_nothing() -> None:
    """The address lies outside all memory."""
    body = native.Body()
    far = body.emit("offset", (native.start("out"), STEP(1 << 46, i64)), None)
    value = body.emit("load", (far, STEP("False", boolean)), f32, attrs=(0,))
    body.effect("store", (value, native.start("out")), (0,))
    body.effect("store", (value, far, STEP("False", boolean)), (0,))
    arrays = {"out": np.ones(16, np.float32)}
    program = alone([native.buffer("out", f32, 16)], body.statements)
    native.run(program, arrays, native.target_of("host"))
    assert arrays["out"][0] == 0 and arrays["out"][1] == 1


# ---- lanes


def through(dtype: DType, lanes_in, op: str, lanes_out, attrs=()) -> np.ndarray:
    """The result of one operation on the vector 0, 1, 2, ..."""
    source = Val("%in", dtype, lanes_in)
    result = Val("%out", dtype, lanes_out)
    statements = [
        Instruction(source, "load", (native.start("a"),), (0,)),
        Instruction(result, op, (source,), attrs),
        Instruction(None, "store", (result, native.start("out")), (0,)),
    ]
    arrays = {"a": np.arange(64).astype(dtype.numpy), "out": np.zeros(64, dtype.numpy)}
    buffers = [native.buffer(n, dtype, 64) for n in ("a", "out")]
    native.run(alone(buffers, statements), arrays, native.target_of("host"))
    return arrays["out"]


@pytest.mark.parametrize("dtype", (f32, bf16, i8, f64, boolean), ids=str)
def test_expand(dtype: DType) -> None:
    n, k, m = ("n", 4), ("k", 2), ("m", 3)
    values = np.arange(64).astype(dtype.numpy)
    inner = through(dtype, (k,), "expand", (n, k))  # repeats the whole
    assert np.array_equal(inner[:8], np.tile(values[:2], 4))
    outer = through(dtype, (n,), "expand", (n, k))  # repeats each lane
    assert np.array_equal(outer[:8], np.repeat(values[:4], 2))
    middle = through(dtype, (m, k), "expand", (m, n, k))
    expected = np.broadcast_to(values[:6].reshape(3, 1, 2), (3, 4, 2)).ravel()
    assert np.array_equal(middle[:24], expected)
    assert np.array_equal(through(dtype, (), "expand", (n,))[:4], np.repeat(values[:1], 4))


def test_shuffle_pack_and_iota() -> None:
    picks = (3, 0, 2, 2)
    assert through(f32, (("x", 4),), "shuffle", (("x", 4),), picks)[:4].tolist() == list(picks)
    body = native.Body()
    a = body.emit("load", (native.start("a"),), i32, 4, (0,))
    b = body.emit("load", (native.start("a"),), i32, 2, (8,))
    mixed = body.emit("shuffle", (a, b), i32, 4, (5, 0, 4, 3))
    body.effect("store", (mixed, native.start("out")), (0,))
    scalars = [body.emit("load", (native.start("a"),), i32, attrs=(i,)) for i in (3, 1)]
    body.effect("store", (body.emit("pack", scalars, i32, 2), native.start("out")), (4,))
    body.effect("store", (body.emit("iota", (), i32, 4, (-3,)), native.start("out")), (6,))
    arrays = {"a": np.arange(64, dtype=np.int32), "out": np.zeros(64, np.int32)}
    buffers = [native.buffer(n, i32, 64) for n in ("a", "out")]
    native.run(alone(buffers, body.statements), arrays, native.target_of("host"))
    assert arrays["out"][:10].tolist() == [9, 0, 8, 3, 3, 1, 0, -3, -6, -9]


@pytest.mark.parametrize("target", native.TARGETS)
@pytest.mark.parametrize("dtype", [d for d in ALL if d is not boolean], ids=str)
@pytest.mark.parametrize("op", ("sum", "max", "min", "prod"))
def test_across(op: str, dtype: DType, target: str) -> None:
    a = np.random.default_rng(3).integers(1, 4, 64).astype(dtype.numpy)
    expected = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}[op]
    body = native.Body()
    for number, width in enumerate((1, 2, 8)):
        x = body.emit("load", (native.start("a"),), dtype, width, (0,))
        total = body.emit(f"across.{op}", (x,), dtype)
        body.effect("store", (total, native.start("out")), (number,))
    arrays = {"a": a, "out": np.zeros(64, dtype.numpy)}
    buffers = [native.buffer(n, dtype, 64) for n in ("a", "out")]
    native.run(alone(buffers, body.statements), arrays, native.target_of(target))
    with np.errstate(all="ignore"):
        wide = np.float64 if dtype.is_float else dtype.numpy
        wanted = [expected(a[:w].astype(wide)) for w in (1, 2, 8)]
    assert arrays["out"][:3].tolist() == np.array(wanted).astype(dtype.numpy).tolist()


@pytest.mark.parametrize("lane", range(4))
def test_a_nan_in_any_lane_wins(lane: int) -> None:
    body = native.Body()
    x = body.emit("load", (native.start("a"),), f32, 4, (0,))
    body.effect("store", (body.emit("across.max", (x,), f32), native.start("a")), (8,))
    a = np.zeros(64, np.float32)
    a[lane] = np.nan
    arrays = {"a": a}
    program = alone([native.buffer("a", f32, 64)], body.statements)
    native.run(program, arrays, native.target_of("host"))
    assert np.isnan(arrays["a"][8])


# ---- matrix instructions


@pytest.mark.parametrize("instruction", cpu.host(1).in_vectors.instructions, ids=lambda i: i.name)
@pytest.mark.parametrize("width", (4, 8, 16, 64))
def test_matrix_instructions_as_specified(instruction, width: int) -> None:
    """Those that have vectors; `test_tiles.py` has those with registers of their own."""
    rng, j = np.random.default_rng(9), instruction.collapse
    kinds = {"acc": instruction.accumulator, "a": instruction.first, "b": instruction.second}
    arrays = {}
    for name, dtype in kinds.items():
        count = width * (1 if name == "acc" else j)
        ends = (-8, 7) if dtype.is_float else (dtype.lowest, dtype.highest)
        ends = (-1000, 1000) if name == "acc" else ends
        most = min(ends[1], instruction.most) if name == "a" else ends[1]
        numbers = rng.integers(ends[0], most, count, endpoint=True)
        numbers[: count // 2] = most if name == "a" else ends[0]  # the largest sums
        arrays[name] = numbers.astype(dtype.numpy)
    lanes = (("n", width),)
    values = {
        n: Val(f"%{n}", d, lanes + ((("k", j),) if n != "acc" else ())) for n, d in kinds.items()
    }
    out = Val("%r", instruction.accumulator, lanes)
    loads = [Instruction(v, "load", (native.start(n),), (0,)) for n, v in values.items()]
    compute = Instruction(out, instruction.name, tuple(values.values()))
    store = Instruction(None, "store", (out, native.start("acc")), (0,))
    expected = instruction.specification(
        arrays["acc"], arrays["a"].reshape(width, j), arrays["b"].reshape(width, j)
    )
    buffers = [native.buffer(n, d, len(arrays[n])) for n, d in kinds.items()]
    native.run(alone(buffers, [*loads, compute, store]), arrays, native.target_of("host"))
    check(instruction.name, arrays["acc"], expected)


# ---- the text


def test_broken_ssa_is_found_before_code_is_made() -> None:
    """A value of a loop body used after the loop: LLVM parses it and would compile it."""
    inside = Instruction(Val("%x", i64), "add", (Val("%i", i64), STEP(1, i64)))
    loop = For(Val("%i", i64), Val("%d_n", i64), [inside])
    use = Instruction(None, "store", (Val("%x", i64), native.start("out")), (0,))
    program = alone([native.buffer("out", i64, 8)], [loop, use], ("n",))
    with pytest.raises(CompileError, match="dominate"):
        cpu.build([cpu.render(program, cpu.host(1))], cpu.host(1))


@pytest.mark.parametrize("name", ("neon", "avx512", "avx2", "sse"))
@pytest.mark.parametrize("dtype", (f32, f64, bf16, BY_NAME["f16"], BY_NAME["u8"], i64), ids=str)
def test_every_operation_compiles_for_every_target(name: str, dtype: DType) -> None:
    """To objects of the right machine; foreign ones cannot be loaded."""
    from luminal.graph.scalars import SCALARS

    def build(body: native.Body, at) -> None:
        x = body.emit("load", (at("a"),), dtype, 8, (0,))
        for row in SCALARS.values():
            fits = row.domain == "any" or (row.domain == "float") == dtype.is_float
            if fits and row.name not in ("cast", "select"):
                result = boolean if row.result == "bool" else dtype
                out = body.emit(row.name, (x,) * row.arity, result, 8)
                body.effect("store", (out, at("a")), (0,))
        for kind in ALL:
            body.effect("store", (body.emit("cast", (x,), kind, 8), at("a")), (0,))

    target = cpu.named(name)
    text = cpu.render(native.blocks([native.buffer("a", dtype, 64)], 8, build), target)
    code = cpu.build([text], target)[0]
    assert code.code[:4] == b"\x7fELF"
    assert int.from_bytes(code.code[18:20], "little") == (183 if name == "neon" else 62)
