"""`luminal run`, and what `luminal info MODEL` prints."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..backend.devices import look_at_host
from ..collecting import collected_later
from ..errors import Unsupported
from .answers import echo_json, json_option
from .faults import clear_errors
from .interrupts import ended_by_interrupts

if TYPE_CHECKING:
    from ..models.llm import LLM

Command = TypeVar("Command", bound=Callable[..., Any])
REPETITION = 1.1  # the packaged model is small: without this it turns in circles
MODEL_OPTIONS = [
    click.option("--quant", default=None, help="Quantise on load: q8 (int8), q4, bf16, f16."),
    click.option(
        "--precision",
        type=click.Choice(["quantised", "f32", "bf16", "int8"]),
        default=None,
        help="Default: quantised: activations of 8 bits where weights are integers.",
    ),
    click.option("--context", type=click.IntRange(1), default=None, help="Tokens in all."),
    click.option(
        "--kv",
        type=click.Choice(["f32", "f16", "int8", "fp8"]),
        default=None,
        help="Keys and values of earlier tokens. Default: f16 where weights are narrow too.",
    ),
    click.option("--lora", default=None, metavar="DIR", help="An adapter to merge in."),
    click.option(
        "--mmproj",
        default=None,
        metavar="FILE",
        help="The eyes of a .gguf MODEL (default: mmproj-*.gguf beside it).",
    ),
]
LOADING = [
    *MODEL_OPTIONS,
    click.option("--draft", default=None, metavar="MODEL",
                 help="A small model that guesses for --speculate (default: 4)."),
    click.option("--threads", type=click.IntRange(1), default=None, help="Default: all cores."),
    click.option("--device", default=None, help="As `luminal doctor` lists them."),
    click.option("--search", default=0, type=int, help="Schedules to try for each kernel."),
]  # fmt: skip
SAMPLING = [
    click.option("--max-tokens", type=click.IntRange(1), default=512, show_default=True),
    click.option("--temperature", type=float, default=0.0, help="0: always the likeliest token."),
    click.option("--top-k", type=int, default=0),
    click.option("--top-p", type=float, default=1.0),
    click.option("--min-p", type=float, default=0.0),
    click.option(
        "--repetition-penalty",
        type=float,
        default=None,
        help="Default: 1, and 1.1 for the packaged model.",
    ),
    click.option("--presence-penalty", type=float, default=0.0),
    click.option("--frequency-penalty", type=float, default=0.0),
    click.option("--seed", type=int, default=None),
    click.option(
        "--speculate",
        type=click.IntRange(0),
        default=0,
        metavar="N",
        help="Guess N tokens from what came before and check them in one run.",
    ),
]


def with_options(options: list[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    def apply(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


def loaded(model: str | None, options: dict[str, Any]) -> LLM:
    started, terminal = time.perf_counter(), sys.stderr.isatty()
    if terminal:  # at once: the imports take a while
        click.echo(f"loading {model or 'SmolLM2'} ...", err=True)
    with ended_by_interrupts():
        look_at_host()
        with collected_later():
            from ..models.llm import LLM

        llm = LLM(model, **options)
    if terminal:
        click.echo(f"loaded in {time.perf_counter() - started:.1f} s", err=True)
    return llm


def split_options(
    model: str | None, options: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of `LLM`, and those of `Sampling`."""
    if options["repetition_penalty"] is None:
        options["repetition_penalty"] = REPETITION if model is None else 1.0
    names = ("quant", "precision", "context", "kv", "lora", "mmproj", "draft", "threads",
             "device", "search")  # fmt: skip
    loading = {n: options[n] for n in names if options[n] is not None}
    return loading, {n: v for n, v in options.items() if n not in names}


def _asked(words: tuple[str, ...], model: str | None) -> tuple[str | None, str]:
    """The model, where one is named, and the prompt. Raises click.UsageError."""
    *named, prompt = words
    if len(named) + (model is not None) > 1:
        raise click.UsageError("one model and one prompt: a prompt of several words is in quotes")
    if not named and model is None and (prompt.endswith(".gguf") or os.path.isdir(prompt)):
        raise click.UsageError(f"no prompt for the model {prompt}")
    return (named[0] if named else model), prompt


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[MODEL] PROMPT")
@click.option("--model", default=None, help="As MODEL before the prompt.")
@with_options(LOADING)
@with_options(SAMPLING)
@click.option("--stop", multiple=True, help="End the reply before this text; may be repeated.")
@click.option("--chat/--no-chat", default=None, help="Use the chat template (default: if any).")
@click.option("--image", "images", multiple=True, type=click.Path(path_type=Path),
              help="A picture that is asked about; may be repeated.")  # fmt: skip
