"""A network of three layers learns to multiply; ends in its error beside that of the best plane."""

import numpy as np

import luminal
from luminal import nn, ops, train

STEPS = 1500


def main() -> None:
    random = np.random.default_rng(0)
    x = random.uniform(-2, 2, (5000, 2)).astype(np.float32)
    y = x[:, :1] * x[:, 1:]
    graph = luminal.Graph()
    rows, targets = graph.tensor(("n", 2)), graph.tensor(("n", 1))
    net = nn.Sequential(
        nn.Linear(graph, 2, 64), nn.GELU(), nn.Linear(graph, 64, 64), nn.GELU(),
        nn.Linear(graph, 64, 1),
    )  # fmt: skip
    loss = ops.mse_loss(net(rows), targets)
    optimizer = train.AdamW(train.cosine(1e-2, STEPS))
    trainer = train.Trainer(
        loss, [rows, targets], net.parameters(), optimizer, validation_loss=loss
    )
    trainer.fit(train.Batches(x[1000:], y[1000:], size=128), STEPS)
    found = trainer.validate([(x[:1000], y[:1000])])
    plane = np.column_stack([x, np.ones(len(x))])
    wanted = np.mean((plane @ np.linalg.lstsq(plane, y, rcond=None)[0] - y) ** 2)
    print(f"mean square error {found:.5f}; of the best plane {wanted:.5f}")
    assert found < 0.01 * wanted, found


if __name__ == "__main__":
    main()
