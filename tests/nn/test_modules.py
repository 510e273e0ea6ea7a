"""Modules beside PyTorch's, compiled for the CPU, in inference and in training: the state goes over
by name; outputs, and the state after the run, agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from luminal import nn
from luminal.graph import Graph, Tensor

from .modules import SPECS, Spec, as_torch, constant

GROUPS = 10  # programs; each compiles its share of the modules at once


def randomised(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The state with every parameter random, so that ones and zeros cannot hide a mistake."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.dtype.is_floating_point:
                spread = (
                    torch.rand_like(tensor) if "var" in name else torch.randn_like(tensor) * 0.3
                )
                tensor.copy_(spread)
    return module.state_dict()


def parts(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in parts(part)]
    return [] if result is None else [result]


def recorded(graph: Graph, spec: Spec) -> tuple[nn.Module, torch.nn.Module, list[Any]]:
    """Our module, PyTorch's, and for both modes our results beside what is expected."""
    theirs, ours = spec.theirs().eval(), spec.ours(graph)
    if spec.name.startswith("Lazy"):
        theirs(*map(torch.from_numpy, spec.inputs))
        ours(*map(graph.constant, spec.inputs))
    ours.load_state_dict({n: t.clone() for n, t in randomised(theirs).items()})
    tensors = [graph.tensor(a.shape, a.dtype).set(a) for a in spec.inputs]
    call = {n: constant(graph, v) for n, v in spec.call.items()}
    pairs = []
    for mode in (False, True):
        results = parts(ours.train(mode)(*tensors, **call))
        given = [torch.from_numpy(a.copy()) for a in spec.inputs]
        with torch.no_grad():
            expected = parts(
                theirs.train(mode)(*given, **{n: as_torch(v) for n, v in spec.call.items()})
            )
        assert len(results) == len(expected)
        pairs += [(ours_.output(), e.numpy()) for ours_, e in zip(results, expected)]
    return ours, theirs, pairs


@pytest.mark.parametrize("group", range(GROUPS))
def test_like_torch(group: int) -> None:
    graph = Graph()
    made: dict[str, Any] = {}
    for name in list(SPECS)[group::GROUPS]:
        made[name] = recorded(graph, SPECS[name])
    program = graph.compile(device="cpu", threads=2)
    program.run()
    for name, (ours, theirs, pairs) in made.items():
        for result, expected in pairs:
            agree(program[result], expected, name)
        state = theirs.state_dict()
        for key, tensor in ours._named(saved=True):
            agree(program[tensor], state[key].numpy(), f"{name}: {key} after training")


def agree(got: np.ndarray, expected: np.ndarray, name: str) -> None:
    assert got.shape == expected.shape and got.dtype == expected.dtype, name
    scale = SPECS[name.partition(":")[0]].scale
    np.testing.assert_allclose(got, expected, rtol=2e-5 * scale, atol=2e-5 * scale, err_msg=name)


def test_noise_changes_from_run_to_run() -> None:
    graph = Graph()
    x: Tensor = graph.tensor((8, 16, 4)).set(np.ones((8, 16, 4), np.float32))
    layers = [kind(0.5).train() for kind in (nn.Dropout, nn.Dropout1d, nn.AlphaDropout)]
    layers += [nn.RReLU().train(), nn.Dropout(0.5, seed=3).train()]
    results = [layer(-x).output() for layer in layers]
    program = graph.compile(device="cpu", threads=1)
    seen = []
    for _ in range(3):
        program.run()
        seen.append([program[result].copy() for result in results])
    for first, second in zip(seen[0][:4], seen[1][:4]):
        assert not np.array_equal(first, second)
    assert np.array_equal(seen[0][4], seen[2][4])  # a seed that is a number
    dropped = seen[0][0] == 0
    assert 0.3 < dropped.mean() < 0.7 and set(np.unique(seen[0][0])) == {-2.0, 0.0}
    channels = (seen[0][1] == 0).reshape(128, 4)
    assert (channels.all(1) | ~channels.any(1)).all()
    assert abs(seen[0][3].mean() + 11 / 48) < 0.02


def test_a_run_can_be_repeated() -> None:
    graph = Graph()
    y = nn.Dropout(0.5).train()(graph.tensor((64,)).set(np.ones(64, np.float32))).output()
    program = graph.compile(device="cpu", threads=1)
    (run,) = [state for state, _ in graph.states]
    found = []
    for number in (0, 1, 0):
        program[run] = np.int64(number)
        program.run()
        found.append(program[y].copy())
    assert np.array_equal(found[0], found[2]) and not np.array_equal(found[0], found[1])
