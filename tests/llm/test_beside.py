"""Adapters side by side: in one batch each reply is that of a model with its adapter merged."""

from __future__ import annotations

from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from luminal.errors import InputError, Unsupported
from luminal.models.llm import Engine, Wishes
from luminal.models.llm.engine import _until_finish
from luminal.models.llm.loading import load
from luminal.server import create_app
from luminal.server.shelf import Shelf

from .checkpoints import checkpoint
from .test_formats import adapter, model_with

IDS = list(range(3, 23))
NAMES = ["plain", "first", "second"]


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Any]]:
    """Two adapters of different ranks and matrices; models of transformers without and with."""
    folder, (_, model) = tmp_path_factory.mktemp("adapters"), checkpoint("llama3")
    state = {n: p.detach().numpy() for n, p in model.named_parameters()}
    parts = [("q_proj.weight", "down_proj.weight"), ("layers.0.self_attn.v_proj.weight",)]
    paths, models = [folder / name for name in NAMES[1:]], [model]
    for path, ends in zip(paths, parts):
        names = [name for name in state if name.endswith(ends)]
        models.append(model_with("llama3", adapter(path, names, state)))
    return paths, models


def test_replies_of_one_batch_are_those_of_merged_models(
    merged: tuple[list[Path], list[Any]],
) -> None:
    paths, models = merged
    directory = checkpoint("llama3")[0]
    engine = Engine.load(directory, precision="f32", context=64, threads=1, batch=4, chunk=40,
                         adapters=paths)  # fmt: skip
    app = create_app(Shelf(NAMES[0], engine, adapters=NAMES[1:]), NAMES[0])
    with TestClient(app, "http://localhost") as client:
        assert [m["id"] for m in client.get("/v1/models").json()["data"]][:3] == NAMES
        boxes, found = [SimpleQueue[Any]() for _ in NAMES], []
        wishes = [Wishes(limit=12, logprobs=1, adapter=number) for number in range(3)]
        engine.submit([(IDS, wish, box.put) for wish, box in zip(wishes, boxes)])  # in one batch
        for box, name, model in zip(boxes, NAMES, models):
            pieces = _until_finish(box)
            made = [piece for piece in pieces if piece.token is not None]
            tokens = [piece.token for piece in made]
            with torch.no_grad():
                logits = model(torch.tensor([IDS + tokens])).logits[0, len(IDS) - 1 : -1]
            expected = logits.log_softmax(-1)
            assert expected.argmax(-1).tolist() == tokens
            found.append([piece.logprob for piece in made])
            wanted = expected.amax(-1).numpy()
            np.testing.assert_allclose(found[-1], wanted, rtol=1e-4, atol=1e-5)
            body = {"model": name, "prompt": IDS, "max_tokens": 12, "temperature": 0,
                    "logprobs": 1}  # fmt: skip
            reply = client.post("/v1/completions", json=body).json()
            assert reply["model"] == name
            told = reply["choices"][0]["logprobs"]["token_logprobs"]
            np.testing.assert_allclose(told, wanted[: len(told)], rtol=1e-4, atol=1e-5)
        assert not np.allclose(found[0], found[1]) and not np.allclose(found[0], found[2])
        with pytest.raises(InputError, match="adapter 3: this engine has 2"):
            engine.complete([IDS], Wishes(adapter=3))


def test_what_can_only_be_merged_is_refused(tmp_path: Path) -> None:
    """phi3 has queries, keys and values in one matrix."""
    directory, model = checkpoint("phi3")
    state = {n: p.detach().numpy() for n, p in model.named_parameters()}
    adapter(tmp_path / "a", [n for n in state if n.endswith("qkv_proj.weight")], state)
    with pytest.raises(Unsupported, match="no matrix of its own"):
        load(directory, adapters=[tmp_path / "a"])
