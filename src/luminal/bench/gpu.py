"""The first minutes on a GPU: are its instructions what they are said to be, what can it do at
most, what do compiled kernels reach. Results are checked against NumPy; a wrong one has no rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from .. import ops
from ..backend import devices
from ..backend.contract import Accelerator
from ..errors import DeviceError, LuminalError, Unsupported
from ..graph import Graph, Tensor
from ..graph.dtype import bf16, f32
from ..lowering.library import libraries
from ..models.llm.families import family_of
from ..models.llm.program import recorded
from ..models.llm.storage import Storage
from ..search.space import Space
from ..search.trial import Bench
from ..weights.fields import Fields
from .gpu_models import LAYERS, LLAMA3_8B

Figures: TypeAlias = dict[str, Any]
CLOSE = 2e-2  # of results, relative to their size: bf16 has eight bits
EXACT = 1e-3  # of checks
REPEAT = 5


def usual_device() -> str:
    try:
        devices.find("cuda")
    except DeviceError:
        return "cuda:sim"
    return "cuda"


def measure(name: str, short: bool = False) -> Figures:
    """Everything, as JSON takes it. The simulator runs tiny sizes. Raises DeviceError."""
    device, start = devices.find(name), time.perf_counter()
    if not isinstance(device, Accelerator):
        raise Unsupported(f"{name!r} is no GPU: luminal bench times it beside other runtimes")
    small = short or name == "cuda:sim"
    target = device.target(1)
    found: Figures = {"device": name, "name": device.name,
                      "fingerprint": device.fingerprint(target), "small": small}
    found["checks"] = device.check()
    found["ceilings"] = [_copy(device, 1 << 16 if small else 1 << 30)]
    found["kernels"] = [
        _case(name, device, *case) for case in _cases(32 if small else 4096, 64 if small else 2048)
    ]
    found["kernels"] += beside_library(name, device, 48 if small else 4096)
    found["kernels"].append(_decoding(name, device, small))
    found["seconds"] = time.perf_counter() - start
    return found


def beside_library(on: str, device: Accelerator, n: int) -> list[Figures]:
    """A product by our default schedule and by a library that is found; nothing without one."""
    graph, target = Graph(), device.target(1)
    (graph.tensor((n, n), bf16) @ graph.tensor((n, n), bf16)).output()
    rt = graph.compile(on, cache=False, database=False)
    fitting = [made.kernel for made in rt.kernels if libraries(made.kernel, target.libraries)]
    if not fitting:
        return []
    space = Space(fitting[-1], target)
    bench, rows = Bench(space.kernel, target, device), list[Figures]()
    for library in space.default.decisions["library"].options:
        made = space.at({"library": library}) if library else space.default
        found = bench.attempt(len(rows), made.kernel, made.schedule)
        row: Figures = {"name": f"bf16 by {library or 'us'}"}
        rows.append(row | (
            {"seconds": found.seconds, "TFLOP/s": 2e-12 * n**3 / found.seconds, "kernels": 1}
            if found.status == "ok" else {"fault": f"{found.status}: {found.detail}"}
        ))  # fmt: skip
    return rows


def _decoding(on: str, device: Accelerator, small: bool) -> Figures:
    """A token of two layers of Llama (those of 8 B, or tiny ones), weights in bf16."""
    tiny = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
            "intermediate_size": 96, "vocab_size": 80}  # fmt: skip
    fields = Fields(LLAMA3_8B | {"num_hidden_layers": LAYERS} | (tiny if small else {}), "Llama")
    name, rng = f"decode, {LAYERS} layers", np.random.default_rng(0)
    try:
        config = family_of(fields).config(fields)
        made = recorded(config, 64, 16, Storage("bf16"), "f16")
        rts = [made.whole().compile(on, cache=False), made.graph.compile("cpu", cache=False)]
        arrays, states = {}, {state.node for state in made.states}
        for source in made.graph.sources:
            if source.node.attribute.kind == "parameter" and source.node not in states:
                shape = tuple(map(int, source.shape))
                values = rng.standard_normal(min(1 << 16, int(np.prod(shape)))) / 8
                arrays[source] = np.resize(values, shape).astype(source.dtype.numpy)
        logits = []
        for rt in rts:
            rt.set_parameters(arrays.items)
            rt.clear(made.states)
            for position in range(3):  # the last is a launch of a graph, where there are some
                rt["ids"] = np.array([position + 1], np.int64)
                rt.run(position=position, wanted=1)
            logits.append(rt["logits"].astype(np.float64))
        apart = float(np.abs(logits[0] - logits[1]).max() / np.abs(logits[1]).max())
        row: Figures = {"name": name, "apart": apart}
        if not apart < CLOSE:
            return row | {"fault": "wrong"}
        seconds = sum(spent for _, spent in rts[0].time_kernels(REPEAT))
        moved = sum(array.nbytes for array in arrays.values())
        calls = len(rts[0].time_kernels(1))
        return row | {"seconds": seconds, "GB/s": 1e-9 * moved / seconds, "kernels": calls}
    except LuminalError as error:
        return {"name": name, "fault": f"{type(error).__name__}: {error}"}


def _copy(device: Accelerator, size: int) -> Figures:
    """Bytes from one place of the device to another: read and written."""
    buffers = [device.allocate(size) for _ in range(2)]
    seconds = min(
        device.seconds(lambda: device.copy(buffers[0], buffers[1], size)) for _ in range(REPEAT)
    )
    return {"name": "copy", "seconds": seconds, "GB/s": 2e-9 * size / seconds}


Make: TypeAlias = Callable[[Graph], tuple[Tensor, float, float]]  # output, flops, bytes


def _cases(n: int, tokens: int) -> list[tuple[str, Make]]:
    """Sizes of matrices and of a prompt."""

    def product(dtype: Any, rows: int) -> Make:
        def make(graph: Graph) -> tuple[Tensor, float, float]:
            a, b = graph.tensor((rows, n), dtype), graph.parameter((n, n), dtype, name="w")
            moved = dtype.bytes * (n * n + 2.0 * rows * n)
            return a @ b, 2.0 * rows * n * n, moved

        return make

    def total(graph: Graph) -> tuple[Tensor, float, float]:
        x = graph.tensor((n, 4 * n))
        return x.sum(1), 4.0 * n * n, 16.0 * n * n

    def softmax(graph: Graph) -> tuple[Tensor, float, float]:
        return ops.softmax(graph.tensor((n, n)), -1), 5.0 * n * n, 8.0 * n * n

    def attention(graph: Graph) -> tuple[Tensor, float, float]:
        q, k, v = (graph.tensor((1, 8, tokens, 64)) for _ in range(3))
        found = ops.scaled_dot_product_attention(q, k, v, is_causal=True)
        return found, 2.0 * 8 * tokens * tokens * 64, 4.0 * 4 * 8 * tokens * 64

    return [
        ("sum of rows", total), ("softmax", softmax), ("product f32", product(f32, n)),
        ("product bf16", product(bf16, n)), ("one row f32", product(f32, 1)),
        ("one row bf16", product(bf16, 1)), ("attention f32", attention),
    ]  # fmt: skip


def _case(on: str, device: Accelerator, name: str, make: Make) -> Figures:
    """A program: checked, then its kernels timed. What fails is a row, too."""
    try:
        graph, rng = Graph(), np.random.default_rng(0)
        y, flops, moved = make(graph)
        y.output("y")
        made = [graph.compile(each, cache=False) for each in (on, "cpu")]
        for source in graph.sources:
            array = rng.standard_normal([int(n) for n in source.shape]).astype(source.dtype.numpy)
            for rt in made:
                rt[source] = array
        for rt in made:
            rt.run()
        here, wanted = (rt["y"].astype(np.float64) for rt in made)
        apart = float(np.abs(here - wanted).max() / np.abs(wanted).max())
        row: Figures = {"name": name, "apart": apart}
        if not apart < CLOSE:
            return row | {"fault": "wrong"}
        seconds = sum(spent for _, spent in made[0].time_kernels(REPEAT))
        row |= {"seconds": seconds, "TFLOP/s": 1e-12 * flops / seconds,
                "GB/s": 1e-9 * moved / seconds, "kernels": len(made[0].report.calls)}  # fmt: skip
        return row | _most(device.resources(list(made[0].sources().values())))
    except LuminalError as error:
        return {"name": name, "fault": f"{type(error).__name__}: {error}"}


def _most(resources: list[dict[str, int]]) -> dict[str, int]:
    """The most that one of the kernels takes."""
    told = [each for each in resources if each]
    return {name: max(each[name] for each in told) for name in ("registers", "spilled") if told}


def faults(found: Figures) -> list[str]:
    """What is wrong."""
    wrong = [name for name, apart in found["checks"].items() if not apart < EXACT]
    return wrong + [row["name"] for row in found["kernels"] if "fault" in row]


def table(found: Figures) -> str:
    """For people."""
    checks = found["checks"]
    right = sum(apart < EXACT for apart in checks.values())
    lines = [f"{found['device']}: {found['name']}"]
    if checks:
        lines.append(f"device functions: {right} of {len(checks)} are what they are said to be")
    columns = ("GB/s", "TFLOP/s", "kernels", "registers", "spilled")
    lines.append(f"{'':<16}{'us':>12}" + "".join(f"{column:>11}" for column in columns))
    for row in (*found["ceilings"], *found["kernels"]):
        if "fault" in row:
            lines.append(f"{row['name']:<16}{row['fault']}")
            continue
        cells = "".join(f"{row[c]:>11.5g}" if c in row else f"{'':>11}" for c in columns)
        lines.append(f"{row['name']:<16}{1e6 * row['seconds']:>12.1f}{cells}")
    if found["small"]:
        lines.append("tiny sizes: what runs, not how fast")
    return "\n".join(lines)
