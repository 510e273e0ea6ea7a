"""What a user says of a compilation, checked: a device, a number of threads, a precision."""

from __future__ import annotations

import math

from .backend import devices
from .backend.devices import Device
from .errors import DeviceError
from .graph.dtype import bf16, i8, u8
from .graph.graph import Graph
from .graph.passes import Pass, Program, program_of, run_passes
from .graph.repeats import without_repeats
from .graph.slices import slices_made
from .precision import default_passes
from .rewrite.rates import CostModel

MOST_THREADS = 1024


def backend_of(device: str) -> Device | None:
    """None: the graph itself is evaluated."""
    return None if device == "reference" else devices.find(device)


def usual_passes(precision: str, backend: Device | None) -> list[Pass]:
    """Those of a compilation that names none."""
    target = backend.target(1) if backend is not None else None
    products = target.instructions if target is not None else ()
    half = backend is None or any(product.first is bf16 for product in products)
    factors = {(product.first, product.second) for product in products if product.fragments}
    signed = (i8, i8) in factors and (u8, i8) not in factors
    moved = math.inf if target is None or target.group > 1 else CostModel.of(target).moved
    return [*default_passes(precision, half, signed, moved), without_repeats, slices_made]


def passed(graph: Graph, device: str, precision: str) -> Program:
    """The program of a graph after the usual passes."""
    return run_passes(program_of(graph), usual_passes(precision, backend_of(device))).bare()


def checked_threads(threads: int | None) -> int | None:
    """A number of threads, or None for as many as there are cores. Raises DeviceError."""
    if threads is None or (type(threads) is int and 1 <= threads <= MOST_THREADS):
        return threads
    raise DeviceError(f"threads={threads!r:.40}: a number of threads is 1 to {MOST_THREADS}")
