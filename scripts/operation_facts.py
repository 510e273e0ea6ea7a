"""What operations take, give and refuse, as they answer when they are asked.

    python scripts/operation_facts.py [softmax ...]

The call of an operation's first example is recorded anew with tensors of every dtype, with more
dimensions in front, and with sizes that do not fit. The page of the reference says what came of it.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import luminal
from luminal import Graph, Tensor, nn, ops, train
from luminal.graph.dtype import boolean

FLOATS, SIGNED, UNSIGNED = "f16 bf16 f32 f64", "i8 i16 i32 i64", "u8 u16 u32 u64"
KINDS = {"floats": FLOATS, "integers": f"{SIGNED} {UNSIGNED}", "signed integers": SIGNED,
         "unsigned integers": UNSIGNED, "bool": "bool"}  # fmt: skip
DTYPES = [*FLOATS.split(), *SIGNED.split(), *UNSIGNED.split(), "bool"]
FRONT = (5, 7)  # sizes of dimensions that are put in front
Shapes = list[tuple[Any, ...]]


class Found(Exception):
    """The call of an example: its arguments."""


def first_call(name: str) -> tuple[Sequence[Any], dict[str, Any]] | None:
    """What the first example calls the operation with, if it calls it by its name."""
    function = getattr(ops, name)

    def caught(*args: Any, **kwargs: Any) -> None:
        raise Found(args, kwargs)

    scope = {"luminal": luminal, "np": np, "nn": nn, "ops": ops, "train": train, "cx": Graph()}
    setattr(ops, name, caught)
    try:
        for example in doctest.DocTestParser().get_examples(function.__doc__ or ""):
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(example.source, name, "single"), scope)
    except Found as found:
        return found.args
    except Exception:  # an example that shows a refusal
        return None
    finally:
        setattr(ops, name, function)
    return None


def tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from tensors(each)


def asked(
    name: str, call: tuple[Sequence[Any], dict[str, Any]], dtype: str | None = None,
    shape: Callable[[int, tuple[Any, ...]], tuple[Any, ...]] = lambda n, shape: shape,
) -> list[Tensor] | str:  # fmt: skip
    """The results of the call with other tensors, or the class of what it raises. dtype: of those
    that have the first one's (no condition's); shape: of the tensor of a number."""
    args, kwargs = call
    found = list(tensors([*args, *kwargs.values()]))
    graph = Graph()
    main = next((each.dtype for each in found if each.dtype is not boolean), boolean)

    def anew(value: Any) -> Any:
        if isinstance(value, Tensor):
            place = next(n for n, each in enumerate(found) if each is value)
            mine = dtype if dtype is not None and value.dtype is main else str(value.dtype)
            sizes = tuple(n if isinstance(n, int) else str(n) for n in value.shape)
            return graph.tensor(shape(place, sizes), mine)
        if isinstance(value, Graph):
            return graph
        return type(value)(map(anew, value)) if type(value) in (tuple, list) else value

    try:
        result = getattr(ops, name)(*map(anew, args), **{k: anew(v) for k, v in kwargs.items()})
    except Exception as error:
        return type(error).__name__
    return list(tensors(result))


def shapes_of(found: Sequence[Tensor]) -> Shapes:
    return [tuple(each.shape) for each in found]


def facts(name: str) -> dict[str, str]:
    """Sentences: shapes, dtypes, errors; empty where no example calls the operation by its name."""
    call = first_call(name)
    plain = asked(name, call) if call else ""
    if isinstance(plain, str) or not plain:
        return {}
    given = shapes_of(list(tensors([*call[0], *call[1].values()])))
    told = {"shapes": shapes(name, call, given, shapes_of(plain))}
    outcomes = {} if not given else {d: asked(name, call, d) for d in DTYPES}
    errors = {found for found in outcomes.values() if isinstance(found, str)}
    if outcomes:
        told["dtypes"] = dtypes(named(outcomes))
    for wrong in (lambda s: (), lambda s: (*s[:-1], 1 + s[-1]) if s and s[-1] != "s" else s):
        found = asked(name, call, shape=lambda n, s, w=wrong: s if n else w(s))
        errors |= {found} if isinstance(found, str) else set()
    return told | ({"raises": ", ".join(f"`{e}`" for e in sorted(errors))} if errors else {})


def shapes(name: str, call: Any, given: Shapes, result: Shapes) -> str:
    """Of the example; `...` for dimensions in front that the call takes as well."""
    front = ""
    for count in (1, 2):
        more = asked(name, call, shape=lambda n, s, c=count: (*FRONT[:c], *s))
        if isinstance(more, str) or shapes_of(more) != [(*FRONT[:count], *s) for s in result]:
            break
    else:
        front = "..., " if given else ""

    def text(shape: tuple[Any, ...]) -> str:
        inside = (front + ", ".join(map(str, shape))).removesuffix(", ")
        return f"`({inside}{',' * (len(shape) == 1 and not front)})`"

    left, right = (", ".join(map(text, side)) for side in (given, result))
    return f"{left} → {right}" if left else right


def named(outcomes: dict[str, list[Tensor] | str]) -> dict[str, str]:
    """The results' dtypes in words: "the same" where they follow what is given."""
    given = {d: [str(each.dtype) for each in found]
             for d, found in outcomes.items() if not isinstance(found, str)}  # fmt: skip
    follows = [len({*column}) > 1 for column in zip(*given.values())]
    said = {d: ", ".join("the same" if each == d and follow else each
                         for each, follow in zip(each_of, follows))
            for d, each_of in given.items()}  # fmt: skip
    return {d: said.get(d, str(found)) for d, found in outcomes.items()}


def dtypes(outcomes: dict[str, str]) -> str:
    """What becomes of which; those that answer alike are named together."""
    groups: dict[str, list[str]] = {}
    left = dict(outcomes)
    for kind, members in KINDS.items():
        names = [d for d in members.split() if d in left]
        if len(names) == len(members.split()) and len({left[d] for d in names}) == 1:
            groups.setdefault(left[names[0]], []).append(kind)
            left = {d: found for d, found in left.items() if d not in names}
    for d, found in left.items():
        groups.setdefault(found, []).append(d)
    return "; ".join(f"{', '.join(names)} → {found}" for found, names in groups.items())


def paragraph(name: str) -> str:
    """For the page of the reference."""
    return "; ".join(f"*{kind}* {said}" for kind, said in facts(name).items())


if __name__ == "__main__":
    for wanted in sys.argv[1:] or sorted(n for n in dir(ops) if n[0] != "_"):
        if callable(getattr(ops, wanted)):
            print(f"{wanted}: {paragraph(wanted)}")
