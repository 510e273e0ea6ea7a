"""`luminal bench gpu`, on the simulator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from luminal.backend.cuda.simulator import found_compiler
from luminal.bench import gpu
from luminal.cli import main


@pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")
def test_a_run(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    done = CliRunner().invoke(main, ["bench", "gpu", "--device", "cuda:sim", "--json", str(file)])
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads(file.read_text())
    assert all(row["seconds"] > 0 for row in (*found["ceilings"], *found["kernels"]))
    count = len(found["checks"])
    assert not gpu.faults(found) and f"{count} of {count}" in done.output
    found["checks"]["check_mma_bf16"], found["kernels"][0] = 0.5, {"name": "sum", "fault": "wrong"}
    assert gpu.faults(found) == ["check_mma_bf16", "sum"]
    assert f"{count - 1} of {count}" in gpu.table(found)


def test_a_cpu_is_no_gpu() -> None:
    done = CliRunner().invoke(main, ["bench", "gpu", "--device", "cpu"])
    assert done.exit_code == 1 and "no GPU" in done.output
