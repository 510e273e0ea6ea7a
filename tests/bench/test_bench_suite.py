"""The suite as a whole: its cases, its process of its own, what it prints and writes."""

import dataclasses
import json
import os
import time
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner

from luminal import ops
from luminal.bench import plot, table
from luminal.bench.case import Mark, operation
from luminal.bench.compare import Cell, Options, Row
from luminal.bench.machine import Machine, cpu_name
from luminal.bench.paired import Spread
from luminal.bench.peers import PEERS, Peer
from luminal.bench.results import Results
from luminal.bench.suite import cases, run, select
from luminal.cli import main
from luminal.errors import InputError, Unsupported

MACHINE = Machine("A <cpu>", 2, "f32", {"fma": 100.0, "read": 10.0}, {"torch": "2.0"})


def example(name):
    """What the other process calls."""

    def ours(x):
        if name == "crash":
            os._exit(9)
        if name == "hang":
            time.sleep(300)
        return ops.exp(x)

    return operation(name, ours, lambda F, x: x.exp(), [(4, 8)])


QUICK = Options(peers=("torch",), rounds=3, seconds=0.0005)


def test_a_crash_costs_one_row():
    crash, good = run([example("crash"), example("good")], QUICK, timeout=120.0, find=example)
    assert crash.ours.fault == "the process ended with code 9 (last begun: luminal)"
    assert crash.ours.time is None
    assert good.ours.fault is None and good.peers["torch"].ratio is not None


def test_a_case_that_does_not_end_is_given_up():
    (row,) = run([example("hang")], QUICK, timeout=2.0, find=example)
    assert row.name == "hang" and "no result within 2 s" in row.ours.fault


def example_with_a_slow_peer(name):
    """What the other process calls: there, one of the peers does not get ready, the others soon."""
    import torch  # noqa: F401 -- takes seconds

    PEERS["slow"] = Peer("slow", "torch", lambda *_: time.sleep(300))
    return operation(name, ops.exp, lambda F, x: x.exp(), [(4, 8)])


def test_a_peer_that_does_not_get_ready_costs_only_its_cell():
    options = dataclasses.replace(QUICK, peers=("torch", "slow"))
    (row,) = run([example("good")], options, timeout=10.0, find=example_with_a_slow_peer)
    assert row.ours.time is not None and row.peers["torch"].ratio is not None
    assert row.peers["slow"].fault == "no result within 10 s (last begun: slow)"


def test_names_are_unique_and_both_kinds_are_there():
    names = [case.name for case in cases()]
    assert len(names) == len(set(names))
    assert {case.kind for case in cases()} == {"ops", "models"}
    assert {case.kind for case in cases() if case.short} == {"ops", "models"}


def test_selection():
    assert all("softmax" in case.name for case in select(only="softmax"))
    assert len(select("ops", short=True)) < len(select("ops")) < len(select())
    with pytest.raises(InputError, match="no case"):
        select(only="no such thing")


# ---- text, JSON, plots


def ceiling(seconds):
    """A ceiling beside a time of 2 ms."""
    return Cell(time=even(seconds), ratio=even(seconds / 2e-3))


def even(value):
    return Spread(value, value, value)


def rows():
    time_, ratio = Spread(2e-3, 1.9e-3, 2.1e-3), Spread(1.5, 1.4, 1.6)
    good = Row("a <good> one", "ops", 1e8, 1000, Cell(0.5, 1e-7, time_, even(1)),
               {"torch": Cell(0.1, 1e-7, even(3e-3), ratio)},
               {"fma": ceiling(2e-3), "vpdpbusd": ceiling(1e-3), "read": ceiling(1e-6)},
               (Mark("torch", 1.4),))  # fmt: skip
    moved = Row("memory", "ops", 0, 10**7, Cell(0.5, 1e-7, time_, even(1)),
                {"torch": Cell(fault="wrong result: off by 1")}, {"read": ceiling(1e-3)},
                (Mark("read", 1.0),), disturbed=0.5)  # fmt: skip
    return [good, moved, Row("bad", "ops", ours=Cell(fault="CompileError: no"))]


def test_lines():
    good, moved, bad = (table.line(row, ("torch",)) for row in rows())
    assert "2.000" in good and "50.0 GFLOP/s" in good and "50%" in good
    assert "1.50 (1.40-1.60)" in good and good.endswith("1.40 x torch: reached")
    assert "1.00 x read: below" in moved
    assert "5.0 GB/s" in moved and "wrong" in moved and "50% busy elsewhere" in moved
    assert "CompileError: no" in bad
    columns = table.heading(MACHINE, ("torch",)).splitlines()[-1]
    assert good[: len(columns)].endswith("(1.40-1.60)")


def test_level_is_enough_beside_a_rival_at_the_ceiling():
    cell = Cell(time=even(1.1e-3), ratio=even(0.55))  # the ceiling is 1 ms
    row = dataclasses.replace(rows()[0], peers={"torch": cell})
    assert row.bound == "vpdpbusd" and row.ratio("peak") == pytest.approx(0.5)
    (mark,) = row.marks
    assert row.wanted(mark) == 1.0 and not row.reached(mark)
    assert row.wanted(Mark("read", 1.4)) == 1.4 and row.reached(Mark("inductor", 1.0)) is None


