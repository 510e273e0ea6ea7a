"""`luminal tune`, `luminal explain` and `luminal cache`: search, and what it has found."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ..errors import InputError
from .answers import echo_json, json_option
from .check import is_language_model
from .faults import clear_errors
from .llm import MODEL_OPTIONS, with_options

if TYPE_CHECKING:
    from ..runtime.executable import Executable

DATABASE_OPTION = click.option(
    "--database",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="A project's tuning database (default: the user's).",
)


MODEL_HELP = """MODEL: a directory of a BERT-like model (default: the packaged all-MiniLM-L6-v2),
    or a language model: a directory, a .gguf file, a name on the hub."""


@dataclass(frozen=True)
class Subject:
    """A compiled model. runs: what is run for so many tokens, by what it is called."""

    program: Executable
    runs: Mapping[str, Callable[[int], object]]

    @staticmethod
    def of(model: str | None, loading: dict[str, Any], **options: Any) -> Subject:
        """Raises as the models do, InputError for options of another kind of model."""
        if model is not None and model.endswith(".luminal"):
            raise InputError(f"{model}: a saved program; what is taken is the directory of a "
                             "BERT-like model, or a language model")  # fmt: skip
        given = {name: value for name, value in loading.items() if value is not None}
        if model is not None and is_language_model(Path(model)):
            from ..models import LLM

            program = LLM(model, **given, **options).program
            return Subject(program.executable, {"a prompt": program.prefill, "one more token":
                           program.step})  # fmt: skip
        if given:
            raise InputError(f"--{next(iter(given))} is for language models")
        from ..models import SentenceEncoder

        encoder = SentenceEncoder(model, **options)

        def run(tokens: int) -> None:
            encoder.run(np.full((1, tokens), 1000), np.ones((1, tokens), np.bool_))

        return Subject(encoder.program, {"a text": run})


@click.command(help=f"Search faster kernels for a model. {MODEL_HELP} Later compilations take them "
               "from the database.")  # fmt: skip
@click.argument("model", required=False)
@click.option(
    "--search",
    default="60s",
    show_default=True,
    help='How long: seconds or minutes in all ("90s", "5m"), or candidates for each kernel.',
)
@click.option("--threads", type=click.IntRange(1), default=None, help="Threads (default: all).")
@click.option("--seed", type=int, default=0, help="Of the search.")
@with_options(MODEL_OPTIONS)
@DATABASE_OPTION
@json_option("One JSON object: each kernel with the candidates that were timed in the end.")
def tune(
    model: str | None, search: str, threads: int | None, seed: int, database: Path | None,
    as_json: bool, **loading: Any,
) -> None:  # fmt: skip
    start = time.perf_counter()
    budget = int(search) if search.isdecimal() else search
    with clear_errors():
        found = Subject.of(
            model, loading, threads=threads, search=budget, seed=seed, database=database
        )
    if as_json:
        taken = time.perf_counter() - start
        echo_json({"seconds": taken, "kernels": kernel_rows(found.program)})
        return
    for line in found.program.explain().splitlines():
        if line.startswith("k") or line.strip().startswith(("tuned", "not tuned", "stored")):
            click.echo(line)
    click.echo(f"{time.perf_counter() - start:.0f} s")


@click.command(help=f"What became of a model. {MODEL_HELP} Where compile time went; for each "
               "kernel what it fuses, its schedule, work, how it was tuned and the runners-up;"
               " then its time and share of the roofline.")  # fmt: skip
@click.argument("model", required=False)
@click.option("--tokens", type=click.IntRange(1), default=128, help="Length of the text.")
@click.option("--threads", type=click.IntRange(1), default=None, help="Threads (default: all).")
@with_options(MODEL_OPTIONS)
@DATABASE_OPTION
@json_option("One JSON object: stages, kernels, and for each kind of run its profile.")
def explain(
    model: str | None, tokens: int, threads: int | None, database: Path | None, as_json: bool,
    **loading: Any,
) -> None:  # fmt: skip
    from .. import cores
    from ..backend import devices
    from ..search.profile import profile

    count, host = threads or cores.count(), devices.host()
    with clear_errors():
        found = Subject.of(model, loading, threads=count, database=database)
        if as_json:
            echo_json(explained(found, tokens))
            return
        click.echo(found.program.explain())
        for title, run in found.runs.items():
            run(tokens)
            click.echo(f"\n{title}: {_sizes(found.program)}")
            click.echo(profile(found.program, host.target(count), host.rates(count)))


def explained(subject: Subject, tokens: int) -> dict[str, Any]:
    """What `explain` says, as data."""
    report, runs = subject.program.report, {}
    for title, run in subject.runs.items():
        run(tokens)
        rows = [asdict(row) for row in subject.program.profile()]
        runs[title] = {"sizes": dict(subject.program.run_sizes), "kernels": rows}
    return {
        "device": report.device, "threads": report.threads, "stages": report.stages,
        "kernels": kernel_rows(subject.program), "runs": runs,
    }  # fmt: skip


def kernel_rows(program: Executable) -> list[dict[str, Any]]:
    """A program's kernels: what each does, how it runs, how it was tuned."""
    from ..runtime.report import describe_value

    report = program.report
    return [
        {
            "kernel": made.name,
            "calls": report.count(made),
            "values": [describe_value(value) for value in made.kernel.values],
            "schedule": made.schedule.text().splitlines(),
            "notes": list(made.notes),
            "candidates": [asdict(each) for each in made.tried],
        }
        for made in report.kernels
    ]


def _sizes(program: Executable) -> str:
    return ", ".join(f"{name} = {size}" for name, size in program.run_sizes.items())


@click.group()
def cache() -> None:
    """What is kept between runs: tuning results, compiled programs, packed weights."""


@cache.command("info")
@DATABASE_OPTION
@json_option("As one JSON list of lines.")
def cache_info(database: Path | None, as_json: bool) -> None:
    """Where it is and what it holds."""
    from ..search.database import Database, user_path
    from ..store import Store

    lines = [Database(database or user_path()).describe()]
    if database is None:
        stores = Store.of(None), Store.of_weights(), Store.of_prefixes(), Store.of_machine()
        lines += [store.describe() for store in stores]
    if as_json:
        echo_json(lines)
    else:
        click.echo("\n".join(lines))


@cache.command("clear")
@DATABASE_OPTION
@json_option()
def cache_clear(database: Path | None, as_json: bool) -> None:
    """Forget all of it; with --database only that file."""
    from ..search.database import Database, user_path
    from ..store import Store

    chosen = database or user_path()
    with clear_errors():
        Database(chosen).clear()
    if database is None:
        stores = Store.of(None), Store.of_weights(), Store.of_prefixes(), Store.of_machine()
        for store in stores:
            store.clear()
    if as_json:
        echo_json({"emptied": str(chosen)})
    else:
        click.echo(f"{chosen}: emptied")
