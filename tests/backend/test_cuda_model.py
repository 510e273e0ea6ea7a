"""What is counted of kernels for a GPU, and the table of what is known without one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from luminal import ops
from luminal.backend import devices
from luminal.backend.contract import Accelerator, Modelled
from luminal.backend.cuda.limits import KNOWN, like
from luminal.backend.loops import loop_program
from luminal.bench import gpu_kernels
from luminal.bench.gpu_models import Shaped
from luminal.cli import main
from luminal.graph import Graph

DEVICE = "cuda:sm_90a"


def figures(graph: Graph) -> list[Modelled]:
    device, rt = devices.find(DEVICE), graph.compile(DEVICE, cache=False)
    assert isinstance(device, Accelerator)
    found = []
    for made in rt.kernels:
        program = loop_program(made.kernel, made.schedule, device.target(1))
        figure = device.modelled(made.kernel, program, {})
        assert figure is not None
        found.append(figure)
    return found


def test_data_sheets() -> None:
    peaks = KNOWN["sm_90"].peaks()
    assert peaks["bf16"] == pytest.approx(989e12, rel=0.01)
    assert KNOWN["sm_80"].peaks()["bf16"] == pytest.approx(312e12, rel=0.01)
    assert KNOWN["sm_80"].peaks()["f32"] == pytest.approx(19.5e12, rel=0.01)
    assert like("sm_90a") is KNOWN["sm_90"]


def test_what_lies_side_by_side_is_fast_and_what_lies_apart_is_not() -> None:
    graph = Graph()
    (graph.tensor((8192, 8192), name="x") + 1.0).output()
    (plain,) = figures(graph)
    assert plain.reason == "memory" and 0.9 < plain.share < 1.0
    assert plain.bytes == 2 * 4 * 8192**2
    assert "limit 160.3 us, modelled" in graph.compile(DEVICE, cache=False).explain()
    graph = Graph()
    (graph.tensor((1 << 22, 32), name="x").select(1, 0) + 1.0).output()
    (apart,) = figures(graph)
    assert apart.share < 0.5 and "nobody uses" in apart.reason
    graph = Graph()
    table = graph.tensor((4096, 4096), name="table")
    ops.embedding(graph.tensor((4096,), "i32", name="rows"), table).output()
    (rows,) = figures(graph)  # wherever data put a row, it lies side by side
    assert rows.share > 0.5


def test_few_warps_wait_and_a_small_kernel_is_its_launch() -> None:
    graph = Graph()
    graph.tensor((1, 1 << 22), name="x").cumsum(1).output()
    assert "waits" in figures(graph)[0].reason
    graph = Graph()
    (graph.tensor((64,), name="x") + 1.0).output()
    assert "launch" in figures(graph)[0].reason


def test_limits_are_of_what_is_multiplied() -> None:
    found = []
    for dtype in ("f32", "bf16"):
        graph = Graph()
        a, b = (graph.tensor((2048, 2048), dtype, name) for name in "ab")
        (a @ b).output()
        found.append(max(figures(graph), key=lambda f: f.flops))
    assert found[0].limit > 10 * found[1].limit
    assert all(figure.seconds > figure.limit for figure in found)


def test_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def record(more: bool) -> Graph:
        graph = Graph()
        x = graph.dim("s", 1, 64) and graph.tensor(("s", 512), name="x")
        for _ in range(2 + more):
            x = ops.relu(x @ graph.parameter((512, 512)))
        x.output()
        return graph

    model = Shaped("two products", record, {"one": {"s": 1}, "many": {"s": 64}}, layered=True)
    broken = replace(model, name="two faults", precision="none")
    monkeypatch.setattr(gpu_kernels, "MODELS", (model, broken))
    file = tmp_path / "rows.json"
    command = ["bench", "gpu", "--compile", "--device", DEVICE]
    done = CliRunner().invoke(main, [*command, "--only", "products", "--json", str(file)])
    assert done.exit_code == 0, done.output
    rows = json.loads(file.read_text())
    assert [(row["device"], row["phase"]) for row in rows] == [
        (DEVICE, "one"), (DEVICE, "many")
    ]
    assert all(row["layer"] < row["launches"] <= row["calls"] for row in rows)
    assert all(0 < row["share"] < 1 and row["model us"] <= row["apart us"] for row in rows)
    assert any(row["joined"] and row["model us"] < row["apart us"] for row in rows)
    assert all(kernel["why"] for row in rows for kernel in row["kernels"])
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 1 and "there is 'f32'" in done.output
