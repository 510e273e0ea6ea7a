"""The commands for language models."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from luminal import LLM
from luminal.cli import main
from luminal.cli.chat import Conversation
from luminal.cli.terminal import Full
from luminal.errors import InputError

from .checkpoints import checkpoint


def run(*words: object, input: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, [str(word) for word in words], input=input)
    return result.exit_code, result.stdout, result.stderr


def test_the_package_is_a_command_too() -> None:
    shown = subprocess.run([sys.executable, "-m", "luminal", "--help"], capture_output=True)
    assert shown.returncode == 0 and shown.stdout.startswith(b"Usage: luminal [OPTIONS] COMMAND")


def test_an_interrupt_while_a_model_loads_ends_the_process() -> None:
    """As a signal, not as an exception that an import in another thread may lose."""
    text = ("import os; from luminal.cli import llm, main;"
            " llm.look_at_host = lambda: os.kill(os.getpid(), 2); main(['run', 'hello'])")
    start = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    shown = subprocess.run([sys.executable, "-c", text], capture_output=True, preexec_fn=start)
    assert (shown.returncode, shown.stdout, shown.stderr) == (-signal.SIGINT, b"", b"")


def test_an_interrupt_ends_a_command_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["luminal.cli.main"], "machine_rows", interrupted)
    assert run("info") == (130, "", "")


def test_run_prints_the_reply() -> None:
    directory = checkpoint("llama3")[0]
    llm = LLM(directory, context=64, threads=1)
    options = ("--max-tokens", 8, "--context", 64, "--threads", 1)
    expected = llm.generate([{"role": "user", "content": "the fox"}], 8)
    assert run("run", directory, "the fox", *options) == (0, expected + "\n", "")
    code, out, _ = run("run", directory, "the fox", "--no-chat", *options)
    assert (code, out) == (0, llm.generate("the fox", 8) + "\n")
    assert run("run", directory, "the fox", "--no-chat", "--speculate", 3, *options)[1] == out
    assert run("run", directory, "the fox", "--no-chat", "--draft", directory, *options)[1] == out
    assert run("run", directory, "-", "--no-chat", *options, input="the fox")[1] == out


@pytest.mark.parametrize(("output", "code", "error"), [
    ("> /dev/full", 1, "luminal: [Errno 28] No space left on device\n"), (">&-", 0, ""),
    ("| head -c 1 > /dev/null", 0, ""),
])  # fmt: skip
def test_an_output_that_takes_nothing(output: str, code: int, error: str) -> None:
    if "full" in output and not Path("/dev/full").exists():
        pytest.skip("no device that is always full")
    command = f"{sys.executable} -m luminal run luminal-tiny hello --max-tokens 3 {output}"
    ended = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (code, error)


def test_info_of_a_model_and_of_the_machine() -> None:
    code, out, _ = run("info", checkpoint("gemma2")[0])
    assert code == 0 and "family       gemma2" in out and "windows      [9]" in out
    assert run("info")[0] == 0


def test_language_models_are_explained_and_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, database = checkpoint("llama3")[0], tmp_path / "tuning.sqlite"
    options = ("--threads", 1, "--context", 64, "--database", database)
    code, out, error = run("explain", directory, "--tokens", 8, *options)
    assert code == 0, error
    assert "a prompt: tokens = 8, wanted = 1, position = 0" in out
    assert "one more token: tokens = 1, wanted = 1, position = 8" in out
    told = json.loads(run("explain", directory, "--tokens", 8, *options, "--json")[1])
    assert told["runs"]["one more token"]["sizes"] == {"tokens": 1, "wanted": 1, "position": 8}
    assert {row["kernel"] for row in told["kernels"]} >= {
        row["kernel"] for row in told["runs"]["a prompt"]["kernels"]
    }
    code, _, error = run("explain", directory, "--tokens", 100, *options)
    assert code == 1 and "at most 64 run at once" in error
    asked: list[dict[str, Any]] = []

    def bound(*given: Any, **more: Any) -> LLM:
        asked.append(inspect.signature(LLM).bind(*given, **more).arguments)
        raise InputError("enough")

    monkeypatch.setattr("luminal.models.LLM", bound)
    assert run("tune", directory, "--search", "1s", *options)[2] == "luminal: enough\n"
    assert asked[0]["search"] == "1s" and asked[0]["database"] == database
    code, _, error = run("explain", "--quant", "q8")
    assert code == 1 and error == "luminal: --quant is for language models\n"


def test_a_device_that_is_not_there() -> None:
    code, _, error = run("run", checkpoint("llama3")[0], "the fox", "--device", "tpu")
    assert code == 1 and "no device 'tpu'" in error


def test_errors_are_one_line(tmp_path: Path) -> None:
    for command in (["run", tmp_path, "x"], ["chat", tmp_path], ["info", tmp_path]):
        code, _, error = run(*command)
        assert code == 1 and error.startswith("luminal: ") and "config.json" in error
    code, out, error = run("serve", tmp_path)  # the first line comes before anything is imported
    loading, fault = error.splitlines()
    assert (code, out, loading) == (1, "", f"luminal: loading {tmp_path}") and "config" in fault
    for options in (("--top-p", 3), ("--context", 10**6), ("--no-chat",)):
        code, out, error = run("run", checkpoint("llama3")[0], "", "--threads", 1, *options)
        assert (code, out) == (1, "") and error.startswith("luminal: ") and error.count("\n") == 1


def test_chat_is_a_conversation_with_commands() -> None:
    lines = "the fox\n/retry\n/set top_k 5\n/set heat 1\n/set logit_bias 3\n/help\n"
    lines += "/nothing\n/clear\n/set seed -1\nthe dog\n/exit\n"
    options = ("--max-tokens", 4, "--context", 128, "--threads", 1, "--speculate", 2,
               "--temperature", 1)  # fmt: skip
    code, out, error = run("chat", checkpoint("llama3")[0], *options, input=lines)
    assert code == 0 and error == ""
    assert out.count("/retry           another reply") == 2 and out.count("/set takes one of") == 2


class Interrupted:
    """A model whose second piece is Ctrl-C."""

    def stream(self, messages: list[Any], limit: int, **options: Any) -> Iterator[str]:
        yield "part"
        raise KeyboardInterrupt


def test_an_interrupt_stops_the_reply_and_not_the_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    conversation = Conversation(Interrupted(), 8, {}, "be brief")  # type: ignore[arg-type]
    conversation.turn("hello")
    assert [m["content"] for m in conversation.messages] == ["be brief", "hello", "part"]
    assert capsys.readouterr().out == "part\n"


def test_bench_writes_its_figures(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    options = ("--prompt", 5, "--tokens", 3, "--rounds", 3, "--threads", 1, "--json", file)
    code, out, error = run("bench", checkpoint("llama3")[0], *options)
    assert code == 0, error
    found = json.loads(file.read_text())
    assert found["prefill_tokens_per_s"] > 0 and found["decode_tokens_per_s"] > 0
    assert found["peers"] == {} and found["without_llama_cpp"] in out and "% of a read" in out
    assert found["process_peak_bytes"] > found["held_bytes"] > 0 and "memory: " in out


def test_chat_on_a_terminal_outlives_an_interrupt(tmp_path: Path) -> None:
    """Ctrl-C during a reply and at the prompt; a terminal that knows ASCII only."""
    pty, fcntl, termios = map(pytest.importorskip, ("pty", "fcntl", "termios"))
    start = [sys.executable, "-c", "from luminal.cli import main; main()", "chat",
             checkpoint("llama3")[0], "--context", "512", "--max-tokens", "450", "--threads", "1",
             "--temperature", "1"]  # fmt: skip
    control, terminal = pty.openpty()

    def own_terminal() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored in what runs in the background
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict", "TERM": "dumb"}
    with subprocess.Popen(
        start, stdin=terminal, stdout=terminal, stderr=terminal, env=environment,
        start_new_session=True, preexec_fn=own_terminal,
    ) as process:  # fmt: skip
        os.close(terminal)
        seen, deadline = "", time.monotonic() + 200

        def until(text: str, count: int = 1, again: bytes = b"") -> None:
            """again: typed once a second, as an interrupt between two system calls is not heard."""
            nonlocal seen
            while seen.count(text) < count:
                assert time.monotonic() < deadline, seen
                if select.select([control], [], [], 1)[0]:
                    seen += os.read(control, 4096).decode("utf-8", "replace")
                elif again:
                    os.write(control, again)

        until(">>> ")
        os.write(control, "the naïve fox\n".encode())
        until("fox\r\n")
        os.write(control, b"\x03")
        until(">>> ", 2, b"\x03")
        os.write(control, b"\x03")
        until(">>> ", 3, b"\x03")
        os.write(control, b"/help\n")
        until("/retry", 1, b"/help\n")
        with contextlib.suppress(OSError):  # nothing to read: the program has ended
            until("the end", 1, b"/exit\n")  # an interrupt that comes late takes a line with it
        assert process.wait(60) == 0
    os.close(control)
    assert "Traceback" not in seen


class Repeating:
    """A model that says what it is told, as Markdown."""

    def stream(self, messages: list[Any], limit: int, **options: Any) -> Iterator[str]:
        yield "you *said*:\n\n- "
        yield str(messages[-1]["content"]).replace("\n", "\n- ")


def test_a_full_terminal_takes_several_lines_and_shows_markdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rich")
    prompt = pytest.importorskip("prompt_toolkit")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    from prompt_toolkit.input import create_pipe_input
    from rich.console import Console

    shown = io.StringIO()
    file = tmp_path / "talk.json"
    with create_pipe_input() as typed:
        typed.send_text("one\x1b\rtwo\r/save " + f"{file}\r/clear\r/load {file}\r\x04")
        terminal = Full(["/save"], input=typed, output=prompt.output.DummyOutput(),
                        console=Console(file=shown, width=40, force_terminal=True))  # fmt: skip
        talk = Conversation(Repeating(), 8, {"seed": 3}, None, terminal)  # type: ignore[arg-type]
        talk.talk()
    assert talk.messages[0]["content"] == "one\ntwo"
    assert " \u2022 " in shown.getvalue() and "*said*" not in shown.getvalue()
    history = tmp_path / "luminal" / "chat_history"
    assert "+one\n+two\n" in history.read_text() and history.stat().st_mode & 0o077 == 0
    assert json.loads(file.read_text())["sampling"] == {"seed": 3}


def test_an_interrupt_while_a_reply_is_drawn_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, prompt = map(pytest.importorskip, ("rich.live", "prompt_toolkit"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    from prompt_toolkit.input import create_pipe_input
    from rich.console import Console

    def drawn(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(live.Live, "update", drawn)
    shown = io.StringIO()
    with create_pipe_input() as typed:
        typed.send_text("one\rtwo\r\x04")
        terminal = Full([], input=typed, output=prompt.output.DummyOutput(),
                        console=Console(file=shown, width=40, force_terminal=True))  # fmt: skip
        talk = Conversation(Repeating(), 8, {}, None, terminal)  # type: ignore[arg-type]
        talk.talk()
    assert [m["role"] for m in talk.messages] == ["user", "assistant"] * 2
    assert talk.messages[2]["content"] == "two" and shown.getvalue().count("said") == 2


def test_a_file_that_holds_no_conversation_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = Conversation(Repeating(), 8, {}, "be brief")  # type: ignore[arg-type]
    (tmp_path / "other").write_text('{"messages": 3}')
    talk.turn(f"/load {tmp_path / 'other'}")
    talk.turn(f"/save {tmp_path / 'none' / 'file'}")
    told = capsys.readouterr().err
    assert told.count("luminal: ") == 2 == told.count("\n") and len(talk.messages) == 1


@pytest.mark.parametrize("line", [
    "/image ~nobody-of-this-name/a.png", "/save a\0b", "/load ~nobody-of-this-name/a",
    '{"messages": [{"role": "user", "content": ["a"]}], "sampling": {}}', "[" * 100_000,
])  # fmt: skip
def test_files_that_no_chat_can_use_do_not_end_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    talk = Conversation(Repeating(), 8, {}, None)  # type: ignore[arg-type]
    (tmp_path / "kept").write_text(line)
    talk.turn(line if line.startswith("/") else f"/load {tmp_path / 'kept'}")
    assert capsys.readouterr().err.count("luminal: ") == 1 and not talk.messages


def test_another_reply_that_fails_leaves_the_last_one() -> None:
    class Failing:
        def stream(self, *given: Any, **options: Any) -> Iterator[str]:
            raise InputError("on purpose")
            yield ""

    talk = Conversation(Repeating(), 8, {}, None)  # type: ignore[arg-type]
    talk.turn("one")
    before = list(talk.messages)
    talk.llm = Failing()  # type: ignore[assignment]
    talk.turn("/retry")
    assert talk.messages == before and len(before) == 2


def test_facts_as_json(tmp_path: Path) -> None:
    directory = checkpoint("llama3")[0]
    options = ("--max-tokens", 3, "--context", 64, "--threads", 1, "--no-chat")
    reply = json.loads(run("run", directory, "the fox", *options, "--json")[1])
    assert len(reply["tokens"]) == 3 == len(reply["logprobs"])
    assert json.loads(run("info", directory, "--json")[1])["family"] == "llama"
    machine = json.loads(run("info", "--json", "--machine", "--threads", "1")[1])
    rate, unit = machine["read, 1 threads"].split(" ", 1)
    assert float(rate) > 0 and unit == "GB/s from memory"
    assert {"instruction set", "cores"} <= set(machine) and "none" not in run("info")[1][:5]
    assert json.loads(run("cache", "info", "--json")[1])
    database = tmp_path / "database"
    cleared = json.loads(run("cache", "clear", "--database", database, "--json")[1])
    assert cleared == {"emptied": str(database)}
    talk = run("chat", directory, *options[:-1], "--json", input="the fox\nthe dog\n")[1]
    replies = [json.loads(line) for line in talk.splitlines()]
    assert [reply["role"] for reply in replies] == ["assistant", "assistant"]


def test_every_command_has_json() -> None:
    def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
        if not isinstance(command, click.Group):
            yield name, command
            return
        for part, inner in command.commands.items():
            yield from leaves(inner, f"{name} {part}")

    for name, command in leaves(main, "luminal"):
        known = [word for option in command.params for word in option.opts]
        assert "--json" in known, name


def test_a_picture_goes_with_the_next_message(tmp_path: Path) -> None:
    talk = Conversation(Repeating(), 8, {}, None)  # type: ignore[arg-type]
    picture = tmp_path / "cat.png"
    picture.touch()
    for line in (f"/image {picture}", "what is it?", "and now?", f"/save {tmp_path / 'talk'}"):
        talk.turn(line)
    asked = [message["content"] for message in talk.messages if message["role"] == "user"]
    assert asked == [[{"type": "image", "image": str(picture)},
                      {"type": "text", "text": "what is it?"}], "and now?"]  # fmt: skip
    again = Conversation(Repeating(), 8, {}, None)  # type: ignore[arg-type]
    again.turn(f"/load {tmp_path / 'talk'}")
    assert again.messages == talk.messages


def test_shells_complete_the_commands() -> None:
    asked = {"_LUMINAL_COMPLETE": "bash_complete", "COMP_WORDS": "luminal ser", "COMP_CWORD": "1"}
    told = CliRunner().invoke(main, [], prog_name="luminal", env=asked)
    assert "serve" in told.output and "chat" not in told.output
