"""Commands: `luminal embed`, `luminal search`, `luminal rerank`, `luminal info`."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

import click
import numpy as np

from .. import __version__
from .answers import echo_json, json_option
from .bench import bench
from .chat import chat
from .check import check
from .detect import detect
from .doctor import doctor
from .faults import Commands, clear_errors
from .imagine import imagine
from .llm import model_rows, run
from .onnx import onnx
from .segment import segment
from .serve import serve
from .transcribe import transcribe
from .tune import cache, explain, tune
from .view import profile, view

MODEL_OPTION = click.option(
    "--model",
    type=click.Path(path_type=Path),
    default=None,
    help="Directory or GGUF file of a BERT-like model (default: the packaged all-MiniLM-L6-v2).",
)
THREADS_OPTION = click.option(
    "--threads", type=click.IntRange(1), default=None, help="Threads (default: all cores)."
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="luminal")
def main() -> None:
    """A deep-learning compiler that works by search."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who has started us
            number = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w"))
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may know few characters
            stream.reconfigure(errors="replace")


main.add_command(bench)
main.add_command(run)
main.add_command(chat)
main.add_command(serve)
main.add_command(transcribe)
main.add_command(tune)
main.add_command(explain)
main.add_command(check)
main.add_command(cache)
main.add_command(doctor)
main.add_command(onnx)
main.add_command(detect)
main.add_command(segment)
main.add_command(imagine)
main.add_command(view)
main.add_command(profile)


@main.command()
@click.argument("texts", nargs=-1, required=True)
@MODEL_OPTION
@THREADS_OPTION
@json_option()
def embed(texts: tuple[str, ...], model: Path | None, threads: int | None, as_json: bool) -> None:
    """Print the cosine similarities of TEXTS, each with each."""
    vectors = _encode(list(texts), model, threads)
    similar = vectors @ vectors.T
    if as_json:
        echo_json({"embeddings": vectors.tolist(), "similarities": similar.tolist()})
        return
    click.echo("        " + " ".join(f"{i + 1:>7}" for i in range(len(texts))))
    for i, text in enumerate(texts):
        row = " ".join(f"{value:7.4f}" for value in similar[i])
        click.echo(f"{i + 1:>7} {row}  {text}")


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("query")
@click.option("--top", type=click.IntRange(1), default=5, help="How many lines to print.")
@MODEL_OPTION
@THREADS_OPTION
@json_option()
def search(
    file: Path, query: str, top: int, model: Path | None, threads: int | None, as_json: bool
) -> None:
    """Rank the lines of FILE by how well they fit QUERY."""
    try:
        lines = file.read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        _fail(f"{file}: {error}")
    numbered = [(i + 1, line.strip()) for i, line in enumerate(lines) if line.strip()]
    if not numbered:
        _fail(f"{file}: no text in this file")
    vectors = _encode([query] + [line for _, line in numbered], model, threads)
    scores = vectors[1:] @ vectors[0]
    best = np.argsort(-scores, kind="stable")[:top]
    if as_json:
        rows = [(float(scores[i]), *numbered[i]) for i in best]
        echo_json([dict(zip(("score", "line", "text"), row)) for row in rows])
        return
    for i in best:
        number, line = numbered[i]
        click.echo(f"{scores[i]:7.4f}  {file}:{number}: {line}")


@main.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("query")
@click.argument("texts", nargs=-1, required=True)
@THREADS_OPTION
@json_option()
def rerank(
    model: Path, query: str, texts: tuple[str, ...], threads: int | None, as_json: bool
) -> None:
    """Rank TEXTS by how well they answer QUERY, as MODEL (the directory or GGUF file of a
    cross-encoder) scores each pair: logits, the best first."""
    from ..models import Reranker

    with clear_errors():
        scores = Reranker(model, threads=threads).score(query, texts)
    best = np.argsort(-scores, kind="stable").tolist()
    if as_json:
        echo_json([{"index": n, "score": float(scores[n]), "text": texts[n]} for n in best])
        return
    for n in best:
        click.echo(f"{scores[n]:8.4f}  {texts[n]}")


@main.command()
@click.argument("model", required=False)
@click.option("--machine", is_flag=True, help="Measure it, which takes some seconds: the rate of "
              "each multiplying instruction, and reading memory and cache.")  # fmt: skip
@THREADS_OPTION
@json_option()
def info(model: str | None, machine: bool, threads: int | None, as_json: bool) -> None:
    """Print what the compiler knows about this machine, or about the language model MODEL."""
    if threads is not None and not machine:
        raise click.UsageError("--threads goes with --machine")
    rows: dict[str, Any] = machine_rows() if model is None else model_rows(model)
    if machine:
        rows |= measured_rows(threads)
    if as_json:
        echo_json(rows)
        return
    width = max(map(len, rows)) + 3
    for name, value in rows.items():
        click.echo(f"{name:<{width}}{'none' if value is None else value}")


def machine_rows() -> dict[str, str]:
    """What the device says of itself, by the names that it gives."""
    from ..backend import devices

    lines = devices.host().describe().splitlines()
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in lines)


def measured_rows(threads: int | None) -> dict[str, str]:
    """What the host can do at most, all threads together, measured now."""
    from ..backend import devices
    from ..cores import count
    from ..options import checked_threads

    count_of = checked_threads(threads) or count()
    units = {"read": "GB/s from memory", "cache": "GB/s from the second cache"}
    return {f"{name}, {count_of} threads": f"{rate:.1f} {units.get(name, 'Gop/s')}"
            for name, rate in devices.host().rates(count_of).items()}  # fmt: skip


def _encode(texts: list[str], model: Path | None, threads: int | None) -> np.ndarray:
    from ..models import SentenceEncoder

    return SentenceEncoder(model, threads=threads).encode(texts, normalise=True)


def _fail(message: str) -> NoReturn:
    click.echo(f"luminal: {message}", err=True)
    sys.exit(1)
