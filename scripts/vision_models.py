"""Image models of torchvision, timm and diffusers under torch.compile, beside eager PyTorch.

    python scripts/vision_models.py [--only NAME,NAME] [--seconds 300]
    python scripts/vision_models.py --speed [--only NAME,NAME]

Random weights, three image sizes (three batch sizes for models of one image size), which Dynamo is
told will vary; `FIXED` models are compiled for each size, because Dynamo itself takes minutes to
reason about their symbolic shapes. Prints a row for each model: whether all results are within
1e-3 of eager's largest value, the share of operations that ran natively, graphs and programs,
seconds until the first result and until the other two: of the processor (all threads, children
too), which a busy machine hardly changes, and by the clock, which it does. With --speed: a call of
eager and of inductor in times of ours, in turns, for six models or those named. Needs torchvision,
timm and diffusers.
"""

from __future__ import annotations

import argparse
import copy
import os
import random
import signal
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import luminal.torch

TOLERANCE = 1e-3
TORCHVISION_OPS = """nms qnms roi_align roi_pool ps_roi_align ps_roi_pool deform_conv2d
_roi_align_backward _roi_pool_backward _ps_roi_align_backward _ps_roi_pool_backward
_deform_conv2d_backward""".split()


@dataclass(frozen=True)
class Case:
    """make: the model. inputs: its arguments for each of three sizes."""

    name: str
    make: Callable[[], torch.nn.Module]
    inputs: Callable[[], list[tuple[Any, ...]]]


def images(*sizes: int) -> Callable[[], list[tuple[Any, ...]]]:
    return lambda: [(torch.randn(2, 3, n, n),) for n in sizes]


def batches(size: int) -> Callable[[], list[tuple[Any, ...]]]:
    return lambda: [(torch.randn(n, 3, size, size),) for n in (2, 3, 4)]


def pairs(*sizes: int) -> Callable[[], list[tuple[Any, ...]]]:
    return lambda: [(torch.randn(1, 3, n, n), torch.randn(1, 3, n, n)) for n in sizes]


def declare_torchvision_ops() -> list[torch.library.Library]:
    """Its wheel may not load its own kernels (no CUDA here); its Python wants them declared."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in TORCHVISION_OPS:
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(...) -> Tensor")
    return [library]


FIXED = ("swin_t", "swin_v2_t", "raft_small", "xcit_nano")
SPEED = "resnet18,mobilenet_v3_small,efficientnet_b0,convnext_tiny,vit_tiny,swin_t"
SMALL, LARGE = (64, 96, 128), (128, 136, 144)
TORCHVISION = {
    "swin_t": images(*SMALL), "swin_v2_t": images(*SMALL), "maxvit_t": batches(224),
    "convnext_tiny": images(*SMALL), "efficientnet_b0": images(*SMALL), "resnet18": images(*SMALL),
    "mobilenet_v3_small": images(*SMALL), "shufflenet_v2_x0_5": images(*SMALL),
    "squeezenet1_1": images(*SMALL), "mnasnet0_5": images(*SMALL), "regnet_y_400mf": images(*SMALL),
    "densenet121": images(*SMALL), "vgg11": images(*SMALL), "googlenet": images(*SMALL),
}  # fmt: skip
TIMM = {
    "nf_resnet26": images(*SMALL), "nfnet_l0": images(*SMALL), "coatnet_pico_rw_224": batches(224),
    "convnext_atto": images(*SMALL), "mobilevit_xxs": images(*SMALL),
    "edgenext_xx_small": images(*SMALL), "poolformer_s12": images(*SMALL),
    "vit_tiny_patch16_224": batches(224), "mixer_s32_224": batches(224),
    "ghostnet_050": images(*SMALL), "repvgg_a0": images(*SMALL), "pvt_v2_b0": images(*SMALL),
    "hrnet_w18_small": images(*SMALL), "res2net50_14w_8s": images(*SMALL),
    "levit_128s": batches(224), "xcit_nano_12_p16_224": images(*SMALL),
}  # fmt: skip


def cases() -> Iterable[Case]:
    """Those whose library is installed."""
    kept = declare_torchvision_ops()
    import torchvision

    weightless = {"weights": None}
    for name, inputs in TORCHVISION.items():
        extra = {"init_weights": False} if name == "googlenet" else {}
        make = getattr(torchvision.models, name)
        yield Case(f"torchvision {name}", lambda m=make, e=extra: m(**weightless, **e), inputs)
    flow, segment = torchvision.models.optical_flow, torchvision.models.segmentation
    yield Case("torchvision raft_small", lambda: flow.raft_small(**weightless), pairs(*LARGE))
    for name in ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"):
        bare = {**weightless, "weights_backbone": None}
        make = getattr(segment, name)
        yield Case(f"torchvision {name}", lambda m=make, b=bare: m(**b), images(*SMALL))
    del kept
    import timm

    for name, inputs in TIMM.items():
        yield Case(f"timm {name}", lambda n=name: timm.create_model(n), inputs)
    yield from unets()


def unets() -> Iterable[Case]:
    import diffusers

    narrow = {"block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8}

    def plain() -> torch.nn.Module:
        return diffusers.UNet2DModel(
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"), **narrow,
        )  # fmt: skip

    def conditioned() -> torch.nn.Module:
        return diffusers.UNet2DConditionModel(
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=32,
            attention_head_dim=8, **narrow,
        )  # fmt: skip

    def latents(channels: int, *more: Any) -> list[tuple[Any, ...]]:
        steps = torch.tensor([3, 500])
        return [(torch.randn(2, channels, n, n), steps, *more) for n in (16, 24, 32)]

    yield Case("diffusers UNet2D", plain, lambda: latents(3))
    text = torch.randn(2, 7, 32)
    yield Case("diffusers UNet2DCondition", conditioned, lambda: latents(4, text))


def roughened(model: torch.nn.Module) -> torch.nn.Module:
    """What starts as zeros, and scales and statistics that start as ones, get values that matter:
    a last layer of zeros would hide all others."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point() and (tensor.ndim <= 1 or not tensor.any()):
                tensor.add_(torch.rand_like(tensor) * 0.2)
    return model.eval()


