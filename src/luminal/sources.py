"""What code made a thing that is kept, as keys: digests of this package's files and of LLVM."""

from __future__ import annotations

import hashlib
import time
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
CHOOSING = (  # what a tuned choice means, and whether it was found right
    "backend", "earlier.py", "graph", "jobs.py", "kernel", "lowering", "making.py", "planning.py",
    "rewrite", "runtime", "scheduling", "search",
)  # fmt: skip
COMPILING = ("compiler.py", "container.py", "options.py", "artifact", "precision", *CHOOSING)

HEADER = 1 << 16  # bytes
_began = time.time()


@cache
def version_of(*names: str) -> str | None:
    """A digest of files and folders of this package, and of the libraries that generate code. None:
    a file has changed since it was imported, so that what runs now has no name."""
    code = code_of(*names)
    return code and hashlib.sha256("\n".join((*_libraries(), code)).encode()).hexdigest()


@cache
def code_of(*names: str) -> str | None:
    """The same of the files alone: of what calls machine code, and is called by it."""
    digest = hashlib.sha256()
    for name in names:
        whole = PACKAGE / name
        for path in sorted(whole.rglob("*.py")) if whole.is_dir() else (whole,):
            if path.stat().st_mtime > _began:
                return None
            digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _libraries() -> tuple[str, ...]:
    """NumPy and llvmlite; the LLVM inside by its file, which may take 45 MiB to load and ask."""
    import llvmlite
    import numpy

    found = [f"numpy {numpy.__version__}", f"llvmlite {llvmlite.__version__}"]
    for path in sorted((Path(llvmlite.__file__).parent / "binding").glob("*llvmlite.*")):
        with path.open("rb") as file:  # the number of a build stands in the first pages
            head = hashlib.sha256(file.read(HEADER)).hexdigest()
        found.append(f"{path.name} {path.stat().st_size} {head}")
    return tuple(found)


def llvm_build() -> str:
    """Equal only for the same LLVM."""
    return "\n".join(_libraries()[1:])
