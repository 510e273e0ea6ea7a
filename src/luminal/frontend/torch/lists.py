"""`torch._foreach_*`, which optimizers call: one operation for each tensor of a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

PREFIX = "aten::_foreach_"
aten = torch.ops.aten


def _norm(x: Any, ord: Any = 2, dtype: Any = None) -> Any:
    return aten.linalg_vector_norm(x, ord, dtype=dtype)


# the operation of one tensor has other arguments, or another name
OTHERWISE: dict[str, Callable[..., Any]] = {
    "addcdiv": lambda x, a, b, value=1: aten.addcdiv(x, a, b, value=value),
    "addcmul": lambda x, a, b, value=1: aten.addcmul(x, a, b, value=value),
    "norm": _norm,
    "zero": aten.zeros_like,
}
OF_NUMBERS = {"maximum": aten.clamp_min, "minimum": aten.clamp_max}


def over_lists() -> dict[Any, Callable[..., Any]]:
    """The expansion of each such operation that PyTorch has."""
    found = {}
    for full in torch._C._dispatch_get_all_op_names():
        name, _, overload = full.removeprefix(PREFIX).partition(".")
        one = OTHERWISE.get(name) or getattr(aten, name, None)
        if not full.startswith(PREFIX) or one is None or name.endswith("_") or "out" in overload:
            continue
        if name.startswith("addc") and overload == "Tensor":  # factors as one tensor
            continue
        one = OF_NUMBERS.get(name, one) if overload.startswith("Scalar") else one
        found[getattr(getattr(aten, f"_foreach_{name}"), overload or "default")] = _each(one)
    return found


def _each(one: Callable[..., Any]) -> Callable[..., list[Any]]:
    def body(*args: Any, **options: Any) -> list[Any]:
        length = max(len(a) for a in args if isinstance(a, (list, tuple)))
        columns = [a if isinstance(a, (list, tuple)) else [a] * length for a in args]
        return [one(*row, **options) for row in zip(*columns)]

    return body