def results(value: Any) -> list[torch.Tensor]:
    """All tensors in what a model returns."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return [tensor for part in parts for tensor in results(part)]


def error(got: Any, expected: Any) -> float:
    """The largest difference, of the largest value."""
    worst = 0.0
    for mine, theirs in zip(results(got), results(expected), strict=True):
        difference = (mine - theirs).abs().max() / theirs.abs().max().clamp(min=1e-30)
        worst = max(worst, float(difference.nan_to_num(float("inf"))))
    return worst


def measured(case: Case) -> str:
    """A row of the table."""
    torch._dynamo.reset()
    luminal.torch.reset()
    torch.manual_seed(0)
    model = roughened(case.make())
    fixed = any(name in case.name for name in FIXED)
    run = torch.compile(model, backend=luminal.torch.backend, dynamic=False if fixed else None)
    worst, seconds, inputs = 0.0, [], case.inputs()
    with torch.no_grad():
        for arguments in inputs:
            if not fixed:
                mark_varying(arguments, inputs)
            expected = model(*arguments)
            start = clocks()
            got = run(*arguments)
            seconds.append(clocks() - start)
            worst = max(worst, error(got, expected))
    report = luminal.torch.report()
    eager = sum(report.fallbacks.values())
    share = report.native / max(report.native + eager, 1)
    right = "yes" if worst <= TOLERANCE else "NO"
    more = "; ".join(f.splitlines()[0] for f in report.failures[:1])
    reasons = ", ".join(sorted({fallback.op for fallback in report.fallbacks})[:3])
    return (
        f"{right:5} {worst:8.1e} {share:7.1%} {report.graphs:6} {report.parts:8} "
        f"{pair(seconds[0])} {pair(sum(seconds[1:]))}  {reasons} {more}"
    )


def clocks() -> np.ndarray:
    """Seconds of the processor, children's too, and by the clock."""
    spent = os.times()
    return np.array([sum(spent[:4]), spent.elapsed])


def pair(seconds: np.ndarray) -> str:
    return f"{seconds[0]:8.1f} {seconds[1]:8.1f}"


def mark_varying(arguments: tuple[Any, ...], inputs: list[tuple[Any, ...]]) -> None:
    """The dimensions in which the inputs differ."""
    for place, tensor in enumerate(arguments):
        for d in range(tensor.ndim):
            if len({others[place].shape[d] for others in inputs}) > 1:
                torch._dynamo.maybe_mark_dynamic(tensor, d)


class TooSlowError(BaseException):
    """No fault that a compiler may take for its own."""


def compared(case: Case, rounds: int = 40, least: float = 0.05) -> str:
    """A row of ratios: quartiles of the rounds, in each of which every side runs once, in as many
    calls as take eager `least` seconds. One thread is timed by the processor, which a busy machine
    disturbs less, though its clock may stand still for some milliseconds."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, arguments = roughened(case.make()), case.inputs()[-1]
    sides = {"eager": model}
    for name, backend in (("ours", luminal.torch.backend), ("inductor", "inductor")):
        sides[name] = torch.compile(copy.deepcopy(model), backend=backend, dynamic=False)
    times: dict[str, list[float]] = {name: [] for name in sides}

    def seconds(name: str, calls: int) -> float:
        start = clock()
        for _ in range(calls):
            sides[name](*arguments)
        return (clock() - start) / calls

    with torch.no_grad():
        for name in sides:  # the first calls compile, and place weights
            seconds(name, 3)
        calls = max(1, round(least / max(seconds("eager", 5), 1e-3)))
        for _ in range(rounds):
            for name in sorted(sides, key=lambda _: random.random()):
                times[name].append(seconds(name, calls))
    ours = times["ours"]
    row = f"{statistics.median(ours) * 1e3:8.2f} ms"
    for name in ("eager", "inductor"):
        ratios = [theirs / mine for theirs, mine in zip(times[name], ours)]
        low, middle, high = statistics.quantiles(ratios)
        least = min(times[name]) / min(ours)
        row += f"   {name} {middle:5.2f} ({low:.2f} .. {high:.2f}), of the fastest {least:5.2f}"
    return row


def interrupted(*_: Any) -> None:
    raise TooSlowError("stopped")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="parts of names, with commas")
    parser.add_argument("--seconds", type=int, default=300, help="of the processor, for each model")
    parser.add_argument("--speed", action="store_true", help="beside eager and inductor")
    chosen = parser.parse_args()
    names = chosen.only or (SPEED if chosen.speed else "")
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, interrupted)
    if not chosen.speed:
        heads = f"{'processor':>8} {'clock':>8}"
        print(f"{'model':42} right    error  native graphs programs {heads}, others: {heads}")
    for case in cases():
        if any(part in case.name for part in names.split(",")):
            signal.setitimer(signal.ITIMER_PROF, chosen.seconds)
            try:
                row = compared(case) if chosen.speed else measured(case)
            except (Exception, TooSlowError) as fault:
                row = f"{'FAILED':6} {type(fault).__name__}: {fault}".splitlines()[0]
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            print(f"{case.name:42} {row}", flush=True)


if __name__ == "__main__":
    main()
