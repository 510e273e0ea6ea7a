"""`luminal detect`: objects in pictures."""

from __future__ import annotations

from pathlib import Path

import click

from .answers import echo_json, json_option, writable
from .faults import clear_errors
from .onnx import load_model


@click.command()
@click.argument("image", type=click.Path(path_type=Path))
@click.option("--model", required=True, type=click.Path(path_type=Path), metavar="PATH",
              help="A YOLO: .onnx as ultralytics exports it, or .safetensors; or a folder with a "
                   "DETR or RT-DETR.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=None,
              callback=writable, help="Draw what was found into this picture.")  # fmt: skip
@click.option("--confidence", type=float, default=0.25, show_default=True)
@click.option("--overlap", type=float, default=0.7, show_default=True,
              help="How much boxes of one class may share.")  # fmt: skip
@click.option("--size", type=click.IntRange(1), default=None, help="Of the square that is seen.")
@click.option("--device", default="auto", show_default=True)
@click.option("--threads", type=click.IntRange(1), default=None, help="Default: all cores.")
@json_option("One JSON list: name, score and box (left, top, right, bottom) of each object.")
def detect(
    image: Path, model: Path, output: Path | None, confidence: float, overlap: float,
    size: int | None, device: str, threads: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Print what is in IMAGE, with places in pixels, and draw it."""
    from ..models.vision.draw import drawn
    from ..models.vision.images import check_name, read_image, write_image
    from ..models.vision.looker import detector_of

    with clear_errors():
        if output is not None:
            check_name(output)
        picture = read_image(image)
        source = load_model(model, threads) if model.suffix == ".onnx" else model
        detector = detector_of(source, size, device=device, threads=threads)
        found = detector(picture, confidence, overlap)
        if as_json:
            echo_json([{"name": one.name, "score": float(one.score),
                        "box": [float(edge) for edge in one.box]} for one in found])  # fmt: skip
        for one in found if not as_json else ():
            edges = " ".join(f"{edge:7.1f}" for edge in one.box)
            click.echo(f"{one.score:5.3f}  {edges}  {one.name}")
        if not found:
            click.echo("nothing found", err=True)
        if output is not None:
            write_image(output, drawn(picture, found))
            click.echo(str(output), err=True)
