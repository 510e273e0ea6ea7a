"""Choosing tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luminal.errors import InputError
from luminal.models.llm.sampling import Sampler, Sampling, distribution, log_probabilities

LOGITS = np.log(np.array([0.5, 0.2, 0.15, 0.1, 0.05], np.float32))


def drawn(**options: float) -> dict[int, float]:
    tokens, chances = distribution(LOGITS, Sampling(**{"temperature": 1.0, **options}))
    return dict(zip(tokens.tolist(), chances.tolist()))


def test_temperature() -> None:
    assert drawn() == pytest.approx({0: 0.5, 1: 0.2, 2: 0.15, 3: 0.1, 4: 0.05})
    cold = drawn(temperature=0.5)
    assert cold[0] == pytest.approx(0.25 / (0.25 + 0.04 + 0.0225 + 0.01 + 0.0025))


def test_top_k_top_p_min_p() -> None:
    assert drawn(top_k=2) == pytest.approx({0: 5 / 7, 1: 2 / 7})
    assert list(drawn(top_p=0.69)) == [0, 1]
    assert list(drawn(top_p=0.71)) == [0, 1, 2]
    assert list(drawn(top_p=0.01)) == [0]
    assert list(drawn(min_p=0.25)) == [0, 1, 2]
    assert list(drawn(top_k=2, min_p=0.25)) == [0, 1]


def test_draws_follow_the_distribution_and_the_seed() -> None:
    first = [Sampler(Sampling(1.0, seed=n)).choose(LOGITS) for n in range(2000)]
    shares = np.bincount(first, minlength=5) / 2000
    np.testing.assert_allclose(shares, np.exp(LOGITS), atol=0.04)
    assert first[:50] == [Sampler(Sampling(1.0, seed=n)).choose(LOGITS) for n in range(50)]


def test_any_integer_is_a_seed_and_all_tokens_are_minus_one() -> None:
    for seed in (-1, -(2**70), 2**70):
        first, second = (Sampler(Sampling(1.0, seed=seed)) for _ in range(2))
        drawn_once = [first.choose(LOGITS) for _ in range(20)]
        assert drawn_once == [second.choose(LOGITS) for _ in range(20)]
    one, minus = (Sampler(Sampling(1.0, seed=n)) for n in (1, -1))
    assert [one.choose(LOGITS) for _ in range(30)] != [minus.choose(LOGITS) for _ in range(30)]
    assert drawn(top_k=-1) == drawn(top_k=0)


def test_penalties() -> None:
    logits = np.array([2.0, 1.9, -1.0], np.float32)
    assert Sampler(Sampling(), [0]).choose(logits) == 0
    assert Sampler(Sampling(repetition_penalty=1.2), [0]).choose(logits) == 1
    presence = Sampler(Sampling(presence_penalty=0.5), [0])
    assert [presence.choose(logits) for _ in range(3)] == [0, 1, 0]  # the prompt does not count
    frequency = Sampler(Sampling(frequency_penalty=0.06))
    assert [frequency.choose(logits) for _ in range(4)] == [0, 0, 1, 0]
    np.testing.assert_array_equal(logits, np.array([2.0, 1.9, -1.0], np.float32))


def test_logit_bias() -> None:
    logits = np.array([2.0, 1.9, -1.0], np.float32)
    assert Sampler(Sampling(logit_bias={2: 5.0})).choose(logits) == 2
    assert Sampler(Sampling(logit_bias={0: -100})).choose(logits) == 1
    with pytest.raises(InputError, match="token ids go from 0 to 2, not 3"):
        Sampling(logit_bias={3: 1.0}).check(3)


def test_log_probabilities() -> None:
    np.testing.assert_allclose(np.exp(log_probabilities(LOGITS)), np.exp(LOGITS), atol=1e-6)


@pytest.mark.parametrize("wrong", [{"temperature": -1}, {"top_p": 0}, {"min_p": 2}, {"top_k": -2},
                                   {"top_k": 1.5}, {"temperature": float("nan")},
                                   {"temperature": "hot"}, {"presence_penalty": float("inf")},
                                   {"seed": 0.5}, {"logit_bias": [1]},
                                   {"logit_bias": {"5": 1.0}}])  # fmt: skip
def test_ranges_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Sampling(**wrong)
