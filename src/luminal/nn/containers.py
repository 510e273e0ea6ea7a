"""Containers of modules and parameters. None needs a graph; one that is given first is ignored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, overload

from ..errors import InputError
from ..graph.graph import Graph
from ..graph.tensor import Tensor
from .module import Module

Named = Mapping[str, Any] | Iterable[tuple[str, Any]]


def _without_graph(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return arguments[1:] if arguments and isinstance(arguments[0], Graph) else arguments


class _Sequence(Module):
    """Entries under the names "0", "1", ..."""

    _kind: type = Module

    def append(self, entry: Any) -> Any:
        """One more."""
        self._set(len(self), entry)
        return self

    def extend(self, entries: Iterable[Any]) -> Any:
        """Several more."""
        for entry in entries:
            self.append(entry)
        return self

    def insert(self, index: int, entry: Any) -> None:
        """One more, before that of the index."""
        entries = list(self)
        entries.insert(index, entry)
        self._replace(entries)

    def _set(self, index: int, entry: Any) -> None:
        if not isinstance(entry, self._kind):
            wanted = self._kind.__name__
            raise InputError(f"{type(self).__name__}: entry {index} is no {wanted}: {entry!r}")
        setattr(self, str(index), entry)

    def _replace(self, entries: list[Any]) -> None:
        for name in list(self._table()):
            delattr(self, name)
        for entry in entries:
            self.append(entry)

    def _table(self) -> dict[str, Any]:
        return self._modules if self._kind is Module else self._parameters

    def __iter__(self) -> Iterator[Any]:
        return iter(self._table().values())

    def __len__(self) -> int:
        return len(self._table())

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Any: ...
    def __getitem__(self, index: Any) -> Any:
        found = list(self)[index]
        if not isinstance(index, slice):
            return found
        kind: Any = type(self)
        return kind(found)

    def __setitem__(self, index: int, entry: Any) -> None:
        names = list(self._table())
        if not isinstance(entry, self._kind):
            raise InputError(f"{type(self).__name__}: {entry!r} is no {self._kind.__name__}")
        setattr(self, names[index], entry)

    def __delitem__(self, index: int) -> None:
        entries = list(self)
        del entries[index]
        self._replace(entries)


class ModuleList(_Sequence):
    """Modules under the names "0", "1", ...

    >>> layers = nn.ModuleList(nn.Linear(cx, 4, 4) for _ in range(3))
    >>> len(layers), list(layers.state_dict())[:2]
    (3, ['0.weight', '0.bias'])
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)


class ParameterList(_Sequence):
    """Parameters under the names "0", "1", ...

    >>> len(nn.ParameterList([cx.parameter(4), cx.parameter(2)]))
    2
    """

    _kind = Tensor

    def __init__(self, values: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.extend(values)


class Sequential(_Sequence):
    """Modules one after the other: `Sequential(a, b)`, `Sequential([a, b])`, or a dict of names.

    Raises InputError for what is no module.

    >>> layers = nn.Sequential(nn.Linear(cx, 4, 8), nn.ReLU(), nn.Linear(cx, 8, 2))
    >>> layers(cx.tensor(("batch", 4))).shape
    (batch, 2)
    """

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        for entry in _without_graph(modules):
            if isinstance(entry, Mapping):
                for name, module in entry.items():
                    _set_named(self, name, module)
            elif isinstance(entry, (list, tuple, Iterator, _Sequence)) and not isinstance(
                entry, Sequential
            ):
                self.extend(entry)
            else:
                self.append(entry)

    def forward(self, x: Any) -> Any:
        for module in self._modules.values():
            x = module(x)
        return x


def _set_named(owner: Module, name: str, entry: Any, kind: type = Module) -> None:
    if not isinstance(entry, kind):
        raise InputError(f"{type(owner).__name__}: {name} is no {kind.__name__}: {entry!r}")
    setattr(owner, name, entry)


class _Dict(Module):
    """Entries under names of the user's."""

    _kind: type = Module

    def _table(self) -> dict[str, Any]:
        return self._modules if self._kind is Module else self._parameters

    def update(self, entries: Named) -> None:
        """More entries, or others of the same names."""
        for name, entry in dict(entries).items():
            self[name] = entry

    def __setitem__(self, name: str, entry: Any) -> None:
        _set_named(self, name, entry, self._kind)

    def __getitem__(self, name: str) -> Any:
        return self._table()[name]

    def __delitem__(self, name: str) -> None:
        delattr(self, name)

    def __contains__(self, name: str) -> bool:
        return name in self._table()

    def __iter__(self) -> Iterator[str]:
        return iter(self._table())

    def __len__(self) -> int:
        return len(self._table())

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._table().keys()

    def values(self) -> Iterable[Any]:
        """The entries."""
        return self._table().values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """(name, entry)."""
        return self._table().items()


class ModuleDict(_Dict):
    """Modules under names of the user's.

    >>> parts = nn.ModuleDict({"up": nn.Linear(cx, 2, 8), "down": nn.Linear(cx, 8, 2)})
    >>> parts["down"](parts["up"](cx.tensor(2))).shape
    (2,)
    """

    def __init__(self, modules: Named = ()) -> None:
        super().__init__()
        self.update(modules)


class ParameterDict(_Dict):
    """Parameters under names of the user's.

    >>> nn.ParameterDict({"scale": cx.parameter(4)})["scale"].shape
    (4,)
    """

    _kind = Tensor

    def __init__(self, parameters: Named = ()) -> None:
        super().__init__()
        self.update(parameters)
