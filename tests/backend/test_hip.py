"""HIP's and Metal's text: written anywhere, compiled where clang is, run by the simulator."""

from __future__ import annotations

import numpy as np
import pytest
from kernel.test_threads import THREADS, tree_sum

from luminal import ops
from luminal.backend import devices, text
from luminal.backend.text import clang
from luminal.errors import CompileError, DeviceError
from luminal.graph import Graph


def network() -> Graph:
    graph = Graph()
    graph.dim("s", 1, 64)
    x, w = graph.tensor(("s", 24), name="x"), graph.parameter((24, 32), name="w")
    hidden = ops.layer_norm(ops.gelu(x @ w), (32,)) + ops.sin(x.sum(1, keepdim=True))
    ops.softmax(hidden @ w.T, -1).output("y")
    return graph


@pytest.mark.parametrize(("device", "word"), [("hip:gfx942", "__global__"), ("metal", "kernel")])
def test_sources_without_a_device(device: str, word: str) -> None:
    rt = network().compile(device)
    assert rt.sources().keys() == {made.name for made in rt.kernels}
    assert all(word in text for text in rt.sources().values())
    rt["x"], rt["w"] = np.zeros((3, 24), np.float32), np.zeros((24, 32), np.float32)
    with pytest.raises(DeviceError, match="written, not run"):
        rt.run()
    for name in ("hip", "hip:sm_80"):
        with pytest.raises(DeviceError, match=f'no device "{name}".*"hip:gfx942"'):
            network().compile(name)


@pytest.mark.skipif(clang.found() is None, reason="no clang for AMD's GPUs")
@pytest.mark.parametrize(("arch", "wave"), [("gfx90a", 64), ("gfx942", 64), ("gfx1100", 32)])
def test_clang_takes_every_kernel(arch: str, wave: int) -> None:
    """Alone: with neither headers nor libraries, so that no function is left open."""
    rt = network().compile(f"hip:{arch}")
    assert all(f"__launch_bounds__({wave})" in source for source in rt.sources().values())
    for source in (*rt.sources().values(), text.render(tree_sum(), text.HIP)):
        assembly, taken = clang.compiled(source, arch)
        assert "rel32@lo" not in assembly  # nothing is called
        limit = wave if source in rt.sources().values() else THREADS
        assert f".max_flat_workgroup_size: {limit}" in assembly  # else it spills from 128 on
        assert taken["registers"] > 0 and taken["spilled"] == taken["stack"] == 0
    assert taken["shared"] >= 64  # the tree's
    texts = rt.sources().values()
    assert any("ds_bpermute" in clang.compiled(each, arch)[0] for each in texts)
    found = devices.find(f"hip:{arch}").resources([source])
    assert found == [taken]


def test_clang_refuses_what_is_no_text() -> None:
    if clang.found() is None:
        with pytest.raises(CompileError, match="install clang"):
            clang.compiled("no", "gfx942")
    else:
        with pytest.raises(CompileError, match="refused the text"):
            clang.compiled("no", "gfx942")


@pytest.mark.parametrize("device", ["hip:sim", "hip:sim32", "metal:sim"])
def test_exchanges_between_lanes(device: str) -> None:
    """Sums and maxima over the lanes of a wave, of numbers of every width."""
    rng = np.random.default_rng(0)
    for dtype in ("f32", "i64", "bf16", "u8"):
        graph = Graph()
        x = graph.tensor((3, 200), dtype, name="x")
        y = x.amax(1).output("y")
        if dtype in ("f32", "i64"):
            x.sum(1).output("z")
        rt = graph.compile(device, cache=False)
        given = rng.integers(0, 200, (3, 200)).astype(y.dtype.numpy)
        rt[x] = given
        rt.run()
        np.testing.assert_array_equal(rt["y"], given.max(1))
        if dtype in ("f32", "i64"):
            np.testing.assert_array_equal(rt["z"], given.sum(1))
    with pytest.raises(DeviceError, match="hip:sim32"):
        devices.find("hip:simple")
