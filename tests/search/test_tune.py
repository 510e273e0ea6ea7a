"""Searching while compiling: the winners are right, kept, and found again."""

import numpy as np
import pytest
from click.testing import CliRunner
from search_cases import TARGET, prepared

from luminal import Graph, load, ops
from luminal.backend import cpu
from luminal.cli.tune import cache, kernel_rows
from luminal.errors import InputError, WrongResult
from luminal.progress import Line
from luminal.scheduling.decisions import Decision
from luminal.search import tune as module
from luminal.search.database import Database, Tuned, user_path
from luminal.search.kernel_search import KernelSearch, Limit
from luminal.search.progress import Progress
from luminal.search.space import Space
from luminal.search.strategies import Evolve
from luminal.search.trial import Result
from luminal.search.tune import Budget, Task, Tuning
from luminal.store import Store


@pytest.fixture(autouse=True)
def rates(monkeypatch):
    """Ceilings that nobody reaches, without the seconds that measuring them takes."""
    found = {"fma": 1e6, "read": 1e6, "cache": 1e6}
    monkeypatch.setattr("luminal.search.measure.Measurer.rates", lambda self: found)


def tuning(path, seed=0):
    return Tuning(cpu, TARGET, seed, path)


def network():
    cx = Graph()
    x = cx.tensor((16, 32))
    w = cx.constant(np.random.default_rng(0).standard_normal((32, 48), np.float32))
    return cx, x, ops.softmax(x.matmul(w), -1).output()


def run(**options):
    cx, x, y = network()
    rt = cx.compile(threads=1, **options)
    rt[x] = np.random.default_rng(1).standard_normal((16, 32), np.float32)
    rt.run()
    return rt[y], rt


@pytest.mark.parametrize(
    ("text", "budget"),
    [(0, None), (7, Budget(7)), ("30s", Budget(None, 30.0)), ("1.5m", Budget(None, 90.0)),
     ("2h", Budget(None, 7200.0))],
)  # fmt: skip
def test_budgets(text, budget):
    assert Budget.of(text) == budget


@pytest.mark.parametrize("text", [-1, True, "", "s", "30", "fast", "1.2.3s", 2.5, None])
def test_budgets_that_mean_nothing(text):
    with pytest.raises(InputError, match="expected a number or a time"):
        Budget.of(text)


def test_compiling_with_a_search(tmp_path):
    path = tmp_path / "t.sqlite"
    plain, rt = run(database=path)
    assert "tuned" not in rt.explain() and not path.exists()
    searched, first = run(database=path, search=2)
    np.testing.assert_allclose(searched, plain, rtol=1e-5, atol=1e-7)
    assert "tuned: " in first.explain() and "search" in first.explain() and path.exists()
    again, second = run(database=path)
    np.testing.assert_array_equal(again, searched)
    assert "tuned: " in second.explain() and "  search " not in second.explain()
    timed, kept = ([row["candidates"] for row in kernel_rows(rt)] for rt in (first, second))
    assert timed == kept and timed[0][0]["seconds"] > 0
    second.save(tmp_path / "m.luminal")
    assert kernel_rows(load(tmp_path / "m.luminal")) == kernel_rows(second)


@pytest.mark.parametrize(
    ("winner", "gain", "kept"), [(0, 1.5, False), (1, 1.5, True), (1, 1.05, False), (2, 1.05, True)]
)
def test_choices_that_do_not_help_the_whole_program_are_forgotten(
    tmp_path, monkeypatch, winner, gain, kept
):
    """The rivals are the defaults, clear gains, all gains; alone, the kernel has gained."""
    found = Tuned({"unroll v0": 1}, 1.0, gain, tried=1)
    monkeypatch.setattr(KernelSearch, "run", lambda *_: found)
    monkeypatch.setattr("luminal.search.programs.fastest", lambda *_: (winner, [1.0, 1.1, 1.2]))
    path = tmp_path / "t.sqlite"
    _, rt = run(database=path, search=1)
    assert "the defaults 1.000, clear gains 1.100, all gains 1.200" in rt.explain()
    ((key,),) = Database(path)._read("select key from rows where kind = 'tuned'")
    assert bool(Database(path).find(key).choices) == kept


def test_no_database(tmp_path):
    _, rt = run(database=False, search=1)
    assert "tuned: " in rt.explain()
    _, rt = run(database=False)
    assert "tuned: " not in rt.explain()


def test_choices_that_no_longer_fit_are_not_used(tmp_path):
    path = tmp_path / "t.sqlite"
    plain, _ = run(database=path)
    run(database=path, search=1)
    base, keys = Database(path), []
    for (key,) in base._read("select key from rows where kind = 'tuned'"):
        base.keep(key, "broken", Tuned({"lane": "no such axis", "tile": "?"}, 1.0, 2.0))
        keys.append(key)
    result, rt = run(database=path)
    np.testing.assert_array_equal(result, plain)
    assert keys and "stored choices were refused" in rt.explain()


def test_a_search_goes_on_where_the_last_one_ended(tmp_path):
    path, kernel = tmp_path / "t.sqlite", prepared("gemm")
    first = tuning(path)
    with first:
        first.search([Task(kernel)], Budget(4))
    key = first.key(kernel)
    tried = {str(t.choices) for t in Database(path).trials(key)}
    assert len(tried) == 4
    with tuning(path) as second:
        second.search([Task(kernel)], Budget(8))
    both = {str(t.choices) for t in Database(path).trials(key)}
    assert tried < both


