"""A step of a diffusion UNet beside inductor: one evaluation with guidance, random weights.

    python benchmarks/diffusion.py [--width 320] [--latents 64] [--threads 2] [--eager]

The sizes are Stable Diffusion 1.5's; --width 32 --latents 8 is a tenth of it, to try. Needs torch
and diffusers. Times are taken in turns; results are compared before.
"""

from __future__ import annotations

import argparse
import json
import time

import diffusers
import numpy as np
import torch

import luminal
from luminal import nn
from luminal.bench.paired import paired
from luminal.models.diffusion.blocks import RENAMES
from luminal.models.diffusion.unet import UNet, UNetConfig
from luminal.models.vision.layers import renamed
from luminal.weights.fields import Fields

CONTEXT, TOKENS, HEADS = 768, 77, 8


def theirs(width: int, latents: int) -> torch.nn.Module:
    """diffusers' net in the form of Stable Diffusion 1.5."""
    torch.manual_seed(0)
    return diffusers.UNet2DConditionModel(
        sample_size=latents, cross_attention_dim=CONTEXT, attention_head_dim=HEADS,
        block_out_channels=[width * n for n in (1, 2, 4, 4)],
    ).eval()  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, usual in (("width", 320), ("latents", 64), ("threads", 2), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--eager", action="store_true", help="beside eager PyTorch instead")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
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
