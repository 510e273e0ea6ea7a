"""`luminal view` and `luminal profile`: a model's graph, plan and times, to look at."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from .answers import echo_json, json_option
from .faults import clear_errors
from .llm import MODEL_OPTIONS, with_options
from .tune import DATABASE_OPTION, MODEL_HELP, Subject

if TYPE_CHECKING:
    from ..compiler import Executable

TOKENS = click.option("--tokens", type=click.IntRange(1), default=128, help="Length of the text.")
THREADS = click.option("--threads", type=click.IntRange(1), default=None, help="Default: all.")


@click.command(help=f"Write a page with a model's graph and plan, and open it in any browser. "
               f"{MODEL_HELP} Or a .luminal file.")  # fmt: skip
@click.argument("model", required=False)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path),
              default=Path("luminal.html"), show_default=True)  # fmt: skip
@click.option("--listings/--no-listings", default=None, help="With the code of every kernel.")
@click.option("--beside", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A .luminal file of the same model: both plans, before and after.")  # fmt: skip
@click.option("--serve", is_flag=True, help="Write no file: serve the page, measured anew at each "
              "load, until Ctrl-C.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True)
@json_option("Of the page: path and bytes; with --serve its url.")
@TOKENS
@THREADS
@with_options(MODEL_OPTIONS)
@DATABASE_OPTION
def view(
    model: str | None, output: Path, listings: bool | None, beside: Path | None, serve: bool,
    port: int, as_json: bool, tokens: int, threads: int | None, database: Path | None,
    **loading: Any,
) -> None:  # fmt: skip
    from ..view import page, write_page

    with clear_errors():
        if model is not None and model.endswith(".luminal"):
            program = saved(Path(model))
        else:
            program = _ran(Subject.of(model, loading, threads=threads, database=database), tokens)
        shown = [program] if beside is None else [program, saved(beside)]
        if serve:
            _serve(lambda: page(shown, listings), port, as_json)
            return
        write_page(output, shown, listings)
    size = output.stat().st_size
    if as_json:
        echo_json({"path": str(output), "bytes": size})
    else:
        click.echo(f"{output}: {size / 1e6:.1f} MB; open it in a browser")


def saved(path: Path) -> Executable:
    """The program of a file."""
    from ..saved import load

    return load(path)


def _serve(make: Callable[[], str], port: int, as_json: bool) -> None:
    from ..view.serve import server

    try:
        running = server(make, port)
    except OSError as error:
        raise InputError(f"port {port}: {error.strerror}; --port takes another") from error
    url = f"http://localhost:{running.server_port}/"
    if as_json:
        echo_json({"url": url})
    else:
        click.echo(f"{url} (Ctrl-C ends it)")
    with contextlib.suppress(KeyboardInterrupt), running:
        running.serve_forever()


@click.command(help=f"Where the time of a run goes, kernel by kernel. {MODEL_HELP}")
@click.argument("model", required=False)
@json_option("As one JSON list.")
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), default=None,
              help="Also write a trace that Perfetto and chrome://tracing open.")  # fmt: skip
@TOKENS
@THREADS
@with_options(MODEL_OPTIONS)
@DATABASE_OPTION
def profile(
    model: str | None, as_json: bool, trace: Path | None, tokens: int, threads: int | None,
    database: Path | None, **loading: Any,
) -> None:  # fmt: skip
    from ..search.profile import COLUMNS

    with clear_errors():
        program = _ran(Subject.of(model, loading, threads=threads, database=database), tokens)
        rows = program.profile()
        if trace is not None:
            trace.write_text(json.dumps(chrome_trace(program.time_kernels())))
    if as_json:
        echo_json([asdict(row) for row in rows])
    else:
        click.echo("\n".join([COLUMNS, *map(str, rows)]))


def chrome_trace(calls: Iterable[tuple[str, float]]) -> dict[str, Any]:
    """The calls of a run end to end, in the Trace Event format of Chrome and Perfetto. Each was
    timed alone and warm: gaps and overlap of a real run are not in it."""
    events, now = [], 0.0
    for name, seconds in calls:
        took = 1e6 * seconds
        events.append({"name": name, "ph": "X", "ts": now, "dur": took, "pid": 1, "tid": 1})
        now += took
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _ran(subject: Subject, tokens: int) -> Executable:
    """The program after the last of its kinds of run."""
    for run in subject.runs.values():
        run(tokens)
    return subject.program
