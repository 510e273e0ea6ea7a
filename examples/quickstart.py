"""The first five minutes: a graph, a symbolic size, a small network. Checks what it prints."""

import numpy as np

import luminal
from luminal import nn, ops


def product() -> None:
    """A graph is recorded, compiled, fed and run."""
    cx = luminal.Graph()
    a = cx.tensor((3, 1)).set([[1.0], [2.0], [3.0]])
    b = cx.tensor((1, 4))
    c = a.matmul(b).output()
    rt = cx.compile()
    rt[b] = np.array([[1.0, 2.0, 3.0, 4.0]], np.float32)
    rt.run()
    print(rt[c])
    np.testing.assert_array_equal(rt[c], np.outer([1, 2, 3], [1, 2, 3, 4]))


def symbolic() -> None:
    """One program for every number of rows."""
    cx = luminal.Graph()
    cx.dim("s", 1, 4096)
    x = cx.tensor(("s", 64))
    w = cx.constant(np.eye(64, dtype=np.float32) * 2)
    y = ops.softmax(x @ w, -1).output()
    rt = cx.compile()
    for s in (1, 5, 1000):
        array = np.random.default_rng(s).standard_normal((s, 64), dtype=np.float32)
        rt[x] = array
        rt.run(s=s)
        e = np.exp(2 * array - (2 * array).max(-1, keepdims=True))
        np.testing.assert_allclose(rt[y], e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7)
        print(f"s = {s}: rows sum to {rt[y].sum(-1).mean():.6f}, peak {rt.peak_bytes} bytes")


class Network(nn.Module):
    """Two layers with a ReLU between them."""

    def __init__(self, graph: luminal.Graph) -> None:
        super().__init__()
        self.first = nn.Linear(graph, 8, 16)
        self.second = nn.Linear(graph, 16, 3)

    def forward(self, x: luminal.Tensor) -> luminal.Tensor:
        return self.second(ops.relu(self.first(x)))


def network() -> None:
    """A module's parameters have dotted names."""
    cx = luminal.Graph()
    x = cx.tensor(("batch", 8))
    model = Network(cx)
    y = model(x).output()
    rt = cx.compile()
    array = np.random.default_rng(0).standard_normal((5, 8), dtype=np.float32)
    rt[x] = array
    rt.run(batch=5)
    weights = model.state_dict()
    hidden = np.maximum(array @ weights["first.weight"].T + weights["first.bias"], 0)
    want = hidden @ weights["second.weight"].T + weights["second.bias"]
    np.testing.assert_allclose(rt[y], want, rtol=1e-5, atol=1e-6)
    print(", ".join(weights), "->", rt[y].shape)
    print(rt.explain())


def main() -> None:
    product()
    symbolic()
    network()
    print("all right")


if __name__ == "__main__":
    main()
