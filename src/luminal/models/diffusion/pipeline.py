"""Pictures from prompts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np

from ... import nn
from ...errors import InputError
from ...graph import Graph
from ..vision.images import Source, pillow, read_image, to_array
from ..vision.layers import renamed
from .blocks import RENAMES
from .families import family_of
from .family import Conditions
from .folder import Folder
from .sampler import Sampler, Watch
from .schedule import Schedule, schedule
from .vae import VAEConfig, VAEDecoder, VAEEncoder

MOST_SIDE = 4096  # pixels


class Pipeline:
    """A diffusion model from a folder of diffusers: Stable Diffusion 1, 2, XL, 3; Flux.

    A program is compiled for each size of pictures; it makes all steps of any sampler. Raises
    WeightsError, Unsupported.

    >>> Pipeline("stable-diffusion-v1-5")("a lighthouse at dusk", steps=20, sampler="dpm++")
    """

    def __init__(
        self, path: str | Path, threads: int | None = None, device: str = "auto",
        search: int | str = 0,
    ) -> None:  # fmt: skip
        self.folder = Folder(path)
        self.family = family_of(self.folder)
        self.vae = VAEConfig.read(self.folder.config("vae"))
        self.scheduler = self.folder.config("scheduler", "scheduler_config.json")
        self._compiling = {"threads": threads, "device": device, "search": search}
        self._samplers: dict[Any, Sampler] = {}
        self._coders: dict[Any, Callable[..., np.ndarray]] = {}
        self._programs: list[Any] = []

    def __call__(
        self, prompt: str, negative: str | None = None, steps: int | None = None,
        guidance: float | None = None, width: int | None = None, height: int | None = None,
        seed: int = 0, sampler: str | None = None, image: Source = None, strength: float = 0.8,
        mask: Source = None, noise: np.ndarray | None = None, watch: Watch | None = None,
    ) -> np.ndarray:  # fmt: skip
        """A picture (height, width, 3) u8.

        image: what to start from, changed by strength (0 .. 1); with a mask only where that is
        white. noise: (1, channels, height, width) of latents, in place of that of the seed. watch:
        called after each step. Raises InputError.
        """
        family, factor = self.family, self.vae.factor
        guidance = family.guidance if guidance is None else guidance
        _check_kinds(
            {"steps": steps, "width": width, "height": height, "seed": seed},
            {"guidance": guidance, "strength": strength},
            {"a prompt": prompt, "a negative prompt": "" if negative is None else negative},
        )
        start, inside = self._started(image, mask, width, height)
        if start is not None:
            width, height = start.size
        width = family.size * factor if width is None else int(width)
        height = family.size * factor if height is None else int(height)
        self._check(width, height, strength)
        rng = np.random.default_rng(seed)
        shape = (1, family.channels, height // factor, width // factor)
        noise = _normal(rng, shape) if noise is None else np.asarray(noise, np.float32)
        if noise.shape != shape:
            raise InputError(f"noise has the shape {shape} here, not {noise.shape}")
        if not np.isfinite(noise).all():
            raise InputError("noise has an infinite or NaN element")
        if negative and family.distilled:
            raise InputError("this model has no run without the prompt: nothing to be negative of")
        guided = guidance > 1 and not family.distilled
        steps = family.steps if steps is None else int(steps)
        plan = self._plan(steps, sampler, start, strength, shape)
        latents, given = self._first(plan, noise, start, inside, strength, rng)
        conditions = self._conditions(prompt, negative, guided, height, width)
        conditions |= family.told(guidance)
        loop = self._sampler(shape, conditions, guided, "mask" in given)
        draw = partial(_normal, rng)
        latents = loop.run(plan, latents, conditions, guidance, draw, watch, **given)
        picture = self._decode(latents)[0]  # (3, height, width)
        return (picture.transpose(1, 2, 0) * 255).round().astype(np.uint8)

    @property
    def peak_bytes(self) -> int:
        """That its programs take by now, with the weights."""
        return sum(each.peak_bytes for each in (*self._programs, *self.family.encoders.programs))

    # ---- what a run starts from

    def _check(self, width: int, height: int, strength: float) -> None:
        factor = self.vae.factor * self.family.patch
        for side in (width, height):
            if side % factor or not factor <= side <= MOST_SIDE:
                raise InputError(
                    f"{width} x {height} pixels: sides are multiples of {factor} up to {MOST_SIDE}"
                )
        if not 0 < strength <= 1:
            raise InputError(f"strength is above 0 and at most 1, not {strength}")

    def _started(
        self, image: Source, mask: Source, width: int | None, height: int | None
    ) -> tuple[Any, np.ndarray | None]:
        """(the first picture in its size, the mask (1, 1, height, width) of 0 and 1)."""
        if image is None:
            if mask is not None or self.family.extra:
                raise InputError("a mask says where a picture changes: an image and a mask, please")
            return None, None
        first, factor = read_image(image), self.vae.factor * self.family.patch
        own = [side - side % factor for side in first.size]
        wanted = zip((width, height), own)
        size = tuple(side if given is None else int(given) for given, side in wanted)
        self._check(size[0], size[1], 1.0)
        if first.size != size:
            first = first.resize(size, pillow().Resampling.LANCZOS)
        if mask is None:
            if self.family.extra:
                raise InputError(f"{self.folder.path} paints inside of a mask: one is needed")
            return first, None
        grey = read_image(mask).convert("L")
        if grey.size != size:
            grey = grey.resize(size, pillow().Resampling.LANCZOS)
        return first, (to_array(grey)[None, None] >= 128).astype(np.float32)

    def _plan(
        self, steps: int, sampler: str | None, start: Any, strength: float, shape: tuple[int, ...]
    ) -> Schedule:
        family = self.family
        kept = family.kept(steps, strength) if start is not None else 0
        flowing = family.flowing(*shape[2:])
        plan = schedule(family.scheduler(self.scheduler), steps, sampler, kept, **flowing)
        if not plan.steps:
            raise InputError(f"no step is left of {steps} at strength {strength}")
        return plan

    def _first(
        self, plan: Schedule, noise: np.ndarray, start: Any, inside: np.ndarray | None,
        strength: float, rng: np.random.Generator,
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:  # fmt: skip
        """(the first latents, what the loop is given besides)."""
        if start is None:
            return noise * np.float32(plan.start), {}
        pixels = to_array(start).transpose(2, 0, 1)[None].astype(np.float32) / 127.5 - 1
        clean = self._encode(pixels, _normal(rng, noise.shape))
        latents = plan.signal[0] * clean + plan.sigma[0] * noise
        if inside is None:
            return latents, {}
        if strength == 1:
            latents = noise * np.float32(plan.start)
        factor = self.vae.factor
        small = inside[:, :, ::factor, ::factor]
        if not self.family.extra:
            return latents, {"mask": small, "kept": clean, "kept_noise": noise}
        hidden = self._encode(pixels * (inside < 0.5), _normal(rng, noise.shape))
        return latents, {"extra": np.concatenate([small, hidden], 1)}

    def _conditions(
        self, prompt: str, negative: str | None, guided: bool, height: int, width: int
    ) -> Conditions:
        found = self.family.encode(prompt, **self._compiling)
        found |= self.family.sized(height, width)
        if not guided:
            return found
        other = self.family.unprompted(negative, **self._compiling)
        other |= self.family.sized(height, width)
        return {name: np.concatenate([other[name], found[name]]) for name in found}

    # ---- programs

    def _sampler(
        self, shape: tuple[int, ...], conditions: Mapping[str, np.ndarray], guided: bool,
        masked: bool,
    ) -> Sampler:  # fmt: skip
        shapes = {name: value.shape for name, value in conditions.items()}
        key = shape, tuple(sorted(shapes.items())), guided, masked
        if key not in self._samplers:
            graph = Graph()
            self._samplers[key] = Sampler(
                graph, shape, self.family.denoiser(graph), shapes, guided, masked,
                self.family.extra, **self._compiling,
            )  # fmt: skip
            self._programs.append(self._samplers[key].program)
        return self._samplers[key]

    def _decode(self, latents: np.ndarray) -> np.ndarray:
        return self._coder(VAEDecoder, "decoder", latents)

    def _encode(self, pixels: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return self._coder(VAEEncoder, "encoder", pixels, noise)

    def _coder(self, kind: Any, part: str, *arrays: np.ndarray) -> np.ndarray:
        """One half of the autoencoder on arrays."""
        key = kind, *(array.shape for array in arrays)
        if key not in self._coders:
            self._coders[key] = self._compiled(kind, part, [array.shape for array in arrays])
        return self._coders[key](*arrays)

    def _compiled(self, kind: Any, part: str, shapes: Any) -> Callable[..., np.ndarray]:
        graph = Graph()
        inputs = [graph.tensor(shape) for shape in shapes]
        with nn.uninitialised():
            net = kind(graph, self.vae)
        output = net(*inputs).output()
        state = renamed(self.folder.weights("vae"), RENAMES)
        mine = {"encoder": ("encoder.", "quant_conv."), "decoder": ("decoder.", "post_quant_conv.")}
        net.load_state_dict({n: v for n, v in state.items() if n.startswith(mine[part])})
        program = graph.compile(**self._compiling)  # type: ignore[arg-type]
        self._programs.append(program)

        def run(*arrays: np.ndarray) -> np.ndarray:
            for tensor, array in zip(inputs, arrays):
                program[tensor] = array.astype(np.float32)
            program.run()
            return np.array(program[output])

        return run


def _check_kinds(
    counts: Mapping[str, Any], numbers: Mapping[str, Any], texts: Mapping[str, Any]
) -> None:
    """Raises InputError for what is of another kind; counts may be None, which is the usual one."""
    for name, value in counts.items():
        if value is not None and not (isinstance(value, Integral) and int(value) >= 0):
            raise InputError(f"{name} is a whole number, not {value!r}")
    for name, value in numbers.items():
        if not (isinstance(value, Real) and math.isfinite(value)):
            raise InputError(f"{name} is a finite number, not {value!r}")
    for name, value in texts.items():
        if not isinstance(value, str):
            raise InputError(f"{name} is a text, not {value!r}")


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape, np.float32)
