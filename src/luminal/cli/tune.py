"""`luminal tune`, `luminal explain` and `luminal cache`: search, and what it has found."""

from __future__ import annotations

import time
from pathlib import Path

import click
import numpy as np

from .faults import clear_errors

DATABASE_OPTION = click.option(
    "--database",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="A project's tuning database (default: the user's).",
)


@click.command()
@click.argument("model", type=click.Path(path_type=Path), required=False)
@click.option(
    "--search",
    default="60s",
    show_default=True,
    help='How long: seconds or minutes in all ("90s", "5m"), or candidates for each kernel.',
)
@click.option("--threads", type=click.IntRange(1), default=None, help="Threads (default: all).")
@click.option("--seed", type=int, default=0, help="Of the search.")
@DATABASE_OPTION
def tune(
    model: Path | None, search: str, threads: int | None, seed: int, database: Path | None
) -> None:
    """Search faster kernels for MODEL, a directory of a BERT-like model (default: the packaged
    all-MiniLM-L6-v2). Later compilations take them from the database."""
    from ..models import SentenceEncoder

    start = time.perf_counter()
    budget = int(search) if search.isdecimal() else search
    with clear_errors():
        encoder = SentenceEncoder(
            model, threads=threads, search=budget, seed=seed, database=database
        )
    for line in encoder.program.explain().splitlines():
        if line.startswith("k") or line.strip().startswith(("tuned", "not tuned", "stored")):
            click.echo(line)
    click.echo(f"{time.perf_counter() - start:.0f} s")


@click.command()
@click.argument("model", type=click.Path(path_type=Path), required=False)
@click.option("--tokens", type=click.IntRange(1), default=128, help="Length of the text.")
@click.option("--threads", type=click.IntRange(1), default=None, help="Threads (default: all).")
@DATABASE_OPTION
def explain(model: Path | None, tokens: int, threads: int | None, database: Path | None) -> None:
    """What became of MODEL, a directory of a BERT-like model (default: the packaged
    all-MiniLM-L6-v2): where compile time went; for each kernel what it fuses, its schedule, work,
    how it was tuned and the runners-up; then its time and share of the roofline."""
    from .. import cores
    from ..backend import cpu
    from ..models import SentenceEncoder
    from ..search import profile

    count = threads or cores.count()
    with clear_errors():
        encoder = SentenceEncoder(model, threads=count, database=database)
        encoder.run(np.full((1, tokens), 1000), np.ones((1, tokens), np.bool_))
    click.echo(encoder.program.explain() + "\n")
    click.echo(profile(encoder.program, cpu.target(count), cpu.rates(count)))


@click.group()
def cache() -> None:
    """What is kept between runs: tuning results, compiled programs, packed weights."""


@cache.command("info")
@DATABASE_OPTION
def cache_info(database: Path | None) -> None:
    """Where it is and what it holds."""
    from ..search import Database, user_path
    from ..store import Store

    click.echo(Database(database or user_path()).describe())
    if database is None:
        for store in (Store.of(None), Store.of_weights(), Store.of_machine()):
            click.echo(store.describe())


@cache.command("clear")
@DATABASE_OPTION
def cache_clear(database: Path | None) -> None:
    """Forget all of it; with --database only that file."""
    from ..search import Database, user_path
    from ..store import Store

    chosen = database or user_path()
    with clear_errors():
        Database(chosen).clear()
    if database is None:
        for store in (Store.of(None), Store.of_weights(), Store.of_machine()):
            store.clear()
    click.echo(f"{chosen}: emptied")
