"""`luminal onnx`: ONNX models from the command line."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ..errors import InputError, LuminalError, to_install
from .faults import clear_errors, tell

if TYPE_CHECKING:
    from ..frontend.onnx.model import Model, Port

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
THREADS = click.option("--threads", type=click.IntRange(1), default=None, help="Default: all.")
SIZES = click.option(
    "--size", "sizes", multiple=True, metavar="NAME=N", help="A size that the model names."
)


@click.group()
def onnx() -> None:
    """Run, describe and measure ONNX models."""


@onnx.command()
@click.argument("model", type=FILE)
def info(model: Path) -> None:
    """Print the inputs, outputs and operators of MODEL, and whether it is one program."""
    loaded = load_model(model, None)
    for what, ports in (("inputs", loaded.inputs), ("outputs", loaded.outputs)):
        click.echo(f"{what}:")
        for port in ports.values():
            click.echo(f"  {port}")
    listed = ", ".join(f"{name} {count}" for name, count in loaded.operators.items())
    click.echo(f"operators: {listed}")
    try:
        graph = loaded.graph()
        click.echo(f"one program: {graph}")
    except LuminalError as error:
        click.echo(f"several programs: {str(error).splitlines()[0]}")


@onnx.command()
@click.argument("model", type=FILE)
@click.option("--input", "files", multiple=True, metavar="NAME=FILE.npy", help="Default: random.")
@click.option("--output", type=click.Path(path_type=Path), default=None, metavar="FILE.npz",
              help="Write all outputs here.")  # fmt: skip
@SIZES
@THREADS
def run(
    model: Path, files: tuple[str, ...], output: Path | None, sizes: tuple[str, ...],
    threads: int | None,
) -> None:  # fmt: skip
    """Run MODEL once and print what its outputs are."""
    loaded = load_model(model, threads)
    with clear_errors():
        given = {name: _read(file) for name, file in map(_pair, files)}
        feeds = {**_random(loaded, _numbers(sizes), given), **given}
        results = dict(zip(loaded.outputs, loaded.run(feeds)))
    for name, value in results.items():
        click.echo(f"{name}: {_described(value)}")
    if output is not None:
        arrays: Any = {k: v for k, v in results.items() if isinstance(v, np.ndarray)}
        np.savez(output, **arrays)


@onnx.command()
@click.argument("model", type=FILE)
@click.option("--rounds", type=click.IntRange(3), default=30, help="Runs of each.")
@SIZES
@THREADS
def bench(model: Path, rounds: int, sizes: tuple[str, ...], threads: int | None) -> None:
    """Measure MODEL on random inputs, in turns with onnxruntime where it is installed."""
    loaded = load_model(model, threads)
    with clear_errors():
        feeds = _random(loaded, _numbers(sizes), {})
        start = time.perf_counter()
        ours = loaded.run(feeds)
    click.echo(f"first run, compilation included: {time.perf_counter() - start:.2f} s")
    sides: dict[str, Any] = {"luminal": lambda: loaded.run(feeds)}
    session = _session(model, threads)
    if session is not None:
        sides["onnxruntime"] = lambda: session.run(None, feeds)
        theirs = session.run(None, feeds)
        click.echo(f"largest difference: {_difference(ours, theirs):.2e} of the largest value")
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            times[name].append(time.perf_counter() - start)
    middle = {name: float(np.median(found)) for name, found in times.items()}
    for name, value in middle.items():
        click.echo(f"{name}: {value * 1e3:.3f} ms (median of {rounds})")
    if len(middle) == 2:
        click.echo(f"{middle['onnxruntime'] / middle['luminal']:.2f} times as fast as onnxruntime")


def load_model(model: Path, threads: int | None) -> Model:
    try:
        from ..onnx import load
    except ImportError:
        tell(LuminalError(f"ONNX models need the package onnx: {to_install('onnx')}"))
        sys.exit(1)
    with clear_errors():
        return load(model, threads=threads)


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.rpartition("=")
    if not sign:
        raise InputError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def _numbers(sizes: tuple[str, ...]) -> dict[str, int]:
    found = dict(map(_pair, sizes))
    if any(not value.isdecimal() for value in found.values()):
        raise InputError(f"a size is a number, not {', '.join(found.values())}")
    return {name: int(value) for name, value in found.items()}


def _read(file: str) -> np.ndarray:
    try:
        return np.asarray(np.load(file))
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: {error}") from None


def _random(model: Model, sizes: dict[str, int], given: dict[str, Any]) -> dict[str, np.ndarray]:
    """Values for the inputs that are not given; a size that is not named is 1."""
    known = {s for port in model.inputs.values() for s in port.shape or () if isinstance(s, str)}
    if unknown := sizes.keys() - known:
        raise InputError(
            f"no size {sorted(unknown)[0]!r}; the sizes are {', '.join(sorted(known))}"
        )
    rng = np.random.default_rng(0)
    return {name: _drawn(port, sizes, rng) for name, port in model.inputs.items()
            if name not in given}  # fmt: skip


def _drawn(port: Port, sizes: dict[str, int], rng: np.random.Generator) -> np.ndarray:
    if port.shape is None or port.numpy is None or port.dtype == "string":
        raise InputError(f"no random values for input {port}: give --input {port.name}=FILE.npy")
    shape = [s if isinstance(s, int) else sizes.get(s, 1) for s in port.shape]
    if port.numpy.kind in "iub":
        return rng.integers(0, 2, shape).astype(port.numpy)
    return rng.standard_normal(shape).astype(port.numpy)


def _session(model: Path, threads: int | None) -> Any:
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or 0
    return onnxruntime.InferenceSession(str(model), options)


def _difference(ours: list[Any], theirs: list[Any]) -> float:
    """The largest, over the largest value of each output."""
    worst = 0.0
    for mine, other in zip(ours, theirs):
        if isinstance(mine, np.ndarray) and mine.dtype.kind in "fiub" and mine.size:
            a, b = mine.astype(np.float64), other.astype(np.float64)
            worst = max(worst, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-12)))
    return worst


def _described(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return f"a sequence of {len(value)}" if isinstance(value, list) else str(value)
    text = f"{value.dtype} {value.shape}"
    if value.dtype.kind not in "fiub" or not value.size:
        return text
    return f"{text}, {value.min():.5g} .. {value.max():.5g}, mean {value.mean(dtype=float):.5g}"
