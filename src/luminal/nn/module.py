"""Modules: a tree of named parameters with a `forward`.

A module is built on a graph; calling it records its operations. Parameters are named inputs of the
program, under dotted names ("encoder.layer.0.weight") that follow from the attributes, as in
PyTorch and Hugging Face checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from inspect import Parameter as Argument
from inspect import signature
from typing import Any, Self

import numpy as np

from ..errors import InputError, WeightsError
from ..graph.dtype import DType
from ..graph.dtype import dtype as dtype_of
from ..graph.graph import Graph
from ..graph.scope import scope
from ..graph.tensor import Tensor
from ..graph.values import array_of, fitting

Parameter = Tensor  # made by graph.parameter


class Module:
    """Base of all modules. Attributes that are modules or parameters are registered by their names.

    Modules start in inference mode (unlike PyTorch's): `train()` switches dropout and batch
    statistics on, for what is recorded from then on.

    >>> class Residual(nn.Module):
    ...     def __init__(self, graph, width):
    ...         super().__init__()
    ...         self.inner = nn.Linear(graph, width, width)
    ...     def forward(self, x):
    ...         return x + self.inner(x).relu()
    >>> model = Residual(cx, 8)
    >>> model(cx.tensor(("batch", 8))).shape, list(model.state_dict())
    ((batch, 8), ['inner.weight', 'inner.bias'])
    """

    training: bool
    _parameters: dict[str, Tensor]
    _buffers: dict[str, Tensor]
    _modules: dict[str, Module]
    _unsaved: set[str]  # names of buffers that the state leaves out
    _path: str = ""  # dotted name in the outermost module

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        if _wants_graph(cls):
            given = options.get("graph", arguments[0] if arguments else None)
            if not isinstance(given, Graph):
                raise InputError(
                    f"{cls.__name__} keeps its parameters in a graph, which comes first: "
                    f"nn.{cls.__name__}(graph, ...), not {given!r}"
                )
        return super().__new__(cls)

    def __init__(self) -> None:
        for name in ("_parameters", "_buffers", "_modules"):
            object.__setattr__(self, name, {})
        object.__setattr__(self, "_unsaved", set())
        object.__setattr__(self, "training", False)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Record the module's operations."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        with scope(self._path):
            return self.forward(*inputs, **options)

    # ---- registration

    def __setattr__(self, name: str, value: Any) -> None:
        if "_modules" not in self.__dict__:
            Module.__init__(self)
        self._forget(name)
        _refuse_lost(name, value)
        if isinstance(value, Module):
            self._modules[name] = value
            value._name_parameters(name + ".")
            for path, module in value.named_modules(name):
                object.__setattr__(module, "_path", path)
        elif isinstance(value, Tensor) and is_parameter(value):
            self._parameters[name] = value
            value.graph.rename(value, name)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        self._forget(name)
        object.__delattr__(self, name)

    def _forget(self, name: str) -> None:
        for table in (self._parameters, self._buffers, self._modules):
            table.pop(name, None)
        self._unsaved.discard(name)

    def register_parameter(self, name: str, value: Tensor | None) -> None:
        """The attribute `name`, also where it is no Python name."""
        setattr(self, name, value)

    def add_module(self, name: str, module: Module | None) -> None:
        """The attribute `name`, also where it is no Python name ("0")."""
        setattr(self, name, module)

    register_module = add_module

    def register_buffer(self, name: str, value: Tensor | None, persistent: bool = True) -> None:
        """A tensor that belongs to the state but is not trained (running statistics): a parameter
        or a constant, which becomes one. With persistent=False the state leaves it out."""
        if value is None:
            setattr(self, name, None)
            return
        if value.node.op == "input" and value.node.attribute.kind == "constant":
            known = value.node.attribute.value
            value = value.graph.parameter(value.shape, value.dtype).set(known)
        if not is_parameter(value):
            raise InputError(f"buffer {name}: a parameter or a constant is kept, not {value}")
        setattr(self, name, value)
        self._buffers[name] = self._parameters.pop(name)
        if not persistent:
            self._unsaved.add(name)

    def _name_parameters(self, prefix: str) -> None:
        for name, tensor in self._named(prefix):
            tensor.graph.rename(tensor, name)

    def _named(
        self, prefix: str = "", parameters: bool = True, buffers: bool = True, saved: bool = False
    ) -> Iterator[tuple[str, Tensor]]:
        for name, value in self.__dict__.items():
            _refuse_lost(name, value)
        if parameters:
            yield from ((prefix + name, tensor) for name, tensor in self._parameters.items())
        if buffers:
            for name, tensor in self._buffers.items():
                if not (saved and name in self._unsaved):
                    yield prefix + name, tensor
        for name, module in self._modules.items():
            yield from module._named(f"{prefix}{name}.", parameters, buffers, saved)

    # ---- looking

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, parameter), each parameter once."""
        return _once(self._named(buffers=False))

    def parameters(self) -> Iterator[Tensor]:
        """All parameters."""
        return (tensor for _, tensor in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, buffer), each buffer once."""
        return _once(self._named(parameters=False))

    def buffers(self) -> Iterator[Tensor]:
        """All buffers."""
        return (tensor for _, tensor in self.named_buffers())

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """(dotted name, module): this one first, then those below."""
        yield prefix, self
        for name, module in self._modules.items():
            yield from module.named_modules(f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        """This module and all below."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of the modules directly below."""
        return iter(self._modules.items())

    def children(self) -> Iterator[Module]:
        """The modules directly below."""
        return iter(self._modules.values())

    def get_submodule(self, target: str) -> Module:
        """The module of a dotted name; this one for ""."""
        module = self
        for name in target.split(".") if target else ():
            if name not in module._modules:
                raise AttributeError(f"{type(module).__name__} has no module {name!r}")
            module = module._modules[name]
        return module

    def get_parameter(self, target: str) -> Tensor:
        """The parameter of a dotted name."""
        path, _, name = target.rpartition(".")
        return self.get_submodule(path)._parameters[name]

    def apply(self, function: Callable[[Module], Any]) -> Self:
        """Call a function with every module below, then with this one."""
        for module in self.children():
            module.apply(function)
        function(self)
        return self

    def extra_repr(self) -> str:
        """What the representation says in brackets."""
        return ", ".join(f"{name}={tensor!r}" for name, tensor in self._parameters.items())

    def __repr__(self) -> str:
        lines = [self.extra_repr()] if self.extra_repr() else []
        if not self._modules:
            return f"{type(self).__name__}({''.join(lines)})"
        lines += [f"({n}): {m!r}" for n, m in self._modules.items()]
        body = "".join("\n  " + line.replace("\n", "\n  ") for line in lines)
        return f"{type(self).__name__}({body}\n)"

    # ---- mode

    def train(self, mode: bool = True) -> Self:
        """Training mode for all that is recorded from now on."""
        for module in self.modules():
            object.__setattr__(module, "training", mode)
        return self

    def eval(self) -> Self:
        """Inference mode."""
        return self.train(False)

    # ---- dtype, copies

    def to(self, dtype: Any) -> Self:
        """Parameters and buffers of floats in another dtype, for what is recorded from now on."""
        kind, made = dtype_of(dtype), dict[Tensor, Tensor]()
        for module in self.modules():
            for table in (module._parameters, module._buffers):
                for name, tensor in table.items():
                    if tensor.dtype.is_float and tensor.dtype is not kind:
                        if tensor not in made:
                            made[tensor] = _again(tensor, kind)
                        table[name] = made[tensor]
                        object.__setattr__(module, name, table[name])
        _drop_unused(made)
        self._name_parameters("")
        return self

    def half(self) -> Self:
        """Floats in f16."""
        return self.to("f16")

    def bfloat16(self) -> Self:
        """Floats in bf16."""
        return self.to("bf16")

    def float(self) -> Self:
        """Floats in f32."""
        return self.to("f32")

    def double(self) -> Self:
        """Floats in f64."""
        return self.to("f64")

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """The same module with parameters of its own, of equal values, in the same graph."""
        for _, tensor in self._named():
            if id(tensor) not in memo:
                memo[id(tensor)] = _again(tensor, tensor.dtype)
            memo[id(tensor.graph)] = tensor.graph
        copy = object.__new__(type(self))
        memo[id(self)] = copy
        copy.__dict__.update({name: deepcopy(v, memo) for name, v in self.__dict__.items()})
        return copy

    # ---- state

    def state_dict(self) -> dict[str, np.ndarray]:
        """Dotted name -> value of every parameter and buffer. Not copies: do not write to them."""
        state = {}
        for name, tensor in self._named(saved=True):
            value = tensor.graph.values.get(tensor.node)
            if value is None:
                raise InputError(f"parameter {name} has no value yet")
            state[name] = value
        return state

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Set parameters and buffers by name; nothing is set unless everything fits.

        Raises WeightsError: with strict for names that are missing or left over, always for a wrong
        shape or a dtype that would lose information.
        """
        values = dict(state)
        for name, module in self.named_modules():
            module.adapt_state(values, f"{name}." if name else "")
        wanted = dict(self._named(saved=True))
        if strict:
            check_names(set(wanted), set(values))
        found = {n: fit(n, t, values[n]) for n, t in wanted.items() if n in values}
        for name, value in found.items():
            wanted[name].set(value)

    def adapt_state(self, state: dict[str, Any], prefix: str) -> None:
        """Rename or split entries of other checkpoints in place. By default nothing."""


def _wants_graph(cls: type[Module]) -> bool:
    """Whether a class of this package takes a graph first, and must."""
    if not cls.__module__.startswith(str(__package__)):
        return False
    graph = signature(cls.__init__).parameters.get("graph")
    return graph is not None and graph.default is Argument.empty


def _refuse_lost(name: str, value: Any) -> None:
    """A plain list would hide its modules and parameters from the state. Raises InputError."""
    if name.startswith("_") or not isinstance(value, (list, tuple, dict, set)):
        return
    for entry in value.values() if isinstance(value, dict) else value:
        kind = type(value).__name__
        if isinstance(entry, Module):
            raise InputError(f"{name}: modules in a {kind} are lost; use ModuleList or ModuleDict")
        if isinstance(entry, Tensor) and is_parameter(entry):
            raise InputError(
                f"{name}: parameters in a {kind} are lost; use ParameterList or ParameterDict"
            )


def _once(pairs: Iterator[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Each tensor under its first name."""
    seen: set[Tensor] = set()
    for name, tensor in pairs:
        if tensor not in seen:
            seen.add(tensor)
            yield name, tensor


def _again(tensor: Tensor, kind: DType) -> Tensor:
    """A parameter of its own with the same value."""
    new = tensor.graph.parameter(tensor.node.shape, kind, tensor.node.attribute.name)
    value = tensor.graph.values.get(tensor.node)
    return new if value is None else new.set(value.astype(kind.numpy))


def _drop_unused(tensors: Iterable[Tensor]) -> None:
    """Take parameters that no operation reads out of their graph."""
    for graph in {tensor.graph for tensor in tensors}:
        used = {source for node in graph.nodes for source in node.inputs}
        gone = {t for t in tensors if t.graph is graph and t.node not in used}
        graph.sources[:] = [source for source in graph.sources if source not in gone]


def is_parameter(tensor: Tensor) -> bool:
    """Whether a tensor was made by graph.parameter."""
    return tensor.node.op == "input" and tensor.node.attribute.kind == "parameter"


def check_names(wanted: set[str], given: set[str]) -> None:
    """Raises WeightsError where they differ."""
    missing, extra = sorted(wanted - given), sorted(given - wanted)
    if missing or extra:
        parts = [
            f"{len(names)} {what}: {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}"
            for what, names in (("missing", missing), ("unexpected", extra))
            if names
        ]
        raise WeightsError("the state does not fit the model; " + "; ".join(parts))


def fit(name: str, tensor: Tensor, value: Any) -> np.ndarray:
    """The value in the parameter's dtype, with strides of its own; floats may change their width.
    Raises WeightsError."""
    try:
        array = array_of(value)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise WeightsError(f"{name}: {type(value).__name__} is not an array: {error}") from None
    expected = tuple(tensor.shape)
    if array.shape != expected:
        raise WeightsError(f"{name}: expected shape {expected}, got {array.shape}")
    if tensor.dtype.is_float and array.dtype.kind in "fV":
        array = array.astype(tensor.dtype.numpy, copy=False)
    try:
        return fitting(name, tensor.dtype, array)
    except (TypeError, ValueError) as error:
        raise WeightsError(f"{name}: {error}") from None
