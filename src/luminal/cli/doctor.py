"""`luminal doctor`: is everything here that luminal needs, and does it compute right?"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np

from .. import __version__
from ..errors import DeviceError, LuminalError
from .answers import echo_json, json_option

NEEDED = ("numpy", "ml_dtypes", "llvmlite", "click")
EXTRAS = {  # what brings an extra of the package -> what it is for
    "text": ("tokenizers", "texts: embed, run, chat"),
    "serve": ("uvicorn", "luminal serve"),
    "hub": ("huggingface_hub", "models by their names on the hub"),
    "torch": ("torch", "torch.compile(backend='luminal')"),
    "onnx": ("onnx", "ONNX files"),
    "opencl": ("pyopencl", 'device="opencl"'),
    "webgpu": ("wgpu", 'device="webgpu"'),
    "cuda": ("cuda-bindings", 'device="cuda"'),
}
CLOSE = 1e-4  # of the self-test's results, relative to NumPy in f64


@dataclass(frozen=True)
class Finding:
    """state: "ok", "missing" (an extra, no fault) or "fault"; advice: what to do then."""

    name: str
    state: str
    text: str
    advice: str = ""

    def __str__(self) -> str:
        mark = {"ok": "ok ", "missing": "-  ", "fault": "!! "}[self.state]
        return f"{mark} {self.name:<16} {self.text}" + (f": {self.advice}" if self.advice else "")


@click.command()
@json_option("One JSON list.")
def doctor(as_json: bool) -> None:
    """Say what is here: versions, machine, kept files; compile and run a small network and hold it
    against NumPy. Exit status 1 where something is wrong."""
    found = []
    for look in (_versions, _extras, _machine, _devices, _caches, _self_test):
        for finding in _looked(look):
            found.append(finding)
            if not as_json:
                click.echo(str(finding))
    if as_json:
        echo_json([asdict(finding) for finding in found])
    sys.exit(int(any(finding.state == "fault" for finding in found)))


def _looked(look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """A fault of a look is a finding, and the next looks go on."""
    try:
        yield from look()
    except (LuminalError, OSError, RuntimeError, ValueError) as error:
        name = look.__name__.strip("_").replace("_", "-")
        yield Finding(name, "fault", f"{type(error).__name__}: {error}")


def _versions() -> Iterator[Finding]:
    from importlib.metadata import version  # which takes as long as a third of NumPy

    yield Finding("luminal", "ok", f"{__version__} in {Path(__file__).parents[1]}")
    yield Finding("python", "ok", f"{platform.python_version()}, {platform.platform()}")
    versions = ", ".join(f"{name} {version(name)}" for name in NEEDED)
    yield Finding("packages", "ok", versions)


def _extras() -> Iterator[Finding]:
    from importlib.metadata import PackageNotFoundError, version

    for extra, (package, purpose) in EXTRAS.items():
        try:
            yield Finding(extra, "ok", f"{package} {version(package)}: {purpose}")
        except PackageNotFoundError:
            advice = f'pip install "luminal-compiler[{extra}]"'
            if extra == "torch":
                advice = "pip install torch"
            yield Finding(extra, "missing", f"no {package}: {purpose}", advice)


def _machine() -> Iterator[Finding]:
    from ..backend import devices

    for line in devices.host().describe().splitlines():
        name, _, text = line.partition("  ")
        yield Finding(name.strip(), "ok", text.strip())


def _devices() -> Iterator[Finding]:
    """What `device=` may be here."""
    from ..backend import devices
    from ..backend.contract import Accelerator

    for name in (*devices.names(), "cuda:sim"):
        try:
            found = devices.find(name)
            told = f": {found.name}" if isinstance(found, Accelerator) else ""
            yield Finding(f"device {name}", "ok", f'device="{name}"{told}')
        except DeviceError as error:
            yield Finding(f"device {name}", "missing", str(error))


def _caches() -> Iterator[Finding]:
    from ..folders import user_folder, why_unsafe

    folder = user_folder()
    if folder is None:
        yield Finding("kept files", "fault", "there is no home folder", "set XDG_CACHE_HOME")
    elif not folder.exists():
        yield Finding("kept files", "ok", f"{folder}, made when first used")
    elif (why := why_unsafe(folder)) is not None:
        yield Finding("kept files", "fault", f"{folder}: {why}", f"chmod 700 {folder}")
    else:
        size = sum(map(_size, folder.rglob("*")))
        yield Finding("kept files", "ok", f"{folder}, {size / 1e6:.1f} MB")


def _size(path: Path) -> int:
    """Bytes of a file; another process may have removed it."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def _self_test() -> Iterator[Finding]:
    """Attention and a feed-forward layer, compiled afresh for a size known at run time."""
    from .. import Graph, ops

    start = time.perf_counter()
    graph = Graph()
    graph.dim("n", 1, 512)
    x, w = graph.tensor(("n", 64), name="x"), graph.parameter((64, 64), name="w")
    y = ops.softmax((x @ w) @ x.T * 0.125, -1) @ x
    ops.relu(y).output("y")
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 64)).astype(np.float32) / 8
    made = graph.compile(cache=False, database=False)
    made[w] = weight
    worst = 0.0
    for n in (1, 37, 200):
        data = rng.standard_normal((n, 64)).astype(np.float32)
        scores = (data.astype(np.float64) @ weight) @ data.T * 0.125
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        want = np.maximum(scores / scores.sum(-1, keepdims=True) @ data, 0)
        worst = max(worst, float(np.abs(made(data) - want).max() / np.abs(want).max()))
    took = f"{time.perf_counter() - start:.1f} s, {made.report.threads} threads"
    text = f"compiled and ran in {took}; {worst:.1e} from NumPy"
    yield Finding("self-test", "ok" if worst < CLOSE else "fault", text)
