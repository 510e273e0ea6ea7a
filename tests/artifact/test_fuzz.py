"""Damaged files of all kinds that luminal keeps, in a process of its own: a crash would be seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import luminal

SCRIPT = Path(__file__).with_name("fuzz.py")


@pytest.mark.parametrize(
    ("count", "seed"), [(360, 0), pytest.param(6000, 1, marks=pytest.mark.slow)]
)
def test_damage_is_an_error_or_nothing(count: int, seed: int) -> None:
    source = str(Path(luminal.__file__).parents[1])
    command = [sys.executable, str(SCRIPT), str(count), str(seed)]
    environment = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    last = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
    assert done.returncode == 0, last
    assert last.count(f": {count // 6}") == 6  # of every kind
