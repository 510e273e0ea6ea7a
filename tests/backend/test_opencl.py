"""OpenCL devices: what is said where there is none, and real runs where there is one."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
from ops.all_cases import CASES, Case, run_case

from luminal import ops
from luminal.backend.opencl import device
from luminal.errors import CompileError, DeviceError
from luminal.graph import Graph

from .test_text import on

SHARE = 60  # one case of so many: drivers take half a second for a kernel


@pytest.fixture(scope="module")
def usable() -> None:
    """A device that compiles and runs a kernel, or a skip that says why there is none."""
    graph = Graph()
    x = graph.tensor((4,))
    y = (x + 1.0).output()
    try:
        rt = graph.compile("opencl")
    except (DeviceError, CompileError) as error:
        pytest.skip(str(error)[:200])
    rt[x] = np.zeros(4, np.float32)
    rt.run()
    assert (rt[y] == 1).all()


@pytest.mark.parametrize("found", ["no library", "no platform", "an empty platform"])
def test_no_device_is_a_clear_error(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def platforms() -> list[types.SimpleNamespace]:
        if found == "no platform":
            raise RuntimeError("clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR")
        return [types.SimpleNamespace(get_devices=list)]

    stand_in = types.SimpleNamespace(get_platforms=platforms, Error=RuntimeError)
    monkeypatch.setitem(sys.modules, "pyopencl", None if found == "no library" else stand_in)
    with pytest.raises(DeviceError, match=r"luminal-compiler\[opencl\]"):
        device.__wrapped__()


@pytest.mark.parametrize("case", CASES[::SHARE], ids=lambda case: case.name)
def test_case(case: Case, usable: None) -> None:
    run_case(case, on("opencl"))


def test_a_network_in_run_time_sizes(usable: None) -> None:
    graph = Graph()
    graph.dim("s", 1, 9)
    x = graph.tensor(("s", 3, 12, 12))
    w, v = graph.parameter((8, 3, 3, 3), name="w"), graph.parameter((10, 8), name="v")
    hidden = ops.max_pool2d(ops.relu(ops.conv2d(x, w, padding=1)), 2).mean((2, 3))
    y = ops.softmax(hidden @ v.T, -1).output()
    rng, made = np.random.default_rng(0), []
    given = {w: rng.standard_normal((8, 3, 3, 3)), v: rng.standard_normal((10, 8))}
    images = [rng.standard_normal((size, 3, 12, 12)) for size in (1, 5, 2)]
    for name in ("opencl", "reference"):
        rt = graph.compile(name)
        for tensor, array in given.items():
            rt[tensor] = array.astype(np.float32)
        made.append([])
        for image in images:
            rt[x] = image.astype(np.float32)
            rt.run()
            made[-1].append(rt[y])
    for here, wanted in zip(*made):
        np.testing.assert_allclose(here, wanted, rtol=1e-4, atol=1e-6)
