"""`luminal bench`: the benchmark suite."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import LuminalError
from .answers import refuse_others, writable
from .faults import tell

if TYPE_CHECKING:
    from ..bench import Case, Options, Row
    from ..bench.results import Part as Measured
    from ..bench.results import Results

    Part = tuple[Options, list[Case]]  # cases that are run in one way

KINDS = ("all", "ops", "models")
FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command()
@click.argument("what", default="all", metavar="[all|ops|models|gpu|train|MODEL]")
@click.option("--only", default="", metavar="WORD", help="Only cases with this in their names.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Everything in f32, what has marks in bf16 and int8 too, on all threads and one: hours. "
    "Rows that FILE of --json has are kept.",
)
@click.option("--again", is_flag=True, help="With --all: measure the rows of FILE again.")
@click.option("--budget", default=None, metavar="TIME", help="Begin no case after it: 90s, 20m.")
@click.option("--short", is_flag=True, help="A few cases, few rounds: a minute or two.")
@click.option("--threads", type=click.IntRange(1), default=None, help="Default: all cores.")
@click.option("--peers", default=None, help="Comma-separated; marked: those that a case's marks "
              "name; default: all that are installed.")  # fmt: skip
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
    callback=writable,
    help="Write all figures here (default: bench.json).",
)
@click.option("--plot", type=FILE, default=None, callback=writable,
              help="Write a picture here: .html or .png.")  # fmt: skip
@click.option("--prompt", type=click.IntRange(1), default=512, help="MODEL: tokens of the prompt.")
@click.option("--tokens", type=click.IntRange(1), default=32, help="MODEL: tokens of the reply.")
@click.option("--quant", default=None, help="MODEL: quantise on load: q8, q4, bf16, f16.")
@click.option("--device", default=None, help="Default: gpu: cuda, without a driver cuda:sim; "
              "MODEL: the fastest that is there.")  # fmt: skip
@click.option("--compile", "compiled", is_flag=True, help="gpu: compile models of usual shapes for "
              "the --device (comma-separated, as cuda:sm_90a); run nothing.")  # fmt: skip
@click.option("--list", "listed", is_flag=True, help="Print the names of the cases and stop.")
def bench(
    what: str, only: str, everything: bool, again: bool, budget: str | None, short: bool,
    threads: int | None, peers: str | None, precision: str | None, search: str, rounds: int | None,
    timeout: float, json_file: Path | None, plot: Path | None, prompt: int, tokens: int,
    quant: str | None, device: str | None, compiled: bool, listed: bool,
) -> None:  # fmt: skip
    """Time our programs beside what a user would pick instead, paired in one run. MODEL: a language
    model, prefill and decoding, beside llama.cpp. gpu: what a GPU can do, and what kernels reach.
    train: training steps of a GPT, a ResNet, an LSTM, and fine-tuning.

    Results are checked against PyTorch; a wrong one is an error, never a time. Ends with 1 if any
    case of ours failed.
    """
    from ..bench.compare import Options
    from ..bench.results import Results
    from ..bench.suite import select
    from ..cores import count

    try:
        if what == "gpu" and compiled:
            refuse_others("compiled device only json_file", "bench gpu --compile")
            sys.exit(_gpu_kernels((device or "cuda:sm_90a").split(","), only, json_file))
        if what == "gpu":
            refuse_others("device short json_file", "bench gpu")
            sys.exit(_gpu(device, short, json_file))
        if what == "train":
            refuse_others("only threads rounds peers json_file precision short listed",
                          "bench train")  # fmt: skip
            sys.exit(_train(only, threads or count(), rounds or 5, peers, json_file,
                            precision or "f32", short, listed))  # fmt: skip
        if what not in KINDS:
            refuse_others("threads rounds peers json_file prompt tokens quant precision device",
                          "bench MODEL")  # fmt: skip
            _language(what, threads or count(), rounds, peers, json_file, prompt, tokens,
                      {"quant": quant, "precision": precision or "quantised",
                       "device": device or "auto"})  # fmt: skip
            return
        refuse_others("only everything again budget short threads peers precision search rounds "
                      "timeout json_file plot listed", f"bench {what}")  # fmt: skip
        chosen = select(what, only, short)
        if listed:
            click.echo("\n".join(case.name for case in chosen))
            return
        options = Options(
            threads or count(), _peers(peers), precision or "f32",
            int(search) if search.isdecimal() else search,
            rounds or (7 if short or everything else 15), marked=peers == "marked",
        )  # fmt: skip
        parts = _all_parts(chosen, options) if everything else [(options, chosen)]
        results = Results.kept(json_file, again or not everything)
        faults = _report(parts, results, timeout, _seconds(budget), plot)
    except LuminalError as error:
        tell(error)
        sys.exit(1)
    sys.exit(1 if faults else 0)


def _gpu(device: str | None, short: bool, json_file: Path | None) -> int:
    """Print the figures of a GPU, and write them; 1 where something is wrong."""
    from ..bench.gpu import faults, measure, table, usual_device

    found = measure(device or usual_device(), short)
    click.echo(table(found))
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1) + "\n")
    return int(bool(faults(found)))


def _train(
    only: str, threads: int, rounds: int, peers: str | None, json_file: Path | None,
    precision: str, short: bool, listed: bool,
) -> int:  # fmt: skip
    """Print the figures of training steps, and write them; 1 where losses are wrong."""
    from ..bench.training import NAMES, SIDES, faults, measure, table
    from ..errors import InputError

    chosen = [name for name in NAMES if only in name]
    if not chosen:
        raise InputError(f"no training with {only!r} in its name; there are {', '.join(NAMES)}")
    if listed:
        click.echo("\n".join(chosen))
        return 0
    names = SIDES[1:] if peers is None else [n.strip() for n in peers.split(",") if n.strip()]
    rows = []
    for name in chosen:
        rows.append(measure(name, threads, 2 if short else 5, rounds, names, precision))
        click.echo(table(rows[-1]) + "\n")
        if json_file is not None:
            json_file.write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(map(faults, rows)))


def _gpu_kernels(devices: list[str], only: str, json_file: Path | None) -> int:
    """Print what is known of kernels, and write it; 1 where something did not compile."""
    from ..bench.gpu_kernels import faults, listing, measure, summary

    rows = []
    for row in measure(devices, only):
        rows.append(row)
        click.echo(f"\n{row['model']} {row['phase']} {row['device']}\n")
        click.echo(row.get("fault") or listing(row))
    click.echo(f"\n{summary(rows)}")
    if json_file is not None:
        json_file.write_text(json.dumps(rows, indent=1) + "\n")
    return int(bool(faults(rows)))


def _all_parts(chosen: list[Case], options: Options) -> list[Part]:
    """Every case in f32, those with marks in the other precisions, on all threads and on one."""
    from dataclasses import replace

    parts = [
        (replace(options, precision=precision, threads=threads),
         [c for c in chosen if precision == "f32" or c.rivals(precision, threads)])
        for threads in dict.fromkeys((options.threads, 1))
        for precision in ("f32", "bf16", "int8")
    ]  # fmt: skip
    return [part for part in parts if part[1]]


def _seconds(budget: str | None) -> float:
    """A budget such as "20m" in seconds; infinite where there is none."""
    from ..search.tune import Budget

    found = Budget.of(budget) if budget else None
    return math.inf if found is None or found.seconds is None else found.seconds


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

    every = wanted in (None, "marked")
    names = list(PEERS) if every else [n.strip() for n in str(wanted).split(",") if n.strip()]
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


def _report(
    parts: list[Part], results: Results, timeout: float, seconds: float, plot: Path | None
) -> int:
    """Run the cases that have no row yet, print each row as it comes, write the files. How many of
    ours failed."""
    from ..bench.machine import measured
    from ..bench.plot import check_ending, write_plot
    from ..bench.table import closing, heading, line

    if plot is not None:
        check_ending(plot)
    end, left, faults = time.monotonic() + seconds, 0, 0
    for options, chosen in parts:
        part = results.part(measured(options.threads, options.precision))
        click.echo(heading(part.machine, options.peers))
        rows = []
        for row in _rows(part, chosen, options, timeout, end):
            rows.append(row)
            part.add(row)
            click.echo(line(row, options.peers))
            results.write()  # after each case: a long run that is stopped keeps its rows
        click.echo("\n" + closing(rows, options.peers) + "\n")
        left += len(chosen) - len(rows)
        faults += sum(row.ours.fault is not None for row in rows)
        if plot is not None and options is parts[0][0]:
            write_plot(plot, rows, part.machine, options.peers)
    if left:
        click.echo(f"The budget is over; {left} cases are left: the same command goes on.")
    return faults


def _rows(
    part: Measured, chosen: list[Case], options: Options, timeout: float, end: float
) -> Iterator[Row]:
    """The rows that are there, then those of the other cases, as far as the time allows."""
    from ..bench.suite import run

    found = {case.name: part.find(case.name, options.peers_of(case)) for case in chosen}
    yield from filter(None, found.values())
    others = [case for case in chosen if found[case.name] is None]
    if others and time.monotonic() < end:
        for row in run(others, options, timeout):
            yield row
            if time.monotonic() > end:
                return
