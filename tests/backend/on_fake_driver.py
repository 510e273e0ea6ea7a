"""A program of its own, which finds a driver without a GPU (`fake_driver.c`). Prints what
`test_cuda.py` asks for."""

from __future__ import annotations

import ctypes
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from runtime.test_states import crossed_in_place, runs, swap, trained_and_shown
from search.test_library import PRODUCTS, narrow

import luminal
from luminal import making, ops
from luminal.backend import devices
from luminal.backend.contract import Accelerator
from luminal.backend.cuda import simulator
from luminal.backend.cuda.driver import Driver, opened
from luminal.backend.cuda.gpu import Cuda
from luminal.bench.gpu import beside_library
from luminal.errors import DeviceError, InputError
from luminal.graph import Graph
from luminal.graph.dtype import bf16, f16, f32
from luminal.kernel.kernel import Kernel
from luminal.kernel.target import Target
from luminal.lowering.library import libraries
from luminal.scheduling.decisions import Decisions
from luminal.search.space import Space
from luminal.search.trial import Bench

NARROW = {
    f"{kind.name} {name} to {stored.name}": narrow(PRODUCTS[name], kind, stored)
    for kind, name, stored in ((bf16, "linear", bf16), (f16, "batch", f32))
}  # fmt: skip
LAUNCHES, GRAPHS, CAPTURES, COPIES = range(4)


def compiled(text: str) -> bytes:
    """What the driver takes for machine code."""
    found = re.search(r"__global__ void (\w+)\(", text)
    assert found
    return str(simulator.library_path([(found[1], text)])).encode() + b"\x000\0"


def main(library: str) -> None:
    fake = ctypes.CDLL(library)
    fake.fake_counts.restype = ctypes.POINTER(ctypes.c_int)
    counts = fake.fake_counts()
    driver = opened()
    devices.register("fake", lambda: Cuda("sm_80", driver.multiprocessors, compile=compiled))
    devices.register("other", lambda: Cuda("sm_90a", 2, compile=compiled))
    facts: dict[str, object] = {"name": driver.name, "arch": driver.arch}
    facts |= network(counts) | steps(counts) | memory(fake) | products(counts, library)
    facts |= borrowed(driver)
    try:
        first_run("other")
    except DeviceError as error:
        facts["other"] = str(error)
    print(json.dumps(facts))


def network(counts: ctypes.Array) -> dict[str, object]:
    """Sizes and parameters change; a run like the one before is one launch of a graph."""
    graph = Graph()
    graph.dim("s", 1, 40)
    x, w = graph.tensor(("s", 24)), graph.parameter((24, 32), name="w")
    ops.softmax(ops.gelu(x @ w) @ w.T, -1).cumsum(0).output("y")
    rts, worst = [graph.compile(name) for name in ("fake", "reference")], 0.0
    rng = np.random.default_rng(0)
    before, graphs = counts[LAUNCHES], []
    for size, again in ((3, True), (3, False), (3, False), (40, False), (40, False), (3, True)):
        given = rng.standard_normal((size, 24)).astype(np.float32)
        weight = rng.standard_normal((24, 32)).astype(np.float32)
        start = counts[GRAPHS]
        for rt in rts:
            if again:
                rt[w] = weight
            rt[x] = given
            rt.run()
        graphs.append(counts[GRAPHS] - start)
        worst = max(worst, float(np.abs(rts[0]["y"] - rts[1]["y"]).max()))
    times = rts[0].time_kernels(2)
    return {"worst": worst, "graphs": graphs, "launched": counts[LAUNCHES] - before,
            "times": [seconds for _, seconds in times]}  # fmt: skip


def steps(counts: ctypes.Array) -> dict[str, object]:
    """States that runs replace: in place, by the buffers of others, by copies."""
    before, wrong = counts[GRAPHS], []
    for make in (swap, crossed_in_place, trained_and_shown):
        for here, wanted in zip(runs(make, "fake"), runs(make, "reference"), strict=True):
            wrong += [f"{make.__name__} {name}" for name, array in wanted.items()
                      if not np.allclose(here[name], array, rtol=1e-5, atol=1e-6)]  # fmt: skip
    return {"states": wrong, "state graphs": counts[GRAPHS] - before}


