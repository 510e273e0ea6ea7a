"""all-MiniLM-L6-v2, f32, real weights: ours beside onnxruntime and torch eager, paired in one run.

python benchmarks/minilm.py [--threads 2] [--tokens 128] [--rounds 15]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from transformers import BertConfig, BertModel

from luminal.bench.machine import cpu_name
from luminal.bench.paired import paired
from luminal.models import SentenceEncoder
from luminal.models.sentence import default_directory
from luminal.weights import Safetensors


class Pooled(torch.nn.Module):
    """The same computation in PyTorch: mean over real tokens, unit length."""

    def __init__(self) -> None:
        super().__init__()
        directory = default_directory()
        config = BertConfig.from_json_file(directory / "config.json")
        config._attn_implementation = "eager"
        self.bert = BertModel(config).eval()
        state = {name: torch.from_numpy(a.copy()) for name, a in Safetensors(directory).items()}
        self.bert.load_state_dict(state, strict=False)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, dim=-1)


def onnx_session(model: Pooled, ids: torch.Tensor, mask: torch.Tensor, threads: int):
    """An onnxruntime session for this exact shape, with all graph optimisations."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        torch.onnx.export(
            model, (ids, mask), file, input_names=["ids", "mask"], output_names=["out"],
            dynamo=False, opset_version=17,
        )  # fmt: skip
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    start = time.perf_counter()
    encoder = SentenceEncoder(threads=options.threads)
    seconds = time.perf_counter() - start
    ids = np.random.default_rng(0).integers(1000, 30000, (1, options.tokens))
    mask = np.ones(ids.shape, np.bool_)
    model, tensors = Pooled(), (torch.from_numpy(ids), torch.ones(ids.shape, dtype=torch.int64))
    with torch.inference_mode():
        want = model(*tensors).numpy()
    error = float(np.abs(encoder.run(ids, mask) - want).max())
    if not error < 1e-4:
        raise SystemExit(f"wrong embedding: off by {error:.1e}")
    session = onnx_session(model, *tensors, options.threads)
    feeds = {"ids": ids, "mask": tensors[1].numpy()}

    def eager() -> None:
        with torch.inference_mode():
            model(*tensors)

    print(f"{cpu_name()}; {options.threads} threads, 1 x {options.tokens} tokens, f32")
    print(f"load and compile {seconds:.2f} s; largest difference from torch {error:.1e}")
    print(f"{'peer':14} {'ours us':>10} {'peer us':>10} {'ratio':>7} (quartiles)")
    peers = (("onnxruntime", lambda: session.run(None, feeds)), ("torch eager", eager))
    for name, peer in peers:
        timed = paired(encoder.program.run, peer, options.rounds, seconds=0.1)
        print(f"{name:14} {timed}")


if __name__ == "__main__":
    main()
