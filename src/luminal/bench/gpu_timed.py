"""Programs on a GPU: what they take, whole and kernel by kernel; a language model's step."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from ..backend.contract import Accelerator
from ..errors import LuminalError
from ..graph.node import Node
from ..models.llm.families import family_of
from ..models.llm.program import recorded
from ..models.llm.storage import Storage
from ..runtime.executable import Executable
from ..weights.fields import Fields
from .gpu_models import LAYERS, LLAMA3_8B

Figures: TypeAlias = dict[str, Any]
CLOSE = 2e-2  # of results, relative to their size: bf16 has eight bits
REPEAT = 5
KINDS = ("bf16", "q8", "q4k")  # of matrices
TINY = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 96, "vocab_size": 80}  # fmt: skip


def distance(here: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference over the largest number."""
    apart = np.abs(here.astype(np.float64) - wanted.astype(np.float64))
    return float(apart.max() / np.abs(wanted.astype(np.float64)).max())


def copied(device: Accelerator, size: int) -> Figures:
    """Bytes from one place of the device to another: read and written."""
    buffers = [device.allocate(size) for _ in range(2)]
    seconds = min(
        device.seconds(lambda: device.copy(buffers[0], buffers[1], size)) for _ in range(REPEAT)
    )
    return {"name": "copy", "seconds": seconds, "GB/s": 2e-9 * size / seconds}


def timed(rt: Executable, device: Accelerator, flops: float, moved: int, **sizes: int) -> Figures:
    """Of runs that follow each other, inputs as they are, and of the kernels alone. moved: bytes
    that a run must read or write."""

    def runs() -> None:
        for _ in range(REPEAT):
            rt.run(**sizes)

    runs()  # the last ones are launches of a graph, where there are such
    seconds = min(device.seconds(runs) for _ in range(REPEAT)) / REPEAT
    kernels = rt.time_kernels(REPEAT)
    rates = {"TFLOP/s": 1e-12 * flops / seconds} if flops else {}
    told = [each for each in device.resources(list(rt.sources().values())) if each]
    most = {name: max(each[name] for each in told) for name in ("registers", "spilled") if told}
    return {
        "seconds": seconds, "alone": sum(spent for _, spent in kernels), **rates,
        "GB/s": 1e-9 * moved / seconds, "kernels": len(kernels), **most,
    }  # fmt: skip


def decoder(on: str, device: Accelerator, kind: str, small: bool) -> list[Figures]:
    """Two layers of Llama (those of 8 B, or tiny ones) and the head: a prompt, then a token."""
    context, prompt = (64, 16) if small else (1024, 512)
    fields = Fields(LLAMA3_8B | {"num_hidden_layers": LAYERS} | (TINY if small else {}), "Llama")
    names = [f"{LAYERS} layers {kind}, {rows}" for rows in (f"{prompt} tokens", "one token")]
    rows, rng = list[Figures](), np.random.default_rng(0)
    try:
        config = family_of(fields).config(fields)
        made = recorded(config, context, prompt, Storage(kind), "f16")
        graph = made.whole()
        rts = [graph.compile(each, precision="bf16", cache=False) for each in (on, "cpu")]
        states = {state.node for state in made.states}
        weights = {
            source: _weights(source.node, rng, kind) for source in graph.sources
            if source.node.attribute.kind == "parameter" and source.node not in states
        }  # fmt: skip
        for rt in rts:
            rt.set_parameters(weights.items)
            rt.clear(made.states)
        moved = sum(array.nbytes for array in weights.values())
        for name, tokens, position in zip(names, (prompt, 1), (0, prompt)):
            ids = rng.integers(0, config.vocabulary, tokens)
            for rt in rts:
                rt["ids"] = ids
                rt.run(position=position, wanted=1)
            rows.append({"name": name, "apart": distance(*(rt["logits"] for rt in rts))})
            if not rows[-1]["apart"] < CLOSE:
                rows[-1]["fault"] = "wrong"
                continue
            rows[-1] |= timed(rts[0], device, 0.0, moved, position=position, wanted=1)
    except LuminalError as error:
        fault = f"{type(error).__name__}: {error}"
        rows += [{"name": name, "fault": fault} for name in names[len(rows) :]]
    return rows


def _weights(node: Node, rng: np.random.Generator, kind: str) -> np.ndarray:
    """Bytes of all kinds; around 1 for norms; small for matrices, scales of bytes smaller."""
    shape, width = tuple(map(int, node.shape)), node.dtype.bytes
    count = math.prod(shape)
    if node.dtype.is_integer:
        given = rng.integers(0, 256, 1 << 16).astype(np.uint8)
        return np.resize(given, count * width).view(node.dtype.numpy).reshape(shape)
    values = rng.standard_normal(min(1 << 16, count)) / 8
    values = 1 + values if len(shape) == 1 else values if kind == "bf16" else values / 128
    return np.resize(values.astype(node.dtype.numpy), shape)
