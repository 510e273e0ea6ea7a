"""A PyTorch model compiled beside eager: the same results, and how many times as fast."""

import statistics
import time

import torch
from torch import nn

ROUNDS = 15


def main() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval()
    fast = torch.compile(model, backend="luminal")
    x = torch.randn(1, 128, 256)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
        ratios = []
        for _ in range(ROUNDS):  # in turns: other work on the machine meets both
            ratios.append(seconds(model, x) / seconds(fast, x))
    low, middle, high = statistics.quantiles(ratios)
    print(f"eager takes {middle:.2f} times as long ({low:.2f} to {high:.2f}), {ROUNDS} rounds")


def seconds(run: nn.Module, x: torch.Tensor) -> float:
    start = time.perf_counter()
    run(x)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
