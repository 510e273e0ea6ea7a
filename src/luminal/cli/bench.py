"""`luminal bench`: the benchmark suite."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import LuminalError

if TYPE_CHECKING:
    from ..bench import Case, Machine, Options, Row

    Part = tuple[Options, list[Case]]  # cases that are run in one way

FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command()
@click.argument("kind", type=click.Choice(["all", "ops", "models"]), default="all")
@click.option("--only", default="", metavar="WORD", help="Only cases with this in their names.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="All precisions, each case beside the peers that its marks name: ten minutes.",
)
@click.option("--short", is_flag=True, help="A few cases, few rounds: a minute or two.")
@click.option("--threads", type=click.IntRange(1), default=None, help="Default: all cores.")
@click.option("--peers", default=None, help="Comma-separated; default: all that are installed.")
@click.option("--precision", type=click.Choice(["f32", "bf16", "int8"]), default="f32")
@click.option("--search", default="0", help="Budget of our search: kernels to try, or a time: 30s.")
@click.option("--rounds", type=click.IntRange(3), default=None, help="Default: 15, short: 7.")
@click.option("--timeout", type=float, default=600.0, help="Seconds for a case.")
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
@click.option("--list", "listed", is_flag=True, help="Print the names of the cases and stop.")
def bench(
    kind: str, only: str, everything: bool, short: bool, threads: int | None, peers: str | None,
    precision: str, search: str, rounds: int | None, timeout: float, json_file: Path | None,
    plot: Path | None, listed: bool,
) -> None:  # fmt: skip
    """Time our programs beside what a user would pick instead, paired in one run.

    Results are checked against PyTorch; a wrong one is an error, never a time. Ends with 1 if any
    case of ours failed.
    """
    from ..backend.cpu.target import cores
    from ..bench.compare import Options
    from ..bench.suite import select

    try:
        chosen = select(kind, only, short)
        if listed:
            click.echo("\n".join(case.name for case in chosen))
            return
        options = Options(
            threads or cores(), _peers(peers), precision,
            int(search) if search.isdecimal() else search,
            rounds or (7 if short or everything else 15), marked=everything,
        )  # fmt: skip
        parts = [(options, chosen)]
        if everything:
            parts += _narrow_parts(chosen, options)
        faults = _report(parts, timeout, json_file, plot)
    except LuminalError as error:
        click.echo(f"luminal: {error}", err=True)
        sys.exit(1)
    sys.exit(1 if faults else 0)


def _narrow_parts(chosen: list[Case], options: Options) -> list[Part]:
    """The cases that have marks in narrower precisions."""
    from dataclasses import replace

    return [
        (replace(options, precision=precision), [c for c in chosen if c.rivals(precision)])
        for precision in ("bf16", "int8")
    ]


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
        machine, rows = measured(options.threads, options.precision), list[Row]()
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
