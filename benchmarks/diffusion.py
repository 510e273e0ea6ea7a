"""A step of a diffusion UNet beside inductor: one evaluation with guidance, random weights.

    python benchmarks/diffusion.py [--width 320] [--latents 64] [--threads 2] [--eager] [--layers]

The sizes are Stable Diffusion 1.5's; --width 32 --latents 8 is a tenth of it, to try. --layers: one
residual block with its transformer of each resolution at a time, in processor time: the whole net
takes 10 GB. Needs torch and diffusers. Times are taken in turns; results are compared before.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import torch
from diffusers import UNet2DConditionModel

import luminal
from luminal import nn
from luminal.bench.paired import paired
from luminal.graph import Tensor
from luminal.models.diffusion.blocks import RENAMES, ResnetBlock, SpatialTransformer
from luminal.models.diffusion.unet import UNet, UNetConfig
from luminal.models.vision.layers import renamed
from luminal.weights.fields import Fields

CONTEXT, TOKENS, HEADS = 768, 77, 8


def theirs(width: int, latents: int) -> torch.nn.Module:
    """diffusers' net in the form of Stable Diffusion 1.5."""
    torch.manual_seed(0)
    return UNet2DConditionModel(
        sample_size=latents, cross_attention_dim=CONTEXT, attention_head_dim=HEADS,
        block_out_channels=[width * n for n in (1, 2, 4, 4)],
    ).eval()  # fmt: skip


class Layer(nn.Module):
    """A residual block of some inputs, and the transformer behind it."""

    def __init__(self, graph: luminal.Graph, config: UNetConfig, place: int, inputs: int) -> None:
        super().__init__()
        width = config.channels[place]
        time_width = 4 * config.channels[0]
        self.resnet = ResnetBlock(graph, inputs, width, config.groups, config.eps, time_width)
        self.attention = SpatialTransformer(
            graph, width, config.heads[place], config.context, config.depth[place], config.groups,
            config.linear,
        )  # fmt: skip

    def forward(self, x: Tensor, times: Tensor, context: Tensor) -> Tensor:
        return self.attention(self.resnet(x, times), context)


class TheirLayer(torch.nn.Module):
    """The same of diffusers, with random weights of unit gain."""

    def __init__(self, block: torch.nn.Module, n: int) -> None:
        super().__init__()
        self.resnet, self.attention = block.resnets[n], block.attentions[n]
        self.to_empty(device="cpu")
        with torch.no_grad():
            for name, value in self.named_parameters():
                if value.ndim > 1:
                    value.normal_(0, value[0].numel() ** -0.5)
                else:
                    value.fill_(float("norm" in name and name.endswith("weight")))

    def forward(
        self, x: torch.Tensor, times: torch.Tensor, context: torch.Tensor
    ) -> torch.Tensor:
        return self.attention(self.resnet(x, times), context).sample


def layers(given: argparse.Namespace) -> None:
    """A line for each: where, channels in and out, off by, seconds of both, their ratio."""
    with torch.device("meta"):
        net = theirs(given.width, given.latents)
    config = UNetConfig.read(Fields(json.loads(net.to_json_string()), "config"))
    for place, (side, n) in enumerate([("down", 1), ("down", 1), ("down", 1)] + [("up", 0)] * 3):
        place %= 3
        block = net.down_blocks[place] if side == "down" else net.up_blocks[3 - place]
        peer_layer = TheirLayer(block, n)
        inputs = peer_layer.resnet.conv1.in_channels
        pixels = given.latents >> place
        rng = np.random.default_rng(0)
        shapes = ((2, inputs, pixels, pixels), (2, 4 * given.width), (2, TOKENS, CONTEXT))
        arrays = [rng.standard_normal(shape, np.float32) for shape in shapes]
        graph = luminal.Graph()
        tensors = [graph.tensor(shape) for shape in shapes]
        with nn.uninitialised():
            ours = Layer(graph, config, place, inputs)
        output = ours(*tensors).output()
        state = {name: value.numpy() for name, value in peer_layer.state_dict().items()}
        ours.load_state_dict(renamed(state, RENAMES))
        program = graph.compile(threads=given.threads)
        for tensor, array in zip(tensors, arrays):
            program[tensor] = array
        compiled = peer_layer if given.eager else torch.compile(peer_layer)
        found = in_processor_time(program.run, compiled, list(map(torch.from_numpy, arrays)),
                                  given.rounds)  # fmt: skip
        with torch.inference_mode():
            wanted = peer_layer(*map(torch.from_numpy, arrays)).numpy()
        off = np.abs(program[output] - wanted).max() / np.abs(wanted).max()
        print(f"{side} {pixels}x{pixels} {inputs} to {config.channels[place]}: off by {off:.0e}, "
              f"{found[0]:.3f} s, {found[1]:.3f} s, ratio {found[2]:.2f}", flush=True)  # fmt: skip


def in_processor_time(
    ours: Callable[[], object], peer: torch.nn.Module, arrays: list[torch.Tensor], rounds: int
) -> tuple[float, float, float]:
    """Medians of both, in turns, and of their ratios, after a call to warm up."""
    times = np.empty((rounds + 1, 2))
    for n in range(rounds + 1):
        start = time.process_time()
        ours()
        middle = time.process_time()
        with torch.inference_mode():
            peer(*arrays)
        times[n] = middle - start, time.process_time() - middle
    ours_s, peer_s = np.median(times[1:], 0)
    return float(ours_s), float(peer_s), float(np.median(times[1:, 1] / times[1:, 0]))


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, usual in (("width", 320), ("latents", 64), ("threads", 2), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--eager", action="store_true", help="beside eager PyTorch instead")
    parser.add_argument("--layers", action="store_true", help="layer by layer, in processor time")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.layers:
        layers(given)
        return
    net = theirs(given.width, given.latents)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, 4, given.latents, given.latents), np.float32),
              np.array([500.0, 500.0], np.float32),
              rng.standard_normal((2, TOKENS, CONTEXT), np.float32)]  # fmt: skip
    graph = luminal.Graph()
    inputs = [graph.tensor(array.shape) for array in arrays]
    config = UNetConfig.read(Fields(json.loads(net.to_json_string()), "config"))
    with nn.uninitialised():
        ours = UNet(graph, config)
    output = ours(*inputs).output()
    state = {name: value.numpy() for name, value in net.state_dict().items()}
    ours.load_state_dict(renamed(state, RENAMES))
    start = time.perf_counter()
    program = graph.compile(threads=given.threads)
    print(f"compiled in {time.perf_counter() - start:.1f} s")
    for tensor, array in zip(inputs, arrays):
        program[tensor] = array
    peer_net = net if given.eager else torch.compile(net)
    tensors = [torch.from_numpy(array) for array in arrays]

    def peer() -> None:
        with torch.inference_mode():
            peer_net(*tensors)

    program.run()
    start = time.perf_counter()
    peer()
    print(f"the peer's first call: {time.perf_counter() - start:.1f} s")
    with torch.inference_mode():
        wanted = net(*tensors).sample.numpy()
    off = np.abs(program[output] - wanted).max() / np.abs(wanted).max()
    print(f"largest difference from eager: {off:.1e} of the largest value")
    found = paired(program.run, peer, given.rounds)
    print(f"microseconds of ours, of the peer, and their ratio: {found}")


if __name__ == "__main__":
    main()
