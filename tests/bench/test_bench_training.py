"""`luminal bench train`, on a model of a few numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from luminal.bench import training
from luminal.bench.training_models import Batch, Case, Make
from luminal.cli import main
from luminal.errors import InputError

pytest.importorskip("torch")


def small(base: type, make: Make, f: Any) -> Any:
    class Small(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.head = make("BatchNorm1d", 6), make("Linear", 6, 3)

        def forward(self, x: Any) -> Any:
            return self.head(f.relu(self.norm(x)))

    return Small()


def rows() -> Iterator[Batch]:
    random = np.random.default_rng(0)
    while True:
        yield random.standard_normal((16, 6)).astype(np.float32), random.integers(0, 3, 16)


def test_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(training.CASES, "lstm", Case(small, rows))
    monkeypatch.setattr(training, "_peak", lambda *given: 3 << 20)
    file, order = tmp_path / "train.json", ["bench", "train", "--only", "lstm", "--rounds", "3"]
    done = CliRunner().invoke(main, [*order, "--peers", "torch", "--json", str(file)])
    assert done.exit_code == 0, (done.output, done.exception)
    (found,) = json.loads(file.read_text())
    assert list(found["losses"]) == list(found["seconds"]) == ["luminal", "torch"]
    assert training.apart(found)["luminal"] < 1e-5 and not training.faults(found)
    assert "x ours" in done.output and "torch: 3 MiB at most" in done.output
    found["losses"]["luminal"][-1] *= 1.1
    assert training.faults(found) == ["luminal"]


def test_names_that_are_none() -> None:
    done = CliRunner().invoke(main, ["bench", "train", "--only", "vgg"])
    assert done.exit_code == 1 and "no training with 'vgg'" in done.output
    with pytest.raises(InputError, match="no peer 'jax'"):
        training.measure("lstm", 1, 1, 3, ["jax"])


def test_the_peak_of_a_process_is_its_own() -> None:
    """Not what the process that started it had."""
    held = np.ones(40 << 20)
    code = "from luminal.bench.machine import process_peak as f; print(f())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < held.nbytes
