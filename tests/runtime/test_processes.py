"""Other processes beside this one: children that it starts, forks of it."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal
from luminal import collecting, forks, ops
from luminal.backend.cpu.asked import asked_elsewhere
from luminal.children import Child, calling_main, safe_path
from luminal.errors import CompileError, LuminalError
from luminal.once import computed_once


def _ask_llvm() -> None:
    assert json.loads(asked_elsewhere())


def _measure() -> None:
    child = Child("luminal.search.child")
    try:
        with pytest.raises(CompileError, match="No module"):  # an answer: the child is well
            child.ask(60.0, "rates", "luminal.backend.nothing", 1)
    finally:
        child.stop()


def _compile_elsewhere() -> None:
    ended = subprocess.run(
        calling_main("luminal.models.llm.elsewhere"), input=b"", capture_output=True
    )
    assert b"EOFError" in ended.stderr


def _spawn() -> None:
    context = multiprocessing.get_context("spawn")
    with safe_path():
        process = context.Process(target=int)
        process.start()
    process.join()
    assert process.exitcode == 0


def test_a_child_whose_parent_is_gone_ends_without_a_word() -> None:
    code = "from luminal.children import serve; serve(lambda message: bytes(1 << 20))"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    assert child.stdin and child.stdout and child.stderr
    child.stdout.close()
    child.stdin.write(pickle.dumps(("what", "is", "asked")))
    child.stdin.flush()
    assert (child.wait(60), child.stderr.read()) == (0, b"")
    child.stdin.close()
    child.stderr.close()


def test_a_child_that_is_asked_no_more_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt while one waits for an answer: the next question gets its own."""

    class Interrupted(queue.Queue[Any]):
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            raise KeyboardInterrupt

    child = Child("luminal.search.child")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("luminal.children.queue.Queue", Interrupted)
        child.ask(60.0, "rates", "luminal.backend.nothing", 1)
    assert child._process is None
    _measure()


