"""Pictures from prompts for the server: the model makes one picture at a time."""

from __future__ import annotations

import base64
import io
import secrets
import time
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..errors import WeightsError
from ..models.diffusion import Pipeline
from ..models.vision.images import pillow
from .bodies import Bodies
from .faults import Fault
from .lazy import Lazy
from .requests import Images
from .shelf import Shelf
from .turns import Check, Turns


class Painter:
    """A folder of diffusers. name: for clients (None: the folder's). Raises WeightsError where it
    is none."""

    def __init__(
        self, folder: Path, threads: int | None = None, device: str = "auto",
        name: str | None = None,
    ) -> None:  # fmt: skip
        if not (folder / "model_index.json").is_file():
            raise WeightsError(f"{folder}: no model_index.json: a model of pictures is a folder as "
                               "diffusers writes it")  # fmt: skip
        self.name = name or folder.name
        self.model = Lazy(self.name, partial(Pipeline, folder, threads, device), [folder])
        self._turns = Turns("pictures")

    def close(self) -> None:
        self._turns.close()

    async def answer(self, request: Request, bodies: Bodies, shelf: Shelf) -> Response:
        """The response to a request. Raises Fault, InputError or ValidationError."""
        given = await bodies.read(request, Images)
        if given.model not in (None, self.name):
            raise Fault(404, f"no model {given.model[:80]!r} for pictures; there is {self.name}",
                        "model_not_found", "model")  # fmt: skip
        async with shelf.beside(self.model):
            made = await self._turns.run(request.receive, lambda check: self._paint(given, check))
        return JSONResponse({"created": int(time.time()), "output_format": given.output_format,
                             "data": [{"b64_json": picture} for picture in made]})  # fmt: skip

    def _paint(self, given: Images, check: Check) -> list[str]:
        def watch(done: int, steps: int) -> None:
            check()

        pillow()
        pipeline = self.model.get()
        wishes: dict[str, Any] = {
            "negative": given.negative_prompt, "steps": given.steps, "guidance": given.guidance,
            "width": given.sides[0], "height": given.sides[1],
        }  # fmt: skip
        first = secrets.randbelow(1 << 31) if given.seed is None else given.seed
        made = []
        for n in range(given.n):
            picture = pipeline(given.prompt, seed=first + n, watch=watch, **wishes)
            stream = io.BytesIO()
            pillow().fromarray(picture).save(stream, given.output_format)
            made.append(base64.b64encode(stream.getvalue()).decode())
        return made
