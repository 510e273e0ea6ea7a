"""What commands do with odd arguments and streams; nothing here ends in a traceback."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import luminal
from luminal.bench.results import Results
from luminal.cli import main
from luminal.cli.chat import Conversation
from luminal.cli.terminal import Plain
from luminal.errors import ArtifactError
from luminal.search.database import Database
from luminal.store import Store


def run(*words: object, **more: Any) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, [str(word) for word in words], **more)
    return result.exit_code, result.stdout, result.stderr


def shell(words: str) -> tuple[int, str, str]:
    done = subprocess.run(f"{sys.executable} -m luminal {words}", shell=True, capture_output=True,
                          text=True)  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("prompt", ["the fox " * 40, ""])
def test_prompts_that_are_no_paths(prompt: str) -> None:
    code, _, error = run("run", "--model", "luminal-tiny", prompt, "--max-tokens", 2)
    assert (code, error) == run("run", "luminal-tiny", prompt, "--max-tokens", 2)[::2]
    code, _, error = run("run", prompt, "--temperature", -1, "--max-tokens", 2)
    assert (code, error) == (1, "luminal: temperature=-1.0 is outside its range\n")


@pytest.mark.parametrize("rest", ["- <&-", "hello 2>&-"])
def test_streams_that_are_closed(rest: str) -> None:
    code, _, error = shell(f"run luminal-tiny --no-chat --max-tokens 2 {rest}")
    assert (code, error) == (0, "")


@pytest.mark.parametrize("command", ["info", "cache info", "embed a b --json"])
def test_an_output_that_is_full(command: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no device that is always full")
    assert shell(f"{command} > /dev/full")[::2] == (
        1, "luminal: [Errno 28] No space left on device\n")  # fmt: skip


def test_lines_of_a_file_are_those_of_editors(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes("\ufeffa cat\x0c or two\r\na\u2028dog\r\na boat\n".encode())
    code, out, _ = run("search", tmp_path / "lines", "a boat")
    assert code == 0 and f"{tmp_path / 'lines'}:3: a boat\n" in out and "\ufeff" not in out


@pytest.mark.parametrize("command", [
    ("detect", "none.png", "--model", "none", "-o"), ("imagine", "x", "--model", "none", "-o"),
    ("segment", "none.png", "--model", "none", "-o"), ("bench", "none", "--json"),
    ("bench", "none", "--plot"), ("profile", "none", "--trace"),
])  # fmt: skip
def test_a_place_for_results_is_looked_at_first(
    command: tuple[str, ...], tmp_path: Path
) -> None:  # fmt: skip
    code, _, error = run(*command, tmp_path / "none" / "out.png")
    assert code == 2 and "out.png cannot be written" in error


@pytest.mark.parametrize("command", [("detect", "x"), ("imagine", "x"), ("segment", "x")])
def test_a_name_for_a_picture_is_looked_at_first(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    given = command[0], tmp_path / "x", "--model", tmp_path, "-o", tmp_path / "o.xyz"
    code, _, error = run(*given)
    assert code == 1 and "no format of pictures ends in '.xyz'" in error


def test_results_of_onnx_models_are_written_whatever_they_are_called(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, file = onnx.helper, tmp_path / "m.onnx"
    nodes = [helper.make_node("Add", ["x", "x"], ["file"]),
             helper.make_node("SequenceConstruct", ["x", "file"], ["all"])]  # fmt: skip
    given = [helper.make_tensor_value_info(name, 1, ["n"]) for name in ("x", "file")]
    made = [given[1], helper.make_tensor_sequence_value_info("all", 1, None)]
    graph = helper.make_graph(nodes, "g", given[:1], made)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), file)
    x = np.float32([1, 2, 3])
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x)
    (tmp_path / "empty").touch()
    words = "onnx", "run", file, "--threads", 1, "--output", tmp_path / "out", "--input"
    assert run(*words, f"x={tmp_path / 'x.npy'}")[::2] == (0, "")
    written = np.load(tmp_path / "out")
    assert {name: written[name].tolist() for name in written} == {
        "file": [2, 4, 6], "all.0": [1, 2, 3], "all.1": [2, 4, 6]}  # fmt: skip
    for wrong in ("x.npz", "empty"):
        code, _, error = run(*words, f"x={tmp_path / wrong}")
        assert code == 1 and error.startswith(f"luminal: {tmp_path / wrong}: "), error
    code, _, error = run(*words, f"x={tmp_path / 'x.npy'}", "--size", "n=4")
    assert code == 1 and "no size 'n' of what is drawn" in error
    code, _, error = run(*words[:-1], "--size", f"n={10**14}")
    assert code == 1 and error.startswith("luminal: Unable to allocate")


@pytest.mark.parametrize(("command", "message"), [
    ("bench gpu --threads 2", "--threads is not for bench gpu"),
    ("bench train --plot x.html", "--plot is not for bench train"),
    ("bench none --budget 2s", "--budget is not for bench MODEL"),
    ("bench ops --quant q4 --list", "--quant is not for bench ops"),
    ("run hello --stats --json", "not --json"), ("transcribe x --json --format srt", "not both"),
    ("transcribe x --words --format vtt", "--words is for"),
])  # fmt: skip
def test_options_that_would_do_nothing(command: str, message: str) -> None:
    code, _, error = run(*command.split())
    assert code == 2 and message in error


def test_a_cache_that_cannot_be_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    Store.of_machine().remembered("a", lambda: b"made")
    monkeypatch.setattr(Path, "unlink", refuse)
    code, out, error = run("cache", "clear")
    assert code == 1 and not out and "Permission denied" in error
    monkeypatch.undo()
    database = Database(tmp_path / "tuning.sqlite")
    database.keep_rates("a", {"read": 1.0})
    monkeypatch.setattr(Database, "_usable", lambda *_: database._give_up("full") or True)
    with pytest.warns(UserWarning, match="full"), pytest.raises(ArtifactError, match="emptied"):
        database.clear()


def test_what_was_saved_stays_where_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    talk: Any = Conversation(None, 8, {}, "be  brief \udcff", Plain())  # type: ignore[arg-type]
    file = tmp_path / "of  today"
    talk.turn(f"/save {file}")
    talk.turn("/clear")
    talk.turn(f"/load {file}")
    assert [each["content"] for each in talk.messages] == ["be  brief ?"]
    before = file.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    talk.turn("/system another")
    talk.turn(f"/save {file}")
    results = Results(file)
    with pytest.raises(OSError, match="No space"):
        results.write()
    assert file.read_bytes() == before and len(list(tmp_path.iterdir())) == 1
    talk.turn(f"/save {os.devnull}")
    assert not Path(os.devnull).is_file()


def test_more_threads_than_there_can_be(tmp_path: Path) -> None:
    """`luminal info --machine` began so many, and measured for ever."""
    onnx = pytest.importorskip("luminal.onnx", exc_type=ImportError)
    cx = luminal.Graph()
    (cx.tensor(2, name="x") * 2.0).output("y")
    cx.compile().save(tmp_path / "a.luminal")
    onnx.save(cx, tmp_path / "a.onnx")
    for command in (("check", tmp_path / "a.luminal"), ("onnx", "run", tmp_path / "a.onnx"),
                    ("info", "--machine")):  # fmt: skip
        code, _, error = run(*command, "--threads", 5000)
        assert (code, error) == (1, "luminal: threads=5000: a number of threads is 1 to 1024\n")
    assert run("info", "--threads", 2)[0] == 2


def test_models_by_name_and_saved_programs() -> None:
    assert run("check", "luminal-tiny")[:2] == (0, "no differences\n")
    code, _, error = run("explain", "a.luminal")
    assert code == 1 and error.startswith("luminal: a.luminal: a saved program; what is taken is ")
