"""Copies of pictures: turned, padded, strided, in pairs and panels, of all widths of elements, by
every way in which vectors are loaded, run on this machine by the instructions of several."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import default_cases as cases
from default_cases import buffer, cast, const, load, store, value
from lower_cases import run_native

from luminal.backend.cpu.target import machine, named
from luminal.backend.reference.kernels import evaluate
from luminal.graph.dtype import DType, bf16, f16, f32, i8
from luminal.graph.index import Index
from luminal.kernel.kernel import Expression, Guard, Kernel
from luminal.lowering.lower import lower
from luminal.scheduling.default import default_schedule
from luminal.scheduling.prepare import prepare

SETS = [n for n in ("avx512", "avx2", "sse", "neon") if machine(named(n)).is_host]
DTYPES = [(f32, f32), (f32, bf16), (bf16, bf16), (bf16, f32), (i8, i8), (i8, f32), (f16, f16)]


def copy(
    sizes: tuple[int, int, int], pad: int, step: int, dtypes: tuple[DType, DType],
    lies: Sequence[str], stored: Sequence[str], paired: str, count: int, outside: int,
) -> Kernel:  # fmt: skip
    """Y = X with its padding, in steps, of which `count` neighbours along an axis lie together."""
    size = dict(zip("cyx", sizes))
    extents = {a: max(1, (n + 2 * pad) // step) if a != "c" else n for a, n in size.items()}
    at = {a: Index.of(a) * step - pad if a != "c" else Index.of(a) for a in size}
    order, axes = list(stored), dict(extents)
    if count > 1 and extents[paired] % count == 0:
        whole = Index.of(paired) * count + "p"
        at = {a: i.substitute({paired: whole}) for a, i in at.items()}
        order, axes = [*stored, "p"], {**extents, paired: extents[paired] // count, "p": count}
    source, result = dtypes
    body: Expression = load("X", *(at[a] for a in lies), dtype=source)
    if pad or step > 1:
        inside = [i for a in "yx" for i in (at[a], size[a] - 1 - at[a])]
        fill = const(float(outside) if source.is_float else outside, source)
        body = Guard(tuple(inside), body, fill)
    moved = value("copy", "".join(order), body if source is result else cast(body, result),
                  store=store("Y", *order))  # fmt: skip
    shapes = (buffer("X", *(size[a] for a in lies), dtype=source),
              buffer("Y", *(axes[a] for a in order), dtype=result))  # fmt: skip
    return cases.kernel("copied", shapes, axes, [moved])


@pytest.mark.parametrize("name", SETS)
@settings(max_examples=80, deadline=None)
@given(st.data())
def test_copies_are_right(name: str, data: st.DataObject) -> None:
    choose = data.draw
    sizes = tuple(choose(st.sampled_from([6, 16, 18, 32, 33])) for _ in range(3))
    lies = choose(st.permutations("cyx"))
    stored = choose(st.one_of(st.just(lies[::-1]), st.permutations("cyx")))
    kernel = copy(
        sizes, choose(st.integers(0, 2)), choose(st.sampled_from([1, 1, 2])),
        choose(st.sampled_from(DTYPES)), lies, stored, choose(st.sampled_from("cyx")),
        choose(st.sampled_from([1, 1, 2, 4])), choose(st.integers(0, 1)),
    )  # fmt: skip
    target = named(name, 2)
    (prepared,) = prepare(kernel, target)
    program = lower(*default_schedule(prepared, target), target)
    shapes = [tuple(int(n) for n in b.shape) for b in prepared.buffers]
    x, y = (buffer.dtype.numpy for buffer in prepared.buffers)
    numbers = np.random.default_rng(0).integers(-20, 20, shapes[0])
    arrays = {"X": numbers.astype(x), "Y": np.zeros(shapes[1], y)}
    want = {name: a.copy() for name, a in arrays.items()}
    evaluate(prepared, want, {})
    got = run_native(program, arrays, {}, target)
    np.testing.assert_array_equal(got["Y"].astype(np.float64), want["Y"].astype(np.float64))
