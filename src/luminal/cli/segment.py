"""`luminal segment`: what points and boxes in a picture mean."""

from __future__ import annotations

from pathlib import Path

import click

from .answers import echo_json, json_option, writable
from .faults import clear_errors


class Numbers(click.ParamType):
    """So many numbers with commas between."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = name.count(",") + 1

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Fails unless there are as many numbers as the name has."""
        if isinstance(value, tuple):
            return value
        try:
            found = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            found = ()
        if len(found) != self.count:
            self.fail(f"{value!r} is not {self.name}", param, ctx)
        return found


POINT, BOX = Numbers("x,y"), Numbers("left,top,right,bottom")


@click.command()
@click.argument("image", type=click.Path(path_type=Path))
@click.option("--model", required=True, type=click.Path(path_type=Path), metavar="FOLDER",
              help="A SAM or SAM 2.")  # fmt: skip
@click.option("--point", "points", type=POINT, multiple=True, help="On the object.")
@click.option("--background", type=POINT, multiple=True, help="A point beside the object.")
@click.option("--box", "boxes", type=BOX, multiple=True,
              help="Around an object; may be given several times.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=None,
              callback=writable, help="Draw what was found into this picture.")  # fmt: skip
@click.option("--device", default="auto", show_default=True)
@click.option("--threads", type=click.IntRange(1), default=None, help="Default: all cores.")
@json_option("One JSON list: score of each object, and how much of the picture it covers.")
def segment(
    image: Path, model: Path, points: tuple[tuple[float, float], ...],
    background: tuple[tuple[float, float], ...],
    boxes: tuple[tuple[float, float, float, float], ...], output: Path | None, device: str,
    threads: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Print how much of IMAGE each object covers, and draw it. All points are about one object;
    each box is about one."""
    from ..models.vision.draw import shaded
    from ..models.vision.images import check_name, read_image, to_array, write_image
    from ..models.vision.segmenter import Segmenter, checked

    if len(boxes) > 1 and (points or background):
        raise click.UsageError("points go with one box at most")
    with clear_errors():
        if output is not None:
            check_name(output)
        picture = read_image(image)
        for box in boxes or (None,):
            checked(picture.size, points, background, box)
        segmenter = Segmenter(model, device=device, threads=threads)
        segmenter.see(picture)
        found = [segmenter.prompt(picture.size, points, background, box)[0]
                 for box in boxes or (None,)]  # fmt: skip
        if as_json:
            echo_json([{"score": float(one.score), "covers": float(one.mask.mean())}
                       for one in found])  # fmt: skip
        for one in found if not as_json else ():
            click.echo(f"{one.score:5.3f}  {one.mask.mean():7.2%}")
        if output is not None:
            write_image(output, shaded(to_array(picture), [one.mask for one in found]))
            click.echo(str(output), err=True)
