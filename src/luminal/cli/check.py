"""`luminal check`: what is compiled, held against what it means."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import LuminalError
from .answers import echo_json, json_option
from .faults import clear_errors

if TYPE_CHECKING:
    from ..search.compare import Difference


@click.command()
@click.argument("model", required=False)
@click.option("--threads", type=click.IntRange(1), default=None, help="Threads (default: all).")
@json_option("One JSON object with all differences.")
def check(model: str | None, threads: int | None, as_json: bool) -> None:
    """Compare what MODEL was compiled to with the reference in NumPy, on random and on hostile
    inputs: its kernels one by one and, of a saved program with its graph, what it computes. MODEL:
    a `.luminal` file, a GGUF file, the directory of a language model or of a BERT-like model
    (default: the packaged all-MiniLM-L6-v2), or luminal-tiny. Exit status 1
    where something differs."""
    with clear_errors():
        found = _differences(None if model is None else _place(model), threads)
    if as_json:
        echo_json({"differences": [asdict(one) for one in found]})
    else:
        for one in found:
            click.echo(str(one))
        click.echo(f"{len(found)} differences" if found else "no differences")
    sys.exit(1 if found else 0)


def _place(model: str) -> Path:
    """Of a file or directory, or of a model of ours by its name."""
    if not (place := Path(model)).exists():
        from ..models.llm.packaged import OWN

        place = OWN.get(model, place)
    return place


def _differences(model: Path | None, threads: int | None) -> list[Difference]:
    if model is not None and not model.exists():
        raise LuminalError(f"{model}: no such file or directory")
    if model is not None and model.suffix == ".luminal":
        from ..saved import check_saved

        return check_saved(model, threads)
    if model is not None and is_language_model(model):
        from ..models import LLM

        return LLM(model, threads=threads).program.executable.check()
    from ..models import SentenceEncoder

    return SentenceEncoder(model, threads=threads).program.check()


def is_language_model(model: Path) -> bool:
    """A GGUF file, or a directory whose architecture generates text."""
    if not model.is_dir():
        return True
    try:
        config = json.loads((model / "config.json").read_text())
    except (OSError, ValueError):
        return False
    return "bert" not in str(config.get("model_type", "bert"))
