"""A row of the suite: results are checked before and after timing, faults are told, never timed."""

import dataclasses

import numpy as np
import pytest
import torch

from luminal import ops
from luminal.bench import compare
from luminal.bench.case import Mark, difference, operation
from luminal.bench.compare import Options, measure
from luminal.bench.peers import PEERS, Peer, Side
from luminal.errors import CompileError

QUICK = Options(threads=1, peers=("torch",), rounds=3, seconds=0.0005)


def softmax_case(theirs=None):
    return operation(
        "softmax 4x8", lambda x: ops.softmax(x, -1), theirs or (lambda F, x: F.softmax(x, -1)),
        [(4, 8)], flops=7.0,
    )  # fmt: skip


def test_a_good_row():
    row = measure(softmax_case(), QUICK)
    assert row.ours.fault is None and row.ours.error < 1e-6
    assert row.ours.time.low <= row.ours.time.median <= row.ours.time.high
    assert row.ours.ratio.median == 1.0
    assert row.peers["torch"].fault is None and row.peers["torch"].ratio.median > 0
    assert (row.flops, row.bytes) == (7.0, 2 * 4 * 4 * 8)
    assert {"fma", "read"} <= set(row.ceilings)
    assert all(cell.ratio.median > 0 for cell in row.ceilings.values())


def test_marked_runs_leave_out_other_peers():
    case = dataclasses.replace(softmax_case(), marks=(Mark("openvino", 1.0, threads=1),))
    options = dataclasses.replace(QUICK, peers=("torch", "inductor", "openvino"))
    assert options.peers_of(case) == options.peers
    marked = dataclasses.replace(options, marked=True)
    assert marked.peers_of(case) == ("torch", "openvino")


def test_ceilings_that_marks_name_are_timed():
    """A copy, a plain read, and the contraction alone, as long as ours has as many operations."""
    plain = operation("mm", ops.linear, lambda F, x, w: F.linear(x, w), [(3, 16)], [(8, 16)])
    marks = tuple(Mark(rival, 0.9, threads=1) for rival in ("copy", "plain read", "plain"))
    row = measure(dataclasses.replace(softmax_case(), marks=marks, plain=plain.make), QUICK)
    assert all(row.reached(mark) is not None for mark in marks)
    assert row.bound in ("fma", "read")


def test_weights_are_the_same_on_both_sides():
    case = operation(
        "linear", lambda x, w, b: ops.linear(x, w, b), lambda F, x, w, b: F.linear(x, w, b),
        [(3, 16)], [(8, 16), (8,)],
    )  # fmt: skip
    assert measure(case, QUICK).ours.fault is None


def test_a_wrong_result_of_ours_is_an_error_and_has_no_time():
    row = measure(softmax_case(lambda F, x: F.softmax(x, -1) * 1.001), QUICK)
    assert row.ours.fault.startswith("wrong result")
    assert row.ours.time is None and row.ours.ratio is None
    assert row.peers["torch"].time is not None and row.peers["torch"].ratio is None


def test_a_result_that_turns_wrong_while_timing_is_an_error(monkeypatch):
    def compiled(work, options):
        right = torch.softmax(torch.from_numpy(work.inputs[0]), -1).numpy()
        results = iter((right, right + 1))  # before and after timing
        return Side(lambda: None, lambda: next(results))

    monkeypatch.setattr(compare, "compiled", compiled)
    row = measure(softmax_case(), QUICK)
    assert row.ours.fault.startswith("wrong result in some runs") and row.ours.time is None


def test_a_peer_may_be_wrong_or_fail(monkeypatch):
    def liar(work, threads, precision):
        return Side(lambda: None, lambda: np.zeros((4, 8), np.float32))

    def broken(work, threads, precision):
        raise RuntimeError("cannot\nat all")

    monkeypatch.setitem(PEERS, "liar", Peer("liar", "torch", liar))
    monkeypatch.setitem(PEERS, "broken", Peer("broken", "torch", broken))
    row = measure(softmax_case(), dataclasses.replace(QUICK, peers=("liar", "broken", "torch")))
    assert row.peers["liar"].fault.startswith("wrong result") and row.peers["liar"].time is None
    assert row.peers["broken"].fault == "RuntimeError: cannot"
    assert row.ours.time is not None and row.peers["torch"].ratio is not None


def test_a_failing_compiler_is_a_row(monkeypatch):
    def compiled(work, options):
        raise CompileError("no such kernel")

    monkeypatch.setattr(compare, "compiled", compiled)
    row = measure(softmax_case(), QUICK)
    assert "no such kernel" in row.ours.fault and row.peers["torch"].time is not None


@pytest.mark.parametrize("name", [n for n, peer in PEERS.items() if n not in ("torch", "inductor")])
def test_other_peers(name):
    if PEERS[name].missing():
        pytest.skip(PEERS[name].missing())
    cell = measure(softmax_case(), dataclasses.replace(QUICK, peers=(name,))).peers[name]
    assert cell.fault is None and cell.ratio is not None


def test_a_missing_peer_says_what_is_missing():
    assert "no_such_package" in Peer("x", "no_such_package", PEERS["torch"].load).missing()


def test_operations_of_a_module_are_counted():
    case = operation("mm", ops.linear, lambda F, x, w: F.linear(x, w), [(3, 16)], [(8, 16)])
    assert compare.counted(case.make()) == 2 * 3 * 16 * 8


@pytest.mark.parametrize(
    ("got", "want", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 1.0], [1.0, 2.0], 0.5),
        ([np.nan, 2.0], [1.0, 2.0], np.inf),
        ([1.0], [1.0, 2.0], np.inf),
    ],
)
def test_difference(got, want, expected):
    assert difference(np.array(got), np.array(want)) == expected
