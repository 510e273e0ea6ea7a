"""What makes two parts one program: operations, dtypes, sizes with bounds, layouts, options."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from torch import fx

from .higher import bodies_of, text_of
from .program import Options
from .record import Output, Recorder
from .split import Part


def fingerprint(part: Part, recorder: Recorder, sizes: Sequence[str], options: Options) -> str:
    """Equal for parts that the same program computes, whatever their nodes are called."""
    numbers: dict[fx.Node, int] = {}
    lines = [repr(options), repr(list(sizes)), repr(sorted(recorder.graph.space.sizes.items()))]
    for put in recorder.inputs:
        numbers[put.node] = len(numbers)
        lines.append(f"{put.tensor.dtype} {put.tensor.shape} {put.order} {put.static}")
    for node in part.nodes:
        numbers[node] = len(numbers)
        args, kwargs = _name(node.args, numbers), _name(dict(node.kwargs), numbers)
        lines.append(f"{node.target} {args} {kwargs}")
        lines += [text_of(body) for _, body in bodies_of(node)]
    outs = [(numbers[o.node], o.number, o.order, _gaps(o)) for o in recorder.outputs]
    lines.append(repr(outs))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _name(value: Any, numbers: dict[fx.Node, int]) -> Any:
    """An argument as text: nodes by number, sizes by formula."""
    if isinstance(value, fx.Node):
        return f"%{numbers[value]}" if value in numbers else f"<{value.meta.get('val')}>"
    if isinstance(value, (list, tuple)):
        return [_name(part, numbers) for part in value]
    if isinstance(value, dict):
        return {key: _name(part, numbers) for key, part in value.items()}
    return repr(value)


def _gaps(out: Output) -> str:
    """The strides of a result whose elements do not lie side by side."""
    return "" if out.dense else str(tuple(out.node.meta["val"].stride()))
