"""`luminal onnx`: ONNX models from the command line."""

from __future__ import annotations

import importlib.util
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from .. import cores
from ..container import write_over
from ..errors import InputError, LuminalError, to_install
from .answers import echo_json, json_option, writable
from .faults import clear_errors

if TYPE_CHECKING:
    from ..bench.onnx_peers import Row
    from ..frontend.onnx.model import Model, Port

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
THREADS = click.option("--threads", type=click.IntRange(1), default=None, help="Default: all.")
PRECISION = click.option(
    "--precision", type=click.Choice(["f32", "bf16", "int8"]), default="f32",
    help="Of products: operands rounded to bf16, or to bytes with scales. Default: f32.",
)  # fmt: skip
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
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), default=None,
              metavar="FILE.npz", callback=writable, help="Write all outputs here.")  # fmt: skip
@SIZES
@PRECISION
@THREADS
@json_option()
def run(
    model: Path, files: tuple[str, ...], output: Path | None, sizes: tuple[str, ...],
    precision: str, threads: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Run MODEL once and print what its outputs are."""
    loaded = load_model(model, threads, precision)
    with clear_errors():
        given = {name: _read(file) for name, file in map(_pair, files)}
        feeds = {**_random(loaded, _numbers(sizes), given), **given}
        results = dict(zip(loaded.outputs, loaded.run(feeds)))
    if as_json:
        echo_json({name: _summary(value) for name, value in results.items()})
    for name, value in results.items() if not as_json else ():
        click.echo(f"{name}: {_described(value)}")
    if output is not None:
        _write(output, results)


@onnx.command()
@click.argument("model", type=FILE)
@click.option("--rounds", type=click.IntRange(3), default=30, help="Runs of each.")
@click.option("--peers", default=None, metavar="A,B",
              help="Of onnxruntime, openvino. Default: those that are installed.")  # fmt: skip
@click.option("--cpu", is_flag=True, help="Processor time: for one thread on a busy machine.")
@SIZES
@PRECISION
@THREADS
@json_option()
def bench(
    model: Path, rounds: int, peers: str | None, cpu: bool, sizes: tuple[str, ...],
    precision: str, threads: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Measure MODEL on random inputs, in turns with ONNX Runtime and OpenVINO where they are
    installed. The precision is ours."""
    from ..bench.onnx_peers import chosen, measure

    loaded = load_model(model, threads)
    with clear_errors():
        feeds = _random(loaded, _numbers(sizes), {})
        found = measure(model.name, model, feeds, threads or cores.count(), chosen(peers), rounds,
                        clock="cpu" if cpu else "wall", precision=precision)  # fmt: skip
    if as_json:
        echo_json({
            "first_seconds": found.first, "difference": found.error, "faults": found.faults,
            "median_seconds": {side: each.median for side, each in found.seconds.items()},
            "ratio": {side: each.median for side, each in found.ratio.items()},
        })  # fmt: skip
    else:
        click.echo("\n".join(_told(found, rounds)))


@onnx.command()
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True,
              callback=writable)  # fmt: skip
@json_option()
def export(source: Path, output: Path, as_json: bool) -> None:
    """Write SOURCE as the ONNX model -o: a .luminal file, as `luminal.torch.export` and programs
    write it; or a folder or GGUF file with an encoder of texts, as `luminal embed` takes it."""
    from ..models.sentence import encoder_graph
    from ..saved import recorded

    with clear_errors():
        _needed()
        from ..onnx import save

        try:
            save(recorded(source) if source.suffix == ".luminal" else encoder_graph(source), output)
        except OSError as error:
            raise InputError(f"{output}: cannot be written: {error}") from None
    if as_json:
        echo_json(_record(load_model(output, None)))
        return
    click.echo(f"{output}: {output.stat().st_size / 1e6:.1f} MB", err=True)


def _told(found: Row, rounds: int) -> Iterator[str]:
    yield f"first run, compilation included: {found.first:.2f} s"
    for side, each in found.seconds.items():
        yield f"{side}: {each.median * 1e3:.3f} ms (median of {rounds})"
    for peer, error in found.error.items():
        each = found.ratio[peer]
        yield (f"{each.median:.2f} ({each.low:.2f} to {each.high:.2f}) times as fast as {peer}; "
               f"largest difference: {error:.2e} of the largest value")  # fmt: skip
    for peer, fault in found.faults.items():
        yield f"{peer} cannot: {fault}"


def load_model(model: Path, threads: int | None, precision: str = "f32") -> Model:
    with clear_errors():
        _needed()
        from ..onnx import load

        return load(model, threads=threads, precision=precision)


def _needed() -> None:
    if importlib.util.find_spec("onnx") is None:
        raise InputError(f"ONNX models need the package onnx: {to_install('onnx')}")


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
        with open(file, "rb") as stream:
            return np.lib.format.read_array(stream)
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: {error}") from None


def _write(output: Path, results: dict[str, Any]) -> None:
    """An .npz file; what a sequence holds goes by name and place, what is absent is not there."""
    lists = {name: value for name, value in results.items() if isinstance(value, list)}
    arrays = {f"{name}.{n}": each for name, value in lists.items() for n, each in enumerate(value)}
    arrays |= {name: value for name, value in results.items() if isinstance(value, np.ndarray)}
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as file:  # numpy.savez cannot have every name
        for name, array in arrays.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as stream:
                text = array.dtype.kind == "O"  # objects would need pickle
                np.lib.format.write_array(stream, array.astype(str) if text else array)
    write_over(output, whole.getvalue())


def _random(model: Model, sizes: dict[str, int], given: dict[str, Any]) -> dict[str, np.ndarray]:
    """Values for the inputs that are not given; a size that is not named is 1."""
    drawn = {name: port for name, port in model.inputs.items() if name not in given}
    known = {s for port in drawn.values() for s in port.shape or () if isinstance(s, str)}
    if unknown := sizes.keys() - known:
        raise InputError(
            f"no size {sorted(unknown)[0]!r} of what is drawn; the sizes are "
            f"{', '.join(sorted(known)) or 'none'}"
        )
    rng = np.random.default_rng(0)
    return {name: _drawn(port, sizes, rng) for name, port in drawn.items()}


def _drawn(port: Port, sizes: dict[str, int], rng: np.random.Generator) -> np.ndarray:
    if port.shape is None or port.numpy is None or port.dtype == "string":
        raise InputError(f"no random values for input {port}: give --input {port.name}=FILE.npy")
    shape = [s if isinstance(s, int) else sizes.get(s, 1) for s in port.shape]
    if port.numpy.kind in "iub":
        return rng.integers(0, 2, shape).astype(port.numpy)
    return rng.standard_normal(shape).astype(port.numpy)


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
