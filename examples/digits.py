"""A small convolutional network learns to read digits; ends in its accuracy on images not seen.

The data are scikit-learn's digits (1,797 scans of 8 x 8 pixels) where scikit-learn is installed,
else pictures made here: ten glyphs of 3 x 5 pixels, moved, dimmed and covered with noise.
"""

import time

import numpy as np

import luminal
from luminal import nn, ops, train

EPOCHS, BATCH = 30, 64
GLYPHS = (
    "111101101101111 010110010010111 111001111100111 111001111001111 101101111001001 "
    "111100111001111 111100111101111 111001010010010 111101111101111 111101111001111"
).split()


def scans() -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 8, 8) in 0 .. 1 and their digits (n,)."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return digits.images.astype(np.float32) / 16, digits.target.astype(np.int64)


def drawn(count: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """The same shapes, made here."""
    random = np.random.default_rng(0)
    targets = random.integers(0, 10, count)
    images = 0.1 * random.standard_normal((count, 8, 8))
    for image, target in zip(images, targets):
        row, column = random.integers(0, 3), random.integers(1, 5)
        glyph = np.array(list(GLYPHS[target]), np.float64).reshape(5, 3)
        image[row : row + 5, column : column + 3] += random.uniform(0.6, 1.0) * glyph
    return images.astype(np.float32), targets


class Reader(nn.Module):
    """Two convolutions, one layer: 8 x 8 pixels to the logits of ten digits."""

    def __init__(self, graph: luminal.Graph) -> None:
        super().__init__()
        self.first = nn.Conv2d(graph, 1, 16, 3, padding=1)
        self.second = nn.Conv2d(graph, 16, 32, 3, padding=1)
        self.last = nn.Linear(graph, 32 * 16, 10)

    def forward(self, x: luminal.Tensor) -> luminal.Tensor:
        x = ops.relu(self.first(x.unsqueeze(1)))
        x = ops.max_pool2d(ops.relu(self.second(x)), 2)
        return self.last(x.flatten(1))


def shifted(images: np.ndarray, row: int, column: int) -> np.ndarray:
    """By up to a pixel each way: digits stay what they are."""
    wide = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    return np.ascontiguousarray(wide[:, row : row + 8, column : column + 8])


def trained(images: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
    """The parameters after some epochs, by name."""
    graph = luminal.Graph()
    x, y = graph.tensor((BATCH, 8, 8)), graph.tensor((BATCH,), "i64")
    model = Reader(graph)
    loss = ops.cross_entropy(model(x), y)
    steps = len(images) // BATCH
    train.Step(loss, model.parameters(), train.AdamW(train.cosine(5e-3, EPOCHS * steps)))
    rt = graph.compile()
    random, start = np.random.default_rng(0), time.perf_counter()
    for epoch in range(EPOCHS):
        order, losses = random.permutation(len(images)), []
        for rows in order[: steps * BATCH].reshape(steps, BATCH):
            rt[x], rt[y] = shifted(images[rows], *random.integers(0, 3, 2)), targets[rows]
            rt.run()
            losses.append(rt[loss].item())
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}")
    each = (time.perf_counter() - start) / (EPOCHS * steps)
    print(f"{each * 1e6:.0f} us a step of {BATCH} images, {len(rt.kernels)} kernels")
    return {name: rt[tensor] for name, tensor in model.named_parameters()}


def accuracy(state: dict[str, np.ndarray], images: np.ndarray, targets: np.ndarray) -> float:
    """Of a program that only reads."""
    graph = luminal.Graph()
    model, x = Reader(graph), graph.tensor(("n", 8, 8))
    model.load_state_dict(state)
    digit = model(x).argmax(-1).output()
    rt = graph.compile()
    rt[x] = images
    rt.run()
    return float((rt[digit] == targets).mean())


def main() -> None:
    try:
        source, (images, targets) = "scikit-learn's digits", scans()
    except ImportError:
        source, (images, targets) = "digits drawn here", drawn()
    held = len(images) // 5
    order = np.random.default_rng(1).permutation(len(images))
    test, rest = order[:held], order[held:]
    found = accuracy(trained(images[rest], targets[rest]), images[test], targets[test])
    print(f"{source}: {found:.2%} of {held} images not seen are read right")
    assert found >= 0.98, found


if __name__ == "__main__":
    main()
