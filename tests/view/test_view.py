"""Pages of graphs and plans: what they hold, and that a browser shows it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from importlib import import_module
from importlib.resources import files
from itertools import combinations, pairwise
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from backend.c_device import COMPILER
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import luminal
from luminal import nn, ops, train
from luminal.cli.main import main
from luminal.cli.view import chrome_trace
from luminal.errors import InputError
from luminal.graph.passes import program_of
from luminal.rewrite.rates import CostModel
from luminal.runtime.rehearsal import rehearse
from luminal.view import page, write_page
from luminal.view.egraph import egraph_records
from luminal.view.folds import repeats
from luminal.view.page import SLOT
from luminal.view.record import graph_record, part_of
from luminal.view.serve import server

VIEWER = luminal.__path__[0] + "/view/viewer.html"


class Layer(nn.Module):
    def __init__(self, graph):
        super().__init__()
        self.wide, self.narrow = nn.Linear(graph, 16, 48), nn.Linear(graph, 48, 16)

    def forward(self, x):
        return x + self.narrow(ops.gelu(self.wide(ops.softmax(x, -1))))


class Stack(nn.Module):
    def __init__(self, graph):
        super().__init__()
        self.layers = nn.ModuleList([Layer(graph) for _ in range(4)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture(scope="module")
def graph():
    cx = luminal.Graph()
    cx.dim("s", 1, 64)
    Stack(cx)(cx.tensor(("s", 16), name="x")).output("y")
    for tensor in cx.parameters:
        tensor.set(np.ones(tuple(map(int, tensor.shape)), np.float32) / 64)
    return cx


@pytest.fixture(scope="module")
def ran(graph):
    made = graph.compile(threads=1, cache=False)
    made(np.ones((5, 16), np.float32))
    return made


@given(st.lists(st.integers(0, 3), max_size=30))
def test_repeats_are_repeats(items):
    end = 0
    for found in repeats(items):
        assert found.start >= end and found.count > 1
        end = found.end
        pattern = items[found.start : found.start + found.period]
        assert items[found.start : found.end] == pattern * found.count


def test_layers_are_found_between_other_things():
    (found,) = repeats([9, *[1, 2, 1, 3] * 5, 8])
    assert (found.start, found.period, found.count) == (1, 4, 5)


def test_a_graph_says_who_recorded_what(graph):
    rows = graph_record(program_of(graph))["nodes"]
    paths = {tuple(row["path"]) for row in rows if row["op"] == "exp2"}
    assert paths == {("layers", str(n)) for n in range(4)}
    assert ["layers", "2", "narrow"] in [row["path"] for row in rows]
    for number, row in enumerate(rows):
        assert all(source < number for source in row["inputs"])
        assert row["where"].startswith("test_view.py:")


def test_scopes_end_with_the_module():
    cx = luminal.Graph()
    x = nn.Sequential(nn.Linear(cx, 4, 4))(cx.tensor((2, 4)))
    last = (x * 2.0).output()
    assert cx.scopes[last.node] == "" and cx.scopes[x.node] == "0"


def test_gradients_and_updates_are_of_the_module_whose_they_are():
    cx = luminal.Graph()
    model, x = Stack(cx), cx.tensor((8, 16))
    for tensor in cx.parameters:
        tensor.set(np.zeros(tuple(map(int, tensor.shape)), np.float32))
    train.Step((model(x) ** 2).mean(), model.parameters(), train.SGD(lr=0.1))
    paths = {tuple(row["path"][:4]) for row in graph_record(program_of(cx))["nodes"]}
    assert {("backward", "layers", "3", "wide"), ("update", "layers", "0", "narrow")} <= paths
    assert not any(path[1:2] == ("backward",) for path in paths)


@pytest.mark.parametrize("module, part", [
    ("blocks.3.norm", "blocks.3"), ("backward.blocks.3.mlp.up", "blocks.3"), ("head", "head"),
    ("update.blocks.0", "blocks.0"), ("update", ""), ("encoder.layers.2.fc.0", "encoder.layers.2"),
])  # fmt: skip
def test_the_part_that_a_module_belongs_to(module, part):
    assert part_of(module) == part


def test_blocks_of_stages_are_parts_too():
    assert part_of("backward.stages.1.layers.2.conv", 2) == "stages.1.layers.2"
    assert part_of("stages.1.conv", 2) == "stages.1"


def data_of(text):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(found.group(1))


def test_an_e_graph_says_what_is_equal_and_taken():
    cx = luminal.Graph()
    ops.softmax(cx.tensor(("s", 256)), -1).output()
    made = cx.compile(threads=1, cache=False)
    (found,) = egraph_records(made.program, CostModel())
    rows = found["nodes"]
    assert found["regions"] == [0] and all(n < len(rows) for row in rows for n in row["inputs"])
    classes = {}
    for row in rows:
        classes.setdefault(row["path"][0], []).append(row)
    assert all(sum(row["chosen"] for row in equal) <= 1 for equal in classes.values())
    (online,) = [e for e in classes.values() if len(e) > 1 and e[0]["label"] == "exp2"]
    assert [row["label"] for row in online if row["chosen"]] == ["2^(1.4427 (x - max x))"]


def test_a_page_is_served_to_this_machine_alone():
    made = iter(["first", "second", "third"])
    with server(lambda: next(made)) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        url = f"http://localhost:{running.server_port}/"
        assert [urlopen(url).read() for _ in range(2)] == [b"first", b"second"]
        asked = urlopen(Request(url, method="HEAD"))
        assert asked.read() == b"" and asked.headers["Content-Length"] == "5"
        for path, headers, status in (("x", {}, 404), ("", {"Host": "evil.example"}, 403)):
            with pytest.raises(HTTPError) as told:
                urlopen(Request(url + path, headers=headers))
            assert told.value.code == status
        running.shutdown()


def test_an_error_of_a_page_is_told():
    def make():
        raise InputError("no such graph")

    with server(make) as running, pytest.raises(HTTPError) as told:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        urlopen(f"http://localhost:{running.server_port}/")
    running.shutdown()
    assert told.value.code == 500 and b"InputError: no such graph" in told.value.read()


def test_pages_that_cannot_be_are_told_before_the_run(tmp_path, monkeypatch):
    words = ["view", str(tmp_path / "none.luminal")]
    told = CliRunner().invoke(main, [*words, "-o", str(tmp_path / "none" / "x.html")])
    assert told.exit_code == 2 and "cannot be written" in told.output
    monkeypatch.setattr(import_module("luminal.view.page"), "files", lambda _: tmp_path)
    told = CliRunner().invoke(main, [*words, "--serve"])
    assert told.exit_code == 1 and "page is not built" in told.output


needs_page = pytest.mark.skipif(
    not (files("luminal.view") / "viewer.html").is_file(),
    reason="the page is built with npm: make viewer",
)


@needs_page
def test_a_page_holds_graph_and_plan(ran):
    data = data_of(page(ran))
    (plan,) = data["plans"]
    assert plan["sizes"] == {"s": 5} and len(plan["regions"]) == ran.report.regions
    for call in plan["calls"]:
        assert all(plan["calls"][source]["writes"] for source in call["inputs"])
        assert call["constant"] or call["time"] > 0
    for kernel in plan["kernels"]:
        assert {"values", "schedule", "loops", "IR", "assembly"} == set(kernel["texts"])
        assert "define" in kernel["texts"]["IR"] and kernel["least"] > 0
    computed = {node for nodes in plan["regions"] for node in nodes}
    rows = data["graph"]["nodes"]
    assert all(n in computed for n, row in enumerate(rows) if row["op"] in ("sum", "exp2", "max"))
    for placed in plan["placed"]:
        assert 0 <= placed["first"] <= placed["last"] < len(plan["steps"])
    assert any("layers.1" in call["path"] for call in plan["calls"])
    for call in plan["calls"]:
        if call["path"]:
            assert call["module"].startswith(call["path"][-1])
    wide = {c["module"] for c in plan["calls"]
            if any(plan["memories"][m]["name"].endswith("wide.weight") for m in c["reads"])}
    assert wide == {f"layers.{n}.wide" for n in range(4)}  # whose parameters a kernel reads
    alike = sorted(n for each in data["egraphs"] for n in each["regions"])
    assert alike == list(range(len(plan["regions"])))


@needs_page
def test_a_program_from_a_file_is_shown_as_it_was(ran, tmp_path):
    ran.save(tmp_path / "m.luminal")
    made = luminal.load(tmp_path / "m.luminal")
    rehearse(made, {"s": 7})
    ours, its = (data_of(page(program, listings=False)) for program in (ran, made))
    for row in ours["graph"]["nodes"]:
        row["where"] = row["where"] if row["inputs"] else ""  # a file knows the names of sources
    for row in its["graph"]["nodes"]:
        row["where"] = row["where"] if row["inputs"] else ""
    assert its["graph"] == ours["graph"] and its["plans"][0]["sizes"] == {"s": 7}
    for name in ("regions", "kernels"):
        assert len(its["plans"][0][name]) == len(ours["plans"][0][name])
    assert its["plans"][0]["regions"] == ours["plans"][0]["regions"]
    with pytest.raises(InputError, match="no size 't'; there are s"):
        rehearse(made, {"t": 7})


@needs_page
def test_names_do_not_end_the_script():
    cx = luminal.Graph()
    (cx.tensor((2,), name="</script><b>") * 2.0).output("y")
    assert data_of(page(cx))["graph"]["nodes"][0]["name"] == "</script><b>"


def test_a_graph_without_outputs():
    with pytest.raises(InputError, match="no output"):
        page(luminal.Graph())


def test_a_profile_adds_up(ran):
    rows = ran.profile(repeat=2)
    assert {row.kernel for row in rows} <= {made.name for made in ran.kernels}
    assert sum(row.share for row in rows) == pytest.approx(1)
    assert sum(row.calls for row in rows) == len(ran.time_kernels(1))


@needs_page
def test_a_plan_of_a_device_is_shown():
    if COMPILER is None:
        pytest.skip("no C compiler")
    cx = luminal.Graph()
    y = ops.softmax(cx.tensor((4, 8), name="x"), -1)
    (y.sum(-1, keepdim=True).exp() * y.amax(0)).output()
    made = cx.compile("c", cache=False)
    made(np.ones((4, 8), np.float32))
    (plan,) = data_of(page(made))["plans"]
    assert all("source" in kernel["texts"] for kernel in plan["kernels"])
    assert plan["calls"] and all(call["time"] > 0 for call in plan["calls"])
    assert len(plan["trace"]) == len(plan["calls"])
    for a, b in combinations(plan["placed"], 2):  # who share memory do so at other times
        apart = a["offset"] + a["bytes"] <= b["offset"] or b["offset"] + b["bytes"] <= a["offset"]
        assert apart or a["last"] < b["first"] or b["last"] < a["first"]


def test_a_trace_has_a_row_for_each_thread(graph):
    made = graph.compile(threads=2, cache=False)
    right = made(np.ones((40, 16), np.float32))
    spans = made.trace()
    np.testing.assert_array_equal(made["y"], right)
    assert {span.thread for span in spans} == {0, 1}
    assert {span.call for span in spans} == set(range(len(made.time_kernels(1))))
    for row in (0, 1):
        mine = [span for span in spans if span.thread == row]
        for before, after in pairwise(mine):  # a thread is in one kernel at a time
            assert before.start + before.seconds <= after.start + 1e-9
    events = chrome_trace(spans)["traceEvents"]
    assert {(e["name"], e["tid"]) for e in events} == {(s.kernel, s.thread) for s in spans}
    assert all(len(row.threads) == 2 and 0 < row.balance <= 1 for row in made.profile(1))


def test_looking_at_a_training_step_trains_nothing():
    cx = luminal.Graph()
    w, m = cx.parameter(8, name="w").set(np.ones(8, np.float32)), cx.parameter(8, name="m")
    m.set(np.ones(8, np.float32))
    cx.donate(w, w * 0.5)
    cx.donate(m, m.flip(0) + w)  # not in place
    made = cx.compile(threads=2, cache=False)
    made.run()
    before = made[w].copy(), made[m].copy()
    made.profile(repeat=3)
    made.trace()
    made.run()
    assert (made[w] == before[0] / 2).all() and (made[m] == before[1][::-1] + before[0]).all()


def test_a_file_is_profiled(ran, tmp_path):
    ran.save(tmp_path / "m.luminal")
    words = ["profile", str(tmp_path / "m.luminal"), "--json", "--size"]
    rows = json.loads(CliRunner().invoke(main, [*words, "s=9"]).output)
    assert {row["kernel"] for row in rows} <= {made.name for made in ran.kernels} and rows
    told = CliRunner().invoke(main, [*words, "s=x"])
    assert told.exit_code == 1 and "a whole number" in told.output


@needs_page
def test_the_command_writes_a_page(ran, tmp_path):
    ran.save(tmp_path / "m.luminal")
    out = tmp_path / "page.html"
    words = ["view", str(tmp_path / "m.luminal"), "-o", str(out), "--json"]
    told = json.loads(CliRunner().invoke(main, words).output)
    assert told == {"path": str(out), "bytes": out.stat().st_size} and SLOT not in out.read_text()


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


def browsed(path, tmp_path, link, *options):
    """What a browser prints after the page's own script has run."""
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=4000",
               f"--user-data-dir={tmp_path / 'profile'}", *options]  # fmt: skip
    return subprocess.run(
        [*command, f"{path.as_uri()}#{link}"], capture_output=True, text=True, timeout=300
    ).stdout


