"""`luminal onnx`: ONNX models from the command line."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ..errors import InputError, LuminalError, to_install
from .answers import echo_json, json_option
from .faults import clear_errors, tell

if TYPE_CHECKING:
    from ..frontend.onnx.model import Model, Port

REST = 0.02  # seconds: onnxruntime's threads go on spinning for a while after a run
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
@json_option()
def info(model: Path, as_json: bool) -> None:
    """Print the inputs, outputs and operators of MODEL, and whether it is one program."""
    loaded = load_model(model, None)
    if as_json:
        echo_json(_record(loaded))
        return
    for what, ports in (("inputs", loaded.inputs), ("outputs", loaded.outputs)):
        click.echo(f"{what}:")
        for port in ports.values():
            click.echo(f"  {port}")
    listed = ", ".join(f"{name} {count}" for name, count in loaded.operators.items())
    click.echo(f"operators: {listed}")
    try:
        click.echo(f"one program: {loaded.graph()}")
    except LuminalError as error:
        click.echo(f"several programs: {str(error).splitlines()[0]}")


def _record(model: Model) -> dict[str, Any]:
    """What `info` prints, as data. several: why it is not one program, or null."""
    ports = {what: [{"name": port.name, "dtype": port.dtype, "shape": port.shape}
                    for port in getattr(model, what).values()]
             for what in ("inputs", "outputs")}  # fmt: skip
    try:
        model.graph()
        several = None
    except LuminalError as error:
        several = str(error).splitlines()[0]
    return {**ports, "operators": dict(model.operators), "several": several}


@onnx.command()
@click.argument("model", type=FILE)
@click.option("--input", "files", multiple=True, metavar="NAME=FILE.npy", help="Default: random.")
@click.option("--output", type=click.Path(path_type=Path), default=None, metavar="FILE.npz",
              help="Write all outputs here.")  # fmt: skip
@SIZES
@THREADS
@json_option()
def run(
    model: Path, files: tuple[str, ...], output: Path | None, sizes: tuple[str, ...],
    threads: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Run MODEL once and print what its outputs are."""
    loaded = load_model(model, threads)
    with clear_errors():
        given = {name: _read(file) for name, file in map(_pair, files)}
        feeds = {**_random(loaded, _numbers(sizes), given), **given}
        results = dict(zip(loaded.outputs, loaded.run(feeds)))
    if as_json:
        echo_json({name: _summary(value) for name, value in results.items()})
    for name, value in results.items() if not as_json else ():
        click.echo(f"{name}: {_described(value)}")
    if output is not None:
        arrays: Any = {k: v for k, v in results.items() if isinstance(v, np.ndarray)}
        np.savez(output, **arrays)


@onnx.command()
@click.argument("model", type=FILE)
@click.option("--rounds", type=click.IntRange(3), default=30, help="Runs of each.")
@SIZES
@THREADS
@json_option()
def bench(
    model: Path, rounds: int, sizes: tuple[str, ...], threads: int | None, as_json: bool
) -> None:
    """Measure MODEL on random inputs, in turns with onnxruntime where it is installed."""
    loaded = load_model(model, threads)
    with clear_errors():
        feeds = _random(loaded, _numbers(sizes), {})
        start = time.perf_counter()
        ours = loaded.run(feeds)
    found: dict[str, Any] = {"first_seconds": time.perf_counter() - start}
    sides: dict[str, Any] = {"luminal": lambda: loaded.run(feeds)}
    session = _session(model, threads)
    if session is not None:
        sides["onnxruntime"] = lambda: session.run(None, feeds)
        theirs = session.run(None, feeds)
        found["difference"] = _difference(ours, theirs)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            time.sleep(REST)
            start = time.perf_counter()
            side()
            times[name].append(time.perf_counter() - start)
    found["median_seconds"] = {name: float(np.median(each)) for name, each in times.items()}
    if as_json:
        echo_json(found)
    else:
        click.echo("\n".join(_told(found, rounds)))


def _told(found: dict[str, Any], rounds: int) -> Iterator[str]:
    yield f"first run, compilation included: {found['first_seconds']:.2f} s"
    if "difference" in found:
        yield f"largest difference: {found['difference']:.2e} of the largest value"
    middle = found["median_seconds"]
    for name, value in middle.items():
        yield f"{name}: {value * 1e3:.3f} ms (median of {rounds})"
    if len(middle) == 2:
        yield f"{middle['onnxruntime'] / middle['luminal']:.2f} times as fast as onnxruntime"


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
    text, found = f"{value.dtype} {value.shape}", _summary(value)
    if "mean" not in found:
        return text
    return f"{text}, {found['min']:.5g} .. {found['max']:.5g}, mean {found['mean']:.5g}"


def _summary(value: Any) -> dict[str, Any]:
    """What an output is, as data."""
    if not isinstance(value, np.ndarray):
        return {"values": len(value)} if isinstance(value, list) else {"value": str(value)}
    found: dict[str, Any] = {"dtype": str(value.dtype), "shape": list(value.shape)}
    if value.dtype.kind in "fiub" and value.size:
        ends = {"min": value.min().item(), "max": value.max().item()}
        found |= {**ends, "mean": float(value.mean(dtype=float))}
    return found
