"""luminal.torch.export: a module as a file that runs without PyTorch."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import luminal
from luminal.torch import export


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)
        self.register_buffer("shift", torch.arange(5.0))

    def forward(self, image, scale):
        features = self.norm(self.conv(image)).relu() * scale
        return self.head(features.mean((2, 3))) + self.shift, features.transpose(2, 3)


def test_an_exported_model_runs_without_pytorch(tmp_path):
    model = Net().eval()
    image = torch.randn(2, 3, 6, 4).to(memory_format=torch.channels_last)
    scale = torch.tensor(2.0)
    export(model, (image, scale), tmp_path / "net.luminal")
    np.savez(tmp_path / "in.npz", image=image.numpy(), scale=scale.numpy())
    text = (
        "import sys, luminal, numpy as np; rt = luminal.load('net.luminal'); x = np.load('in.npz');"
        "np.savez('out.npz', *rt(x['image'], x['scale'])); assert 'torch' not in sys.modules;"
        "assert rt.inputs == ('image', 'scale') and rt.outputs == ('output0', 'output1')"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(luminal.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", text], cwd=tmp_path, env=env, check=True)
    with torch.no_grad():
        expected = model(image, scale)
    for got, wanted in zip(np.load(tmp_path / "out.npz").values(), expected):
        torch.testing.assert_close(torch.from_numpy(got), wanted, rtol=1e-5, atol=1e-5)


def test_one_tensor_is_one_input():
    model, x = nn.Linear(3, 4).eval(), torch.randn(2, 3)
    found = export(model, x)(x.numpy())
    np.testing.assert_allclose(found, model(x).detach(), rtol=1e-5, atol=1e-6)


def test_equal_results_are_outputs_of_their_own():
    class Several(nn.Module):
        def forward(self, x):
            y = x + 1
            return y, y, y.clone(), y * 1

    a, *others = export(Several(), torch.zeros(3))(np.zeros(3, np.float32))
    a[:] = 0
    assert [other.tolist() for other in others] == [[1, 1, 1]] * 3


def test_exported_sizes_vary(tmp_path):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    batch = torch.export.Dim("batch", min=1, max=64)
    export(model, (torch.randn(3, 4),), tmp_path / "m", dynamic_shapes=({0: batch},))
    run = luminal.load(tmp_path / "m")
    for count in (1, 5, 64):
        x = torch.randn(count, 4)
        torch.testing.assert_close(torch.from_numpy(run(x.numpy())), model(x).detach())
    with pytest.raises(luminal.DimError):
        run(np.zeros((65, 4), np.float32))


def test_what_cannot_be_exported_is_refused():
    with pytest.raises(luminal.Unsupported, match="eval"):
        export(nn.BatchNorm1d(4), (torch.randn(3, 4),))

    class Inverse(nn.Module):
        def forward(self, x):
            return torch.linalg.inv(x)

    with pytest.raises(luminal.Unsupported, match="linalg_inv"):
        export(Inverse(), (torch.eye(3),))

    class First(nn.Module):
        def forward(self, x, n):
            return x[: n.max().item()]

    with pytest.raises(luminal.Unsupported, match="depends on values"):
        export(First(), (torch.ones(5), torch.tensor([3, 2])))
    with pytest.raises(luminal.InputError, match="treads"):
        export(nn.Linear(2, 2), (torch.ones(1, 2),), options={"treads": 1})