def shown_by_browser(path, tmp_path, link):
    """The document, without the data."""
    shown = browsed(path, tmp_path, link, "--dump-dom")
    return shown.partition("<main>")[2].partition('<script type="application/json"')[0]


@needs_page
@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_a_browser_shows_it(ran, tmp_path):
    """A call's detail and the table stand in the document."""
    body = shown_by_browser(ran.view(tmp_path / "page.html"), tmp_path, "call=4&tab=kernels")
    name = data_of(page(ran, listings=False))["plans"][0]["calls"][4]
    kernel = ran.report.kernels[name["kernel"]].name
    assert f"<h2>{kernel}</h2>" in body and body.count("<tr data-kernel") == len(ran.kernels)
    assert "assembly" in body


@needs_page
@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_a_browser_shows_two_plans_beside_each_other(ran, tmp_path):
    """Region by region; a link to a call that is not there is no fault."""
    path = write_page(tmp_path / "page.html", [ran, ran], listings=False)
    body = shown_by_browser(path, tmp_path, "call=999&tab=difference")
    rows = body.partition('<table class="wrapped">')[2].partition("</table>")[0].count("<tr>") - 1
    calls = data_of(path.read_text())["plans"][0]["calls"]
    assert rows == len({call["region"] for call in calls if not call["constant"]}) > 1


@needs_page
@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_a_picture_of_it_is_drawn_on(ran, tmp_path):
    """Both panes have boxes of several colours, and room around them."""
    image = pytest.importorskip("PIL.Image")
    path, picture = ran.view(tmp_path / "page.html"), tmp_path / "page.png"
    browsed(path, tmp_path, "", "--window-size=1600,1000", f"--screenshot={picture}")
    seen = np.asarray(image.open(picture).convert("RGB")).astype(int)
    assert seen.shape == (1000, 1600, 3)
    for left in (0, 600):  # the panes, below their buttons
        pane = seen[90:800, left + 20 : left + 580].reshape(-1, 3)
        colours, counts = np.unique(pane // 8, axis=0, return_counts=True)
        assert len(colours) > 8 and 0.3 < counts.max() / len(pane) < 0.995
