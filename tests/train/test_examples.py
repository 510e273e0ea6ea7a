"""The examples of training, shortened, reach what they promise."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_digits(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)  # so that the data are made here
    import digits

    monkeypatch.setattr(digits, "EPOCHS", 10)
    digits.main()
    assert "digits drawn here: 9" in capsys.readouterr().out
    assert np.isclose(digits.drawn(10)[0].std(), 0.3, atol=0.1)


@pytest.mark.parametrize("name", ["linear_regression", "math_net"])
def test_functions(name: str, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module(name)
    monkeypatch.setattr(example, "STEPS", 600)
    example.main()
    assert "best plane" in (said := capsys.readouterr().out) or "least squares" in said


def test_a_recurrent_network_learns_over_thirty_steps(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module("adding")
    monkeypatch.setattr(example, "STEPS", 1200)
    example.main()
    assert "the best constant 0.16667" in capsys.readouterr().out
