"""A small diffusion model draws digits (arXiv 2006.11239); ends in how far they are from real ones,
beside real ones and noise, and in a picture of them (samples.pgm)."""

import sys
from pathlib import Path

import digits
import numpy as np

import luminal
from luminal import nn, ops, train

STEPS, TIMES, HIDDEN, BATCH, SAMPLES = 6000, 100, 256, 256, 64
KEPT = np.cumprod(1 - np.linspace(1e-3, 0.12, TIMES))  # share of the picture after each time


class Denoiser(nn.Module):
    """Pictures (n, 64) with noise, at times (n,): the noise."""

    def __init__(self, graph: luminal.Graph) -> None:
        super().__init__()
        self.times = nn.Embedding(graph, TIMES, HIDDEN)
        self.first, self.last = nn.Linear(graph, 64, HIDDEN), nn.Linear(graph, HIDDEN, 64)
        self.inner = nn.ModuleList([nn.Linear(graph, HIDDEN, HIDDEN) for _ in range(3)])

    def forward(self, x: luminal.Tensor, times: luminal.Tensor) -> luminal.Tensor:
        h, at = self.first(x), self.times(times)
        for layer in self.inner:
            h = h + layer(ops.gelu(h + at))
        return self.last(ops.gelu(h))


def trained(rows: np.ndarray) -> dict[str, np.ndarray]:
    graph = luminal.Graph()
    x, noise = graph.tensor((BATCH, 64)), graph.tensor((BATCH, 64))
    times = graph.tensor((BATCH,), "i64")
    model = Denoiser(graph)
    loss = ops.mse_loss(model(x, times), noise)
    rate = train.cosine(2e-3, STEPS)
    trainer = train.Trainer(loss, [x, times, noise], model.parameters(), train.AdamW(rate))

    def batches():
        random = np.random.default_rng(0)
        for _ in range(STEPS):
            at, clean = random.integers(0, TIMES, BATCH), rows[random.integers(0, len(rows), BATCH)]
            drawn = random.standard_normal((BATCH, 64), dtype=np.float32)
            share = KEPT[at][:, None].astype(np.float32)
            yield np.sqrt(share) * clean + np.sqrt(1 - share) * drawn, at, drawn

    trainer.fit(batches, STEPS)
    return {name: trainer[tensor] for name, tensor in model.named_parameters()}


def sampled(state: dict[str, np.ndarray]) -> np.ndarray:
    """From noise, one time after the other."""
    graph = luminal.Graph()
    x, times = graph.tensor((SAMPLES, 64)), graph.tensor((SAMPLES,), "i64")
    model = Denoiser(graph)
    model.load_state_dict(state)
    noise = model(x, times).output()
    rt, random = graph.compile(), np.random.default_rng(1)
    now = random.standard_normal((SAMPLES, 64), dtype=np.float32)
    for at in reversed(range(TIMES)):
        rt[x], rt[times] = now, np.full(SAMPLES, at)
        rt.run()
        before = KEPT[at - 1] if at else 1.0
        part = KEPT[at] / before
        mean = (now - (1 - part) / np.sqrt(1 - KEPT[at]) * rt[noise]) / np.sqrt(part)
        width = np.sqrt((1 - part) * (1 - before) / (1 - KEPT[at]))
        now = (mean + width * random.standard_normal(now.shape)).astype(np.float32)
    return now


def distance(these: np.ndarray, those: np.ndarray) -> float:
    """From each to the nearest, on average."""
    return float(np.mean([np.sqrt(((those - row) ** 2).sum(-1).min()) for row in these]))


def drawn(path: Path, rows: np.ndarray) -> None:
    """As a picture: 8 x 8 digits."""
    grid = rows.reshape(8, 8, 8, 8).transpose(0, 2, 1, 3).reshape(64, 64)
    path.write_bytes(b"P5 64 64 255\n" + (grid.clip(0, 1) * 255).astype(np.uint8).tobytes())


def main() -> None:
    images, _ = digits.drawn()
    rows = images.reshape(len(images), 64)
    samples = sampled(trained(rows[500:]))
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "samples.pgm")
    drawn(path, samples)
    noise = np.random.default_rng(2).standard_normal(samples.shape) * rows.std() + rows.mean()
    found, real, far = (distance(r, rows[500:]) for r in (samples, rows[:500], noise))
    print(f"distance to the nearest digit {found:.2f}; of real ones {real:.2f}, of noise {far:.2f}")
    print(f"samples: {path}")
    assert found < 0.5 * (real + far), (found, real, far)


if __name__ == "__main__":
    main()
