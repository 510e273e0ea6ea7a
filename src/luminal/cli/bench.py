"""`luminal bench`: the benchmark suite."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import LuminalError

if TYPE_CHECKING:
    from ..bench import Case, Machine, Options, Row

    Part = tuple[Options, list[Case]]  # cases that are run in one way

KINDS = ("all", "ops", "models")
FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command()
@click.argument("what", default="all", metavar="[all|ops|models|MODEL]")
@click.option("--only", default="", metavar="WORD", help="Only cases with this in their names.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Everything that has a mark, in all precisions, on all threads and on one, beside the "
    "peers that the marks name: half an hour.",
)
@click.option("--short", is_flag=True, help="A few cases, few rounds: a minute or two.")
@click.option("--threads", type=click.IntRange(1), default=None, help="Default: all cores.")
@click.option("--peers", default=None, help="Comma-separated; default: all that are installed.")
@click.option("--precision", type=click.Choice(["f32", "bf16", "int8", "quantised"]),
              default=None, help="Default: f32; MODEL: quantised.")  # fmt: skip
@click.option("--search", default="0", help="Budget of our search: kernels to try, or a time: 30s.")
@click.option("--rounds", type=click.IntRange(3), default=None, help="Default: 15, short: 7.")
@click.option("--timeout", type=float, default=120.0, help="Seconds for one side of a case.")
@click.option(
    "--json",
    "json_file",
    type=FILE,
    is_flag=False,
    flag_value=Path("bench.json"),
    default=None,
    help="Write all figures here (default: bench.json).",
)
@click.option("--plot", type=FILE, default=None, help="Write a picture here: .html or .png.")
@click.option("--prompt", type=click.IntRange(1), default=512, help="MODEL: tokens of the prompt.")
@click.option("--tokens", type=click.IntRange(1), default=32, help="MODEL: tokens of the reply.")
@click.option("--quant", default=None, help="MODEL: quantise on load: q8, q4, bf16, f16.")
@click.option("--list", "listed", is_flag=True, help="Print the names of the cases and stop.")
def bench(
    what: str, only: str, everything: bool, short: bool, threads: int | None, peers: str | None,
    precision: str | None, search: str, rounds: int | None, timeout: float, json_file: Path | None,
    plot: Path | None, prompt: int, tokens: int, quant: str | None, listed: bool,
) -> None:  # fmt: skip
    """Time our programs beside what a user would pick instead, paired in one run. MODEL: a language
    model, prefill and decoding, beside llama.cpp.

    Results are checked against PyTorch; a wrong one is an error, never a time. Ends with 1 if any
    case of ours failed.
    """
    from ..backend.cpu.target import cores
    from ..bench.compare import Options
    from ..bench.suite import select

    try:
        if what not in KINDS:
            _language(what, threads or cores(), rounds, peers, json_file, prompt, tokens,
                      {"quant": quant, "precision": precision or "quantised"})  # fmt: skip
            return
        chosen = select(what, only, short)
        if listed:
            click.echo("\n".join(case.name for case in chosen))
            return
        options = Options(
            threads or cores(), _peers(peers), precision or "f32",
            int(search) if search.isdecimal() else search,
            rounds or (7 if short or everything else 15), marked=everything,
        )  # fmt: skip
        parts = _marked_parts(chosen, options) if everything else [(options, chosen)]
        faults = _report(parts, timeout, json_file, plot)
    except LuminalError as error:
        click.echo(f"luminal: {error}", err=True)
        sys.exit(1)
    sys.exit(1 if faults else 0)


def _marked_parts(chosen: list[Case], options: Options) -> list[Part]:
    """The cases that have marks, in every precision, on all threads and on one."""
    from dataclasses import replace

    parts = [
        (replace(options, precision=precision, threads=threads),
         [c for c in chosen if c.rivals(precision, threads)])
        for threads in dict.fromkeys((options.threads, 1))
        for precision in ("f32", "bf16", "int8")
    ]  # fmt: skip
    return [part for part in parts if part[1]]


def _language(
    model: str, threads: int, rounds: int | None, peers: str | None, json_file: Path | None,
    prompt: int, tokens: int, options: dict[str, Any],
) -> None:  # fmt: skip
    """Print the figures of a language model, and write them."""
    from ..bench.language import measure, table

    found = measure(model, prompt, tokens, threads, rounds or 3, peers != "", **options)
    click.echo(table(found))
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1) + "\n")


def _peers(wanted: str | None) -> tuple[str, ...]:
    """The peers that take part; the others are named with the reason."""
    from ..bench.peers import PEERS
    from ..errors import InputError

    names = list(PEERS) if wanted is None else [n.strip() for n in wanted.split(",") if n.strip()]
    if unknown := [name for name in names if name not in PEERS]:
        raise InputError(f"no peer {unknown[0]!r}; there are {', '.join(PEERS)}")
    if reason := PEERS["torch"].missing():
        raise InputError(f"results are checked against PyTorch: {reason}")
    found = []
    for name in names:
        reason = PEERS[name].missing()
        if reason is None:
            found.append(name)
        else:
            click.echo(f"skipped: {name}: {reason}", err=True)
    return tuple(found)


def _report(parts: list[Part], timeout: float, json_file: Path | None, plot: Path | None) -> int:
    """Run the cases, print each as it comes, write the files. How many of ours failed."""
    from ..bench.machine import measured
    from ..bench.plot import check_ending, write_plot
    from ..bench.suite import run
    from ..bench.table import closing, heading, line, write_json

    if plot is not None:
        check_ending(plot)
    found: list[tuple[Machine, list[Row]]] = []
    for options, chosen in parts:
        machine = measured(options.threads, options.precision)
        rows: list[Row] = []
        found.append((machine, rows))
        click.echo(heading(machine, options.peers))
        for row in run(chosen, options, timeout):
            rows.append(row)
            click.echo(line(row, options.peers))
            if json_file is not None:  # after each case: a long run that is stopped keeps its rows
                write_json(json_file, found)
        click.echo("\n" + closing(rows, options.peers) + "\n")
    if plot is not None:
        machine, rows = found[0]
        write_plot(plot, rows, machine, parts[0][0].peers)
    return sum(row.ours.fault is not None for _, rows in found for row in rows)
