"""The registry of devices: a name, and what makes its backend when it is asked for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TypeAlias

from ..errors import DeviceError, LuminalError
from .contract import Accelerator, Backend

Device: TypeAlias = Backend | Accelerator
_LOADERS: dict[str, Callable[[], Device]] = {}
_KINDS: dict[str, Callable[[str], Device]] = {}


def register(name: str, load: Callable[[], Device]) -> None:
    """A device by this name; `load` may raise DeviceError where it cannot be used."""
    _LOADERS[name] = load


def register_kinds(name: str, load: Callable[[str], Device]) -> None:
    """Devices by this name and a kind behind a colon, which `load` takes."""
    _KINDS[name] = load


def names() -> tuple[str, ...]:
    """All devices, the fastest first."""
    return tuple(_LOADERS)


def resolved(name: str) -> str:
    """The device that a user means: "auto" is the first."""
    return names()[0] if name == "auto" else name


def find(name: str) -> Device:
    """The backend of a device. Raises DeviceError."""
    name = resolved(name)
    family, _, kind = name.partition(":")
    if kind and family in _KINDS:
        return _KINDS[family](kind)
    if name not in _LOADERS:
        known = ", ".join(repr(name) for name in (*_LOADERS, "reference"))
        raise DeviceError(f"there is no device {name!r}; there are 'auto', {known}")
    return _LOADERS[name]()


def host() -> Backend:
    """The device that shares the memory of the process. Raises DeviceError."""
    found = find("auto")
    if isinstance(found, Accelerator):
        raise DeviceError(f"{found.__name__} has a memory of its own")
    return found


def look_at_host() -> None:
    """Begin, in a thread, with what every program needs: to find out what the host can do, for
    which other processes are asked, and the code of its workers. The first time on a machine that
    takes as long as reading a model. It fails where it is needed."""

    def look() -> None:
        with contextlib.suppress(LuminalError, OSError):
            host().target(1)
            host().prepare()

    threading.Thread(target=look, name="luminal-host", daemon=True).start()


def _cpu() -> Device:
    from . import cpu

    return cpu


def _opencl() -> Device:
    from .opencl import device

    return device()


def _cuda(kind: str = "") -> Device:
    from .cuda import device

    return device(kind)


def _hip(arch: str = "") -> Device:
    from .cuda.languages import simulated
    from .text.only import hip

    return simulated(f"hip:{arch}") if arch.startswith("sim") else hip(arch)


def _webgpu() -> Device:
    from .webgpu import device

    return device()


def _metal() -> Device:
    from .text.only import metal

    return metal()


def _metal_kind(kind: str) -> Device:
    from .cuda.languages import simulated

    return simulated(f"metal:{kind}")


register("cpu", _cpu)
register("cuda", _cuda)
register_kinds("cuda", _cuda)
register("opencl", _opencl)
register("webgpu", _webgpu)
register("hip", _hip)
register_kinds("hip", _hip)
register("metal", _metal)
register_kinds("metal", _metal_kind)
