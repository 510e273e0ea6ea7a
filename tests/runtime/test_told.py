"""Sizes that arrays tell, also those that a program holds no more."""

import numpy as np
import pytest

from luminal import Graph
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