@click.option("--stats", is_flag=True, help="Print tokens per second on stderr.")
@json_option("The reply with its tokens, as one object.")
def run(
    words: tuple[str, ...], model: str | None, max_tokens: int, stop: tuple[str, ...],
    chat: bool | None, images: tuple[Path, ...], stats: bool, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Print the reply of MODEL (a directory, a .gguf file, or a name on the hub; without one the
    packaged SmolLM2) to PROMPT; "-": to what comes on the standard input."""
    from ..models.kinds import is_t5

    if as_json and stats:
        raise click.UsageError("--stats goes with a reply that is shown as it grows, not --json")
    model, prompt = _asked(words, model)
    loading, sampling = split_options(model, options)
    prompt = sys.stdin.read() if prompt == "-" else prompt
    with clear_errors():
        if model is not None and is_t5(Path(model)):
            sampling |= {"stop": stop, "image": images, "chat": chat, "stats": stats}
            _rewrite(model, prompt, max_tokens, loading, sampling, as_json)
            return
        llm = loaded(model, loading)
        use_template = llm.tokenizer.converses if chat is None else chat
        said = [*({"type": "image", "image": path} for path in images),
                {"type": "text", "text": prompt}] if images else prompt  # fmt: skip
        given: Any = [{"role": "user", "content": said}] if use_template or images else prompt
        if as_json:
            made = llm.complete(given, max_tokens, stop, **sampling)
            echo_json(asdict(made))
            return
        _show(llm, given, max_tokens, stop, stats, sampling)


def _rewrite(
    model: str, prompt: str, max_tokens: int, loading: dict[str, Any],
    sampling: dict[str, Any], as_json: bool,
) -> None:  # fmt: skip
    """What a T5 makes of a text."""
    from ..models.llm.sampling import Sampling
    from ..models.seq2seq import T5

    other = loading.keys() - {"context", "threads", "device", "search", "precision"}
    other |= {n for n in ("speculate", "stop", "image", "chat", "stats") if sampling.pop(n)}
    if other:
        raise Unsupported(f"T5 models are run without --{min(other)}")
    text = T5(model, **loading).generate(prompt, max_tokens, Sampling(**sampling))
    if as_json:
        echo_json({"text": text})
    else:
        click.echo(text)


def _show(
    llm: LLM, given: Any, max_tokens: int, stop: tuple[str, ...], stats: bool,
    sampling: dict[str, Any],
) -> str:  # fmt: skip
    """Print a reply as it is made; what was printed."""
    shown, count, first = "", 0, 0.0
    started = time.perf_counter()
    try:
        for piece in llm.pieces(given, max_tokens, stop, **sampling):
            first = first or time.perf_counter()
            count += piece.token is not None
            click.echo(piece.text, nl=False)
            shown += piece.text
    except KeyboardInterrupt:
        click.echo()
        raise
    click.echo()
    if stats and count > 1:
        rate = (count - 1) / (time.perf_counter() - first)
        wait = 1e3 * (first - started)
        click.echo(f"first token {wait:.0f} ms, then {rate:.1f} tokens/s ({count})", err=True)
    return shown


def model_rows(model: str) -> dict[str, Any]:
    """What a checkpoint holds; nothing is compiled."""
    from ..models.llm.cache import cache_bytes
    from ..models.llm.packaged import located
    from ..models.llm.source import open_source

    with clear_errors():
        config = open_source(located(model)).config
    cache = cache_bytes(config, 1)
    return {
        "family": config.family,
        "layers": f"{config.layers} of width {config.width}, {config.hidden} inside",
        "heads": f"{config.heads} of {config.head_dim}, {config.kv_heads} for keys and values",
        "vocabulary": config.vocabulary,
        "context": f"{config.context} tokens, {cache / 1024:g} KiB of cache each in f32",
        "windows": sorted({w for w in config.windows if w is not None}) or "none",
        "experts": f"{config.experts.chosen} of {config.experts.count}" if config.experts else None,
    }
