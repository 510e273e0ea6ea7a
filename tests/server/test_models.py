"""Several models in one server, as many loaded at once as the memory bound allows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from llm.checkpoints import checkpoint, greedy
from models.test_encoders import TEXTS, made
from starlette.testclient import TestClient

from luminal.cli import main
from luminal.cli.serve import _bytes_of
from luminal.errors import InputError
from luminal.models.llm import Engine
from luminal.server import Options, create_app
from luminal.server.ranking import Ranker
from luminal.server.run import build
from luminal.server.shelf import Offer, Shelf

NAMES = ("llama3", "granite4")


def load(name: str) -> Engine:
    engine = Engine.load(checkpoint(name)[0], context=64, batch=3, chunk=12, cache=96, threads=1)
    engine.config = replace(engine.config, end_tokens=())
    return engine


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    """Room for one of two."""
    first = load(NAMES[0])
    offers = {name: Offer(partial(load, name), 1) for name in NAMES}
    made = Shelf(NAMES[0], first, offers, first.program.peak_bytes + 2)
    yield made
    made.close()


def test_models_make_room_for_each_other(shelf: Shelf) -> None:
    with TestClient(create_app(shelf, NAMES[0]), "http://localhost") as client:
        assert [m["id"] for m in client.get("/v1/models").json()["data"]][:2] == list(NAMES)
        for name in (NAMES[0], NAMES[1], NAMES[0]):
            ids = [5, 9, 77]
            body = {"model": name, "prompt": ids, "max_tokens": 6, "temperature": 0}
            if name == NAMES[1]:
                shelf.memory = 1 << 40  # it is larger: both may stay
            reply = client.post("/v1/completions", json=body)
            assert reply.status_code == 200, reply.text
            tokenizer = next(each for each in shelf if each.name == name).tokenizer
            text = tokenizer.decode(greedy(checkpoint(name)[1], ids, 6), False)
            assert reply.json()["choices"][0]["text"].strip() == text.strip()
            assert reply.json()["model"] == name
        assert set(shelf.loaded) == set(NAMES)
        shelf.memory = 2  # what is not loaded has no room any more, whatever is unloaded
        missing = client.post("/v1/completions", json={"model": "no", "prompt": "a"})
        assert missing.status_code == 404
        generated = [line for line in client.get("/metrics").text.splitlines()
                     if line.startswith("luminal_generated_total ")]  # fmt: skip
        assert float(generated[0].split()[1]) == 18


def test_the_one_asked_for_least_recently_goes(shelf: Shelf) -> None:
    with TestClient(create_app(shelf, NAMES[0]), "http://localhost") as client:
        body = {"prompt": [5, 9], "max_tokens": 2}
        large = client.post("/v1/completions", json={"model": NAMES[1], **body})
        assert large.status_code == 503  # it took more than was thought
        assert shelf.loaded == [NAMES[0]] and "may take" in large.json()["error"]["message"]
        shelf.memory = shelf._offers[NAMES[1]].bytes
        assert client.post("/v1/completions", json={"model": NAMES[1], **body}).status_code == 200
        assert shelf.loaded == [NAMES[1]]
        shelf._offers[NAMES[0]] = Offer(partial(load, NAMES[0]), 1 << 40)
        refused = client.post("/v1/completions", json={"model": NAMES[0], **body})
        assert refused.status_code == 503 and "may take" in refused.json()["error"]["message"]
        assert shelf.loaded == [NAMES[1]]


def test_models_of_all_kinds_share_the_bound(shelf: Shelf, tmp_path: Path) -> None:
    """A reranker takes the place of a model for chats, and gives it back; what grows makes others
    go; both stay where there is room."""
    made(tmp_path, "BertConfig", "BertForSequenceClassification")
    ranker = Ranker(tmp_path, threads=1, device="reference", name="ranks")
    with TestClient(create_app(shelf, NAMES[0], ranker=ranker), "http://localhost") as client:
        words = {"model": NAMES[0], "prompt": [5, 9], "max_tokens": 2}
        ranks = {"model": "ranks", "query": "w3", "documents": TEXTS}
        enough, shelf.memory = shelf.memory, 1
        refused = client.post("/v1/rerank", json=ranks)
        assert refused.status_code == 503 and "ranks takes" in refused.json()["error"]["message"]
        shelf.memory = enough
        for path, body, left in (("rerank", ranks, ["ranks"]), ("completions", words, NAMES[:1]),
                                 ("rerank", ranks, ["ranks"])):  # fmt: skip
            reply = client.post(f"/v1/{path}", json=body)
            assert reply.status_code == 200, reply.text
            assert shelf.loaded == list(left)
        size = ranker.model.bytes
        assert size > 0
        shelf.memory = 1 << 40
        assert client.post("/v1/completions", json=words).status_code == 200
        shelf.memory = size
        assert client.post("/v1/rerank", json=ranks).status_code == 200
        assert shelf.loaded == ["ranks"]


def test_what_is_gone_is_told(shelf: Shelf, tmp_path: Path) -> None:
    """Files that were deleted since the server began."""
    folder = tmp_path / "gone"
    made(folder, "BertConfig", "BertForSequenceClassification")
    ranker = Ranker(folder, threads=1, device="reference")
    shutil.rmtree(folder)
    shelf._offers["granite4"] = Offer(partial(Engine.load, folder), 1)
    with TestClient(create_app(shelf, NAMES[0], ranker=ranker), "http://localhost") as client:
        words = {"model": NAMES[1], "prompt": [5, 9], "max_tokens": 2}
        ranks = {"model": "gone", "query": "w3", "documents": TEXTS}
        for path, body in (("completions", words), ("rerank", ranks)):
            refused = client.post(f"/v1/{path}", json=body)
            assert refused.status_code == 404
            assert "cannot be loaded any more" in refused.json()["error"]["message"]
        words["model"] = NAMES[0]
        assert client.post("/v1/completions", json=words).status_code == 200


def test_models_have_names_of_their_own(tmp_path: Path) -> None:
    folder = checkpoint("llama3")[0]
    made(tmp_path / "ranks=1", "BertConfig", "BertForSequenceClassification")
    options = Options(
        chunk=8, batch=2, threads=1, device="reference", context=40,
        embeddings=tmp_path / "ranks=1", reranker=f"best={tmp_path}/ranks=1",
    )  # fmt: skip
    server = build(f"chat={folder}", options, [f"code={folder}"])
    with TestClient(server.config.app, "http://localhost") as client:  # type: ignore[arg-type]
        listed = [each["id"] for each in client.get("/v1/models").json()["data"]]
        assert listed[:4] == ["chat", "code", "ranks=1", "best"]
        for name in ("chat", "code"):
            body = {"model": name, "prompt": [5, 9], "max_tokens": 2}
            reply = client.post("/v1/completions", json=body)
            assert reply.status_code == 200 and reply.json()["model"] == name
    with pytest.raises(InputError, match="NAME=MODEL gives another"):
        build(str(folder), options, [f"{folder.name}={folder}"])
    with pytest.raises(InputError, match="has a name and a model"):
        build("chat=", options)
    with pytest.raises(InputError, match="NAME=MODEL names one of them"):
        build(str(folder), replace(options, name="chat"), [f"code={folder}"])


def test_bounds_and_contexts_of_several(tmp_path: Path) -> None:
    """The first one fits the bound with its cache, or nothing is served; a context that one of them
    has not is as long as that one has it."""
    first, second = (checkpoint(name)[0] for name in ("llama3", "qwen2"))
    options = Options(context=600, chunk=8, batch=2, threads=1)
    with pytest.raises(InputError, match="this model has 1 to 512"):
        build(str(first), options)
    with pytest.raises(InputError, match="with its cache, models may take 0: a smaller context"):
        build(str(first), replace(options, context=64), memory=1000)
    server = build(str(first), options, [str(second)])
    with TestClient(server.config.app, "http://localhost") as client:  # type: ignore[arg-type]
        for name in (first.name, second.name):
            body = {"model": name, "prompt": [5, 9], "max_tokens": 2}
            assert client.post("/v1/completions", json=body).status_code == 200
            body["prompt"] = [5] * 513
            refused = client.post("/v1/completions", json=body)
            assert refused.status_code == 400 and "512" in refused.json()["error"]["message"]


def test_sizes_and_names_are_checked() -> None:
    sizes = {"8GB": 8 * 10**9, "500 mb": 5 * 10**8, "2GiB": 2 << 30, "1.5k": 1500, None: None}
    assert {text: _bytes_of(None, None, text) for text in sizes} == sizes
    with pytest.raises(click.BadParameter, match="no size"):
        _bytes_of(None, None, "much")
    with pytest.raises(InputError, match="same name"):
        build("a/model", Options(), ["b/model"])


def test_a_model_without_a_tokenizer_is_refused_before_it_is_compiled(tmp_path: Path) -> None:
    whole = checkpoint(NAMES[0])[0]
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(whole / name)
    for models in ((tmp_path,), (whole, tmp_path)):
        told = CliRunner().invoke(main, ["serve", *map(str, models), "--port", "0"])
        assert told.exit_code == 1 and "tokenizer.json: no such file" in told.stderr
        assert not told.stdout and "Traceback" not in told.stderr


def test_the_packaged_model_is_not_looked_for_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="an API key that is empty"):  # the next thing to be wrong
        build(None, Options(api_key=""))


def test_other_models_are_looked_at_before_the_first_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "resnet"}')
    faults = {"--speech": "no model of speech", "--images": "no model_index.json",
              "--embeddings": "no config.json", "--reranker": "no config.json"}  # fmt: skip
    for option, fault in faults.items():
        folder = tmp_path if option == "--speech" else tmp_path / "none"
        told = CliRunner().invoke(main, ["serve", "luminal-tiny", option, str(folder)])
        assert told.exit_code == 1 and fault in told.stderr, told.output
    made(tmp_path, "BertConfig", "BertModel")
    wrong = ("--embeddings", checkpoint("llama3")[0], "is no model of embeddings: "), (
        "--reranker", tmp_path, "is no reranker: ")  # fmt: skip
    for option, folder, fault in wrong:
        told = CliRunner().invoke(main, ["serve", "luminal-tiny", option, str(folder)])
        assert told.exit_code == 1 and fault in told.stderr, told.output