def test_equal_kernels_are_tuned_once(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(Tuning, "_tune", lambda self, task, *rest: seen.append(task))
    kernel = prepared("softmax")
    with tuning(tmp_path / "t.sqlite") as tuned:
        tuned.search([Task(kernel, 2), Task(kernel, 3)], Budget(1))
    assert [task.calls for task in seen] == [5]


def test_time_is_shared_by_weight(monkeypatch):
    monkeypatch.setattr(module.time, "monotonic", lambda: 100.0)
    assert module._share([4.0, 1.0, 1.0], 108.0) == pytest.approx(104.0, abs=0.01)
    assert module._share([1.0], 99.0) == 100.0 and module._share([1.0], None) is None


class Standin:
    """Measures by a table, in no time."""

    ahead = 1

    def __init__(self, seconds):
        self.seconds = seconds

    def begin(self, batch):
        assert len(batch) <= self.ahead

    def open(self, kernel, default):
        return Result("ok", seconds=1.0)

    def attempt(self, number, candidate, best):
        return Result("ok", seconds=self.seconds)

    def race(self, finalists, rounds, seconds):
        raced = {n: [self.race_seconds] * rounds for n in finalists}
        return {0: [1.0] * rounds, **raced}


def searched(attempted, raced):
    standin = Standin(attempted)
    standin.race_seconds = raced
    space = Space(prepared("gemm"), TARGET)
    search = KernelSearch(space, standin, Evolve(0), Limit(5, None), 0.0, Progress(Line(1)))
    return search.run([])


def test_a_winner_must_win_the_race():
    found = searched(0.5, 0.5)
    assert found.choices and found.seconds == 0.5 and found.normal == 1.0 and found.tried == 5
    found = searched(0.5, 1.2)  # a lucky measurement
    assert found.choices == {} and found.seconds == 1.0 and len(found.runners) == 4


def test_a_default_that_cannot_be_built_is_reported(tmp_path, monkeypatch):
    refused = Result("refused", "no reason")
    monkeypatch.setattr("luminal.search.measure.Measurer.open", lambda *_: refused)
    tuned = tuning(tmp_path / "t.sqlite")
    kernel = prepared("gemm")
    with tuned:
        tuned.search([Task(kernel)], Budget(2))
    choices, notes, _ = tuned.known(kernel)
    assert choices == {} and "the default schedule is refused: no reason" in notes[0]


def test_a_wrong_default_is_an_error(tmp_path, monkeypatch):
    """Whatever is compiled without a search is wrong as well."""
    wrong = Result("wrong", "Y[3] is 0 instead of nan")
    monkeypatch.setattr("luminal.search.measure.Measurer._attempt", lambda *_: wrong)
    with pytest.raises(WrongResult, match=r"(?s)Y\[3\] is 0 instead of nan\naxes"):
        run(database=tmp_path / "t.sqlite", search=2)


def test_decisions_are_hashable_records():
    assert Decision("a", 1, (1, 2), 1).others == (2,)


def test_cache_commands(tmp_path):
    path = tmp_path / "t.sqlite"
    Database(path).keep("key", "gemm", Tuned({"a": 1}, 1.0, 2.0))
    runner = CliRunner()
    shown = runner.invoke(cache, ["info", "--database", str(path)])
    assert shown.exit_code == 0 and "1 kernels tuned" in shown.output and "2.00 x" in shown.output
    cleared = runner.invoke(cache, ["clear", "--database", str(path)])
    assert cleared.exit_code == 0 and Database(path).find("key") is None
    assert "0 kernels" in runner.invoke(cache, ["info", "--database", str(path)]).output
    (tmp_path / "precious").write_bytes(b"GGUF" * 100)
    for command in ("info", "clear"):
        runner.invoke(cache, [command, "--database", str(tmp_path / "precious")])
    assert (tmp_path / "precious").read_bytes() == b"GGUF" * 100


def test_cache_commands_cover_all_that_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    Store.of_machine().remembered("key", lambda: bytes(100))
    Database(user_path()).keep("key", "gemm", Tuned({"a": 1}, 1.0, 2.0))
    runner = CliRunner()
    shown = runner.invoke(cache, ["info"]).output
    assert "1 kernels tuned" in shown and "facts, 1 files" in shown and "weights, 0 files" in shown
    assert runner.invoke(cache, ["clear"]).exit_code == 0
    shown = runner.invoke(cache, ["info"]).output
    assert "0 kernels tuned" in shown and "facts, 0 files" in shown


def column_products():
    """A contraction with far more to add than results."""
    cx = Graph()
    x, y = cx.tensor((8192, 16)), cx.tensor((8192, 16))
    return cx, (x, y), ops.matmul(x.permute(1, 0), y).output()


def test_the_best_number_of_parts_of_a_long_reduction_is_kept(tmp_path, monkeypatch):
    """Each number of parts is measured; here, who adds 2048 at a time is the fastest."""

    def seconds(self, part):
        extents = [int(extent) for extent in part.axes.values()]
        return 1e-3 if max(extents) in (16, 2048) else 1e-2

    monkeypatch.setattr(Tuning, "_default_seconds", seconds)
    monkeypatch.setattr(Tuning, "_open", seconds)
    monkeypatch.setattr("luminal.search.programs.fastest", lambda engines, *_: (2, [1.0, 0.5, 0.5]))
    path = tmp_path / "t.sqlite"
    cx, inputs, out = column_products()
    arrays = [np.random.default_rng(n).standard_normal((8192, 16), np.float32) for n in (0, 1)]
    plain = cx.compile(threads=2, database=False, cache=False)
    cx.compile(search=1, threads=2, database=path, cache=False)
    found = cx.compile(threads=2, database=path, cache=False)
    assert (len(plain.kernels), len(found.kernels)) == (1, 2)
    for tensor, array in zip(inputs, arrays):
        found[tensor] = array
    found.run()
    np.testing.assert_allclose(found[out], arrays[0].T @ arrays[1], rtol=1e-4, atol=1e-2)
