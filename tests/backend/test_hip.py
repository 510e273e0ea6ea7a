"""HIP's and Metal's text: written anywhere, compiled where clang is, not run."""

from __future__ import annotations

import re
import shutil
import subprocess

import numpy as np
import pytest
from kernel.test_threads import tree_sum

from luminal import ops
from luminal.backend import text
from luminal.errors import DeviceError
from luminal.graph import Graph

CLANG = next(filter(None, map(shutil.which, ("clang", "clang-21", "clang-20", "clang-19"))), None)
FLAGS = ("-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-O2", "-S", "-o", "-",
         "-Rpass-analysis=kernel-resource-usage")  # fmt: skip


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
    with pytest.raises(DeviceError, match="hip:gfx942"):
        network().compile("hip:sm_80")


@pytest.mark.skipif(CLANG is None, reason="no clang")
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100"])
def test_clang_takes_every_kernel(arch: str) -> None:
    """Alone: with neither headers nor libraries, so that no function is left open."""
    sources = [*network().compile(f"hip:{arch}").sources().values()]
    for source in (*sources, text.render(tree_sum(), text.HIP)):
        command = [str(CLANG), *FLAGS, f"--offload-arch={arch}", "-"]
        done = subprocess.run(command, input=source, capture_output=True, text=True)
        if "amdgcn" in done.stderr and "target" in done.stderr and done.returncode:
            pytest.skip("this clang has no AMD target")
        assert done.returncode == 0, done.stderr
        assert len(re.findall(r"VGPRs: (\d+)", done.stderr)) == 1
        assert "rel32@lo" not in done.stdout  # nothing is called
