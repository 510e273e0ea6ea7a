"""Linear regression by gradient descent ends where least squares does."""

import numpy as np

import luminal
from luminal import nn, ops, train

STEPS = 1000


def main() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((256, 5), dtype=np.float32)
    y = x @ np.float32([2, -1, 0.5, 0, 3]) + 4 + 0.1 * random.standard_normal(256, dtype=np.float32)
    graph = luminal.Graph()
    rows, targets = graph.tensor((256, 5)), graph.tensor((256,))
    model = nn.Linear(graph, 5, 1)
    loss = ops.mse_loss(model(rows).squeeze(-1), targets)
    rate = train.cosine(0.1, STEPS)
    trainer = train.Trainer(loss, [rows, targets], model.parameters(), train.Adam(rate))
    trainer.fit([(x, y)], STEPS)
    found = np.append(trainer[model.weight][0], trainer[model.bias])
    wanted, *_ = np.linalg.lstsq(np.column_stack([x, np.ones(256)]), y, rcond=None)
    distance = np.abs(found - wanted).max()
    print(f"coefficients {found.round(3)}: {distance:.1e} from those of least squares")
    assert distance < 1e-3, distance


if __name__ == "__main__":
    main()
