"""What a loaded model holds in memory: its packed weights once, its cache, little else."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest
import torch
import transformers

from luminal import LLM

from .checkpoints import SIZES

VOCABULARY, WIDTH = 60_000, 256
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def resident() -> int:
    """Bytes of this process's own memory; what lies in mapped files is not."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    (found,) = [line.split()[1] for line in lines if line.startswith("RssAnon")]
    return int(found) << 10


def saved(folder: Path, vocabulary: int) -> Path:
    """A model that is mostly a table of embeddings, which is its head too."""
    sizes = SIZES | {"vocab_size": vocabulary, "hidden_size": WIDTH, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(**sizes, tie_word_embeddings=True)
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def test_weights_lie_in_memory_once(tmp_path: Path) -> None:
    """At the first start, which packs them, and at the second, which finds them packed."""
    table, logits = 4 * VOCABULARY * WIDTH, []
    LLM(saved(tmp_path / "small", 64), context=64, threads=1)  # code is loaded before it counts
    directory = saved(tmp_path / "large", VOCABULARY)
    for _ in range(2):
        before = resident()
        llm = LLM(directory, context=64, threads=1)
        logits.append(llm.logits([5, VOCABULARY - 1, 7])[-1])
        held = llm.program.peak_bytes
        assert table < held < 1.1 * table
        assert resident() - before < 1.15 * held + (24 << 20)  # code and plans: 24 MiB
        del llm
    assert (logits[0] == logits[1]).all()
