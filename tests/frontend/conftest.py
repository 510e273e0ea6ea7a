"""Every test starts with nothing compiled."""

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def fresh():
    import luminal.torch

    torch._dynamo.reset()
    luminal.torch.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