@pytest.mark.parametrize("start", (_ask_llvm, _measure, _compile_elsewhere, _spawn))
def test_children_run_no_code_of_the_working_directory(
    start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "llvmlite", "luminal", "numpy", "pickle", "subprocess", "runpy"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    start()
    assert not (tmp_path / "ran").exists()


# ---- forks

forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*")
ROWS = np.random.default_rng(0).standard_normal((40, 64), np.float32)


def _compiled(threads: int = 2) -> luminal.compiler.Executable:
    cx = luminal.Graph()
    x = cx.tensor((40, 64), name="x")
    ops.softmax(x, -1).output("y")
    return cx.compile(cache=False, threads=threads)


def _right(rt: luminal.compiler.Executable) -> None:
    e = np.exp(ROWS - ROWS.max(-1, keepdims=True))
    np.testing.assert_allclose(rt(ROWS), e / e.sum(-1, keepdims=True), atol=1e-6)


def _compile_and_run() -> None:
    _right(_compiled())


def _in_child(work: Callable[[], None]) -> None:
    """Do this in a fork, in a few minutes at most."""
    child = os.fork()
    if child == 0:
        signal.alarm(300)
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


@contextmanager
def _another_thread(work: Callable[[], object]):
    """Does this over and over."""
    ended, begun = threading.Event(), threading.Event()

    def repeat() -> None:
        while not ended.is_set():
            work()
            begun.set()

    thread = threading.Thread(target=repeat)
    thread.start()
    begun.wait(300)
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_processes_compile_and_run(method: str) -> None:
    """However they are started, and so do their children."""
    _compile_and_run()
    process = multiprocessing.get_context(method).Process(target=_with_a_child)
    process.start()
    process.join(600)
    assert process.exitcode == 0


def _with_a_child() -> None:
    _compile_and_run()
    if hasattr(os, "fork"):
        _in_child(_compile_and_run)


@forking
@pytest.mark.parametrize("threads", (1, 2))
def test_forks_while_another_thread_runs(threads: int) -> None:
    rt = _compiled(threads)
    with _another_thread(lambda: rt(ROWS)):
        for _ in range(5):
            _in_child(lambda: _right(rt))
    _right(rt)


@forking
def test_forks_while_another_thread_compiles() -> None:
    with _another_thread(_compiled):
        for _ in range(3):
            _in_child(_compile_and_run)


@forking
def test_forks_while_another_thread_computes_a_property() -> None:
    begun, ended = threading.Event(), threading.Event()

    class Slow:
        @computed_once
        def value(self) -> int:
            begun.set()
            ended.wait(300)
            return 5

    thread = threading.Thread(target=lambda: Slow().value)
    thread.start()
    begun.wait(300)
    other = Slow()

    def use() -> None:
        ended.set()
        assert other.value == 5 and other.__dict__ == {"value": 5}

    _in_child(use)
    ended.set()
    thread.join()


@forking
def test_what_a_fork_cut_in_two_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another thread holds a program for longer than a fork waits."""
    monkeypatch.setattr(forks, "PATIENCE", 0.05)
    rt, held, ended = _compiled(1), threading.Event(), threading.Event()

    def load():
        held.set()
        ended.wait(300)
        return ()

    thread = threading.Thread(target=lambda: rt.set_parameters(load))
    thread.start()
    held.wait(300)

    def use() -> None:
        with pytest.raises(LuminalError, match="half done"):
            rt(ROWS)
        _in_child(_compile_and_run)

    _in_child(use)
    ended.set()
    thread.join()
    _right(rt)


@forking
def test_a_fork_ends_like_any_process() -> None:
    """With an interpreter that frees what there is."""
    text = (
        "import os, sys, luminal\ncx = luminal.Graph()\nx = cx.tensor((8,))\n(x * 2).output()\n"
        "cx.compile(cache=False)\nchild = os.fork()\n"
        "sys.exit(bool(child and os.waitpid(child, 0)[1]))"
    )
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=300)
    assert ended.returncode == 0 and not ended.stderr, ended.stderr


@forking
def test_workers_of_a_data_loader() -> None:
    """They are forks; what they call was compiled before, or is compiled there."""
    torch = pytest.importorskip("torch")
    from luminal.torch import report

    rt = _compiled(1)
    doubled = torch.compile(lambda t: torch.relu(t) * 2 + 1, backend="luminal")
    rows = torch.from_numpy(ROWS)
    doubled(rows)

    class Rows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, n: int):
            again = torch.compile(lambda t: torch.relu(t) - n, backend="luminal")
            found = rt(ROWS)[n], doubled(rows)[n], again(rows)[n]
            assert not report().failures and not report().fallbacks
            return found

    loader = torch.utils.data.DataLoader(
        Rows(), batch_size=3, num_workers=2, multiprocessing_context="fork", timeout=300
    )
    one, two, three = (torch.cat(parts) for parts in zip(*loader))
    torch.testing.assert_close(one, torch.softmax(rows, -1)[:6])
    torch.testing.assert_close(two, torch.relu(rows)[:6] * 2 + 1)
    torch.testing.assert_close(three, torch.relu(rows)[:6] - torch.arange(6.0)[:, None])


# ---- memory


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no list of mappings here")
def test_a_program_goes_with_its_code(tmp_path: Path) -> None:
    """At once, without the collector of cycles."""
    path = tmp_path / "a.luminal"
    _compiled(2).save(path)

    def code() -> int:
        maps = Path("/proc/self/maps").read_text()
        return sum(_size(line) for line in maps.splitlines() if " r-xp 00000000 00:00" in line)

    gc.collect()
    gc.disable()
    try:
        _right(luminal.load(path))  # what is there for good: the crew's own code
        before = code()
        held = luminal.load(path)
        _right(held)
        assert code() > before
        del held
        assert code() == before
    finally:
        gc.enable()


def _size(line: str) -> int:
    start, end = line.split(" ", 1)[0].split("-")
    return int(end, 16) - int(start, 16)


def test_cycles_that_compilations_leave_are_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "_settled", 1)
    monkeypatch.setattr(collecting, "GROWTH", 0)
    with collecting.collected_later():
        graph = luminal.Graph()
        graph.itself = graph  # type: ignore[attr-defined]
        left = weakref.ref(graph)
        del graph
    assert left() is None and collecting._settled > 1
