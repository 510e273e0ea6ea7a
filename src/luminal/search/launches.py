"""Whether several kernels shall be one launch, measured: the program with the launches that the
device's model proposes races with a launch for each kernel, at each range of sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ..backend.contract import Accelerator, Kept
from ..graph.dtype import DType
from ..kernel.kernel import Kernel
from ..runtime.joining import variants
from ..runtime.offloaded import Offloaded
from ..runtime.plan import Launch, Plan
from .tune import Tuning
from .whole import fastest

Inputs: TypeAlias = Mapping[int, tuple[DType, tuple[int, ...]]]


def settle(
    plan: Plan, codes: Sequence[Kept], tuning: Tuning, usual: Mapping[str, int],
    inputs: Callable[[Mapping[str, int]], Inputs],
) -> list[str]:  # fmt: skip
    """Keeps for later compilations which launches are faster; what was found, for people."""
    said = []
    for ranges, sizes in variants(plan, usual):
        mine = tuple(launch for launch in plan.launches if launch.ranges == ranges)
        if mine:
            good, found = _raced(replace(plan, launches=mine), codes, tuning.backend,
                                 inputs(sizes), sizes)  # fmt: skip
            said.append(found)
            for launch in mine:
                tuning.keep_joined(_kernels(plan, launch), good)
    return said


def _kernels(plan: Plan, launch: Launch) -> list[Kernel]:
    return [plan.kernels[number].kernel for number in plan.joints[launch.joint].kernels]


def _raced(
    plan: Plan, codes: Sequence[Kept], device: object, inputs: Inputs, sizes: Mapping[str, int]
) -> tuple[bool, str]:
    assert isinstance(device, Accelerator)
    plain, apart = [code.code for code in codes], replace(plan, joints=(), launches=())
    engines = [Offloaded(plan, plain, device),
               Offloaded(apart, plain[: len(plan.kernels)], device)]  # fmt: skip
    kernels = [made.kernel for made in plan.kernels]
    number, times = fastest(engines, inputs, sizes, 1, len(plan.outputs), kernels, device.seconds)
    return number == 0, f"each kernel a launch, in times of joined ones: {times[1]:.3f}"
