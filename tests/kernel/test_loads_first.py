"""Loads of a GPU's thread before what is computed with them, and as wide as they can be."""

from __future__ import annotations

import pytest

from luminal import ops
from luminal.backend.threads.loads import WORDS, loads_first
from luminal.graph import Graph, Tensor
from luminal.graph.dtype import bf16, f32, i64
from luminal.kernel.program import Instruction, Val

X, Y = (Val(name, None, memory=name) for name in "xy")


def load(name: str, memory: Val, at: int) -> Instruction:
    return Instruction(Val(name, f32), "load", (memory,), (at,))


def add(name: str, *args: str) -> Instruction:
    return Instruction(Val(name, f32), "add", tuple(Val(a, f32) for a in args))


def order(body: list[Instruction], *written: str) -> list[str]:
    made = loads_first(list(body), written)
    return [s.out.name if s.out else s.op for s in made if isinstance(s, Instruction)]


def test_loads_come_first() -> None:
    body = [load("a", X, 0), add("b", "a", "a"), load("c", X, 1), add("d", "b", "c")]
    assert order(body) == ["a", "c", "b", "d"]


def test_a_load_comes_behind_what_says_where() -> None:
    where = Instruction(Val("w", i64), "cast", (Val("a", f32),))
    there = Val("p", None, memory="x")
    here = Instruction(there, "offset", (X, Val("w", i64)))
    body = [load("a", X, 0), add("b", "a", "a"), where, here, load("c", there, 0), load("d", X, 2)]
    assert order(body) == ["a", "b", "w", "p", "c", "d"]


def test_what_is_written_is_read_in_its_turn() -> None:
    store = Instruction(None, "store", (Val("b", f32), Y), (0,))
    body = [load("a", X, 0), add("b", "a", "a"), store, load("c", Y, 0), load("d", X, 1)]
    assert order(body, "y") == ["a", "d", "b", "store", "c"]


def test_where_to_read_may_have_been_written() -> None:
    """The load of a place that a store before it may have changed."""
    store = Instruction(None, "store", (Val("b", f32), Y), (0,))
    there = Val("p", None, memory="x")
    here = Instruction(there, "offset", (X, Val("c", i64)))
    body = [add("b", "b", "b"), store, load("c", Y, 0), here, load("d", there, 0), load("e", X, 0)]
    assert order(body, "y") == ["b", "store", "c", "p", "d", "e"]


def test_not_more_than_there_are_registers_for() -> None:
    names = [f"l{n}" for n in range(2 * WORDS)]
    body = [s for n, name in enumerate(names) for s in (load(name, X, n), add(f"s{n}", name, name))]
    found = order(body)
    assert found[:WORDS] == names[:WORDS] and found[WORDS] == "s0"
    assert sorted(found) == sorted(order(body)) and len(found) == len(body)


def text_of(tensor: Tensor) -> tuple[str, str]:
    """CUDA of a program of one kernel, and its schedule."""
    tensor.output()
    rt = tensor.graph.compile("cuda:sm_90a", cache=False, database=False)
    ((_, text),) = rt.sources().items()
    return text, rt.explain()


def test_a_row_times_a_matrix_reads_sixteen_bytes_a_thread() -> None:
    """A weight that would be read across lies turned."""
    graph = Graph()
    text, schedule = text_of(
        graph.tensor((1, 1024), bf16) @ graph.parameter((1024, 512), bf16, name="w")
    )
    assert "load_words<4>" in text and "/8# " in schedule
    assert "layout b1: 1/1 0/1" in schedule


@pytest.mark.parametrize("device", ["cpu", "cuda:sm_90a"])
def test_a_diagonal_is_read_as_it_lies(device: str) -> None:
    """Both of its dimensions go with the sum: there is nothing to turn."""
    graph = Graph()
    x, w = graph.tensor((512,), name="x"), graph.parameter((512, 512), name="w")
    (x * ops.diagonal(w)).sum(0).output()
    rt = graph.compile(device, cache=False, database=False)
    assert not any(buffer.layout for made in rt.kernels for buffer in made.kernel.buffers)
    assert "layout" not in rt.explain()


def test_products_on_their_way_stay_in_one_loop() -> None:
    """ptxas of CUDA 13 read sums of the last product before its wait where a loop was written out
    twice: on an H200 8 x 8192 by 8192 x 8192 lost some of its last 64 products."""
    graph = Graph()
    x, w = graph.tensor((8, 1024), bf16), graph.parameter((1024, 8192), bf16, name="w")
    text, _ = text_of(x @ w)
    loop = text.index("products_wait<1>();\n")
    before = text[:loop].rindex("for (i32")
    assert text[:before].rstrip().endswith("#pragma unroll 1")
