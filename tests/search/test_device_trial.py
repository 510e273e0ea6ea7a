"""Search on devices with memory of their own: on the simulator, whose clock counts what is done."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from luminal.backend import devices
from luminal.backend.contract import Accelerator
from luminal.backend.cuda.simulator import found_compiler
from luminal.errors import DeviceError
from luminal.graph import Graph
from luminal.scheduling.prepare import prepare
from luminal.search.space import Space
from luminal.search.trial import Bench

pytestmark = pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")


def program() -> Graph:
    graph = Graph()
    x, w = graph.tensor((24, 40), name="x"), graph.parameter((40, 48), name="w")
    (x @ w).relu().output("y")
    return graph


def bench() -> tuple[Bench, Space]:
    device = devices.find("cuda:sim")
    assert isinstance(device, Accelerator)
    kernel = program().compile("cuda:sim", cache=False, database=False).kernels[0].kernel
    target = device.target(1)
    space = Space(prepare(kernel, target)[0], target)
    return Bench(space.kernel, target, device), space


def test_a_candidate_is_checked_and_timed_by_the_devices_clock() -> None:
    made, space = bench()
    default = space.default
    first = made.attempt(0, default.kernel, default.schedule)
    assert first.status == "ok" and first.seconds > 0, first.detail
    made.begin([(1, default.kernel, default.schedule)])
    again = made.attempt(1, default.kernel, default.schedule)
    assert again.seconds == pytest.approx(first.seconds) and not made.begun
    assert made.race([0, 1], 5, 1.0) == {0: [first.seconds], 1: [first.seconds]}


def test_wrong_results_and_writes_behind_the_end_are_found() -> None:
    made, space = bench()
    built = made.stand.begin(space.default.kernel, space.default.schedule)
    made.stand.end(built)
    case = made.cases[0]
    assert made.stand.tried(built, case)[0] == ""
    launch = made.backend.launch

    def wrong(kernel, buffers, sizes, workspace):
        launch(kernel, buffers, sizes, workspace)
        buffers[-1][at] ^= 64

    made.backend.launch = wrong
    try:
        at = 3
        assert "instead of" in made.stand.tried(built, case)[0]
        at = -1
        assert "a write behind the end" in made.stand.tried(built, case)[0]
    finally:
        del made.backend.launch


def test_candidates_that_spill_more_than_the_default_are_refused() -> None:
    made, space = bench()
    spilled = iter((8, 8, 16))
    made.backend.spilled = lambda built: next(spilled)
    try:
        default = space.default
        results = [made.attempt(n, default.kernel, default.schedule) for n in range(3)]
    finally:
        del made.backend.spilled
    assert [r.status for r in results] == ["ok", "ok", "refused"]
    assert results[2].detail == "16 bytes of registers in memory"


def test_a_search_is_kept(tmp_path: Path) -> None:
    """Found once, by modelled seconds, and taken by later compilations."""
    path, x = tmp_path / "tuned.sqlite", np.ones((24, 40), np.float32)
    rts = [program().compile("cuda:sim", search=search, database=path, cache=False)
           for search in (6, 0)]  # fmt: skip
    for rt in rts:
        rt["x"], rt["w"] = x, np.ones((40, 48), np.float32)
        rt.run()
        np.testing.assert_array_equal(rt["y"], np.full((24, 48), 40, np.float32))
        assert "tuned: " in rt.explain() and "6 tried" in rt.explain()
    assert rts[0].report.kernels[0].schedule == rts[1].report.kernels[0].schedule


def test_a_search_needs_the_device() -> None:
    with pytest.raises(DeviceError, match="libcuda"):
        program().compile("cuda:sm_90a", search=2)


def test_devices_travel() -> None:
    device = pickle.loads(pickle.dumps(devices.find("cuda:sim")))
    assert device.fingerprint(device.target(1)) == devices.find("cuda:sim").fingerprint(
        device.target(1)
    )
