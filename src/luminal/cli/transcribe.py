"""`luminal transcribe`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .answers import json_option
from .faults import clear_errors

if TYPE_CHECKING:
    from ..models.speech import Transcript

FORMS = ("text", "json", "srt", "vtt")


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--model", default=None,
              help="A directory or a name on the hub. Default: the packaged one.")  # fmt: skip
@click.option("--language", default=None, help="As en, or German. Default: found out.")
@click.option("--task", type=click.Choice(["transcribe", "translate"]), default="transcribe",
              show_default=True, help="translate: into English.")  # fmt: skip
@click.option("--timestamps", is_flag=True, help="Print when each phrase is said.")
@click.option("--words", is_flag=True, help="Find out when each word is said.")
@json_option("As --format json.")
@click.option("--format", "form", type=click.Choice(FORMS), default="text", show_default=True)
@click.option("--beams", type=click.IntRange(1, 16), default=1, show_default=True,
              help="Hypotheses of the search; 1 is greedy.")  # fmt: skip
@click.option("--prompt", default=None, help="Text that might come before: names, spelling.")
@click.option("--quant", default=None, help="Quantise the decoder on load: q8, q4, bf16, f16.")
@click.option("--threads", type=click.IntRange(1), default=None, help="Default: all cores.")
@click.option("--device", default="auto", show_default=True)
def transcribe(
    files: tuple[Path, ...], model: str | None, timestamps: bool, as_json: bool, form: str,
    quant: str | None, threads: int | None, device: str, **options: Any,
) -> None:  # fmt: skip
    """Print what is said in each FILE: wav, flac, mp3, ogg."""
    if as_json and form not in ("text", "json"):
        raise click.UsageError(f"--json or --format {form}, not both")
    if options["words"] and form in ("srt", "vtt"):
        raise click.UsageError("--words is for text and json")
    with clear_errors():
        from ..models.speech import read_audio, speech_model

        sounds = [read_audio(file) for file in files]  # fails early
        hears = speech_model(model, quant, threads, max(5, options["beams"]), device)
        for file, found in zip(files, hears.transcribe_all(sounds, **options)):
            if len(files) > 1:
                click.echo(f"{file}:", err=True)
            click.echo(shown(found, "json" if as_json else form, timestamps, options["words"]))


def shown(found: Transcript, form: str, timestamps: bool, words: bool) -> str:
    """A transcript as it is printed."""
    if form == "json":
        return json.dumps(found.json(words), ensure_ascii=False, indent=1)
    if form in ("srt", "vtt"):
        return (found.srt() if form == "srt" else found.vtt()).rstrip("\n")
    if words:
        return "\n".join(_timed(word.start, word.end, word.text)
                         for each in found.segments for word in each.words)  # fmt: skip
    if timestamps:
        return "\n".join(_timed(each.start, each.end, each.text) for each in found.segments)
    return found.text


def _timed(start: float, end: float, text: str) -> str:
    return f"[{start:7.2f} {end:7.2f}] {text.strip()}"
