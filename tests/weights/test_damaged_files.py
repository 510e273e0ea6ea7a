"""No damaged file ends in a foreign exception, a crash, a hang, much memory or a wrong load."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parent / "damage.py"


@pytest.mark.parametrize("count", [150, pytest.param(5000, marks=pytest.mark.slow)])
def test_damaged_files_are_refused(count: int) -> None:
    start = [sys.executable, str(FUZZ), "0", str(count)]
    done = subprocess.run(start, capture_output=True, text=True, env={**os.environ})
    ends = re.fullmatch(r"(\d+) loaded, (\d+) refused, \d+ MiB more\n", done.stdout)
    assert done.returncode == 0 and ends, done.stdout + done.stderr[-2000:]
    assert int(ends[1]) + int(ends[2]) == count
