"""States: whatever is donated to whatever, runs one after the other are what the reference says."""

from __future__ import annotations

import numpy as np
import pytest
from backend.c_device import COMPILER

from luminal import Graph, Tensor
from luminal.backend import cpu
from luminal.runtime.executable import Executable
from luminal.runtime.native import Native

Values = dict[Tensor, np.ndarray]


class Case:
    """Two states, a parameter that is one, and what is around them."""

    def __init__(self) -> None:
        self.graph = graph = Graph()
        self.s, self.t = graph.tensor((4,), name="s"), graph.tensor((4,), name="t")
        self.w = graph.parameter((4, 4), name="w")
        self.x = graph.tensor((2,), name="x")
        self.at = graph.tensor((2,), "i64", name="at")


def twice(c: Case) -> None:
    new = c.s + c.t
    c.graph.donate(c.s, new)
    c.graph.donate(c.t, new)


def twice_and_shown(c: Case) -> None:
    twice(c)
    (c.s + c.t).output("new")


def twice_in_place(c: Case) -> None:
    new = c.s._scatter(c.at, c.x, 0)
    c.graph.donate(c.s, new)
    c.graph.donate(c.t, new)
    (new * 2.0).output("double")


def unchanged(c: Case) -> None:
    c.graph.donate(c.s, c.s)
    (c.s + 1.0).output("more")


def one_to_other(c: Case) -> None:
    c.graph.donate(c.s, c.t)
    (c.s - c.t).output("difference")


def swap(c: Case) -> None:
    c.graph.donate(c.s, c.t)
    c.graph.donate(c.t, c.s)


def swap_and_shown(c: Case) -> None:
    swap(c)
    c.s.output("old s")
    c.t.flip(0).output("t turned")


def chain(c: Case) -> None:
    c.graph.donate(c.s, c.t)
    c.graph.donate(c.t, c.s * 2.0 + c.t)


def crossed_in_place(c: Case) -> None:
    c.graph.donate(c.s, c.t._scatter(c.at, c.x, 0))
    c.graph.donate(c.t, c.s._scatter(c.at, c.x, 0))


def old_one_goes_on(c: Case) -> None:
    c.graph.donate(c.s, c.s._scatter(c.at, c.x, 0))
    c.graph.donate(c.t, c.s)


def two_writes(c: Case) -> None:
    first = c.s._scatter(c.at, c.x, 0).output("first")
    c.graph.donate(c.s, first._scatter(c.at, c.x * 3.0, 0, "sum"))


def view_of_itself(c: Case) -> None:
    c.graph.donate(c.s, c.s.flip(0))
    c.s.reshape(2, 2).output("square")


def view_of_the_new(c: Case) -> None:
    new = c.s._scatter(c.at, c.x, 0)
    c.graph.donate(c.s, new)
    new.flip(0).output("turned")
    c.s.flip(0).output("old turned")


def constant_value(c: Case) -> None:
    c.graph.donate(c.s, c.graph.constant(np.arange(4, dtype=np.float32)) * 2.0)
    (c.s * 1.0).output("same")


def trained(c: Case) -> None:
    y = c.w @ c.s
    y.output("y")
    c.graph.donate(c.w, c.w * 0.5 + y.unsqueeze(0))


def trained_and_shown(c: Case) -> None:
    trained(c)
    (c.w * 2.0).sum(0).output("made of parameters only")
    c.graph.donate(c.s, c.w[0])


CASES = [
    twice, twice_and_shown, twice_in_place, unchanged, one_to_other, swap, swap_and_shown, chain,
    crossed_in_place, old_one_goes_on, two_writes, view_of_itself, view_of_the_new, constant_value,
    trained, trained_and_shown,
]  # fmt: skip


def compiled(make, device: str = "cpu") -> tuple[Case, Executable]:
    """A case, and its program with values."""
    case = Case()
    make(case)
    rt = case.graph.compile(device=device, threads=2)
    random = np.random.default_rng(0)
    given = {
        "s": random.standard_normal(4), "t": random.standard_normal(4),
        "w": random.standard_normal((4, 4)), "x": random.standard_normal(2),
    }  # fmt: skip
    for name, value in given.items():
        rt[name] = value.astype(np.float32)
    rt["at"] = np.int64([2, 0])
    return case, rt


def runs(make, device: str) -> list[Values]:
    """States and outputs after each of four runs; what a caller does to them is the caller's."""
    case, rt = compiled(make, device)
    names = [*rt.outputs, *(state.node.attribute.name for state, _ in case.graph.states)]
    seen, kept = [], []
    for _ in range(4):
        rt.run()
        arrays = {name: rt[name] for name in names}
        arrays |= {f"new {n}": rt[new] for n, (_, new) in enumerate(case.graph.states)}
        for state, _ in case.graph.states:
            np.testing.assert_array_equal(rt[state], rt[state.node.attribute.name])
        seen.append({name: array.copy() for name, array in arrays.items()})
        kept.append(arrays)
    for arrays, wanted in zip(kept, seen):
        for name in arrays:
            np.testing.assert_array_equal(arrays[name], wanted[name], err_msg=f"{name} was kept")
    for array in kept[-1].values():
        array[...] = -7.0
    rt.run()
    seen.append({name: rt[name].copy() for name in names})
    return seen


