"""Fourier transforms beside PyTorch's: every kind of length, sizes that are cut and filled up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from luminal import Graph, ops
from luminal.errors import ShapeError
from luminal.ops import Complex

RANDOM = np.random.default_rng(0)
KINDS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
REAL = ("rfft", "ihfft")
LENGTHS = (1, 2, 3, 4, 5, 8, 12, 13, 31, 60, 64, 67, 100, 127, 134, 400, 480, 541, 1024, 1042, 1082)
Result = Callable[..., Any]


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape, dtype=np.float32)


def compared(cases: dict[str, tuple[np.ndarray, Result, Result]], device: str = "cpu") -> None:
    """Each: (real or complex values, ours, PyTorch's), all in one program."""
    graph, found = Graph(), {}
    for name, (values, ours, _) in cases.items():
        parts = [graph.constant(np.ascontiguousarray(p)) for p in (values.real, values.imag)]
        result = ours(Complex(*parts) if np.iscomplexobj(values) else parts[0])
        pair = result if isinstance(result, Complex) else (result,)
        found[name] = [part.output() for part in pair]
    program = graph.compile(device=device, threads=1)
    program.run()
    for name, (values, _, theirs) in cases.items():
        expected = theirs(torch.from_numpy(values)).resolve_conj().numpy()
        parts = [program[part] for part in found[name]]
        got = parts[0] + 1j * parts[1] if len(parts) > 1 else parts[0]
        assert got.shape == expected.shape and np.iscomplexobj(got) == np.iscomplexobj(expected)
        scale = np.abs(expected).max(initial=1e-3)
        np.testing.assert_allclose(got / scale, expected / scale, atol=3e-6, err_msg=name)


def along(kind: str, *args: Any, **named: Any) -> tuple[Result, Result]:
    ours, theirs = getattr(ops.fft, kind), getattr(torch.fft, kind)
    return (lambda x: ours(x, *args, **named)), (lambda x: theirs(x, *args, **named))


def test_every_kind_of_length() -> None:
    """Composite ones, primes that are products with a matrix, and primes that are convolutions."""
    cases = {}
    for n in LENGTHS:
        for kind in KINDS:
            values = normal(2, n) if kind in REAL else normal(2, n) + 1j * normal(2, n)
            size = n if kind in ("irfft", "hfft") else None
            cases[f"{kind} {n}"] = (values, *along(kind, size))
    compared(cases, "reference")


def test_sizes_norms_and_dimensions() -> None:
    whole, pair = normal(3, 6, 5), normal(3, 6, 5) + 1j * normal(3, 6, 5)
    cases = {}
    for norm in (None, "backward", "forward", "ortho"):
        for kind in KINDS:
            for n in (None, 4, 9):
                values = whole if kind in REAL else pair
                cases[f"{kind} {n} {norm}"] = (values, *along(kind, n, 1, norm))
        for kind in ("fftn", "ifftn", "rfftn", "irfftn"):
            values = whole if kind == "rfftn" else pair
            cases[f"{kind} {norm}"] = (values, *along(kind, norm=norm))
            cases[f"{kind} s {norm}"] = (values, *along(kind, (4, 7), norm=norm))
    for kind in ("fft2", "ifft2", "rfft2", "irfft2"):
        values = whole if kind == "rfft2" else pair
        cases[kind] = (values, *along(kind, (5, -1), (0, 1)))
    for kind in ("fftshift", "ifftshift"):
        cases[kind], cases[f"{kind} 1"] = (pair, *along(kind)), (whole, *along(kind, 1))
    cases["real"] = (whole, *along("fft"))
    for kind in ("fftfreq", "rfftfreq"):
        ours, theirs = getattr(ops.fft, kind), getattr(torch.fft, kind)
        cases[kind] = (whole, lambda x, f=ours: f(x.graph, 7, 0.5), lambda x, f=theirs: f(7, 0.5))
    cases["integers"] = (np.arange(6), *along("rfft"))
    compared(cases, "reference")


@pytest.mark.parametrize("options", [
    {"n_fft": 16}, {"n_fft": 12, "hop_length": 5, "win_length": 9, "normalized": True},
    {"n_fft": 16, "center": False, "hop_length": 7}, {"n_fft": 10, "onesided": False},
    {"n_fft": 16, "pad_mode": "constant", "win_length": 16},
], ids=str)  # fmt: skip
def test_short_time_transforms(options: dict[str, Any]) -> None:
    """The inverse, too, where all samples are covered."""
    width = options.get("win_length", options["n_fft"])
    window = torch.hann_window(width)

    def ours(x: Any) -> Any:
        return ops.stft(x, window=ops.hann_window(x.graph, width), **options)

    def back(x: Any) -> Any:
        shown = ops.hann_window(x.graph, width)
        rest = {key: value for key, value in options.items() if key != "pad_mode"}
        return ops.istft(ours(x), window=shown, length=90, **rest)

    def theirs(x: torch.Tensor) -> torch.Tensor:
        return torch.stft(x, window=window, return_complex=True, **options)

    def their_back(x: torch.Tensor) -> torch.Tensor:
        rest = {key: value for key, value in options.items() if key != "pad_mode"}
        return torch.istft(theirs(x), window=window, length=90, **rest)

    x = normal(2, 100)
    cases = {"forward": (x, ours, theirs), "one": (x[0], ours, theirs)}
    if options.get("center", True):
        cases["back"] = (x, back, their_back)
    compared(cases)


def test_sizes_at_run_time_around_a_transform() -> None:
    graph = Graph()
    x = graph.tensor(("batch", 20))
    found = ops.fft.rfft(x)
    power = (found.real.square() + found.imag.square()).output()
    program = graph.compile(threads=1)
    for batch in (1, 7):
        values = normal(batch, 20)
        np.testing.assert_allclose(
            program(values), np.abs(np.fft.rfft(values)) ** 2, rtol=1e-4, atol=1e-4
        )
    assert power.shape[1] == 11


def test_what_is_refused() -> None:
    x = Graph().tensor((4, 6))
    pair = Complex(x, x)
    for refused in (
        lambda: ops.fft.rfft(pair), lambda: ops.fft.fft(x, 0), lambda: ops.fft.fft(x, norm="x"),
        lambda: ops.fft.fftn(x, (3, 3, 3), (0, 1)), lambda: ops.fft.fft2(x, dim=(0, 0)),
        lambda: ops.fft.irfft(pair, 0), lambda: ops.stft(x, 4, win_length=9),
        lambda: ops.stft(x, 4, window=x),
    ):  # fmt: skip
        with pytest.raises(ShapeError):
            refused()
