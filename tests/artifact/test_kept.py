"""Packed parameters kept on disk: made once, read back as they lie."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal
from luminal import Graph, container, ops
from luminal.artifact import kept
from luminal.errors import InputError, Unsupported
from luminal.runtime import native
from luminal.store import Store

WEIGHT = np.random.default_rng(0).standard_normal((96, 64), dtype=np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(Store, "of_weights", staticmethod(lambda: Store(tmp_path)))
    yield tmp_path
    files(tmp_path)


def files(folder: Path) -> list[Path]:
    """What is kept there, when it is written."""
    for path in list(container._written):
        container.wait_for(path)
    return list(folder.glob("[!.]*"))


def program() -> tuple[Any, Any, Any, Any]:
    """x @ weight^T + the norm of a bias: packed, computed once, and read as it is."""
    graph = Graph()
    x = graph.tensor((graph.dim("rows", 1, 32, hint=(1, 32)), 64))
    weight, bias = graph.parameter((96, 64), name="weight"), graph.parameter((96,))
    y = (ops.linear(x, weight, bias) * bias.exp().sum()).output()
    return graph.compile(database=False, threads=2), x, [weight, bias], y


def run(rt: Any, x: Any, y: Any) -> np.ndarray:
    rt[x] = np.ones((3, 64), np.float32)
    rt.run()
    return rt[y]


def test_a_second_program_does_not_ask_for_the_values(folder: Path) -> None:
    bias = np.linspace(-1, 1, 96, dtype=np.float32)
    rt, x, (weight, shift), y = program()
    kept.set_parameters(rt, lambda: [(weight, WEIGHT), (shift, bias)], "model")
    first = run(rt, x, y)
    wanted = (np.ones((3, 64)) @ WEIGHT.T + bias) * np.exp(bias).sum()
    np.testing.assert_allclose(first, wanted, rtol=1e-5, atol=1e-3)

    def never() -> Any:
        raise AssertionError("asked for values that are kept")

    again, x, _, y = program()
    kept.set_parameters(again, never, "model")
    np.testing.assert_array_equal(run(again, x, y), first)


@pytest.mark.parametrize("one", [0, 1])
def test_what_lies_in_a_file_is_not_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, one: int
) -> None:
    """One parameter is set anew: what was made of it is made elsewhere, the rest stays mapped."""
    monkeypatch.setattr(native, "MAPPED", 0)
    values = [WEIGHT, np.linspace(-1, 1, 96, dtype=np.float32)]
    rt, x, names, y = program()
    kept.set_parameters(rt, lambda: list(zip(names, values)), "model")
    run(rt, x, y)
    (file,) = files(folder)
    before = file.read_bytes()
    again, x, names, y = program()
    kept.set_parameters(again, lambda: [], "model")
    for _ in range(2):
        values[one] = values[one] * 0.5
        again[names[one]] = values[one]
        weight, bias = values
        wanted = (np.ones((3, 64)) @ weight.T + bias) * np.exp(bias).sum()
        np.testing.assert_allclose(run(again, x, y), wanted, rtol=1e-5, atol=1e-3)
    assert file.read_bytes() == before


@pytest.mark.parametrize("changed", [False, True])
def test_an_answer_does_not_wait_for_the_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    """Who looks for the file waits; weights that change meanwhile do not pass for what they were.
    """
    slow, bias, sync = threading.Event(), np.ones(96, np.float32), os.fsync
    write = container.Writer._write
    monkeypatch.setattr(os, "fsync", lambda number: slow.wait(300) and sync(number))
    monkeypatch.setattr(container.Writer, "_write", lambda self: slow.wait(300) and write(self))

    def loaded(load: Any) -> np.ndarray:
        rt, x, (weight, shift), y = program()
        kept.set_parameters(rt, lambda: load(weight, shift), "model")
        found = run(rt, x, y)
        if changed:
            rt[weight], rt[shift] = np.zeros_like(WEIGHT), np.zeros(96, np.float32)
            assert not run(rt, x, y).any()
        return found

    first = loaded(lambda weight, shift: [(weight, WEIGHT), (shift, bias)])
    assert not list(folder.glob("[!.]*"))
    slow.set()
    rt, x, (weight, shift), y = program()
    with pytest.warns(match="made anew") if changed else contextlib.nullcontext():
        load = (lambda: [(weight, WEIGHT), (shift, bias)]) if changed else pytest.fail
        kept.set_parameters(rt, load, "model")
    np.testing.assert_array_equal(run(rt, x, y), first)


def test_a_disk_that_is_full_later(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fsync", full)
    rt, x, (weight, shift), y = program()
    ones = np.ones(96, np.float32)
    with pytest.warns(UserWarning, match="not kept: .*no space"):
        kept.set_parameters(rt, lambda: [(weight, WEIGHT), (shift, ones)], "model")
        assert not files(folder) and run(rt, x, y).any()
    assert not list(folder.glob(".luminal-*.part"))


def test_programs_with_larger_inputs_share_what_is_kept(folder: Path) -> None:
    """A longer context, say: the same weights, packed once."""
    for context in (16, 32):
        graph = Graph()
        x, past = graph.tensor((3, 64)), graph.tensor((context, 64))
        weight = graph.parameter((96, 64), name="weight")
        y = (ops.linear(x, weight) + past.sum()).output()
        rt = graph.compile(database=False, threads=1)
        kept.set_parameters(rt, lambda weight=weight: [(weight, WEIGHT)], "model")
        rt[past] = np.zeros((context, 64), np.float32)
        np.testing.assert_allclose(run(rt, x, y)[0], WEIGHT.sum(1), rtol=1e-4, atol=1e-4)
    assert len(files(folder)) == 1


def test_a_program_with_more_memories_packs_anew(folder: Path) -> None:
    """Places are counted after the memories of a plan: pieces would lie elsewhere."""
    for more in (0, 1, 2):
        graph = Graph()
        x, weight = graph.tensor((32, 64)), graph.parameter((96, 64), name="weight")
        y = ops.linear(x, weight).output()
        for _ in range(more):
            ops.cumsum(ops.softmax(y, -1), 0).output()
            y = ops.softmax(y, 0)
        rt = graph.compile(database=False, threads=1)
        kept.set_parameters(rt, lambda weight=weight: [(weight, WEIGHT)], "model")
        rt[x] = np.ones((32, 64), np.float32)
        rt.run()
        wanted = np.ones((32, 64)) @ WEIGHT.T
        np.testing.assert_allclose(rt[graph.outputs[0]], wanted, rtol=1e-5, atol=1e-3)


def test_parameters_that_were_packed_and_let_go_are_saved(tmp_path: Path) -> None:
    rt, x, (weight, shift), y = program()
    rt[weight] = np.zeros_like(WEIGHT)
    rt.set_parameters(lambda: [(weight, WEIGHT), (shift, np.ones(96, np.float32))])
    first = run(rt, x, y)
    rt.save(tmp_path / "model")
    loaded = luminal.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded(np.ones((3, 64), np.float32)), first)
    loaded["weight"] = np.zeros_like(WEIGHT)  # the others are still there
    changed = loaded(np.ones((3, 64), np.float32))
    np.testing.assert_allclose(changed, np.full((3, 96), 96 * np.e), rtol=1e-5)
    loaded.save(tmp_path / "again")
    again = luminal.load(tmp_path / "again")
    np.testing.assert_array_equal(again(np.ones((3, 64), np.float32)), changed)


def test_what_depends_on_sizes_cannot_be_saved_without_its_parameters(tmp_path: Path) -> None:
    graph = Graph()
    rows = graph.dim("rows", 1, 8)
    x, weight = graph.tensor((rows, 4)), graph.parameter((rows, 4), name="weight")
    _ = (x + weight.exp().sum(0).log()).output()
    rt = graph.compile(database=False)
    ones = np.ones((3, 4), np.float32)
    rt.set_parameters(lambda: [(weight, ones)])
    first = rt(ones)
    with pytest.raises(Unsupported, match="set them one by one"):
        rt.save(tmp_path / "model")
    rt[weight] = ones
    rt.save(tmp_path / "model")
    np.testing.assert_array_equal(luminal.load(tmp_path / "model")(ones), first)


def test_a_missing_parameter_is_named(folder: Path) -> None:
    rt, _, (weight, _), _ = program()
    with pytest.raises(InputError, match="no values for"):
        kept.set_parameters(rt, lambda: [(weight, WEIGHT)], "model")
    assert not files(folder)


@pytest.mark.parametrize("harm", ["cut", "head", "table", "weights"])
def test_a_damaged_file_is_made_anew_with_a_warning(folder: Path, harm: str) -> None:
    bias = np.ones(96, np.float32)

    def made() -> np.ndarray:
        rt, x, (weight, shift), y = program()
        kept.set_parameters(rt, lambda: [(weight, WEIGHT), (shift, bias)], "model")
        return run(rt, x, y)

    first = made()
    (file,) = files(folder)
    data = bytearray(file.read_bytes())
    where = {"head": 0, "table": -60, "weights": 4096 + 100}
    data[where.get(harm, 60)] ^= 1
    file.write_bytes(data[:-6] if harm == "cut" else data)
    with pytest.warns(UserWarning, match="made anew"):
        np.testing.assert_array_equal(made(), first)
    np.testing.assert_array_equal(made(), first)  # the new file is whole


def test_the_folder_is_bounded_and_can_be_emptied(tmp_path: Path) -> None:
    store = Store(tmp_path, 20000, "weights", ".weights")

    def keep(key: str, size: int) -> bool:
        return store.keep(key, lambda path: path.write_bytes(bytes(size)) and None, size)

    assert all(keep(str(number), 6000) for number in range(4))
    assert len(list(tmp_path.glob("[!.]*"))) == 3 and "weights" in store.describe()
    assert not keep("large", 30000)
    assert not (tmp_path / "large.weights").exists()
    store.clear()
    assert not list(tmp_path.glob("[!.]*"))


def test_a_large_table_that_data_looks_up_stays_in_the_file(folder: Path) -> None:
    """The head reads the table packed; for the look-up there is no second copy in memory."""
    table = np.random.default_rng(1).standard_normal((20_000, 64), dtype=np.float32)

    def loaded(load: Any) -> tuple[np.ndarray, int]:
        graph = Graph()
        ids = graph.tensor((graph.dim("tokens", 1, 32, hint=(1, 32)),), "i64")
        weight = graph.parameter(table.shape, name="weight")
        y = ops.linear(ops.embedding(ids, weight), weight).output()
        rt = graph.compile(database=False, threads=2)
        kept.set_parameters(rt, lambda: load(weight), "model")
        rt[ids] = np.array([3, 19_999, 0])
        rt.run()
        return rt[y], rt.peak_bytes

    def never(weight: Any) -> Any:
        raise AssertionError("asked for values that are kept")

    first, before = loaded(lambda weight: [(weight, table.copy())])
    again, after = loaded(never)
    np.testing.assert_allclose(first, table[[3, 19_999, 0]] @ table.T, atol=1e-4)
    np.testing.assert_array_equal(again, first)
    assert max(before, after) < 1.2 * table.nbytes + (1 << 20)
