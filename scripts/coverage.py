"""docs/coverage.md from the results of the conformance suites.

    python torch_ops_suite.py --backend luminal --json ops.json
    python hf_models_suite.py --backend luminal --json models.json
    python scripts/coverage.py ops.json models.json > docs/coverage.md
    python scripts/coverage.py --names docs/coverage.md

A case counts as native where PyTorch itself computed nothing during the compiled call. The second
form writes only the section of names anew, in its place.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

Result = dict[str, Any]
FALLBACK = "fallback: PyTorch ran"

TITLES = {
    "torch_ops": "Operations: PyTorch's own sample inputs",
    "hf_models": "Models: tiny random weights, transformers, diffusers and torch.nn",
}
HEAD = """# Coverage of `torch.compile(backend="luminal")`

Written by `scripts/coverage.py` from the suites' results; do not edit. *Passed*: every sample
agrees with eager PyTorch in value, dtype, shape and mutation. *Native*: passed, and PyTorch itself
computed nothing. What is not native ran partly in PyTorch: `luminal.torch.report()` says which
operations, and where. In the modes gen and static the suite draws its prompt inside the profiled
call (`randint`, `random_`), and in hfgen it profiles all of `generate()`: cases there do not count
as native even where every compiled graph is one native program. Nor do random operations:
PyTorch draws them in inference, eager's own numbers under a seed; where something is trained one
seed a run is drawn from its generator (`random_`), so that `torch.manual_seed` rules it. Orders of
equal elements (`sort`, `topk`, `kthvalue`) that PyTorch itself leaves open stay with PyTorch where
the graph gives out their places.
"""


NAMES = "## Names of PyTorch's that luminal has"
PACKAGES = ("torch", "transformers", "diffusers")


def main(paths: list[str]) -> None:
    if paths[:1] == ["--names"]:
        path = Path(paths[1])
        path.write_text(path.read_text().split(NAMES)[0] + "\n".join(names()) + "\n")
        return
    print(HEAD)
    for run in merged(json.loads(Path(path).read_text()) for path in paths):
        print("\n".join(section(run)))
    print("\n".join(names()))


def merged(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One run for each suite: of a case that ran several times the last result counts."""
    suites: dict[str, dict[str, Any]] = {}
    for run in runs:
        whole = suites.setdefault(run["suite"], {"suite": run["suite"], "cases": {}, "open": set()})
        whole["cases"] |= {result["case"]: result for result in run["results"]}
        whole["open"] |= set(run["not_run"])
        whole.setdefault("arguments", []).append(run.get("argv", []))
    for whole in suites.values():
        whole["results"] = [whole["cases"][case] for case in sorted(whole["cases"])]
        whole["not_run"] = sorted(whole["open"] - whole["cases"].keys())
    return list(suites.values())


def section(run: dict[str, Any]) -> list[str]:
    """A summary by kind of case, then one line for each key that is not native throughout."""
    results = [r for r in run["results"] if r["status"] != "SKIP"]
    lines = [f"## {TITLES.get(run['suite'], run['suite'])}", ""]
    lines += [f"{len(results)} cases run. {ran(run['suite'], run['arguments'])}", ""]
    lines += ["| kind | cases | passed | native |", "|---|---|---|---|"]
    kinds = groups(results, 1)
    lines += [f"| {kind} | {counts(kinds[kind])} |" for kind in sorted(kinds)]
    lines += [f"| all | {counts(results)} |", ""]
    if run["not_run"]:
        lines += [f"{len(run['not_run'])} further cases were not run.", ""]
    keys = groups(results, 0)
    whole = [key for key in sorted(keys) if all(map(native, keys[key]))]
    lines += [f"Native throughout ({len(whole)}): {', '.join(whole)}.", ""]
    lines += ["| not throughout | cases | passed | native | in PyTorch |", "|---|---|---|---|---|"]
    for key in sorted(keys.keys() - set(whole)):
        lines.append(f"| {key} | {counts(keys[key])} | {eager(keys[key])} |")
    return [*lines, ""]


def ran(suite: str, arguments: Iterable[list[str]]) -> str:
    """Which half of the suite ran, with how many samples, on which versions."""
    halves = {option(given, "--half", "all") for given in arguments}
    parts = [f"Half of the suite: {', '.join(sorted(halves))}"]
    if suite == "torch_ops":
        samples = {option(given, "--max-samples", "6") for given in arguments}
        parts.append(f"up to {', '.join(sorted(samples))} samples of each operation and dtype")
    return f"{'; '.join(parts)}; on {', '.join(versions())}."


