"""Harms what luminal keeps on disk, and looks at what becomes of it.

    python tests/artifact/fuzz.py [COUNT] [SEED]

Each of COUNT files is damaged (bits, ends, stretches, pieces of another such file), and used. A
saved program gives the right answer or luminal's own error; what is kept gives the right answer.
A crash ends the process, a hang too; the last line then says which case it was.
"""

from __future__ import annotations

import collections
import os
import random
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import luminal
from luminal import Graph, LuminalError, ops
from luminal.artifact import kept
from luminal.search.database import Database, Trial, Tuned
from luminal.store import Store

SECONDS = 60  # for one case
ROWS = np.random.default_rng(0).standard_normal((5, 16), dtype=np.float32)
Use = Callable[[Path], None]  # raises AssertionError for a wrong answer


def graph(values: float) -> Graph:
    """(5, 16) -> (5, 24), with a parameter, a constant and a table in them."""
    cx = Graph()
    cx.dim("s", 1, 64, hint=(1, 16))  # kernels for two ranges
    x = cx.tensor(("s", 16), name="x")
    weight = cx.parameter((24, 16), name="weight")
    weight.set(np.full((24, 16), values, np.float32) + np.eye(24, 16, dtype=np.float32))
    bias = cx.constant(np.linspace(-values, values, 24, dtype=np.float32), name="bias")
    (ops.linear(x, weight) + bias).output("y")
    return cx


def answer(values: float) -> np.ndarray:
    weight = np.full((24, 16), values, np.float32) + np.eye(24, 16, dtype=np.float32)
    return ROWS @ weight.T + np.linspace(-values, values, 24, dtype=np.float32)


def right(found: Any, *wanted: np.ndarray) -> None:
    close = any(np.allclose(found, each, rtol=1e-5, atol=1e-5) for each in wanted)
    assert close, f"a wrong answer: {found}"


# ---- what is harmed: (name, file, another file of its kind, what uses it)


def saved(folder: Path, trust: bool) -> tuple[str, Path, Path, Use]:
    first, second = folder / "first.luminal", folder / "second.luminal"
    for path, values in ((first, 1.0), (second, 2.0)):
        graph(values).compile(threads=1).save(path)
    other = second.read_bytes()

    def use(path: Path) -> None:
        swapped = path.read_bytes() == other
        try:
            found = luminal.load(path, trust=trust)(ROWS)
        except LuminalError:
            return
        right(found, answer(2.0 if swapped else 1.0))

    return f"saved, trust={trust}", first, second, use


def programs(folder: Path) -> tuple[str, Path, Path, Use]:
    def compiled(scale: float) -> Any:
        cx = Graph()
        (cx.tensor((5, 16), name="x") * scale + 1).output()
        return cx.compile(threads=1, cache=folder, database=False)(ROWS)

    compiled(3.0)
    (first,) = folder.glob("*.luminal")
    compiled(4.0)
    (second,) = set(folder.glob("*.luminal")) - {first}
    return "kept program", first, second, lambda path: right(compiled(3.0), ROWS * 3.0 + 1)


def weights(folder: Path) -> tuple[str, Path, Path, Use]:
    cx = Graph()
    x, weight = cx.tensor((5, 16), name="x"), cx.parameter((24, 16), name="weight")
    table = cx.parameter((4000, 16), name="table")
    ids = cx.constant(np.arange(5) * 700)
    (ops.linear(x + ops.embedding(ids, table), weight)).output()
    rt, store = cx.compile(threads=1, cache=False), Store(folder, suffix=".weights")

    def run(identity: str, values: float) -> Any:
        given = [(weight, np.full((24, 16), values, np.float32))]
        given += [(table, np.full((4000, 16), values, np.float32))]
        kept.set_parameters(rt, lambda: given, identity, store)
        return rt(ROWS)

    run("first", 1.0)
    run("first", 1.0)  # waits until the other has written
    (first,) = folder.glob("*.weights")
    run("second", 2.0)
    run("second", 2.0)
    (second,) = set(folder.glob("*.weights")) - {first}
    wanted = (ROWS + 1.0) @ np.ones((16, 24), np.float32)
    return "kept weights", first, second, lambda path: right(run("first", 1.0), wanted)


def facts(folder: Path) -> tuple[str, Path, Path, Use]:
    store = Store(folder, suffix=".machine")

    def use(path: Path) -> None:
        assert store.remembered("first", lambda: b"first" * 100) == b"first" * 100

    store.remembered("second", lambda: b"other" * 100)
    use(folder)
    return "facts", folder / "first.machine", folder / "second.machine", use


