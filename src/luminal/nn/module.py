"""Modules: a tree of named parameters with a `forward`.

A module is built on a graph; calling it records its operations. Parameters are named inputs of the
program, under dotted names ("encoder.layer.0.weight") that follow from the attributes, as in
PyTorch and Hugging Face checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import InputError, WeightsError
from ..graph.tensor import Tensor
from ..graph.values import checked

Parameter = Tensor  # made by graph.parameter


class Module:
    """Base of all modules. Attributes that are modules or parameters are registered by their names.

    Modules start in inference mode (unlike PyTorch's): `train()` switches dropout and batch
    statistics on, for what is recorded from then on.
    """

    training: bool
    _parameters: dict[str, Tensor]
    _buffers: dict[str, Tensor]
    _modules: dict[str, Module]

    def __init__(self) -> None:
        for name in ("_parameters", "_buffers", "_modules"):
            object.__setattr__(self, name, {})
        object.__setattr__(self, "training", False)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Record the module's operations."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return self.forward(*inputs, **options)

    # ---- registration

    def __setattr__(self, name: str, value: Any) -> None:
        if "_modules" not in self.__dict__:
            Module.__init__(self)
        self._parameters.pop(name, None)
        self._buffers.pop(name, None)
        self._modules.pop(name, None)
        if isinstance(value, Module):
            self._modules[name] = value
            value._name_parameters(name + ".")
        elif isinstance(value, Tensor) and is_parameter(value):
            self._parameters[name] = value
            value.graph.rename(value, name)
        object.__setattr__(self, name, value)

    def register_buffer(self, name: str, value: Tensor) -> None:
        """A parameter that belongs to the state but is not trained (running statistics)."""
        setattr(self, name, value)
        self._buffers[name] = self._parameters.pop(name)

    def _name_parameters(self, prefix: str) -> None:
        for name, tensor in self._named(prefix):
            tensor.graph.rename(tensor, name)

    def _named(self, prefix: str = "", buffers: bool = True) -> Iterator[tuple[str, Tensor]]:
        tables = (self._parameters, self._buffers) if buffers else (self._parameters,)
        for table in tables:
            for name, tensor in table.items():
                yield prefix + name, tensor
        for name, module in self._modules.items():
            yield from module._named(f"{prefix}{name}.", buffers)

    # ---- looking

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, parameter), each parameter once."""
        seen: set[Tensor] = set()
        for name, tensor in self._named(buffers=False):
            if tensor not in seen:
                seen.add(tensor)
                yield name, tensor

    def parameters(self) -> Iterator[Tensor]:
        """All parameters."""
        return (tensor for _, tensor in self.named_parameters())

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """(dotted name, module): this one first, then those below."""
        yield prefix, self
        for name, module in self._modules.items():
            yield from module.named_modules(f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        """This module and all below."""
        return (module for _, module in self.named_modules())

    def children(self) -> Iterator[Module]:
        """The modules directly below."""
        return iter(self._modules.values())

    def __repr__(self) -> str:
        lines = [f"({n}): {m!r}".replace("\n", "\n  ") for n, m in self._modules.items()]
        body = "".join(f"\n  {line}" for line in lines)
        return f"{type(self).__name__}({body}\n)" if body else f"{type(self).__name__}()"

    # ---- mode

    def train(self, mode: bool = True) -> Module:
        """Training mode for all that is recorded from now on."""
        for module in self.modules():
            object.__setattr__(module, "training", mode)
        return self

    def eval(self) -> Module:
        """Inference mode."""
        return self.train(False)

    # ---- state

    def state_dict(self) -> dict[str, np.ndarray]:
        """Dotted name -> value of every parameter and buffer. Not copies: do not write to them."""
        state = {}
        for name, tensor in self._named():
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
        wanted = dict(self._named())
        if strict:
            check_names(set(wanted), set(values))
        fitting = {n: fit(n, t, values[n]) for n, t in wanted.items() if n in values}
        for name, value in fitting.items():
            wanted[name].set(value)

    def adapt_state(self, state: dict[str, Any], prefix: str) -> None:
        """Rename or split entries of other checkpoints in place. By default nothing."""


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
    """The value in the parameter's dtype; floats may change their width. Raises WeightsError."""
    array = np.asarray(value)
    expected = tuple(tensor.shape)
    if array.shape != expected:
        raise WeightsError(f"{name}: expected shape {expected}, got {array.shape}")
    if tensor.dtype.is_float and array.dtype.kind in "fV":
        array = array.astype(tensor.dtype.numpy, copy=False)
    try:
        return checked(tensor.node, array)
    except (TypeError, ValueError) as error:
        raise WeightsError(f"{name}: {error}") from None


# ---- containers


class ModuleList(Module):
    """Modules under the names "0", "1", ..."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> None:
        """One more."""
        setattr(self, str(len(self._modules)), module)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, index: int) -> Module:
        return list(self._modules.values())[index]


class ModuleDict(Module):
    """Modules under names of the user's."""

    def __init__(self, modules: Mapping[str, Module]) -> None:
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)

    def __getitem__(self, name: str) -> Module:
        return self._modules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


class Sequential(Module):
    """Modules one after the other: `Sequential(graph, [a, b])` or `Sequential(graph, a, b)`."""

    def __init__(self, graph: Any, *modules: Module | Iterable[Module]) -> None:
        super().__init__()
        listed: list[Module] = []
        for entry in modules:
            listed += [entry] if isinstance(entry, Module) else list(entry)
        for number, module in enumerate(listed):
            setattr(self, str(number), module)

    def forward(self, x: Any) -> Any:
        for module in self._modules.values():
            x = module(x)
        return x

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, index: int) -> Module:
        return list(self._modules.values())[index]