def option(given: list[str], name: str, default: str) -> str:
    return given[given.index(name) + 1] if name in given else default


def versions() -> Iterable[str]:
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            yield f"{package} {version(package)}"


# ---- names

# what a graph has no use for, by pattern: gradients, hooks, values while recording; memory,
# strides and devices; sparse, quantised, nested and complex layouts; what is only imported there
NO_USE = {
    "torch.nn": "",
    "torch.nn.functional": (
        "Optional|boolean_dispatch|.*handle_torch.*|has_torch.*|assert_int_or_pair"
    ),
    "torch.Tensor": (
        "backward|grad.*|.*_grad|retains_grad|requires_grad|register_.*|reinforce|is_leaf|output_nr|"
        "volatile|name|module_load|as_subclass|is_inference|item|tolist|numpy|is_nonzero|"
        "data|.*data_ptr|.*storage.*|stride|layout|dim_order|as_strided.*|slice_inverse|resize.*|"
        "new|new_empty_strided|is_set_to|pin_memory|is_pinned|is_shared|hash_tensor|type|"
        "device|cuda|ipu|xpu|mtia|get_device|record_stream|is_(cpu|cuda|ipu|maia|meta|mkldnn|mps|"
        "mtia|vulkan|xla|xpu|distributed|contiguous|conj|neg|nested|quantized|coalesced|sparse.*)|"
        "to_(dense|mkldnn|padded_tensor|sparse.*)|.*sparse.*|.*(indices|values)|dense_dim|coalesce|"
        "smm|sspaddmm|int_repr|dequantize|q_.*|qscheme|c(double|float)|chalf|real|imag"
    ),
    "torch.fft": "Tensor",
}


def names() -> list[str]:
    """How many public names of PyTorch's luminal has, and which are not there."""
    import torch

    import luminal
    from luminal import nn, ops

    functions = vars(torch.nn.functional).items()
    pairs = {
        "torch.nn": ([n for n, c in vars(torch.nn).items() if inspect.isclass(c)], nn),
        "torch.nn.functional": (
            [n for n, f in functions if callable(f) and not inspect.isclass(f)], ops,
        ),
        "torch.Tensor": (dir(torch.Tensor), luminal.Tensor),
        "torch.fft": (torch.fft.__all__, ops.fft),
    }  # fmt: skip
    lines = [NAMES, "", f"Of torch {version('torch')}. Left out: what begins or ends with _ (in"]
    lines += ["place), and what a graph has no use for (`NO_USE` in the script).", ""]
    lines += ["| | names | there | not there |", "|---|---|---|---|"]
    for place, (found, ours) in pairs.items():
        public = [n for n in sorted(set(found)) if n[0] != "_" and n[-1] != "_"]
        used = [n for n in public if not re.fullmatch(NO_USE[place], n)]
        missing = [name for name in used if not hasattr(ours, name)]
        there = len(used) - len(missing)
        share = f"{there} ({there / len(used):.1%})"
        lines.append(f"| {place} | {len(used)} | {share} | {', '.join(missing)} |")
    return lines


def groups(results: Iterable[Result], part: int) -> dict[str, list[Result]]:
    """By the name of what is tested (0) or by dtype or mode (1)."""
    found: dict[str, list[Result]] = {}
    for result in results:
        name = result["case"].replace("::", ":").split(":")[part]
        found.setdefault(name, []).append(result)
    return found


def passed(result: Result) -> bool:
    """Also what `--strict-native` counts as unsupported: right, and partly computed by PyTorch."""
    return result["status"] == "PASS" or (result.get("detail") or "").startswith(FALLBACK)


def native(result: Result) -> bool:
    return passed(result) and not result.get("eager_ops")


def counts(results: list[Result]) -> str:
    good, alone = sum(map(passed, results)), sum(map(native, results))
    total = len(results)
    return f"{total} | {good} ({good / total:.1%}) | {alone} ({alone / total:.1%})"


def eager(results: list[Result]) -> str:
    """The operations that PyTorch computed, the most frequent first."""
    seen: dict[str, int] = {}
    for result in results:
        for op, count in (result.get("eager_ops") or {}).items():
            seen[op] = seen.get(op, 0) + count
    names = sorted(seen, key=lambda op: -seen[op])[:6]
    failed = [f"FAILED {r['case']}" for r in results if not passed(r)]
    return ", ".join(failed + names + (["..."] if len(seen) > 6 else []))


if __name__ == "__main__":
    main(sys.argv[1:])
