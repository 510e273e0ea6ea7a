"""Contractions that a library computes: which kernels, the same results, one more candidate."""

from dataclasses import replace

import numpy as np
import pytest
from oracles.program import interpret
from oracles.schedules import schedule_of

from luminal.backend import cpu
from luminal.backend.cpu import blas
from luminal.errors import Illegal
from luminal.graph.dtype import f32
from luminal.graph.index import Index
from luminal.kernel.kernel import Apply, Buffer, Kernel, Load, Read, Reduction, Store, Value
from luminal.lowering.legal import check
from luminal.lowering.library import call, contraction
from luminal.lowering.lower import lower
from luminal.lowering.verify import verify
from luminal.search.inputs import arrays
from luminal.search.oracle import expected
from luminal.search.space import Space
from luminal.search.trial import Bench

here = pytest.mark.skipif(blas.found() is None, reason="NumPy has brought no OpenBLAS")


def product(a, b, c, sizes=None, /, **extents):
    """c = sum over k of a * b; each matrix by the names of its axes, outermost first."""

    def at(axes):
        return tuple(map(Index.of, axes))

    buffers = tuple(
        Buffer(name, f32, tuple(Index.of(extents[x]) for x in axes))
        for name, axes in (("A", a), ("B", b), ("C", c))
    )
    body = Apply("mul", (Load("A", at(a), f32), Load("B", at(b), f32)), f32)
    value = Value("sum", tuple(c), body, f32, Reduction("sum", ("k",)), Store("C", at(c)))
    axes = {x: Index.of(n) for x, n in extents.items()}
    return Kernel("product", buffers, axes, (value,), sizes or {})


PRODUCTS = {
    "plain": product("mk", "kn", "mn", m=13, k=24, n=40),
    "linear": product("mk", "nk", "mn", m=40, k=24, n=13),
    "both turned": product("km", "nk", "mn", m=7, k=5, n=9),
    "result turned": product("mk", "kn", "nm", m=13, k=24, n=40),
    "batch": product("bmk", "bkn", "bmn", b=3, m=5, k=8, n=6),
    "heads inside": product("mbk", "nbk", "bmn", b=3, m=5, k=8, n=6),
    "run-time rows": product("mk", "nk", "mn", {"s": (1, 64)}, m="s", k=24, n=13),
}


def narrow(kernel, kind, stored):
    """The product of matrices in another dtype, summed in f32 and stored in one more."""
    (value,) = kernel.values
    factors = (Load(a.buffer, a.index, kind) for a in value.body.args)
    body = Apply("mul", tuple(Apply("cast", (factor,), f32) for factor in factors), f32)
    values = (replace(value, body=body),)
    if stored is not f32:
        rounded = Apply("cast", (Read(value.name, f32),), stored)
        last = Value("rounded", value.axes, rounded, stored, store=value.store)
        values = replace(values[0], store=None), last
    kinds = {"A": kind, "B": kind, "C": stored}
    buffers = tuple(replace(b, dtype=kinds[b.name]) for b in kernel.buffers)
    return replace(kernel, buffers=buffers, values=values)


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_program_means_the_kernel(name, threads):
    kernel, target = PRODUCTS[name], cpu.host(threads)
    check(kernel, call("gemm"))
    program = lower(kernel, call("gemm"), target)
    verify(program)
    for s in (1, 33):
        given = arrays(kernel, {"s": s}, 0, "calm")
        wanted = expected(kernel, given, {"s": s})["C"]
        interpret(program, given, {"s": s}, threads)
        np.testing.assert_allclose(given["C"], wanted, rtol=1e-4, atol=1e-5)


@here
@pytest.mark.parametrize("name", PRODUCTS)
def test_it_is_one_more_candidate(name):
    """Found by its decision, never the default, right on random and hostile inputs."""
    target = cpu.host(2)
    space = Space(PRODUCTS[name], target)
    assert space.default.schedule.library == ""
    assert "gemm" in space.default.decisions["library"].options
    bench, candidate = Bench(space.kernel, target, cpu), space.at({"library": "gemm"})
    assert bench.attempt(0, space.default.kernel, space.default.schedule).status == "ok"
    result = bench.attempt(1, candidate.kernel, candidate.schedule)
    assert result.status == "ok", result.detail
    assert schedule_of(candidate.schedule.text()) == candidate.schedule


def test_what_no_library_computes():
    """Rows that overlap in memory, and a sum that is used before it is stored."""
    windows = product("mk", "kn", "mn", m=6, k=8, n=16)
    (value,) = windows.values
    overlapping = Load("A", (Index.of(0), Index.of("m") + "k"), f32)
    body = Apply("mul", (overlapping, value.body.args[1]), f32)
    changed = Value("sum", ("m", "n"), body, f32, value.reduction, value.store)
    moved = Kernel("windows", windows.buffers, windows.axes, (changed,))
    halved = Value("sum", ("m", "n"), value.body, f32, value.reduction)
    for kernel in (moved, Kernel("kept", windows.buffers, windows.axes, (halved,))):
        assert contraction(kernel) is None
        with pytest.raises(Illegal, match="does not compute"):
            check(kernel, call("gemm"))


@here
def test_numpy_keeps_its_threads():
    """The library is a copy of its own: one thread a call, whatever NumPy's has."""
    import ctypes

    own = ctypes.CDLL(str(blas.found()))
    before = own.scipy_openblas_get_num_threads64_()
    blas.address()
    assert own.scipy_openblas_get_num_threads64_() == before
