"""Complex numbers and Fourier transforms through torch.compile(backend=luminal), all native."""

import pytest
import torch
from torch.nn import functional as F

from luminal.torch import backend, report


def check(function, *inputs):
    with torch.no_grad():
        got, expected = torch.compile(function, backend=backend)(*inputs), function(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    if isinstance(got, torch.Tensor):
        assert got.stride() == expected.stride()
    assert not report().fallbacks and not report().failures


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.complex64)


TRANSFORMS = {
    "fft": lambda x: torch.fft.fft(x),
    "inverse": lambda x: torch.fft.ifft2(torch.fft.fft2(x, norm="ortho"), norm="forward"),
    "real": lambda x: torch.fft.rfftn(x, norm="ortho"),
    "real and back": lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 2j, x.shape[-2:]),
    "odd length": lambda x: torch.fft.irfft(torch.fft.rfft(x), n=9),
    "hermitian": lambda x: torch.fft.hfft(x.cfloat()),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    check(TRANSFORMS[name], torch.randn(3, 4, 6))


@pytest.mark.parametrize("length", [1, 131, 400])
def test_lengths(length):
    """One, a prime, one that is split into factors."""
    check(torch.fft.fft, torch.randn(2, length))


def test_spectrogram():
    window = torch.hann_window(16)
    check(
        lambda x: torch.stft(x, 16, 4, window=window, return_complex=True).abs(),
        torch.randn(2, 100),
    )


PLACES = torch.tensor([2, 0, 3])
ARITHMETIC = {
    "field": lambda z, w: z * w + z / w - 2 * w,
    "parts": lambda z, w: (z.real, w.imag, z.abs(), w.angle(), torch.view_as_real(z)),
    "conjugate": lambda z, w: (z.conj() * 2j, z @ w.mT.conj(), w.mH.contiguous()),
    "functions": lambda z, w: z.exp() + w.sqrt() + torch.tanh(z) + torch.sin(w) + z**2,
    "movement": lambda z, w: torch.cat([z, w.flip(0)], 1)[:, 1::2].transpose(0, 1),
    "places": lambda z, w: (z[PLACES], z.index_select(0, PLACES), z.index_put((PLACES,), w[:3])),
    "made": lambda z, w: (
        torch.zeros(2, dtype=z.dtype) + torch.full_like(w[0, :2], 3 - 1j),
        z.norm(),
    ),
    "mixed": lambda z, w: (z.addcmul(w, w, value=2j), z.addcdiv(w, z), z.lerp(w, 0.3)),
    "pads": lambda z, w: (F.pad(z, (1, 0), value=2.0), torch.constant_pad_nd(w, (0, 1), 3j)),
    "modes": lambda z, w: torch.zeros(4, 9, dtype=z.dtype).slice_scatter(z * w, 1, 0, 6),
    "sums": lambda z, w: (z.sum(0), w.mean(), z.cumsum(1), torch.where(z.real > 0, z, w)),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(name):
    check(ARITHMETIC[name], numbers(4, 6), numbers(4, 6))


def test_results_without_elements():
    check(torch.complex, torch.randn(0, 3), torch.randn(0, 3))


def test_rotary_positions_as_complex_numbers():
    def rotate(x, angles):
        turns = torch.polar(torch.ones_like(angles), angles)
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * turns).flatten(-2)

    check(rotate, torch.randn(2, 5, 8), torch.rand(5, 4))


def test_gradient_of_a_spectrum():
    def loss(x):
        back = torch.fft.irfft2(torch.fft.rfft2(x) * 2j)
        return back.square().mean() + torch.fft.fft(x).abs().sum()

    x = torch.randn(4, 6, requires_grad=True)
    (ours,) = torch.autograd.grad(torch.compile(loss, backend=backend)(x), x)
    (theirs,) = torch.autograd.grad(loss(x), x)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert not report().fallbacks
