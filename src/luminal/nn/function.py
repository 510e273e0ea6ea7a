"""Functions of `luminal.ops` as modules: their options are given when the module is made.

A graph given first is ignored: such modules have no parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter as Argument
from inspect import Signature
from typing import Any

from ..graph.graph import Graph
from ..graph.tensor import Tensor
from .module import Module

IGNORED = ("inplace",)  # what a graph of values has no use for


class FunctionModule(Module):
    """A function of tensors, with the options given when the module is made."""

    function: Callable[..., Any]
    options_of: Signature

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        if arguments and isinstance(arguments[0], Graph):
            arguments = arguments[1:]
        options.pop("graph", None)
        try:
            bound = type(self).options_of.bind(*arguments, **options)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}: {error}") from None
        self._given = dict(bound.arguments)
        bound.apply_defaults()
        self.options = _modern(bound.arguments)

    def forward(self, *inputs: Any, **more: Any) -> Any:
        options = {name: _held(inputs[0], value) for name, value in self.options.items()}
        return type(self).function(*inputs, **options, **more)

    def adapt_state(self, state: dict[str, Any], prefix: str) -> None:
        """PyTorch keeps options that are tensors (weights of classes) in the state."""
        for name in self.options:
            state.pop(prefix + name, None)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self._given.items())


def _modern(options: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is ignored; PyTorch's older size_average and reduce as a reduction."""
    kept = {name: value for name, value in options.items() if name not in IGNORED}
    average, reduce = kept.pop("size_average", None), kept.pop("reduce", None)
    if average is not None or reduce is not None:
        kept["reduction"] = "none" if reduce is False else "sum" if average is False else "mean"
    return kept


def _held(like: Tensor, value: Any) -> Any:
    """Arrays (weights of classes) are constants."""
    array = hasattr(value, "__array__") and not isinstance(value, Tensor)
    return like.graph.constant(value) if array else value


class NoiseModule(FunctionModule):
    """A function that does something in training only; `seed` as in `luminal.ops.random`."""

    def forward(self, *inputs: Any, **more: Any) -> Any:
        return super().forward(*inputs, training=self.training, **more)


def function_module(
    name: str, function: Callable[..., Any], *required: str, **defaults: Any
) -> type[FunctionModule]:
    """A module class that applies a function, with options that must be given and such that have
    a default, in PyTorch's order."""
    return _made(FunctionModule, name, function, _arguments(required, defaults))


def noise_module(name: str, function: Callable[..., Any], **defaults: Any) -> type[FunctionModule]:
    """The same of a function with `training` and `seed`."""
    seed = Argument("seed", Argument.KEYWORD_ONLY, default=None)
    return _made(NoiseModule, name, function, [*_arguments((), defaults), seed])


def _arguments(required: Sequence[str], defaults: Mapping[str, Any]) -> list[Argument]:
    both = [(option, Argument.empty) for option in required] + list(defaults.items())
    kind = Argument.POSITIONAL_OR_KEYWORD
    return [Argument(option, kind, default=value) for option, value in both]


def _made(
    base: type[FunctionModule], name: str, function: Callable[..., Any], options: list[Argument]
) -> type[FunctionModule]:
    known = Signature(options)
    body = {
        "function": staticmethod(function),
        "options_of": known,
        "__signature__": known,
        "__doc__": function.__doc__,
        "__module__": __name__,
    }
    return type(name, (base,), body)
