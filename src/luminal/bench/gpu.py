"""The first minutes on a GPU: are its instructions what they are said to be, what can it do at
most, what do compiled kernels reach. Results are checked against NumPy; a wrong one has no rate."""

from __future__ import annotations

import time

from .. import ops
from ..backend import devices
from ..backend.contract import Accelerator
from ..errors import DeviceError, LuminalError, Unsupported
from ..graph import Graph
from ..graph.dtype import bf16
from ..lowering.library import libraries
from ..search.space import Space
from ..search.trial import Bench
from .gpu_cases import Case, cases, torch_seconds
from .gpu_timed import CLOSE, KINDS, REPEAT, Figures, copied, decoder, distance, timed

EXACT = 1e-3  # of checks
COLUMNS = (
    ("us", "seconds", 1e6), ("kernels us", "alone", 1e6), ("torch us", "torch", 1e6),
    ("GB/s", "GB/s", 1), ("TFLOP/s", "TFLOP/s", 1), ("kernels", "kernels", 1),
    ("registers", "registers", 1), ("spilled", "spilled", 1),
)  # fmt: skip


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
                      "fingerprint": device.fingerprint(target), "small": small}  # fmt: skip
    found["checks"] = device.check()
    found["ceilings"] = [copied(device, 1 << 16 if small else 1 << 30)]
    found["kernels"] = [_case(name, device, case) for case in cases(small)]
    found["kernels"] += beside_library(name, device, 48 if small else 4096)
    for kind in KINDS[:1] if small else KINDS:
        found["kernels"] += decoder(name, device, kind, small)
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


def _case(on: str, device: Accelerator, case: Case) -> Figures:
    """A program: checked, then timed. What fails is a row, too."""
    try:
        graph = Graph()
        operands, arrays = case.operands(graph), case.arrays()
        case.function(ops, *operands).output("y")
        made = [graph.compile(each, cache=False) for each in (on, "cpu")]
        for rt in made:
            for operand, array in zip(operands, arrays):
                rt[operand] = array
            rt.run()
        here, wanted = (rt["y"] for rt in made)
        apart = distance(here, wanted)
        row: Figures = {"name": case.name, "apart": apart}
        if not apart < CLOSE:
            return row | {"fault": "wrong"}
        moved = sum(array.nbytes for array in (*arrays, here))
        row |= timed(made[0], device, case.flops, moved)
        theirs = torch_seconds(case, REPEAT) if made[0].memory == "cuda" else None
        return row | ({} if theirs is None else {"torch": theirs})
    except LuminalError as error:
        return {"name": case.name, "fault": f"{type(error).__name__}: {error}"}


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
    lines.append(f"{'':<28}" + "".join(f"{title:>11}" for title, _, _ in COLUMNS))
    for row in (*found["ceilings"], *found["kernels"]):
        cells = (f"{scale * row[key]:>11.5g}" if key in row else f"{'':>11}"
                 for _, key, scale in COLUMNS)  # fmt: skip
        lines.append(f"{row['name']:<28}{row.get('fault') or ''.join(cells)}")
    if found["small"]:
        lines.append("tiny sizes: what runs, not how fast")
    return "\n".join(lines)
