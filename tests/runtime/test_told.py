"""Sizes that arrays tell, also those that a program holds no more."""

import numpy as np
import pytest

from luminal import Graph, ops
from luminal.errors import DimError, InputError, LossyInput


def test_a_parameter_that_was_packed_still_tells_its_size():
    cx = Graph()
    x, w = cx.tensor(("s",), name="x"), cx.parameter(("s",), "f32", "w")
    (x + w).output("y")
    program = cx.compile(cache=False)
    program.set_parameters(lambda: [(w, np.ones(30, np.float32))])
    for _ in range(2):
        program["x"] = np.arange(30, dtype=np.float32)
        program.run()
        assert (program["y"] == np.arange(30) + 1).all()
        program["x"] = np.zeros(3000, np.float32)
        with pytest.raises(DimError, match=r"30.*'w'.*3000"):
            program.run()
    program.set_parameters(lambda: [(w, np.ones(3000, np.float32))])
    program.run()
    assert (program["y"] == 1).all() and program["y"].shape == (3000,)


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_an_input_that_nothing_reads_tells_what_no_other_does(device):
    cx = Graph()
    x, y = cx.tensor(("s",), name="x"), cx.tensor(("t",), name="y")
    cx.tensor(("t", "u"), name="z")
    (ops.size_tensor(cx, "s") + y.sum()).output()
    program = cx.compile(device=device)
    for s in (4, 7):
        z = np.ones((9, s), np.float32)  # says nothing of t: y does
        assert program(np.ones(s, np.float32), np.ones(2, np.float32), z) == s + 2
    program.run(s=3)
    program[x] = np.ones(5, np.float32)
    program.run()
    assert program[cx.outputs[0]] == 7


def test_a_parameter_of_another_dtype_is_refused():
    cx = Graph()
    w = cx.parameter(3, "f32", "w")
    (w * 2.0).output("y")
    program = cx.compile(cache=False)
    with pytest.raises(LossyInput, match="'w' is f32"):
        program.set_parameters(lambda: [(w, np.ones(3, np.int64))])


def test_an_output_is_no_parameter():
    cx = Graph()
    cx.tensor((3,), name="x").exp().output("y")
    program = cx.compile(cache=False)
    with pytest.raises(InputError, match="'y' is no input"):
        program.set_parameters(lambda: [("y", np.ones(3, np.float32))])
