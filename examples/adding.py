"""An LSTM adds two marked numbers of a sequence (Hochreiter and Schmidhuber 1997); ends in its mean
squared error on sequences not seen, beside that of the best constant, 1/6."""

from collections.abc import Iterator

import numpy as np

import luminal
from luminal import nn, ops, train

STEPS, LENGTH, HIDDEN, BATCH = 1500, 30, 48, 64
CONSTANT = 1 / 6  # the variance of the sum of two numbers from 0 to 1


class Adder(nn.Module):
    def __init__(self, graph: luminal.Graph) -> None:
        super().__init__()
        self.lstm = nn.LSTM(graph, 2, HIDDEN, batch_first=True)
        self.head = nn.Linear(graph, HIDDEN, 1)

    def forward(self, x: luminal.Tensor) -> luminal.Tensor:
        """(batch, length, 2) -> (batch,)"""
        states, _ = self.lstm(x)
        return self.head(states[:, -1]).squeeze(-1)


def sequences(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers beside marks, of which there is one in each half; the sum of the marked ones."""
    random = np.random.default_rng(seed)
    x = np.zeros((count, LENGTH, 2), np.float32)
    x[..., 0] = random.random((count, LENGTH))
    half = LENGTH // 2
    for first in (0, half):
        x[np.arange(count), first + random.integers(0, half, count), 1] = 1
    return x, x.prod(-1).sum(-1)


def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    return (sequences(BATCH, seed) for seed in range(1, STEPS + 1))


def main() -> None:
    graph = luminal.Graph()
    x, y = graph.tensor((BATCH, LENGTH, 2)), graph.tensor((BATCH,))
    model = Adder(graph)
    loss = ops.mse_loss(model(x), y)
    trainer = train.Trainer(
        loss, [x, y], model.parameters(), train.Adam(train.cosine(1e-2, STEPS)),
        clip=train.clip_norm(1.0), validation_loss=loss,
    )  # fmt: skip
    trainer.fit(batches, STEPS)
    test = train.Batches(*sequences(10 * BATCH, 0), size=BATCH, shuffle=False)
    error = trainer.validate(test)
    print(f"mean squared error {error:.5f}; the best constant {CONSTANT:.5f}")
    assert error < CONSTANT / 20, error


if __name__ == "__main__":
    main()
