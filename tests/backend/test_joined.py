"""Kernels that one launch runs: the same results, and no group reads what another writes unseen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from luminal import ops
from luminal.backend import devices
from luminal.backend.cuda.languages import LANGUAGES
from luminal.backend.cuda.simulator import Simulator, found_compiler
from luminal.backend.text import joined
from luminal.errors import CompileError, WrongResult
from luminal.graph import Graph
from luminal.lowering.verify import statements
from luminal.runtime import joining
from luminal.runtime.executable import Executable

pytestmark = pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")
SHAPES = {"x": (1, 256), "w": (256, 512), "v": (512, 256), "u": (256, "s")}


def block(device: str, cache: Path | bool = False) -> Executable:
    """Norms and products as a layer has them: units of several numbers of threads."""
    graph = Graph()
    graph.dim("s", 1, 400, 384)
    x, w, v, u = (graph.tensor(shape, name=name) for name, shape in SHAPES.items())
    y = x + ops.gelu(ops.rms_norm(x, (256,)) @ w) @ v
    ops.rms_norm(y, (256,)).output("z")
    (ops.rms_norm(y, (256,)) @ u).output("y")
    return graph.compile(device, cache=cache, database=False)


def results(rt: Executable, size: int) -> list[np.ndarray]:
    rng = np.random.default_rng(size)
    for name, shape in SHAPES.items():
        known = [size if extent == "s" else int(extent) for extent in shape]
        rt[name] = rng.standard_normal(known).astype(np.float32) / 8
    rt.run()
    return [rt["y"], rt["z"]]


@pytest.fixture(autouse=True)
def racing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices where nothing but launches takes time."""
    monkeypatch.setattr(Simulator, "part_seconds", lambda *_: 0.0)
    devices.register("races", lambda: Simulator(races=True))
    hip = LANGUAGES["hip:sim"]
    devices.register("hip races", lambda: Simulator(races=True, language=hip))


@pytest.mark.parametrize("device", ["races", "hip races"])
def test_one_launch_for_several_kernels(device: str) -> None:
    """Whatever the sizes are; each kernel is still there by its name."""
    rt, reference = block(device), block("reference")
    plan = rt.report.plan
    assert plan is not None
    (launch,) = plan.launches
    assert len(launch.calls) == len(rt.kernels) > 1 and any(plan.joints[launch.joint].meets)
    for size in (384, 384, 7, 384):
        for here, wanted in zip(results(rt, size), results(reference, size), strict=True):
            np.testing.assert_allclose(here, wanted, rtol=1e-4, atol=1e-5)
    joint = plan.joints[launch.joint]
    bounds = f"__launch_bounds__({joint.group}, {joint.held})"  # all registers that this leaves
    assert "launches: " in rt.explain() and bounds in rt.sources()[joint.name]
    assert len(rt.time_kernels(1)) == len(rt.kernels)


@pytest.mark.parametrize("device", ["races", "hip races"])
def test_a_meeting_that_is_missing(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    meets = joining._Joining.meets
    rt = block(device)
    assert rt.report.plan is not None
    needed = rt.report.plan.joints[0].meets
    for forgotten in [n for n, meet in enumerate(needed) if meet]:
        def without(self: object, calls: list[int], out: int = forgotten) -> tuple[bool, ...]:
            found = meets(self, calls)  # type: ignore[arg-type]
            return tuple(meet and n != out for n, meet in enumerate(found))

        monkeypatch.setattr(joining._Joining, "meets", without)
        faulty = block(device)
        with pytest.raises(WrongResult, match=r"(reads|writes) what thread"):
            results(faulty, 384)


def test_what_a_compiler_does_not_take_is_no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spills, or no answer: the kernels alone are there."""

    def fails(device: Simulator, code: object) -> int:
        raise CompileError("no answer")

    for spilled in (fails, lambda *_: 4):
        monkeypatch.setattr(Simulator, "spilled", spilled)
        rt = block("cuda:sim")
        assert rt.report.plan is not None and not rt.report.plan.joints


def test_a_launch_has_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all its parts: a compiler takes minutes for a megabyte."""
    lengths = [len(statements(made.program.body)) for made in block("cuda:sim").kernels]
    monkeypatch.setattr(joined, "LENGTH", sum(lengths) - 1)
    plan = block("cuda:sim").report.plan
    assert plan is not None and len(plan.joints) > 0
    assert all(len(joint.kernels) < len(lengths) for joint in plan.joints)


def test_a_kept_program_has_its_launches(tmp_path: Path) -> None:
    first, again = (block("cuda:sim", tmp_path) for _ in range(2))
    assert "build" in first.report.stages and "build" not in again.report.stages
    assert again.report.plan is not None and again.report.plan.launches
    for here, wanted in zip(results(first, 3), results(again, 3), strict=True):
        np.testing.assert_array_equal(here, wanted)
    assert first.sources() == again.sources()