FOUND = Tuned({"block m": 32, "order": "m n"}, 1.0, 1.5, 0.5, 7, [({}, 1.5)])
OTHER = Tuned({}, 2.0, 2.0, runners=[])
TRIALS, PLAN, RATES = [Trial({"a": 1}, "ok", 2.0)], [["k", 1]], {"fma": 3.0}


def tuning(folder: Path) -> tuple[str, Path, Path, Use]:
    def fill(base: Database, found: Tuned, plan: list[Any]) -> None:
        for number in range(8):
            base.keep(f"{number}", "gemm", replace(found, tried=number))
            base.add_trials(f"{number}", TRIALS)
            base.keep_plan(f"{number}", [number, *plan])
        base.keep_rates("0", RATES)

    def use(path: Path) -> None:
        for _ in range(2):  # as another process would, after the first has met the damage
            base = Database(path)
            for number in range(8):
                found, plan = base.find(f"{number}"), base.plan(f"{number}")
                assert found in (None, *(replace(t, tried=number) for t in (FOUND, OTHER))), found
                assert plan in (None, [number, *PLAN], [number]), plan
                assert base.trials(f"{number}") in ([], TRIALS), base.trials(f"{number}")
            assert base.rates("0") in (None, RATES)
            base.describe(), base.state()
            base.keep("new", "gemm", FOUND)
            assert base.find("new") in (None, FOUND)

    first, second = folder / "first.sqlite", folder / "second.sqlite"
    fill(Database(first), FOUND, PLAN)
    fill(Database(second), OTHER, [])
    return "tuning database", first, second, use


# ---- harm


def harmed(data: bytes, other: bytes, random: random.Random) -> tuple[str, bytes]:
    """What was done, and the file as it is then."""
    raw, size = bytearray(data), len(data)
    low = random.choice((0, 0, max(0, size - 3000)))  # somewhere, or near an end
    high = random.choice((size, min(size, 200))) if not low else size
    at = random.randrange(low, high)
    length = min(random.choice((1, 8, 64, 512, 4096)), size - at)
    how = random.choice(("bit", "bit", "bits", "cut", "more", "zeros", "swap", "splice", "other"))
    if how in ("bit", "bits"):
        for _ in range(1 if how == "bit" else 8):
            raw[random.randrange(low, high)] ^= 1 << random.randrange(8)
    elif how == "cut":
        del raw[at:]
    elif how == "more":
        raw += random.randbytes(length)
    elif how == "zeros":
        raw[at : at + length] = bytes(length)
    elif how == "swap":
        to = random.randrange(0, size - length + 1)
        raw[at : at + length], raw[to : to + length] = raw[to : to + length], raw[at : at + length]
    elif how == "splice":
        raw[at : at + length] = other[at : at + length]
    else:
        raw = bytearray(other)
    return f"{how} at {at}, {length} bytes", bytes(raw)


def cases(folder: Path) -> Iterator[tuple[str, Path, Path, Use]]:
    makers = (programs, weights, facts, tuning)
    for maker in (lambda f: saved(f, True), lambda f: saved(f, False), *makers):
        place = Path(tempfile.mkdtemp(dir=folder))
        yield maker(place)


def fuzz(count: int, seed: int, folder: Path) -> collections.Counter[str]:
    """How many files of each kind were harmed. Raises AssertionError, or whatever came out."""
    chance, done = random.Random(seed), collections.Counter[str]()
    targets = [(name, path, path.read_bytes(), second.read_bytes(), use)
               for name, path, second, use in cases(folder)]  # fmt: skip
    for number in range(count):
        name, path, data, other, use = targets[number % len(targets)]
        how, bad = harmed(data, other, chance)
        print(f"{number}: {name}: {how}", flush=True)
        for left in path.parent.glob(f"{path.name}?*"):
            left.unlink()
        path.write_bytes(bad)
        signal.alarm(SECONDS)
        use(path)
        signal.alarm(0)
        done[name] += 1
    return done


def main() -> None:
    count, seed = (int(given) for given in (*sys.argv[1:], *("300", "0")[len(sys.argv) - 1 :]))
    warnings.simplefilter("ignore")
    quick = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(dir=quick))
    os.environ["XDG_CACHE_HOME"] = str(folder)
    try:
        done = fuzz(count, seed, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(", ".join(f"{name}: {times}" for name, times in done.items()))


if __name__ == "__main__":
    main()
