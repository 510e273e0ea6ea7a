"""A variational autoencoder of digits; ends in its error of reconstruction beside that of the
principal components, as many as it has latent numbers (arXiv 1312.6114)."""

import digits
import numpy as np

import luminal
from luminal import nn, ops, train

STEPS, LATENT, HIDDEN, BATCH = 4000, 6, 128, 128


class Autoencoder(nn.Module):
    def __init__(self, graph: luminal.Graph) -> None:
        super().__init__()
        self.inner, self.code = nn.Linear(graph, 64, HIDDEN), nn.Linear(graph, HIDDEN, 2 * LATENT)
        self.outer, self.last = nn.Linear(graph, LATENT, HIDDEN), nn.Linear(graph, HIDDEN, 64)

    def encode(self, x: luminal.Tensor) -> tuple[luminal.Tensor, luminal.Tensor]:
        """Mean and logarithm of the variance."""
        mean, spread = self.code(ops.gelu(self.inner(x))).chunk(2, -1)
        return mean, ops.clamp(spread, -8.0, 2.0)

    def decode(self, z: luminal.Tensor) -> luminal.Tensor:
        return self.last(ops.gelu(self.outer(z)))


def pictures() -> np.ndarray:
    images, _ = digits.drawn()
    return images.reshape(len(images), 64)


def main() -> None:
    rows = pictures()
    test, rest = rows[:500], rows[500:]
    graph = luminal.Graph()
    x, noise = graph.tensor(("n", 64)), graph.tensor(("n", LATENT))
    model = Autoencoder(graph)
    mean, spread = model.encode(x)
    made = model.decode(mean + ops.exp(spread * 0.5) * noise)
    distance = 0.5 * (mean * mean + ops.exp(spread) - spread - 1.0).sum(-1).mean()
    loss = 50.0 * ((made - x) ** 2.0).sum(-1).mean() + distance
    error = ((model.decode(mean) - x) ** 2.0).mean()
    trainer = train.Trainer(
        loss, [x, noise], model.parameters(), train.AdamW(train.cosine(3e-3, STEPS)),
        clip=train.clip_norm(10.0), validation_loss=error + 0.0 * noise.sum(),
    )  # fmt: skip

    def batches():
        for number, (batch,) in enumerate(train.Batches(rest, size=BATCH)):
            draw = np.random.default_rng([1, number])
            yield batch, draw.standard_normal((BATCH, LATENT), dtype=np.float32)

    trainer.fit(batches, STEPS)
    found = trainer.validate([(test, np.zeros((len(test), LATENT), np.float32))])
    middle = rest.mean(0)
    axes = np.linalg.svd(rest - middle, full_matrices=False)[2][:LATENT]
    wanted = np.mean(((test - middle) @ axes.T @ axes + middle - test) ** 2)
    print(f"error {found:.4f} with {LATENT} numbers a picture; principal components {wanted:.4f}")
    assert found < wanted, (found, wanted)


if __name__ == "__main__":
    main()