def test_marks_are_for_a_precision_and_one_or_more_threads():
    assert Mark("torch", 1.1).holds_for("f32", 2) and not Mark("torch", 1.1).holds_for("f32", 1)
    assert Mark("torch", 1.1, "bf16", 1).holds_for("bf16", 1)
    assert not Mark("torch", 1.1, "bf16").holds_for("f32", 2)
    for case in cases():
        rivals = {*PEERS, "peak", "plain read", "copy", *(["plain"] if case.plain else [])}
        assert set(case.rivals("f32", 2)) <= rivals


def test_closing_has_means_and_every_fault():
    noisy = dataclasses.replace(rows()[0], disturbed=0.6)
    text = table.closing([*rows(), noisy], ("torch",))
    assert "! 2 of 4 rows are in no mean" in text
    assert "vs torch: 1.50 (geometric mean), ahead in 1/1" in text
    assert "memory: torch: wrong result" in text and "bad: luminal: CompileError" in text


def test_json_is_complete(tmp_path):
    written(tmp_path / "x.json", rows())
    (data,) = json.loads((tmp_path / "x.json").read_text())
    assert data["machine"]["ceilings"] == {"fma": 100.0, "read": 10.0}
    assert data["rows"][0]["peers"]["torch"]["ratio"] == {"median": 1.5, "low": 1.4, "high": 1.6}
    assert data["rows"][0]["marks"][0]["reached"] and data["rows"][0]["rate"]["unit"] == "GFLOP/s"
    assert "rate" in data["rows"][1] and "rate" not in data["rows"][2]


def written(file, rows, machine=MACHINE):
    results = Results(file)
    for row in rows:
        results.part(machine).add(row)
    results.write()


def test_rows_come_back_from_a_file_as_they_were(tmp_path):
    written(tmp_path / "x.json", rows())
    part = Results.kept(tmp_path / "x.json").part(MACHINE)
    assert part.rows == rows()
    good, moved, _ = part.rows
    assert part.find(good.name, ["torch"]) == good
    assert part.find(good.name, ["torch", "jax"]) is None  # that peer was not tried
    assert part.find("bad", []) is None  # ours was not timed
    part.add(dataclasses.replace(moved, flops=7.0))
    assert [row.flops for row in part.rows if row.name == moved.name] == [7.0]


def test_what_cannot_be_gone_on_with_is_refused(tmp_path):
    file = tmp_path / "x.json"
    written(file, rows(), dataclasses.replace(MACHINE, cpu="Another"))
    with pytest.raises(InputError, match="another processor, Another"):
        Results.kept(file).part(MACHINE)
    assert Results.kept(file, again=True).part(MACHINE).rows == []
    file.write_text("[{}]")
    with pytest.raises(InputError, match="no file of results"):
        Results.kept(file)


class Balance(HTMLParser):
    """Tags that are open, and what was seen."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        if tag not in ("meta", "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(tmp_path):
    plot.write_plot(tmp_path / "x.html", rows(), MACHINE, ("torch",))
    page = (tmp_path / "x.html").read_text()
    balance = Balance()
    balance.feed(page)
    assert not balance.open and balance.seen.count("svg") == 1
    assert "a &lt;good&gt; one" in page and "A &lt;cpu&gt;" in page and "<good>" not in page
    assert "http" not in page and "src=" not in page


def test_plots_of_other_endings_are_refused(tmp_path):
    with pytest.raises(Unsupported, match=r"\.html or \.png"):
        plot.write_plot(tmp_path / "x.pdf", rows(), MACHINE, ("torch",))


def test_png_where_matplotlib_is(tmp_path):
    pytest.importorskip("matplotlib")
    plot.write_plot(tmp_path / "x.png", rows(), MACHINE, ("torch",))
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


# ---- the command


def test_command_lists_cases():
    result = CliRunner().invoke(main, ["bench", "models", "--list"])
    assert result.exit_code == 0 and "ResNet-50 1x3x224x224" in result.output


def test_a_run_of_everything_goes_on_where_it_stopped(tmp_path):
    """Nothing is measured: the first run has no time for it, the second finds the row."""
    file, only = tmp_path / "all.json", "softmax 512x2048"
    arguments = ["bench", "--all", "--only", only, "--threads", "1", "--peers", "torch"]
    arguments += ["--json", str(file), "--budget", "0s"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0 and "1 cases are left" in result.output
    row = dataclasses.replace(rows()[0], name=only)
    here = Machine(cpu_name(), 1, "f32", {"fma": 1.0, "read": 1.0})
    written(file, [row], here)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0 and "left" not in result.output
    assert table.line(row, ("torch",)) in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peers", "nobody"], "no peer 'nobody'"),
        (["--only", "nothing at all"], "no case"),
        (["--only", "softmax", "--plot", "x.pdf"], ".html or .png"),
    ],
)
def test_command_says_what_is_wrong(arguments, message):
    result = CliRunner().invoke(main, ["bench", *arguments])
    assert result.exit_code == 1 and message in result.output
