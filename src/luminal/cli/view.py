"""`luminal view` and `luminal profile`: a model's graph, plan and times, to look at."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from .answers import echo_json, json_option, writable
from .faults import clear_errors
from .llm import MODEL_OPTIONS, with_options
from .tune import DATABASE_OPTION, MODEL_HELP, Subject

if TYPE_CHECKING:
    from ..runtime.executable import Executable
    from ..runtime.trace import Span

FILE_HELP = "Or a .luminal file, which is run on made-up inputs: trust it as a shared library."
TOKENS = click.option("--tokens", type=click.IntRange(1), default=128, help="Length of the text.")
SIZES = click.option("--size", "sizes", multiple=True, metavar="NAME=N",
                     help="A size of a .luminal file; the rest are usual ones.")  # fmt: skip
THREADS = click.option("--threads", type=click.IntRange(1), default=None, help="Default: all.")


def written(context: click.Context, option: click.Parameter, path: Path) -> Path:
    """As `writable`, but for --serve, which writes no file."""
    if not context.params["serve"]:
        writable(context, option, path)
    return path


@click.command(help=f"Write a page with a model's graph and plan, and open it in any browser. "
               f"{MODEL_HELP} {FILE_HELP}")  # fmt: skip
@click.argument("model", required=False)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path),
              default=Path("luminal.html"), show_default=True, callback=written)  # fmt: skip
@click.option("--listings/--no-listings", default=None, help="With the code of every kernel.")
@click.option("--beside", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A .luminal file of the same model: both plans, before and after.")  # fmt: skip
@click.option("--serve", is_flag=True, is_eager=True, help="Write no file: serve the page, "
              "measured anew at each load, until Ctrl-C.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True)
@json_option("Of the page: path and bytes; with --serve its url.")
@TOKENS
@SIZES
@THREADS
@with_options(MODEL_OPTIONS)
@DATABASE_OPTION
def view(
    model: str | None, output: Path, listings: bool | None, beside: Path | None, serve: bool,
    port: int, as_json: bool, tokens: int, sizes: tuple[str, ...], threads: int | None,
    database: Path | None, **loading: Any,
) -> None:  # fmt: skip
    from ..view import page, write_page
    from ..view.page import built_page

    with clear_errors():
        built_page()
        program = _ran(model, loading, tokens, sizes, threads, database)
        shown = [program] if beside is None else [program, _rehearsed(beside, sizes, threads)]
        if serve:
            _serve(lambda: page(shown, listings), port, as_json)
            return
        write_page(output, shown, listings)
    size = output.stat().st_size
    if as_json:
        echo_json({"path": str(output), "bytes": size})
    else:
        click.echo(f"{output}: {size / 1e6:.1f} MB; open it in a browser")


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


@click.command(help=f"Where the time of a run goes, kernel by kernel. {MODEL_HELP} {FILE_HELP}")
@click.argument("model", required=False)
@json_option("As one JSON list.")
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), default=None,
              callback=writable, help="Also write a trace of one run, thread by thread, that "
              "Perfetto and chrome://tracing open.")  # fmt: skip
@TOKENS
@SIZES
@THREADS
@with_options(MODEL_OPTIONS)
@DATABASE_OPTION
def profile(
    model: str | None, as_json: bool, trace: Path | None, tokens: int, sizes: tuple[str, ...],
    threads: int | None, database: Path | None, **loading: Any,
) -> None:  # fmt: skip
    from ..search.profile import COLUMNS

    with clear_errors():
        program = _ran(model, loading, tokens, sizes, threads, database)
        rows = program.profile()
        if trace is not None:
            trace.write_text(json.dumps(chrome_trace(program.trace())))
    if as_json:
        echo_json([asdict(row) for row in rows])
    else:
        click.echo("\n".join([COLUMNS, *map(str, rows)]))


def chrome_trace(spans: Iterable[Span]) -> dict[str, Any]:
    """A run in the Trace Event format of Chrome and Perfetto, a row for each thread."""
    events = [{"name": span.kernel, "ph": "X", "ts": 1e6 * span.start, "dur": 1e6 * span.seconds,
               "pid": 1, "tid": span.thread, "args": {"call": span.call}}
              for span in spans]  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _ran(
    model: str | None, loading: dict[str, Any], tokens: int, sizes: Sequence[str],
    threads: int | None, database: Path | None,
) -> Executable:  # fmt: skip
    """The program after the last of its kinds of run."""
    if model is not None and model.endswith(".luminal"):
        given = [name for name, value in loading.items() if value is not None]
        if given:
            raise InputError(f"--{given[0]} is for language models")
        if database is not None:
            raise InputError("--database is for what is compiled, not for .luminal files")
        return _rehearsed(Path(model), sizes, threads)
    if sizes:
        raise InputError("--size is for .luminal files; --tokens is the length of a text")
    subject = Subject.of(model, loading, threads=threads, database=database)
    for run in subject.runs.values():
        run(tokens)
    return subject.program


def _rehearsed(path: Path, sizes: Sequence[str], threads: int | None) -> Executable:
    """The program of a file after a run on made-up inputs."""
    from ..runtime.rehearsal import rehearse
    from ..saved import load

    given = dict(size.partition("=")[::2] for size in sizes)
    if wrong := [text for text in given.values() if not text.isdecimal()]:
        raise InputError(f"--size is NAME=N with a whole number, not {wrong[0]!r}")
    program = load(path, threads)
    rehearse(program, {name: int(text) for name, text in given.items()})
    return program
