"""Launches of several kernels, measured beside one for each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from luminal import ops
from luminal.backend.cuda.simulator import Simulator, found_compiler
from luminal.backend.launch import Joined
from luminal.graph import Graph
from luminal.kernel.program import Program
from luminal.runtime.executable import Executable

pytestmark = pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")


def compiled(database: Path, search: int) -> Executable:
    graph = Graph()
    x, w = graph.tensor((1, 256), name="x"), graph.tensor((256, 512), name="w")
    ops.rms_norm(ops.rms_norm(x, (256,)) @ w, (512,)).output("y")
    return graph.compile("cuda:sim", cache=False, database=database, search=search)


@pytest.mark.parametrize("slower", [False, True])
def test_what_a_search_has_measured(
    slower: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model proposes a launch; it stays where it is no slower by the device's clock."""
    monkeypatch.setattr(Simulator, "part_seconds", lambda *_: 0.0)
    usual = Simulator._predicted

    def seconds(device: Simulator, program: Program | Joined, sizes: Mapping[str, int]) -> float:
        factor = 1.0 if isinstance(program, Program) else 10.0 if slower else 0.5
        return factor * usual(device, program, sizes)

    monkeypatch.setattr(Simulator, "_predicted", seconds)
    rt = compiled(tmp_path / "tuned.db", 1)
    assert "in times of joined ones" in rt.explain()
    again = compiled(tmp_path / "tuned.db", 0)
    for each in (rt, again):
        assert each.report.plan is not None and bool(each.report.plan.launches) is not slower