@pytest.mark.parametrize("device", ["cpu", "c"] if COMPILER else ["cpu"])
@pytest.mark.parametrize("make", CASES)
def test_states_run_after_run(make, device):
    for number, (here, wanted) in enumerate(zip(runs(make, device), runs(make, "reference"))):
        for name in wanted:
            np.testing.assert_allclose(
                here[name], wanted[name], rtol=1e-5, atol=1e-6, err_msg=f"{name}, run {number}"
            )


@pytest.mark.parametrize("make", CASES)
def test_an_interrupt_waits_for_the_end_of_a_run(make, monkeypatch):
    """It is raised as the native call returns, and then every state has its new value."""
    case, whole = compiled(make)
    whole.run()
    _, rt = compiled(make)
    execute = Native._execute

    def interrupted(engine, binding):
        execute(engine, binding)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Native, "_execute", interrupted)
        rt.run()
    for _ in range(2):
        for state, _ in case.graph.states:
            name = state.node.attribute.name
            np.testing.assert_array_equal(rt[name], whole[name])
        rt.run()
        whole.run()


def test_a_state_of_another_size_is_seen_at_once():
    graph = Graph()
    state = graph.tensor(("s",))
    graph.donate(state, state * 2.0)
    rt = graph.compile()
    for size in (4, 9, 2):
        rt[state] = np.ones(size, np.float32)
        assert rt[state].tolist() == [1.0] * size
        rt.run()
        assert rt[state].tolist() == [2.0] * size


@pytest.mark.parametrize("failing", range(4))
def test_memory_that_cannot_be_had(failing, monkeypatch):
    """What was there stays readable, and smaller sizes run as before."""
    graph = Graph()
    graph.dim("s", 1, 1 << 20)
    x, state = graph.tensor(("s",)), graph.tensor((3,))
    y = (x.unsqueeze(0) * x.unsqueeze(1)).cumsum(0).softmax(1).cumsum(1).output()
    z = (x + 1.0).output()
    graph.donate(state, state + 1.0)
    rt = graph.compile()
    rt[state], some = np.zeros(3, np.float32), np.linspace(0, 1, 20, dtype=np.float32)
    rt[x] = some
    rt.run()
    before, empty, left = rt[y].copy(), cpu.empty, [failing]

    def scarce(shape, dtype):
        left[0] -= 1
        if left[0] < 0:
            raise MemoryError
        return empty(shape, dtype)

    rt[x] = np.ones(300, np.float32)
    monkeypatch.setattr(cpu, "empty", scarce)
    try:
        rt.run()
    except MemoryError:
        assert np.array_equal(rt[y], before) and rt[z].shape == (20,)
        assert rt[state].tolist() == [1.0] * 3
    monkeypatch.undo()
    runs = int(rt[state][0])
    rt[x] = some
    rt.run()
    assert np.array_equal(rt[y], before) and np.array_equal(rt[z], some + 1)
    assert rt[state].tolist() == [runs + 1.0] * 3


def test_a_parameter_that_is_a_state_is_packed_for_no_run():
    """Runs change it: what is made of it, and how it is laid out, would be made at each run."""
    graph = Graph()
    x, w = graph.tensor((64, 48)), graph.parameter((48, 32))
    y = (x @ (w * 2.0)).output()
    graph.donate(w, w + y.sum(0))
    text = graph.compile().explain()
    assert "0 when parameters are set" in text and "layout" not in text


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_cleared_inputs_are_zeros(device: str) -> None:
    """States and others, before a run and after one; what was given may be given again."""
    case = Case()
    case.graph.donate(case.s, case.s + case.t)
    (case.s * 2.0).output("double")
    program = case.graph.compile(device=device, threads=1)
    ones = np.ones(4, np.float32)
    for given in (False, True, False):
        if given:
            program[case.s], program[case.t] = ones, ones
        else:
            program.clear([case.s, case.t])
        for runs in (0, 1):
            program.run()
            assert (program["double"] == 2 * given * (1 + runs)).all()


@pytest.mark.parametrize("device", ["cpu", "c"] if COMPILER else ["cpu"])
def test_kernels_that_are_timed_leave_states_as_they_were(device: str) -> None:
    graph = Graph()
    state, at = graph.tensor((64,), name="state"), graph.constant(np.arange(8))
    graph.donate(state, state._scatter(at, graph.constant(np.ones(8, "f4")), 0, "sum"))
    program = graph.compile(device=device, cache=False)
    program[state] = np.zeros(64, np.float32)
    program.run()
    program.time_kernels(2)
    assert program[state].tolist() == [1.0] * 8 + [0.0] * 56
