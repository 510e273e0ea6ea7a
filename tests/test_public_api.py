"""Public names stay, with their signatures: what people have written goes on running."""

from __future__ import annotations

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "scripts" / "public_api.py"


def test_no_public_name_or_signature_is_lost() -> None:
    """New names are free; for the others see the script."""
    known = runpy.run_path(str(SCRIPT))
    promised = known["FILE"].read_text().splitlines()
    assert len(promised) > 500
    assert not set(promised) - set(known["lines"]())
