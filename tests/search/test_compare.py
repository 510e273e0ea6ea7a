"""A compiled program against the reference: wrong kernels and wrong rewriting are named."""

import ctypes
import json

import numpy as np
import pytest
from click.testing import CliRunner
from test_oracle import stored, without_nan

from luminal import Graph, making, ops
from luminal.backend import openblas
from luminal.cli.check import check
from luminal.errors import WrongResult
from luminal.kernel.kernel import Apply, Constant


def network():
    cx = Graph()
    cx.dim("s", 1, 64)
    x = cx.tensor(("s", 32), name="x")
    w = cx.constant(np.random.default_rng(0).standard_normal((32, 48), np.float32))
    ops.softmax(ops.relu(x.matmul(w)), -1).sum(-1).output("y")
    (x * 2.0).output("z")
    return cx


def compiled(**options):
    return network().compile(threads=1, cache=False, database=False, **options)


def more_by_one(kernel):
    return stored(kernel, lambda b: Apply("add", (b, Constant(1.0, b.dtype)), b.dtype))


@pytest.fixture(params=[without_nan, more_by_one])
def wrong_code(request, monkeypatch):
    right = making.loop_program
    monkeypatch.setattr(making, "loop_program", lambda k, *rest: right(request.param(k), *rest))


def test_what_is_right_passes():
    assert compiled(check=True).check() == []
    assert network().compile(device="reference", check=True).check() == []


def test_what_another_order_may_make_infinite_is_no_fault():
    """Weights that are infinite where the graph multiplies them by the zeros of padding."""
    cx = Graph()
    x, w, b = (cx.tensor(shape) for shape in ((2, 4, 5, 4), (4, 3, 3, 3), (3,)))
    ops.conv_transpose2d(x, w, b).output()
    cx.compile(threads=1, cache=False, database=False, check=True)


def test_subnormal_numbers_that_an_instruction_takes_for_zeros_are_no_fault():
    cx = Graph()
    (cx.tensor((300, 64), "bf16") @ cx.tensor((64, 72), "bf16")).output()  # -inf meets such
    rt = cx.compile(precision="bf16", threads=1, cache=False, database=False, check=True)
    assert rt.check() == []


def test_a_wrong_kernel_is_named_with_its_text(wrong_code):
    with pytest.raises(WrongResult, match=r"(?s)a kernel computes.*k1.* instead of .*\naxes a0"):
        compiled(check=True)
    found = compiled().check()
    assert found and all("instead of" in one.fault and "axes" in one.text for one in found)


def test_wrong_rewriting_is_told_apart(monkeypatch):
    right = making.lower_kernel
    monkeypatch.setattr(making, "lower_kernel", lambda k, *rest: right(more_by_one(k), *rest))
    assert compiled().check() == []
    with pytest.raises(WrongResult, match=r"(y|z)\[.* instead of .*rewritten wrongly"):
        compiled(check=True)


def test_the_command(tmp_path, wrong_code):
    path = tmp_path / "wrong.luminal"
    compiled().save(path)
    result = CliRunner().invoke(check, [str(path), "--json"])
    first = json.loads(result.output)["differences"][0]
    assert result.exit_code == 1 and first["name"].startswith("k1") and first["text"]


def test_the_command_with_what_is_right_or_missing(tmp_path):
    path = tmp_path / "right.luminal"
    compiled().save(path)
    result = CliRunner().invoke(check, [str(path)])
    assert result.exit_code == 0 and "no differences" in result.output
    missing = CliRunner().invoke(check, [str(tmp_path / "nothing.luminal")])
    assert missing.exit_code == 1 and "no such file" in missing.output


def test_the_reference_multiplies_on_one_thread_and_numpy_has_its_own_back():
    path = openblas.found()
    if path is None:
        pytest.skip("this NumPy brings no OpenBLAS")
    threads = ctypes.CDLL(str(path)).scipy_openblas_get_num_threads64_
    before = threads()
    with pytest.raises(KeyError), openblas.one_thread():
        assert threads() == 1
        raise KeyError
    assert threads() == before
