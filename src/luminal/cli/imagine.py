"""`luminal imagine`: pictures from prompts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from ..progress import Line, showing
from .answers import echo_json, json_option, writable
from .faults import clear_errors

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("prompt")
@click.option("--model", required=True, type=click.Path(path_type=Path), metavar="FOLDER",
              help="A folder as diffusers writes it (model_index.json).")  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path),
              default=Path("out.png"), show_default=True, callback=writable)  # fmt: skip
@click.option("--negative", default=None, help="What the picture must not show.")
@click.option("--steps", type=click.IntRange(1), default=None, help="Default: the model's.")
@click.option("--guidance", type=float, default=None, help="How much the prompt counts.")
@click.option("--width", type=click.IntRange(1), default=None)
@click.option("--height", type=click.IntRange(1), default=None)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--sampler", default=None, help="ddim, pndm, euler, euler-ancestral, dpm++, flow.")
@click.option("--image", type=FILE, default=None, help="Start from this picture.")
@click.option("--strength", type=float, default=0.8, show_default=True,
              help="How much of it changes.")  # fmt: skip
@click.option("--mask", type=FILE, default=None, help="Change it only where this one is white.")
@click.option("--device", default="auto", show_default=True)
@click.option("--threads", type=click.IntRange(1), default=None, help="Default: all cores.")
@click.option("--progress/--no-progress", default=None, help="Default: on a terminal.")
@json_option("Of the picture: path, width, height, seconds.")
def imagine(
    prompt: str, model: Path, output: Path, device: str, threads: int | None, progress: bool | None,
    as_json: bool, **wishes: Any,
) -> None:  # fmt: skip
    """Make a picture of PROMPT."""
    from ..models.diffusion import Pipeline
    from ..models.vision.images import check_name, write_image

    with clear_errors(), showing(progress):
        check_name(output)
        started = time.perf_counter()
        pipeline = Pipeline(model, threads, device)
        with Line(wishes["steps"] or pipeline.family.steps) as line:

            def watch(done: int, steps: int) -> None:
                line.total = steps
                line.tell(done, f"step {done}/{steps}")

            picture = pipeline(prompt, watch=watch, **wishes)
        write_image(output, picture)
        height, width = picture.shape[:2]
        seconds = time.perf_counter() - started
    if as_json:
        facts = {"path": str(output), "width": width, "height": height, "seconds": seconds}
        echo_json(facts)
    else:
        click.echo(f"{output}: {width} x {height}, {seconds:.1f} s", err=True)
