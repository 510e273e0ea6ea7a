"""The line that says how far long work is."""

from __future__ import annotations

import io
import re
import sys

import numpy as np
import pytest

import luminal
from luminal import progress
from luminal.progress import showing, tracked


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "PAUSE", 0.0)


def shown(stream: io.StringIO, wanted: bool | None, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    with showing(wanted):
        assert list(tracked("part", "abcd")) == list("abcd")
    return stream.getvalue()


def test_the_line_grows_and_is_wiped_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(Terminal(), None, monkeypatch).split("\r")
    assert lines[1].startswith("[" + "-" * 24 + "] part 1/4")
    assert lines[4].startswith("[" + "#" * 18 + "-" * 6 + "] part 4/4")
    assert lines[5].strip() == lines[6] == "" and len(lines[5]) == len(lines[4])


def test_it_is_shown_on_a_terminal_or_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(io.StringIO(), None, monkeypatch) == ""
    assert shown(Terminal(), False, monkeypatch) == ""
    assert "part 2/4" in shown(io.StringIO(), True, monkeypatch)


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY", 60.0)
    assert shown(Terminal(), None, monkeypatch) == ""


def test_compiling_and_searching_tell_how_far_they_are(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cx = luminal.Graph()
    x = cx.tensor((8, 8), name="x").set(np.ones((8, 8), np.float32))
    luminal.ops.softmax(x, -1).output()
    with showing(True):
        cx.compile(search=1, threads=1, database=False)
    told = capfd.readouterr().err
    # Measured plans may add kernels to search for, so that their number varies.
    for stage in ("planning region 1/1", r"search 1/\d", "making kernel", "building kernel"):
        assert re.search(stage, told)
