"""All steps of a sampler in one program: a loop whose body is the denoiser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ... import ops
from ...errors import InputError
from ...graph import Graph, Tensor
from .schedule import COLUMNS, HISTORY, Schedule

Denoiser = Callable[..., Tensor]  # (x, times, **conditions), guided pictures twice
Watch = Callable[[int, int], None]  # (steps made, of how many)
MOST_STEPS = 10_000


class Sampler:
    """A compiled loop over the steps of any schedule.

    shape: of the latents (batch, channels, height, width). denoiser: records (x, times (n,),
    **conditions) -> prediction; with `guided` it is given every latent twice, the first without the
    prompt. conditions: name -> shape of an input that all steps share. masked: what a mask leaves
    is kept from other latents. extra: channels that stand beside the latents in every step.
    """

    def __init__(
        self, graph: Graph, shape: tuple[int, ...], denoiser: Denoiser,
        conditions: Mapping[str, tuple[int, ...]], guided: bool, masked: bool = False,
        extra: int = 0, **compiling: Any,
    ) -> None:  # fmt: skip
        self.shape, self.guided, self.denoiser = shape, guided, denoiser
        steps = graph.dim("steps", 1, MOST_STEPS, hint=20)
        inputs = {
            "latents": graph.tensor(shape, name="latents"),
            "history": graph.tensor((HISTORY, *shape), name="history"),
            "times": graph.tensor((steps,), name="times"),
            "table": graph.tensor((steps, len(COLUMNS)), name="table"),
            "noise": graph.tensor((steps, *shape), name="noise"),
            "guidance": graph.tensor((), name="guidance"),
        }
        if masked:
            inputs |= {
                "mask": graph.tensor((shape[0], 1, *shape[2:]), name="mask"),
                "kept": graph.tensor(shape, name="kept"),
                "kept_noise": graph.tensor(shape, name="kept_noise"),
                "signals": graph.tensor((steps, 2), name="signals"),
            }
        if extra:
            inputs["extra"] = graph.tensor((shape[0], extra, *shape[2:]), name="extra")
        self.conditions = {n: graph.tensor(s, name=n) for n, s in conditions.items()}
        self.inputs, self.masked = inputs, masked
        xs = [inputs[n] for n in ("times", "table", "noise")]
        xs += [inputs["signals"]] if masked else []
        start = inputs["latents"], inputs["history"]
        (latents, history), _ = ops.scan(self._step, start, xs)
        self.outputs = latents.output("result"), history.output("past")
        self.program = graph.compile(**compiling)

    def _step(self, carry: Any, row: Any) -> tuple[Any, None]:
        (x, history), (time, numbers, noise, *signals) = carry, row
        column = {name: numbers[n] for n, name in enumerate(COLUMNS)}
        y = self._prediction(x, time, column["scale"])
        now = x * column["from_x"] + y * column["from_y"]
        past = [now] + [history[n] for n in range(HISTORY)]
        new = x * column["keep"] + noise * column["noise"]
        for n, h in enumerate(past):
            new = new + h * column[f"h{n}"]
        if self.masked:
            mask, kept = self.inputs["mask"], self.inputs["kept"]
            noisy = kept * signals[0][0] + self.inputs["kept_noise"] * signals[0][1]
            new = new * mask + noisy * (1 - mask)
        return (new, ops.stack(past[:HISTORY], 0)), None

    def _prediction(self, x: Tensor, time: Tensor, scale: Tensor) -> Tensor:
        given = x * scale
        if "extra" in self.inputs:
            given = ops.cat([given, self.inputs["extra"]], 1)
        if not self.guided:
            return self.denoiser(given, time.unsqueeze(0).expand(self.shape[0]), **self.conditions)
        twice = ops.cat([given, given], 0)
        times = time.unsqueeze(0).expand(2 * self.shape[0])
        without, prompted = ops.chunk(self.denoiser(twice, times, **self.conditions), 2, 0)
        return without + (prompted - without) * self.inputs["guidance"]

    def run(
        self, plan: Schedule, latents: np.ndarray, conditions: Mapping[str, np.ndarray],
        guidance: float, draw: Callable[[tuple[int, ...]], np.ndarray], watch: Watch | None = None,
        **given: np.ndarray,
    ) -> np.ndarray:  # fmt: skip
        """The latents after all steps. draw: fresh noise of a shape. watch: called after each step,
        of which a run makes one then. given: mask, kept, kept_noise, extra where the sampler takes
        them."""
        program = self.program
        if conditions.keys() != self.conditions.keys():
            raise InputError(f"conditions are {sorted(self.conditions)}, not {sorted(conditions)}")
        for name, tensor in self.conditions.items():
            program[tensor] = np.asarray(conditions[name], np.float32)
        program[self.inputs["guidance"]] = np.float32(guidance)
        for name, value in given.items():
            program[self.inputs[name]] = value.astype(np.float32)
        history = np.zeros((HISTORY, *self.shape), np.float32)
        signals = np.stack([plan.signal[1:], plan.sigma[1:]], -1)
        stride = plan.steps if watch is None else 1
        for start in range(0, plan.steps, stride):
            part = slice(start, min(start + stride, plan.steps))
            count = part.stop - start
            noise = draw((count, *self.shape)) if plan.random else np.zeros(
                (count, *self.shape), np.float32
            )  # fmt: skip
            values = {"latents": latents, "history": history, "times": plan.times[part],
                      "table": plan.table[part], "noise": noise}  # fmt: skip
            if self.masked:
                values["signals"] = signals[part]
            for name, value in values.items():
                program[self.inputs[name]] = np.asarray(value, np.float32)
            program.run()
            latents, history = (np.array(program[tensor]) for tensor in self.outputs)
            if watch is not None:
                watch(part.stop, plan.steps)
        return latents
