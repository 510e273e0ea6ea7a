"""`luminal serve`."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import time
from typing import Any

import click

from ..errors import to_install
from .answers import echo_json, json_option
from .faults import clear_errors
from .interrupts import ended_by_interrupts


def _bytes_of(context: Any, option: Any, text: str | None) -> int | None:
    """8GB, 500 MB, 2GiB --> bytes"""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*", text, re.IGNORECASE)
    if match is None:
        raise click.BadParameter(f"{text!r} is no size such as 8GB or 500MB")
    unit = 1024 if match[3] else 1000
    return int(float(match[1]) * unit ** " KMGT".index(match[2].upper() or " "))


@click.command()
@click.argument("models", nargs=-1, metavar="[[NAME=]MODEL]...")
@click.option("--memory", callback=_bytes_of, default=None, metavar="SIZE",
              help="Most that all loaded models take together: 8GB, 500MB.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
@click.option("--api-key", envvar="LUMINAL_API_KEY", default=None, help="Ask clients for this key.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME",
              help="A name of this server, beside localhost; repeatable.")  # fmt: skip
@click.option("--allow-origin", "origins", multiple=True, metavar="ORIGIN",
              help="Whose web pages may ask (CORS): https://example.org; repeatable.")  # fmt: skip
@click.option("--name", default=None, help="The model's name for clients (default: of its path).")
@click.option("--quant", default=None, help="Quantise on load: q8 (int8), q4, bf16, f16.")
@click.option("--precision", type=click.Choice(["quantised", "f32", "bf16", "int8"]), default=None,
              help="Default: quantised: 8-bit activations where weights are integers.")  # fmt: skip
@click.option("--context", type=click.IntRange(1), default=None, help="Most tokens of a request.")
@click.option("--max-batch", "batch", type=click.IntRange(1), default=32, show_default=True,
              help="Replies made at once.")  # fmt: skip
@click.option("--max-queue", "queue", type=click.IntRange(0), default=64, show_default=True,
              help="Requests that may wait; more are answered with 429.")  # fmt: skip
@click.option("--cache-tokens", "cache", type=click.IntRange(1), default=None,
              help="Tokens that the cache holds for all (default: four contexts).")  # fmt: skip
@click.option("--kv", type=click.Choice(["f32", "f16", "int8", "fp8"]), default=None,
              help="Keys and values. Default: f16 where weights are narrow too.")  # fmt: skip
@click.option("--chunk", type=click.IntRange(2), default=128, show_default=True,
              help="Tokens computed at once.")  # fmt: skip
@click.option("--speculate", type=click.IntRange(0), default=0, metavar="N",
              help="Guess N tokens from what came before; one run checks them.")  # fmt: skip
@click.option("--draft", default=None, metavar="MODEL",
              help="A small model that guesses for --speculate (default: 4).")  # fmt: skip
@click.option("--keep-prefixes", "prefixes", is_flag=True,
              help="Keep beginnings of prompts on disk when the server stops.")  # fmt: skip
@click.option("--lora", default=None, metavar="DIR", help="An adapter to merge into the weights.")
@click.option("--mmproj", default=None, metavar="FILE",
              help="The eyes of a .gguf MODEL (default: mmproj-*.gguf beside it).")  # fmt: skip
@click.option("--adapter", "adapters", multiple=True, metavar="[NAME=]DIR",
              help="An adapter that clients ask for by its name; repeatable.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1), default=None, help="Default: all cores.")
@click.option("--device", default=None, help="Of all models, as `luminal doctor` lists them.")
@click.option("--search", default=0, type=int, help="Schedules to try for each kernel.")
@click.option("--embeddings", default=None, metavar="[NAME=]MODEL",
              help="A BERT-like model (default: the packaged all-MiniLM-L6-v2).")  # fmt: skip
@click.option("--reranker", default=None, metavar="[NAME=]DIR",
              help="A cross-encoder for /v1/rerank; else vectors are compared.")  # fmt: skip
@click.option("--speech", default=None, metavar="[NAME=]MODEL",
              help="A Whisper model (default: the packaged Whisper base).")  # fmt: skip
@click.option("--images", default=None, metavar="[NAME=]FOLDER",
              help="A model of diffusers for /v1/images/generations.")  # fmt: skip
@click.option("--patience", type=click.IntRange(0), default=20, show_default=True,
              help="Seconds that running replies get when the server is told to stop.")  # fmt: skip
@json_option("Print one line of JSON when the server is ready: url, model, seconds.")
def serve(models: tuple[str, ...], memory: int | None, as_json: bool, **options: Any) -> None:
    """Serve MODEL (a directory, a .gguf file, or a name on the hub; without one the packaged
    SmolLM2) under OpenAI's interface; clients ask for it by NAME. Of several the first is loaded,
    and each of the others when it is asked for; those asked for least recently make room within
    --memory, those for vectors, speech and pictures too."""
    model, others = (models[0], models[1:]) if models else (None, ())
    logging.basicConfig(format="luminal: %(message)s")
    logging.getLogger("luminal").setLevel(logging.INFO)
    started, shown = time.perf_counter(), model or "SmolLM2"
    click.echo(f"luminal: loading {shown}", err=True)
    with ended_by_interrupts(), clear_errors():
        try:
            from ..server.run import Options, build, listen
        except ImportError as error:
            click.echo(f"luminal: {error}: {to_install('serve')}", err=True)
            sys.exit(1)
        given = Options(**{name: value for name, value in options.items() if value is not None})
        server = build(model, given, others, memory)
        waiting = listen(given)
    key = " (with an API key)" if given.api_key else ""
    taken = time.perf_counter() - started
    host = f"[{given.host}]" if ":" in given.host else given.host
    url = f"http://{host}:{waiting.getsockname()[1]}/v1"
    click.echo(f"luminal: ready after {taken:.1f} s", err=True)
    click.echo(f"luminal: serving {shown} on {url}{key}", err=True)
    if as_json:
        echo_json({"url": url, "model": shown, "api_key": bool(key), "seconds": taken})
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[waiting])
