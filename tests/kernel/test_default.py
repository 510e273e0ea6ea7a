"""Default schedules: legal and right for kernels of every kind, good where structure says so."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import default_cases as cases
from test_prepare import SMALL, assert_same

from luminal.kernel.default import default_schedule
from luminal.kernel.evaluate import evaluate
from luminal.kernel.interpret import interpret
from luminal.kernel.layout import pack
from luminal.kernel.lower import lower
from luminal.kernel.prepare import prepare
from luminal.kernel.schedule import Schedule
from luminal.kernel.target import Target
from luminal.kernel.verify import verify

TARGETS = [
    Target("wide", vector_bytes=64, registers=32, threads=2),
    Target("narrow", vector_bytes=16, registers=16, threads=1),
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("name", SMALL)
def test_operand_values_keep_the_meaning(name, target):
    kernel, sizes = SMALL[name]
    arrays = cases.arrays(kernel, np.random.default_rng(2), sizes)
    made = [default_schedule(k, target)[0] for k in prepare(kernel, target)]
    assert_same([kernel], made, arrays, sizes)


@pytest.mark.parametrize("name", SMALL)
def test_every_axis_is_walked_to_single_steps(name):
    for prepared in prepare(SMALL[name][0], TARGETS[0]):
        kernel, schedule = default_schedule(prepared, TARGETS[0])
        assert Schedule.parse(schedule.text()) == schedule
        for v in kernel.values:
            for axis in v.points:
                steps = [loop.step for loop in schedule.paths[v.name] if loop.axis == axis]
                assert kernel.axes[axis] == 1 or steps[-1] == 1, (v.name, axis)
                assert steps == sorted(steps, reverse=True), (v.name, axis)


def test_a_schedule_is_deterministic():
    first, second = (default_schedule(cases.gated(64, 96, 80), TARGETS[0]) for _ in range(2))
    assert first == second


def path(kernel, value, target=TARGETS[0]):
    (prepared,) = prepare(kernel, target)
    return [str(loop) for loop in default_schedule(prepared, target)[1].paths[value]]


def test_constant_weights_lie_in_panels_of_the_tile():
    (prepared,) = prepare(cases.gemm(512, 2048, 2048), TARGETS[0])
    _, schedule = default_schedule(prepared, TARGETS[0])
    (dim, width), *_, last = schedule.layouts["B"]
    assert dim == 1 and width % 16 == 0 and last == (1, 1)
    assert f"n/{width}" in str(schedule.text())


def test_lanes_come_from_the_target():
    assert "n/1#" in path(cases.gemm(64, 256, 128), "acc")
    assert "n/16!" in path(cases.gemm(64, 256, 128), "acc")
    assert "n/4!" in path(cases.gemm(64, 256, 128), "acc", TARGETS[1])


def test_attention_shares_one_loop_over_keys():
    (prepared,) = prepare(cases.attention(2, 128, 128, 64), TARGETS[0])
    _, schedule = default_schedule(prepared, TARGETS[0])
    shared = {str(p[2]) for name, p in schedule.paths.items() if name in ("score", "mix", "shrink")}
    assert shared == {"k/64"}


def test_a_column_sum_has_its_lanes_along_the_columns():
    assert path(cases.column_sum(2048, 2048), "acc")[-1] == "k/1#"


def interpreted(kernel, arrays, sizes, target):
    """All buffers after preparing, scheduling, lowering and interpreting a kernel."""
    arrays = {name: x.copy() for name, x in arrays.items()}
    for prepared in prepare(kernel, target):
        scheduled, schedule = default_schedule(prepared, target)
        program = lower(scheduled, schedule, target)
        verify(program)
        packed = {}
        for b in scheduled.buffers:
            shape = [int(n.evaluate(sizes)) for n in b.shape]
            if b.name not in arrays:
                arrays[b.name] = np.full(shape, 77, b.dtype.numpy)
            arrays[b.name] = arrays[b.name].reshape(shape)
            layout = program.layouts.get(b.name)
            packed[b.name] = pack(arrays[b.name], layout) if layout else arrays[b.name]
        interpret(program, packed, sizes)
    return arrays


def assert_right(kernel, sizes, target, seed=3):
    arrays = cases.arrays(kernel, np.random.default_rng(seed), sizes)
    got = interpreted(kernel, arrays, sizes, target)
    want = {name: x.copy() for name, x in arrays.items()}
    evaluate(kernel, want, sizes)
    for name in kernel.outputs:
        np.testing.assert_allclose(
            got[name].reshape(-1), want[name].reshape(-1), rtol=2e-5, atol=2e-5, err_msg=name
        )


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("name", SMALL)
def test_small_kernels_run_right(name, target):
    assert_right(*SMALL[name], target)