def products(counts: ctypes.Array, library: str) -> dict[str, object]:
    """What a library computes, beside what the kernels mean; one more candidate of a search."""
    blas = ctypes.CDLL(str(Path(library).with_name("libcublasLt.so.13")))
    device = devices.find("fake")
    assert isinstance(device, Accelerator)
    wrong, target = [], device.target(1)
    for name, kernel in [*PRODUCTS.items(), *NARROW.items()]:
        space = Space(kernel, target)
        options = space.default.decisions["library"].options
        (chosen,) = [option for option in options if option]
        made = space.at({"library": chosen})
        found = Bench(kernel, target, device).attempt(0, made.kernel, made.schedule)
        wrong += [f"{name}: {found.status} {found.detail}"] * (found.status != "ok")
    rows = beside_library("fake", device, 16)
    wrong += [row["fault"] for row in rows if "fault" in row] + ["no rows"] * (len(rows) != 2)
    return {"wrong products": wrong} | recorded_products(counts, blas)


def recorded_products(counts: ctypes.Array, blas: ctypes.CDLL) -> dict[str, object]:
    """A program that calls the library, in launches and in a graph."""
    graph = Graph()
    graph.dim("s", 1, 40)
    a, b = graph.tensor(("s", 24), name="a"), graph.parameter((24, 40), name="b")
    y = (a @ b).output("y")
    (a + 1.0).exp2().output()
    usual = making.default_schedule

    def schedule(kernel: Kernel, target: Target, decisions: Decisions | None = None) -> Any:
        by_library = libraries(kernel, target.libraries)
        return usual(kernel, target, Decisions({"library": by_library[0]} if by_library else {}))

    making.default_schedule = schedule
    try:
        rt = graph.compile("fake", cache=False)
    finally:
        making.default_schedule = usual
    before, graphs, right = blas.fake_products(), counts[GRAPHS], []
    rng = np.random.default_rng(0)
    rt[b] = weight = rng.standard_normal((24, 40)).astype(np.float32)
    for size in (5, 5, 5, 7):
        rt[a] = given = rng.standard_normal((size, 24)).astype(np.float32)
        rt.run()
        right.append(bool(np.allclose(rt[y], given @ weight, rtol=1e-4, atol=1e-4)))
    calls = blas.fake_products() - before
    with tempfile.TemporaryDirectory() as folder:  # a saved program knows its calls
        rt.save(Path(folder, "kept"))
        loaded = luminal.load(Path(folder, "kept"))
        loaded["a"] = given
        loaded.run()
        right.append(bool(np.allclose(loaded["y"], given @ weight, rtol=1e-4, atol=1e-4)))
    return {"right": right, "library calls": calls,
            "library graphs": counts[GRAPHS] - graphs, "library text": rt.explain()}  # fmt: skip


def borrowed(driver: Driver) -> dict[str, object]:
    """Memory and a stream of somebody else: nothing is copied, and nothing is kept."""
    graph = Graph()
    graph.dim("s", 1, 40)
    x, w = graph.tensor(("s", 24)), graph.parameter((24, 32))
    (ops.softmax(x @ w, -1) @ w.T).output()
    rt, rng, near = graph.compile("fake", cache=False), np.random.default_rng(0), []
    rt[w] = weight = rng.standard_normal((24, 32)).astype(np.float32)
    for size in (5, 40, 5):
        given = rng.standard_normal((size, 24)).astype(np.float32)
        theirs, made = driver.allocate(given.nbytes), driver.allocate(given.nbytes)
        driver.write(theirs, given)
        rt.launch([theirs.address], [made.address], {"s": size}, stream=size)
        result = np.empty_like(given)
        driver.read(made, result)
        e = np.exp(given @ weight)
        near.append(bool(np.allclose(result, e / e.sum(-1, keepdims=True) @ weight.T, atol=1e-4)))
    try:
        rt.launch([theirs.address + 4], [made.address], {"s": 5})
    except InputError as error:
        return {"borrowed": near, "memory of": rt.memory, "astray": str(error)}
    return {}


def first_run(device: str, elements: int = 8) -> np.ndarray:
    graph = Graph()
    x = graph.tensor((elements,))
    y = (x + 1.0).output()
    rt = graph.compile(device)
    rt[x] = np.ones(elements, np.float32)
    rt.run()
    return rt[y]


def memory(fake: ctypes.CDLL) -> dict[str, object]:
    """More than there is, and then less."""
    graph = Graph()
    graph.dim("n", 1, 1 << 26)
    x = graph.tensor(("n",))
    y = (x.cumsum(0) + 1.0).output()
    rt, message = graph.compile("fake"), ""
    try:
        rt[x] = np.ones(1 << 25, np.float32)
        rt.run()
    except DeviceError as error:
        message = str(error)
    rt[x] = np.ones(4, np.float32)
    rt.run()
    return {"memory": message, "after": rt[y].tolist()}


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).resolve()))
