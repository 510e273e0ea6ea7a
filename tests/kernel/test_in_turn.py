"""What only stores need is made a few stores at a time."""

from __future__ import annotations

from luminal.backend.threads.loads import FEW, few_at_a_time
from luminal.graph.dtype import f32
from luminal.kernel.program import Instruction, Statement, Val, start_of

COUNT = 4 * FEW
START, OUT = (Val(start_of(name), None, memory=name) for name in ("rest", "out"))


def number(name: str) -> Val:
    return Val(name, f32)


def epilogue(count: int) -> list[Statement]:
    """out[n] = rest[n] + sum n: all loads, then all additions, then all stores."""
    each = range(count)
    loads = [Instruction(number(f"l{n}"), "load", (START,), (n,)) for n in each]
    sums = [Instruction(number(f"s{n}"), "add", (number(f"l{n}"), number(f"a{n}"))) for n in each]
    stores = [Instruction(None, "store", (number(f"s{n}"), OUT), (n,)) for n in each]
    return [*loads, *sums, *stores]


def held(body: list[Statement]) -> int:
    """The most numbers that were loaded, or made of these, and are not stored yet."""
    now = most = 0
    for s in body:
        assert isinstance(s, Instruction)
        now += {"load": 1, "store": -1}.get(s.op, 0)
        most = max(most, now)
    return most


def test_few_numbers_wait_for_their_stores() -> None:
    body = epilogue(COUNT)
    made = few_at_a_time(body, {"out"})
    assert held(body) == COUNT and held(made) == FEW
    assert sorted(map(id, made)) == sorted(map(id, body))
    place = {id(s): n for n, s in enumerate(made)}
    assert all(place[id(body[n])] < place[id(body[COUNT + n])] < place[id(body[2 * COUNT + n])]
               for n in range(COUNT))  # fmt: skip


def test_what_may_change_or_is_read_elsewhere_stays() -> None:
    body = epilogue(COUNT)
    assert few_at_a_time(body, {"out", "rest"}) == body
    assert few_at_a_time(epilogue(FEW), {"out"}) == epilogue(FEW)
    barrier = Instruction(None, "barrier", ())
    first = Instruction(number("p"), "exchange", (number("l0"),), (0,))
    made = few_at_a_time([*body[:COUNT], first, barrier, *body[COUNT:]], {"out"})
    assert made.index(body[0]) < made.index(first) < made.index(barrier)
    assert made.index(barrier) < made.index(body[1])
