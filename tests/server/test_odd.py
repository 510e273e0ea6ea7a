"""What was passed over in requests and options, and what was told of the wrong kind of value."""

from __future__ import annotations

from typing import Any

import pytest

from luminal.errors import InputError
from luminal.models.llm import Busy, Wishes
from luminal.server.run import Options, build

from .conftest import NAME, Running

CHAT = {"messages": [{"role": "user", "content": "the fox"}], "max_tokens": 2}


@pytest.mark.parametrize(("path", "given", "message"), [
    ("/detokenize", {"tokens": [1, 2**30]}, "token ids go from 0 to "),
    ("/v1/chat/completions", {**CHAT, "top_logprobs": 2}, "top_logprobs go with logprobs=true"),
    ("/v1/chat/completions", {**CHAT, "stop": [""]}, "at least 1 character"),
    ("/v1/completions", {"prompt": []}, "at least 1 item"),
    ("/v1/completions", {"prompt": [True]}, "prompt"),
    ("/v1/embeddings", {"input": ["a"] * 2049}, "at most 2048 items"),
])  # fmt: skip
def test_what_is_refused(running: Running, path: str, given: Any, message: str) -> None:
    answer = running.http().post(path, json={"model": NAME, **given})
    assert answer.status_code == 400 and message in answer.json()["error"]["message"]


def test_what_never_fits_need_not_be_tried_again(start: Any) -> None:
    """Status 429 asks clients to try again."""
    with start(queue=2) as running:
        for more, status in ((18, 200), (19, 400)):
            given = {"model": NAME, **CHAT, "n": more}
            answer = running.http().post("/v1/chat/completions", json=given)
            assert answer.status_code == status, answer.text


def test_a_server_that_is_told_twice_to_stop(start: Any, caplog: Any) -> None:
    """It ends as else: what is kept of prompts is written, the log has no traceback."""
    with start() as running:
        running.server.force_exit = True
    with pytest.raises(Busy, match="closing"):
        running.engine.complete([[5]], Wishes(2))
    assert "Traceback" not in caplog.text


def test_an_empty_key_is_no_key() -> None:
    """It let in whoever sent none, web pages too."""
    with pytest.raises(InputError, match="keeps nobody out"):
        build("luminal-tiny", Options(api_key=""))
