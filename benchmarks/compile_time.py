"""Compile time, cold, by stage: a decoder of 2, 8 and 32 layers, and all-MiniLM-L6-v2.

    python benchmarks/compile_time.py

Each case runs in a process of its own with empty caches, so that nothing is remembered from the
case before.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

import luminal
from luminal import nn
from luminal.runtime.executable import Executable

LAYERS = (2, 8, 32)


def decoder(layers: int) -> Executable:
    """A Llama-like decoder without its head: width 512, 8 heads, symbolic length, no weights."""
    graph = luminal.Graph()
    graph.dim("s", 1, 1024)
    x = graph.tensor((1, "s", 512))
    with nn.uninitialised():
        rotary = nn.RotaryEmbedding(graph, 64)
        for _ in range(layers):
            x = nn.DecoderBlock(graph, 512, 8, 4, 1376, rotary)(x)
    x.output()
    return graph.compile(threads=2)


def minilm() -> Executable:
    from luminal.models import SentenceEncoder

    return SentenceEncoder(threads=2).program


def measure(name: str) -> None:
    start, spent = time.perf_counter(), time.process_time()
    program = minilm() if name == "minilm" else decoder(int(name))
    seconds, spent = time.perf_counter() - start, time.process_time() - spent
    stages = " ".join(program.explain().split("regions:")[0].split())
    print(f"{name:>7}: {seconds:5.2f} s with the model's own loading, {spent:5.2f} s CPU; {stages}")


def main() -> None:
    if len(sys.argv) > 1:
        measure(sys.argv[1])
        return
    for name in (*map(str, LAYERS), "minilm"):
        with tempfile.TemporaryDirectory() as empty:
            environment = {**os.environ, "XDG_CACHE_HOME": empty}
            subprocess.run([sys.executable, __file__, name], check=True, env=environment)


if __name__ == "__main__":
    main()
