"""Log-mel spectrograms as Whisper takes them (Radford et al. 2022, https://arxiv.org/abs/2212.04356,
section 2.2): Hann windows of 25 ms every 10 ms, power, filters on Slaney's mel scale."""

from __future__ import annotations

import numpy as np

from ... import ops
from ...graph import Graph, Tensor
from ...ops.complex import Complex
from .audio import RATE

WINDOW, HOP = 400, 160  # samples
LINEAR, START, STEP = 200 / 3, 1000.0, np.log(6.4) / 27  # Hz a mel; from where on logarithmic


def _to_mel(hertz: float) -> float:
    if hertz < START:
        return hertz / LINEAR
    return float(START / LINEAR + np.log(hertz / START) / STEP)


def _to_hertz(mel: np.ndarray) -> np.ndarray:
    return np.where(
        mel < START / LINEAR, mel * LINEAR, START * np.exp(STEP * (mel - START / LINEAR))
    )


def mel_filters(count: int) -> np.ndarray:
    """Triangles (count, frequencies) f32, each of area 1 (Slaney, Auditory Toolbox, 1998)."""
    edges = _to_hertz(np.linspace(0.0, _to_mel(RATE / 2), count + 2))
    bins = np.linspace(0.0, RATE / 2, WINDOW // 2 + 1)
    low, middle, high = (edges[n : n + count, None] for n in range(3))
    rising, falling = (bins - low) / (middle - low), (high - bins) / (high - middle)
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    return (triangles * (2 / (high - low))).astype(np.float32)


def log_mel(samples: Tensor, count: int) -> Tensor:
    """log10 of the filtered power: samples (WINDOW - HOP + HOP * frames,) -> (count, frames)."""
    graph = samples.graph
    window = ops.hann_window(graph, WINDOW)
    spectra = ops.stft(samples, WINDOW, HOP, window=window, center=False)
    assert isinstance(spectra, Complex)
    power = ops.square(spectra.real) + ops.square(spectra.imag)  # (frequencies, frames)
    filtered = ops.matmul(graph.constant(mel_filters(count)), power)
    return ops.log10(ops.maximum(filtered, 1e-10))


class MelProgram:
    """Samples of any length to a spectrogram, in blocks."""

    BLOCK = 3000  # frames

    def __init__(self, count: int, threads: int | None = None) -> None:
        graph = Graph()
        frames = graph.dim("frames", 1, self.BLOCK, hint=self.BLOCK)
        samples = graph.tensor((frames * HOP + (WINDOW - HOP),), name="samples")
        log_mel(samples, count).output("mel")
        self.executable = graph.compile(threads=threads)

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """(mels, samples // HOP) f32: what is 8 orders of magnitude below the loudest is cut off,
        the rest scaled to about -1 .. 1. samples: more than WINDOW / 2."""
        frames = len(samples) // HOP
        around = np.pad(samples, WINDOW // 2, "reflect")  # a window's middle is its frame's start
        parts = []
        for first in range(0, frames, self.BLOCK):
            count = min(self.BLOCK, frames - first)
            start = first * HOP
            self.executable["samples"] = around[start : start + count * HOP + WINDOW - HOP]
            self.executable.run()
            parts.append(self.executable["mel"])
        found = np.concatenate(parts, 1)
        return (np.maximum(found, found.max() - 8.0) + 4.0) / 4.0
