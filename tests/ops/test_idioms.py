"""What people write: methods, NumPy's words for arguments, arrays and functions of NumPy beside
tensors; each beside PyTorch, all compiled for the CPU in one program."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from luminal import Graph, Tensor, nn, ops
from luminal.errors import InputError, ShapeError, Unsupported
from luminal.nn import functional as F

A = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
MASK = A > 0
PLACES = np.array([0, 2])


def array(x: Any, value: np.ndarray) -> Any:
    """An array as a tensor of the same library."""
    return x.graph.constant(value) if isinstance(x, Tensor) else torch.from_numpy(value)


SAME: dict[str, Callable[[Any], Any]] = {
    "axis": lambda x: x.sum(axis=1, keepdims=True),
    "axes": lambda x: x.amax(axis=(0, 1)),
    "argmax axis": lambda x: x.argmax(axis=0, keepdims=True),
    "softmax axis": lambda x: x.softmax(axis=1),
    "unbiased": lambda x: x.var(1, unbiased=False),
    "unbiased alone": lambda x: x.var(False),
    "std by position": lambda x: x.std(0, False, True),
    "correction": lambda x: x.var(1, correction=2),
    "clip": lambda x: x.clip(-1, 1),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "moveaxis": lambda x: x.moveaxis(0, 1),
    "to torch's dtype": lambda x: x.to(torch.float16),
    "beside a tensor of PyTorch": lambda x: x + torch.ones(6),
    "reflected": lambda x: torch.ones(6) - x,
    "new_zeros": lambda x: x.new_zeros(2, 3),
    "new_ones": lambda x: x.new_ones((2, 3)),
    "new_full": lambda x: x.new_full((2,), 3.0),
    "view_as": lambda x: x.mT.reshape(-1).view_as(x),
    "ravel": lambda x: x.ravel(),
    "clone": lambda x: x.clone(),
    "multiply": lambda x: x.multiply(2).subtract(x).negative().absolute(),
    "greater": lambda x: x.greater(0),
    "det": lambda x: (x @ x.mT).det(),
    "det of exchanged rows": lambda x: x[[1, 0, 3, 2], :4].det(),
    "det of a singular one": lambda x: (x.mT @ x * 0).det(),
    "slogdet": lambda x: (x @ x.mT).slogdet()[1],
    "logdet": lambda x: (x @ x.mT).logdet(),
    "inverse": lambda x: x[:, 1:5].inverse(),
    "pinverse": lambda x: x.pinverse(),
    "matrix_power": lambda x: (x @ x.mT + 1).matrix_power(3),
    "matrix_exp": lambda x: (x @ x.mT / 4).matrix_exp(),
    "cholesky": lambda x: (x @ x.mT).cholesky(),
    "qr": lambda x: x.mT.qr()[1].abs(),
    "mode": lambda x: (x * 2).long().mode(1)[0],
    "nanmedian": lambda x: x.log().nanmedian(1)[0],
    "nanquantile": lambda x: x.log().nanquantile(0.3, 1),
    "histc": lambda x: x.histc(4),
    "cov": lambda x: x.cov(),
    "corrcoef": lambda x: x.corrcoef(),
    "renorm": lambda x: x.renorm(2, 0, 1.0),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, x.flip(1)),
    "put": lambda x: x.put(array(x, PLACES), x[0, :2]),
    "index_reduce": lambda x: x.index_reduce(0, array(x, PLACES), x[1:3], "amax"),
    "diagonal_scatter": lambda x: x.diagonal_scatter(x[0, :4]),
    "slice_scatter": lambda x: x.slice_scatter(x[:, :2], 1, 1, 5, 2),
    "nonzero_static": lambda x: (x > 0).nonzero_static(size=20, fill_value=-2),
    "sum_to_size": lambda x: x.sum_to_size(1, 6),
    "inner": lambda x: x.inner(x),
    "hsplit": lambda x: x.hsplit(3)[1],
    "lgamma": lambda x: x.lgamma(),
    "digamma": lambda x: x.digamma(),
    "polygamma": lambda x: x.polygamma(1),
    "mvlgamma": lambda x: (x * x + 2).mvlgamma(2),
    "erfinv": lambda x: (x / 9).erfinv(),
    "logaddexp2": lambda x: x.logaddexp2(x * 2),
    "float_power": lambda x: x.float_power(2),
    "gcd": lambda x: (x * 30).char().gcd((x * 42).char()),
    "lcm": lambda x: (x * 9).char().lcm((x * 7).char()),
    "nextafter": lambda x: x.nextafter(x + 1),
    "frexp": lambda x: x.frexp()[1],
    "angle": lambda x: x.angle(),
    "empty sums": lambda x: x[:, :0] @ x.mT[:0],
    "product with nothing": lambda x: x @ x.mT[:, :0],
    "maximum of nothing": lambda x: x[:0].amax(1),
    "median of nothing": lambda x: x[:0].median(),
}
OTHERS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[torch.Tensor], torch.Tensor]]] = {
    "np.exp": (np.exp, torch.exp),  # type: ignore[dict-item]
    "np.add": (lambda x: np.add(A, x), lambda x: x + x),
    "np.sum": (lambda x: np.sum(x, axis=0, keepdims=True), lambda x: x.sum(0, keepdim=True)),
    "np.mean": (np.mean, torch.mean),  # type: ignore[dict-item]
    "np.max": (lambda x: np.max(x, 1), lambda x: x.amax(1)),
    "array first": (lambda x: A * x, lambda x: x * x),
    "constant mask": (lambda x: x[MASK], lambda x: x[torch.from_numpy(MASK)]),
    "mask of rows": (lambda x: x[MASK[:, 0], 1:3], lambda x: x[torch.from_numpy(MASK[:, 0]), 1:3]),
    "unique": (lambda x: (x * 2).long().unique(size=6), lambda x: (x * 2).long().unique()),
    "counts": (
        lambda x: (x * 2).long().unique(return_counts=True, size=6)[1],
        lambda x: (x * 2).long().unique(return_counts=True)[1],
    ),
    "places of unique": (
        lambda x: x.long().unique(return_inverse=True, size=6)[1],
        lambda x: x.long().unique(return_inverse=True)[1],
    ),
    "consecutive": (
        lambda x: x.long().unique_consecutive(size=20),
        lambda x: x.long().unique_consecutive(),
    ),
    "masked_select": (
        lambda x: x.masked_select(x > 0, size=int(MASK.sum())),
        lambda x: x.masked_select(x > 0),
    ),
    "functional": (lambda x: F.relu(input=x), torch.relu),
}


def test_like_torch() -> None:
    graph = Graph()
    x, theirs = graph.tensor(A.shape).set(A), torch.from_numpy(A)
    results = {name: function(x).output() for name, function in SAME.items()}
    results |= {name: ours(x).output() for name, (ours, _) in OTHERS.items()}
    program = graph.compile(device="cpu", threads=2)
    program.run()
    for name, result in results.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = (SAME[name] if name in SAME else OTHERS[name][1])(theirs).numpy()
        got = program[result]
        if name in ("unique", "counts", "consecutive"):  # then what fills up
            got = got[: len(expected)]
        assert got.dtype == expected.dtype and got.shape == expected.shape, name
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5, err_msg=name)


REFUSED = {
    "a layer without a graph": (lambda: nn.Linear(3, 4), InputError, r"nn.Linear\(graph, ...\)"),
    "sizes one by one": (lambda: Graph().tensor(3, 4), ShapeError, "a shape is one argument"),
    "no module": (lambda: nn.Sequential(nn.ReLU(), 3), InputError, "entry 1 is no Module: 3"),
    "value": (lambda: Graph().tensor(3).item(), Unsupported, "has no value"),
    "values": (lambda: (Graph().tensor(3) + 1.0).numpy(), InputError, "input0"),
    "list": (lambda: Graph().tensor(3) + [1, 2, 3], InputError, "graph.constant"),
    "ufunc": (lambda: np.spacing(Graph().tensor(3)), TypeError, "numpy.spacing"),
    "array function": (lambda: np.stack([Graph().tensor(3)]), TypeError, "numpy.stack needs"),
    "unique": (lambda: ops.unique(Graph().tensor(3)), Unsupported, "size="),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    build, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        build()


def test_representations_say_what_is_there() -> None:
    graph = Graph()
    net = nn.Sequential(nn.Linear(graph, 3, 2), nn.GELU("tanh"), nn.Dropout(0.1))
    assert "0x" not in repr(net) and "GELU(approximate='tanh')" in repr(net)
    assert repr(graph) == "Graph(0 inputs, 2 parameters, 2 nodes, 0 outputs)"
    net(graph.tensor((1, 3), name="x")).output("y")
    for device in ("cpu", "reference"):
        assert "Executable(inputs x; outputs y; " in repr(graph.compile(device=device, threads=1))


def test_tensors_show_operations_only() -> None:
    shown = dir(Graph().tensor(3))
    assert "softmax" in shown and "dim_of" not in shown and not hasattr(Tensor, "gather_node")
    assert not hasattr(Tensor, "inverse_of_lower") and not hasattr(Tensor, "polynomial")
