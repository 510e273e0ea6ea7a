"""Mixtures of experts beside one product for each token and expert."""

from __future__ import annotations

import numpy as np
import pytest

from luminal import nn, ops
from luminal.graph import Graph, Tensor

EXPERTS, CHOSEN, WIDTH, OUT = 5, 2, 12, 7
RANDOM = np.random.default_rng(0)
MATRICES = RANDOM.standard_normal((EXPERTS, WIDTH, OUT)).astype(np.float32)


def recorded(tokens: int | None, apart: bool = False) -> Graph:
    """apart: tokens differ from one expert to the other."""
    graph = Graph()
    size = graph.dim("tokens", 0, 200, hint=(1, 64)) if tokens is None else tokens
    x = graph.tensor((size, CHOSEN, WIDTH) if apart else (size, WIDTH), name="x")
    chosen = graph.tensor((size, CHOSEN), "i64", name="chosen")
    shares = graph.tensor((size, CHOSEN), name="shares")
    matrices = graph.constant(MATRICES)

    def network(rows: Tensor, asked: Tensor) -> Tensor:
        return (ops.embedding(asked, matrices) * rows.unsqueeze(-1)).sum(-2)

    nn.mixture(network, x, chosen, None if apart else shares, EXPERTS).output()
    return graph


def wanted(x: np.ndarray, chosen: np.ndarray, shares: np.ndarray) -> np.ndarray:
    each = np.einsum("tkw,tkwo->tko", x, MATRICES[chosen])
    return np.asarray((each * shares[..., None]).sum(1))


CHOICES = {
    "any": lambda n: RANDOM.permuted(np.tile(np.arange(EXPERTS), (n, 1)), axis=1)[:, :CHOSEN],
    "some never": lambda n: np.tile([3, 1], (n, 1)),
    "always one": lambda n: np.full((n, CHOSEN), EXPERTS - 1),
}


@pytest.fixture(scope="module")
def any_size() -> object:
    return recorded(None).compile(threads=1)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("tokens", [0, 1, 6, 11, 40, 130])
def test_tokens_go_through_the_experts_chosen_for_them(any_size, tokens, choice):
    x = RANDOM.standard_normal((tokens, WIDTH)).astype(np.float32)
    shares = RANDOM.random((tokens, CHOSEN)).astype(np.float32)
    chosen = CHOICES[choice](tokens).astype(np.int64)
    right = wanted(x[:, None].repeat(CHOSEN, 1), chosen, shares)
    np.testing.assert_allclose(any_size(x, chosen, shares), right, 1e-4, 1e-5)


@pytest.mark.parametrize("tokens", [1, 9, 64])
def test_each_expert_may_be_given_something_else(tokens):
    x = RANDOM.standard_normal((tokens, CHOSEN, WIDTH)).astype(np.float32)
    chosen = CHOICES["any"](tokens).astype(np.int64)
    right = wanted(x, chosen, np.ones((tokens, CHOSEN)))
    found = recorded(tokens, apart=True).compile(device="reference")(x, chosen)
    np.testing.assert_allclose(found, right, 1e-4, 1e-5)


def test_parts_without_tokens_are_not_run(any_size):
    """Of three ways by the number of tokens, each run takes one."""
    ran = []
    for tokens in (1, 12, 64):
        x = np.zeros((tokens, WIDTH), np.float32)
        any_size(x, np.zeros((tokens, CHOSEN), np.int64), np.zeros((tokens, CHOSEN), np.float32))
        ran.append({span.kernel for span in any_size.trace()})
    assert len(ran[0]) < len(ran[1]) and ran[1] != ran[2]
