"""Loading without trust: the graph in a file is compiled anew, its machine code is not used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import luminal
from luminal import ArtifactError, Graph, ops
from luminal.artifact import file
from luminal.artifact.codec import decode, encode
from luminal.artifact.recording import Recording, Step
from luminal.graph.index import Index
from luminal.graph.node import View

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((7, 16), dtype=np.float32)


def attention(cx: Graph) -> list[np.ndarray]:
    cx.dim("s", 1, 64, hint=(1, 16))
    x = cx.tensor(("s", 16), name="x")
    weight = cx.parameter((16, 16), name="weight").set(
        RANDOM.standard_normal((16, 16), dtype=np.float32)
    )
    q = x.matmul(weight)
    scores = ops.where(ops.arange(cx, 16) < 9, q, -1e9)
    ops.softmax(scores, -1).output("y")
    return [ROWS]


def moved(cx: Graph) -> list[np.ndarray]:
    """Padding, slices, constants, a gather and a scatter; two outputs that become one node."""
    x = cx.tensor((7, 16), name="x")
    table = cx.constant(RANDOM.standard_normal((5, 16)).astype(ml_dtypes.bfloat16), name="table")
    rows = cx.constant(np.array([3, 0, 4]), name="rows")
    wide = x.pad(((1, 0), (0, 2)))[2:7, 1:17]
    ops.embedding(rows, table.cast("f32")).output("rows of a table")
    (wide + table.cast("f32")).output("y")
    (x * (cx.literal(2.0) * 1.0).expand(7, 16)).output("twice")
    (x * cx.literal(2.0).expand(7, 16)).output("doubled")
    return [ROWS]


def images(cx: Graph) -> list[np.ndarray]:
    x = cx.tensor((1, 3, 9, 9), name="x")
    weight = cx.parameter((4, 3, 3, 3)).set(
        np.linspace(-1, 1, 108, dtype=np.float32).reshape(4, 3, 3, 3)
    )
    y = ops.conv2d(x, weight, stride=2, padding=1)
    ops.max_pool2d(y, 2).output("y")
    ops.argmax(ops.cumsum(y.reshape(4, 25), 1), 1).output("best")
    return [RANDOM.standard_normal((1, 3, 9, 9), dtype=np.float32)]


def saved(make: Callable[[Graph], list[np.ndarray]], path: Path) -> tuple[list[np.ndarray], Any]:
    cx = Graph()
    arrays = make(cx)
    rt = cx.compile(threads=1)
    results = rt(*arrays)
    rt.save(path)
    return arrays, results if isinstance(results, tuple) else (results,)


def spoil_code(path: Path) -> None:
    whole = file.read(path)
    file.write(replace(whole, codes=tuple(bytes(len(code)) for code in whole.codes)), path)


@pytest.mark.parametrize("make", [attention, moved, images])
def test_the_graph_in_a_file_is_compiled(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "model.luminal"
    arrays, expected = saved(make, path)
    spoil_code(path)
    loaded = luminal.load(path, trust=False)
    names = loaded.outputs
    loaded.save(path)
    for rt in (loaded, luminal.load(path), luminal.load(path, trust=False)):
        results = rt(*arrays)
        assert rt.outputs == names and "threads" in rt.explain()
        for mine, theirs in zip(results if len(names) > 1 else (results,), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_states_go_on(tmp_path: Path) -> None:
    cx = Graph()
    total = cx.tensor(3, name="total").set(np.zeros(3, np.float32))
    cx.donate(total, total + cx.tensor(3, name="x"))
    rt = cx.compile()
    rt["x"] = np.ones(3, np.float32)
    rt.run()
    rt.save(tmp_path / "sums")
    loaded = luminal.load(tmp_path / "sums", trust=False)
    for count in (2, 3):
        loaded["x"] = np.ones(3, np.float32)
        loaded.run()
        assert loaded["total"].tolist() == [float(count)] * 3


@pytest.mark.parametrize("options", [{"precision": "bf16"}, {"flush_denormals": True}], ids=str)
def test_it_is_compiled_as_it_was(tmp_path: Path, options: Any) -> None:
    path = tmp_path / "model"
    cx = Graph()
    (cx.tensor(4, name="x") * 2.0).output()
    cx.compile(**options).save(path)
    before = file.read(path).target
    luminal.load(path, trust=False).save(path)
    target = file.read(path).target
    assert (target.rounds, target.flushes) == (before.rounds, before.flushes) != (False, False)


def test_older_files_do_not_tell_how_they_were_compiled(tmp_path: Path) -> None:
    path = tmp_path / "model"
    cx = Graph()
    (cx.tensor(4, name="x") * 2.0).output()
    cx.compile(flush_denormals=True).save(path)
    whole = file.read(path)
    rows = list(whole.recording)
    file.write(replace(whole, recording=[*rows[:-1], rows[-1][:-2]]), path)
    small = np.full(4, 1e-40, np.float32)
    np.testing.assert_array_equal(luminal.load(path, trust=False)(small), small * np.float32(2))
    file.write(replace(whole, recording=[*rows[:-1], rows[-1][:-3]]), path)
    with pytest.raises(ArtifactError, match="damaged"):
        luminal.load(path, trust=False)


def forged(path: Path, change: Callable[[Recording], Recording]) -> None:
    whole = file.read(path)
    file.write(replace(whole, recording=encode(change(decode(whole.recording)))), path)


def forge_step(kind: str, **fields: Any) -> Callable[[Recording], Recording]:
    def change(recording: Recording) -> Recording:
        steps = list(recording.steps)
        at = next(n for n, step in enumerate(steps) if step.op == kind)
        steps[at] = replace(steps[at], **fields)
        return replace(recording, steps=tuple(steps))

    return change


def test_an_index_that_leaves_its_source_reads_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model"
    cx = Graph()
    cx.tensor((4, 4), name="x").permute(1, 0).output()
    cx.compile().save(path)
    far = Index.of("i1") * 1_000_000, Index.of("i0")
    forged(path, forge_step("view", attribute=View((Index.of(4), Index.of(4)), far)))
    result = luminal.load(path, trust=False)(np.ones((4, 4), np.float32))
    np.testing.assert_array_equal(result, np.eye(4)[[0] * 4])


FORGERIES: dict[str, Callable[[Recording], Any]] = {
    "inputs": forge_step("view", inputs=(99,)),
    "operation": forge_step("view", op="system"),
    "shape": forge_step("view", shape=(Index.of(1 << 40), Index.of(4))),
    "attribute": forge_step("view", attribute="index"),
    "step": lambda r: replace(r, steps=({},)),
    "threads": lambda r: replace(r, threads="many"),
    "outputs": lambda r: replace(r, outputs=(("y", -99),)),
    "states": lambda r: replace(r, states=((0, 0), (0, 0))),
    "source": lambda r: replace(r, sources=(replace(r.sources[0], kind="file"),)),
    "constant": lambda r: replace(r, sources=(replace(r.sources[0], kind="constant"),)),
    "sizes": lambda r: replace(r, sizes={"s": (5, 1)}),
    "no recording": lambda r: Step("view", (), None, (), r.sources[0].dtype, 0, "", ("", 0)),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_what_is_no_graph_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "model"
    cx = Graph()
    cx.tensor((4, 4), name="x").permute(1, 0).output()
    cx.compile().save(path)
    forged(path, FORGERIES[what])
    with pytest.raises(ArtifactError):
        luminal.load(path, trust=False)


def test_a_kept_program_has_no_graph(tmp_path: Path) -> None:
    cx = Graph()
    cx.tensor(3).exp().output()
    cx.compile(cache=tmp_path)
    for path in tmp_path.glob("*.luminal"):
        for trust in (True, False):
            with pytest.raises(ArtifactError, match=r"kept, not saved|no graph"):
                luminal.load(path, trust=trust)
