"""Public names stay, with their signatures: what people have written goes on running."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "public_api.py"


def test_no_public_name_or_signature_is_lost() -> None:
    """New names are free; for the others see the script."""
    known = runpy.run_path(str(SCRIPT))
    promised = known["FILE"].read_text().splitlines()
    assert len(promised) > 500
    assert not set(promised) - set(known["lines"]())


@pytest.mark.parametrize("name", ["train", "runtime.executable", "search", "compiler"])
def test_it_may_be_imported_first(name: str) -> None:
    """No circle of imports, whichever end one begins at."""
    subprocess.run([sys.executable, "-c", f"import luminal.{name}"], check=True)
