"""A training that tests resume and kill: `python killed.py FOLDER STEPS`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from luminal import Graph, nn, ops, train

ROWS = np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)
TARGETS = (ROWS @ np.arange(6, dtype=np.float32))[:, None]


def trainer(folder: Path | None = None, **options) -> train.Trainer:
    graph = Graph()
    x, y = graph.tensor((8, 6), name="x"), graph.tensor((8, 1), name="y")
    model = nn.Linear(graph, 6, 1)
    model.load_state_dict({"weight": np.full((1, 6), 0.1, np.float32), "bias": np.zeros(1, "f")})
    loss = ops.mse_loss(ops.dropout(x, 0.2) @ model.weight.T + model.bias, y)
    options.setdefault("validation_loss", ops.mse_loss(model(x), y))
    compiled = {"device": "reference"}
    return train.Trainer(
        loss, options.pop("inputs", [x, y]), model.parameters(), train.Adam(0.05),
        folder=folder, compile_options=compiled, **options,
    )  # fmt: skip


def data(**options) -> train.Batches:
    return train.Batches(ROWS, TARGETS, size=8, **options)


if __name__ == "__main__":
    trainer(Path(sys.argv[1]), save_every=1, validation_loss=None).fit(data(), int(sys.argv[2]))
