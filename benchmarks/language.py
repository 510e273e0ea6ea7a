"""A language model of a known shape with random weights, beside llama.cpp: both read one GGUF file.

    python benchmarks/language.py --kinds Q8_0,Q4_0,Q4_K,BF16 --prompt 128 --tokens 32 --threads 2

Needs `gguf`, and `llama-cpp-python` for the comparison. Each kind has a process of its own. The
files are kept in --folder (1.3 GB for Llama-3.2-1B in Q8_0) and made only once.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "language_model"))
from export import describe


@dataclass(frozen=True)
class Shape:
    """Of a Llama."""

    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool = True


SHAPES = {
    "1b": Shape(16, 2048, 8192, 32, 8, 64, 128_256),
    "8b": Shape(32, 4096, 14_336, 32, 8, 128, 128_256, tied=False),
    "tiny": Shape(2, 256, 512, 4, 2, 64, 1000),
}
SPREAD = 1.7  # of the quants of a block, over their standard deviation: so that activations stay


def write(path: Path, shape: Shape, kind: str) -> None:
    """A file with random matrices of one kind and norms of ones."""
    writer = gguf.GGUFWriter(path, "llama", use_temp_file=True)
    describe(writer, shape, context=8192, eps=1e-5, theta=500_000.0)
    _add_tokens(writer, shape)
    random = np.random.default_rng(0)

    def matrix(name: str, rows: int, columns: int) -> None:
        raw = random_rows(random, kind, rows, columns)
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=gguf.GGMLQuantizationType[kind])

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(shape.width, np.float32))

    inside, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    matrix("token_embd", shape.vocabulary, shape.width)
    norm("output_norm")
    if not shape.tied:
        matrix("output", shape.vocabulary, shape.width)
    for number in range(shape.layers):
        layer = f"blk.{number}."
        norm(layer + "attn_norm")
        norm(layer + "ffn_norm")
        matrix(layer + "attn_q", inside, shape.width)
        matrix(layer + "attn_k", keys, shape.width)
        matrix(layer + "attn_v", keys, shape.width)
        matrix(layer + "attn_output", shape.width, inside)
        matrix(layer + "ffn_gate", shape.hidden, shape.width)
        matrix(layer + "ffn_up", shape.hidden, shape.width)
        matrix(layer + "ffn_down", shape.width, shape.hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokens(writer: gguf.GGUFWriter, shape: Shape) -> None:
    """A vocabulary of bytes and made-up words."""
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    words = [f"\u2581t{number}" for number in range(shape.vocabulary - len(special))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(special + words)
    writer.add_token_scores([0.0] * shape.vocabulary)
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * len(words))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def random_rows(random: np.random.Generator, kind: str, rows: int, columns: int) -> np.ndarray:
    """Raw rows whose products with a vector keep its size, roughly: random bits for the quants, one
    scale for all blocks."""
    if kind == "BF16":
        wide = random.standard_normal((rows, columns), np.float32) / np.float32(columns**0.5)
        return (wide.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(rows, -1)
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    raw = random.integers(0, 256, (rows, columns // block, size), np.uint8)
    steps = {"Q8_0": [1 / 127], "Q4_0": [1 / 8], "Q4_K": [1 / 256, 1 / 32]}[kind]
    for place, step in enumerate(steps):
        scale = np.array([SPREAD * step / columns**0.5], np.float16).view(np.uint8)
        raw[..., 2 * place : 2 * place + 2] = scale
    return raw.reshape(rows, -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--layers", type=int, help="fewer than the shape has")
    parser.add_argument("--kinds", default="Q8_0,Q4_0,Q4_K,BF16")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "luminal-gguf")
    parser.add_argument("--json", type=Path, help="write all figures here")
    known, options = parser.parse_known_args()  # the others are of `luminal bench MODEL`
    shape = SHAPES[known.shape]
    shape = replace(shape, layers=known.layers or shape.layers)
    known.folder.mkdir(parents=True, exist_ok=True)
    figures = {}
    for kind in known.kinds.split(","):
        file = known.folder / f"llama-{known.shape}-{shape.layers}-{kind}.gguf"
        if not file.exists():
            unfinished = file.with_suffix(".part")
            write(unfinished, shape, kind)
            unfinished.rename(file)
        own = known.folder / f"{file.stem}.json"
        print(f"\n{kind}, {shape.layers} layers", flush=True)
        start = [sys.executable, "-P", "-c", "from luminal.cli import main; main()"]
        subprocess.run([*start, "bench", str(file), "--json", str(own), *options], check=True)
        figures[kind] = json.loads(own.read_text())
    if known.json:
        known.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
