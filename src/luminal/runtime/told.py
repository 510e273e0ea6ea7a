"""What the shapes of arrays say of run-time sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..backend.sizes import check_requirements, check_shape, settle_sizes
from ..graph.index import names_of
from ..graph.values import implied_sizes
from .contract import Interface, Port


class Told:
    """The shapes of the arrays that a program was given, by port."""

    def __init__(self, interface: Interface, ports: Sequence[Port]) -> None:
        self._face, self._ports = interface, ports
        self._shapes: dict[int, tuple[int, ...]] = {}
        self._implied: dict[int, tuple[str, dict[str, int]]] = {}  # (name of the port, sizes)
        self._unread: dict[int, tuple[str, dict[str, int]]] = {}  # of ports that nothing needs

    def tell(self, number: int, shape: tuple[int, ...]) -> bool:
        """Whether that is new, and sizes are to be settled again. Raises InputError."""
        port = self._ports[number]
        if self._shapes.get(number) == shape:
            return False
        implied = port.name, implied_sizes(port.name, port.shape, shape)
        if port.needed:
            self._shapes[number], self._implied[number] = shape, implied
            return True
        old, self._unread[number] = self._unread.get(number), implied
        return implied != old

    def forget_fixed(self, number: int) -> None:
        """An array that is there no more, unless its shape says something."""
        if not names_of(self._ports[number].shape):
            self._shapes.pop(number, None)
            self._implied.pop(number, None)

    def settled(self, given: Mapping[str, int]) -> dict[str, int]:
        """All sizes, where every shape fits them. Raises DimError, InputError."""
        implied = [*self._implied.values(), *self._otherwise_unknown(given)]
        sizes = settle_sizes(self._face.sizes, given, implied)
        check_requirements(self._face.requirements, sizes)  # else shapes mean nothing
        for number, shape in self._shapes.items():
            port = self._ports[number]
            check_shape(port.name, port.shape, shape, sizes)
        return sizes

    def _otherwise_unknown(self, given: Mapping[str, int]) -> list[tuple[str, dict[str, int]]]:
        """What only ports that nothing needs tell of the program's sizes."""
        known = {name for _, sizes in self._implied.values() for name in sizes}
        wanted = self._face.sizes.keys() - known - given.keys()
        return [
            (port, {name: value for name, value in sizes.items() if name in wanted})
            for port, sizes in self._unread.values()
        ]
