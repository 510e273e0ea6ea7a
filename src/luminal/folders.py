"""Where what is kept between processes lies: tuned choices, programs, packed weights."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def user_folder() -> Path:
    """Where this user's caches lie, in the platform's place."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "luminal"
