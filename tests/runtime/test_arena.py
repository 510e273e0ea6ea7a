"""Placement: buffers that are alive together never overlap; the block is not too large."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from luminal.runtime.arena import ALIGNMENT, Life, place, round_up

LIVES = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 6), st.integers(0, 5000)).map(
        lambda t: Life(t[0], t[0] + t[1], t[2])
    ),
    max_size=25,
)


def alive_at(lives: list[Life], step: int) -> int:
    return sum(round_up(life.bytes) for life in lives if life.first <= step <= life.last)


@settings(max_examples=100, deadline=None)
@given(LIVES)
def test_buffers_alive_together_are_apart(lives: list[Life]) -> None:
    placement = place(lives)
    spans = [(life, start, start + life.bytes) for life, start in zip(lives, placement.offsets)]
    for number, (a, a_start, a_end) in enumerate(spans):
        assert a_start % ALIGNMENT == 0 and a_end <= placement.bytes
        for b, b_start, b_end in spans[:number]:
            if a.first <= b.last and b.first <= a.last and a.bytes and b.bytes:
                assert a_end <= b_start or b_end <= a_start


@settings(max_examples=50, deadline=None)
@given(LIVES)
def test_block_is_at_least_the_peak_and_at_most_the_sum(lives: list[Life]) -> None:
    peak = max((alive_at(lives, step) for step in range(30)), default=0)
    assert peak <= place(lives).bytes <= sum(round_up(life.bytes) for life in lives)


def test_a_chain_needs_two_buffers_only() -> None:
    lives = [Life(step, step + 1, 1000) for step in range(20)]
    assert place(lives).bytes == 2 * round_up(1000)


def test_a_small_buffer_takes_the_tightest_gap() -> None:
    lives = [Life(0, 9, 640), Life(0, 2, 320), Life(0, 9, 256), Life(3, 9, 64)]
    placement = place(lives)
    assert placement.bytes == 640 + 320 + 256  # the last one fits where the second was


def test_nothing_to_place() -> None:
    assert place([]).bytes == 0
