"""A value mentions no axis but its own."""

import pytest

from luminal.errors import VerifyError
from luminal.graph.dtype import f32, i64
from luminal.graph.index import Index
from luminal.kernel.kernel import (
    Apply,
    Buffer,
    Guard,
    Kernel,
    Load,
    Position,
    Store,
    Value,
    verify_scopes,
)

I = Index.of
AXES = {"a": I(4), "b": I("s")}
BUFFERS = (Buffer("x", f32, (I(4),)), Buffer("y", f32, (I(4),)))


def kernel(body, axes=("a",)):
    store = Store("y", tuple(map(I, axes)))
    return Kernel("k", BUFFERS, AXES, (Value("v", axes, body, f32, None, store),), {"s": (1, 9)})


def position(index):
    return Apply("cast", (Position(index, i64),), f32)


def test_own_axes_sizes_and_slots_are_allowed():
    slot = Load("x", (I("$0"),), f32, (("$0", Position(I("a") + "s", i64)),))
    verify_scopes(kernel(Guard((I("s") - "a",), slot, position(I("a") * 2))))


@pytest.mark.parametrize(
    "body",
    [
        position(I("b")),
        Load("x", (I("b"),), f32),
        Guard((I("b") - 1,), Load("x", (I("a"),), f32), position(I("a"))),
    ],
)
def test_a_foreign_axis_is_refused(body):
    with pytest.raises(VerifyError, match="walks no b"):
        verify_scopes(kernel(body))
