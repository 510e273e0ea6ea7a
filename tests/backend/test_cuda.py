"""`device="cuda"` without a GPU: texts, NVRTC where it is installed, and the host's side over a
driver of our own."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal
from luminal import ops
from luminal.backend.cuda import driver, gpu, nvrtc
from luminal.backend.cuda.checks import checks
from luminal.backend.cuda.simulator import found_compiler
from luminal.children import Child, Lost, Pool
from luminal.errors import CompileError, DeviceError
from luminal.graph import Graph

HERE = Path(__file__).parent
CC = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a", "sm_120")


def network() -> Graph:
    graph = Graph()
    graph.dim("s", 1, 64)
    x, w = graph.tensor(("s", 24), name="x"), graph.parameter((24, 32), name="w")
    bias = graph.constant(np.ones(24, np.float32))
    ops.softmax(ops.gelu(x @ w) @ w.T + bias, -1).output("y")
    return graph


def test_texts_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program for a GPU that is not here has its texts, and says why it does not run."""
    monkeypatch.setattr(driver, "LIBRARIES", ())
    monkeypatch.setattr(nvrtc, "available", lambda: False)
    driver.opened.cache_clear()
    rt = network().compile("cuda:sm_90a")
    sources = rt.sources()
    assert rt.report.plan is not None
    made = *rt.kernels, *rt.report.plan.joints
    assert list(sources) == [each.name for each in made]
    assert all(f"__global__ void {name}(" in text for name, text in sources.items())
    rt["w"], rt["x"] = np.zeros((24, 32), np.float32), np.zeros((3, 24), np.float32)
    with pytest.raises(DeviceError, match=r'libcuda.*"cuda:sim".*"cuda:sm_90a"'):
        rt.run()
    with pytest.raises(DeviceError, match="libcuda"):
        network().compile("cuda")
    with pytest.raises(DeviceError, match="architectures such as"):
        network().compile("cuda:90")


# ---- the host's side


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process says that finds our driver."""
    for needed, there in (
        ("a C compiler", CC), ("a C++ compiler", found_compiler()),
        ("cuda-bindings", importlib.util.find_spec("cuda")),
    ):  # fmt: skip
        if not there:
            pytest.skip(f"no {needed}")
    folder = tmp_path_factory.mktemp("driver")
    library, package = folder / "libcuda.so.1", Path(luminal.__file__).parents[1]
    command = [str(CC), "-w", "-shared", "-fPIC", "-o", library, HERE / "fake_driver.c", "-ldl"]
    subprocess.run(command, check=True)
    command = [found_compiler(), "-w", "-shared", "-fPIC", "-O1", "-o",
               folder / "libcublasLt.so.13", HERE / "fake_cublaslt.cpp", "-ldl"]  # fmt: skip
    subprocess.run(command, check=True)
    paths = [str(package), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, HERE / "on_fake_driver.py", library], env=env,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_program_on_a_driver(facts: dict[str, Any]) -> None:
    assert (facts["name"], facts["arch"]) == ("Fake GPU", "sm_80")
    assert facts["worst"] < 1e-5
    assert facts["graphs"] == [0, 1, 1, 0, 1, 0]  # a run after one with the same sizes
    assert all(seconds > 0 for seconds in facts["times"])


def test_states_on_a_driver(facts: dict[str, Any]) -> None:
    assert facts["states"] == []
    assert facts["state graphs"] == 3 * 4  # all runs but the first


def test_out_of_memory_says_how_much_there_is(facts: dict[str, Any]) -> None:
    assert "Fake GPU has no 128.0 MiB left" in facts["memory"]
    assert "of 64.0 MiB are free" in facts["memory"]
    assert facts["after"] == [2.0, 3.0, 4.0, 5.0]


def test_a_library_multiplies(facts: dict[str, Any]) -> None:
    """Every kind of product that fits, as the kernel means it; queued with kernels, in graphs."""
    assert facts["wrong products"] == []
    assert facts["right"] == [True] * 5  # the last of a saved program
    assert facts["library calls"] == 4 and facts["library graphs"] == 2
    assert "1 library calls (gemm)" in facts["library text"]


def test_tensors_of_others_are_not_copied(facts: dict[str, Any]) -> None:
    assert facts["borrowed"] == [True] * 3 and facts["memory of"] == "cuda"
    assert "multiple of 64 bytes" in facts["astray"]


def test_another_architecture_is_refused(facts: dict[str, Any]) -> None:
    assert facts["other"] == "the program was compiled for sm_90a, and Fake GPU is sm_80"


# ---- NVRTC


with_nvrtc = pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC")


@with_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_nvrtc_takes_every_kernel(arch: str) -> None:
    rt = network().compile(f"cuda:{arch}")
    for built in nvrtc.all_compiled(list(rt.sources().values()), arch):
        assert built.code.startswith(gpu.ELF)
        assert 0 < built.registers <= 255


@pytest.mark.parametrize("alone, kept", [(0, b"one block"), (24, b"several")])
def test_what_spills_is_compiled_for_one_block(
    alone: int, kept: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept where it spills less."""
    def answer(source: str, arch: str, kind: str) -> nvrtc.Built:
        one = "__launch_bounds__(256, 1)" in source
        return nvrtc.Built(b"one block" if one else b"several", spilled=alone if one else 16)

    monkeypatch.setattr(nvrtc, "_compiled", answer)
    assert nvrtc.compiled("__launch_bounds__(256) void k() {}", "sm_80").code == kept


@with_nvrtc
def test_nvrtc_says_what_is_wrong() -> None:
    with pytest.raises(CompileError, match="undefined"):
        nvrtc.compiled("__global__ void k() { no(); }", "sm_80")
    with pytest.raises(CompileError, match="does not compile for sm_30"):
        network().compile("cuda:sm_30")
    with pytest.raises(CompileError, match="undefined"):
        nvrtc.all_compiled(["__global__ void k() { no(); }"] * 2, "sm_80")


def test_a_compiling_process_that_is_lost_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    built, lost = nvrtc.Built(b"code"), iter((True, False, True, True))

    def ask(self: Child, seconds: float, *message: Any) -> nvrtc.Built:
        if next(lost):
            raise Lost("the process crashed")
        return built

    monkeypatch.setattr(Child, "ask", ask)
    pool = Pool(1, nvrtc.__name__)
    try:
        assert pool.submit("", "sm_90a").result() is built
        with pytest.raises(CompileError, match="lost twice: the process crashed"):
            pool.submit("", "sm_90a").result()
    finally:
        pool.close()


@with_nvrtc
def test_ptx() -> None:
    text = next(iter(network().compile("cuda:sm_90a").sources().values()))
    assert b".target sm_90a" in nvrtc.compiled(text, "sm_90a", "ptx").code


@with_nvrtc
def test_conversions_are_instructions() -> None:
    """Not what they mean, spelt out; older machines have that."""
    rounded, widened = (next(c.text for c in checks("sm_80") if c.name == f"check_{name}")
                        for name in ("bf16_of_f32", "f32_of_f16"))  # fmt: skip
    assert b"cvt.rn.bf16.f32" in nvrtc.compiled(rounded, "sm_80", "ptx").code
    assert b"cvt.f32.f16" in nvrtc.compiled(widened, "sm_90a", "ptx").code
    old = nvrtc.compiled(rounded, "sm_75", "ptx").code
    assert b"cvt.rn" not in old and b"setp" in old
