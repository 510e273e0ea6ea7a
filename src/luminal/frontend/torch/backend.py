"""What torch.compile calls, and what it asks of AOTAutograd.

Forward, backward and inference graphs all come here as functional ATen graphs: AOTAutograd has
removed mutation and aliasing, and puts their effects back after each call.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext

from ... import forks
from ...errors import CompileError, InputError, Unsupported
from . import report
from .decompose import decompositions, whole_graph
from .fingerprint import fingerprint
from .growing import expect_growth, kept_results
from .program import Options, Program
from .record import DRAWN, Recorder
from .recurrent import keep_layers
from .split import (
    Part,
    assemble,
    halves,
    is_number,
    leading_to,
    parts_of,
    plain_module,
    size_sources,
    sizes_of,
    trial,
)
from .views import read_memory, returned_views
from .weights import forget_weights

MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
MOST_SECONDS = 60.0  # of trying what a part that our compiler refuses is made of
MOST_PROGRAMS = 512  # kept for graphs that come again

_programs: dict[str, Program] = {}
_lock = threading.RLock()
forks.guard(sys.modules[__name__], "_lock", forks.OUTER)


def backend(
    module: fx.GraphModule, inputs: Sequence[Any], options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """torch.compile's backend "luminal". options: the fields of `Options`. mode: one that inductor
    has; it changes nothing here, where `search` says how long to look for faster kernels.

    Raises InputError or Unsupported for an unknown option or mode. What cannot run natively runs in
    PyTorch; see `luminal.torch.report()`.

    >>> double = torch.compile(lambda x: x * 2, backend="luminal")
    >>> double(torch.ones(2))
    tensor([2., 2.])
    """
    if mode not in MODES:
        raise InputError(f"there is no mode {mode!r}; options={{'search': '60s'}} searches longer")
    chosen = Options.of(options or {})
    unchecked = replace(chosen, range_checks=False)  # what a forward pass has looked at
    compiler = aot_autograd(
        fw_compiler=partial(compile_graph, options=chosen, frozen=False),
        bw_compiler=partial(compile_graph, options=unchecked, frozen=False, gradients=True),
        inference_compiler=partial(
            compile_graph, options=chosen, frozen=True, kept=kept_results(module)
        ),
        decompositions=decompositions,
        partition_fn=min_cut_rematerialization_partition,
    )
    keep_layers(module)
    with whole_graph(module):
        return compiler(module, inputs)


def reset() -> None:
    """Forget all compiled programs and the report; what is in use reads its weights anew.

    >>> luminal.torch.reset()
    >>> luminal.torch.report().graphs
    0
    """
    with _lock:
        _programs.clear()
        forget_weights()
        report.clear()


# ---- one functional graph


def compile_graph(
    module: fx.GraphModule, inputs: Sequence[Any], options: Options, frozen: bool,
    kept: dict[int, torch.Size] | None = None, gradients: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """The graph with all that can run natively compiled. frozen: nothing is trained, so weights
    seldom change, and random numbers are eager's. kept: results that stay in the user's objects,
    with their shapes. gradients: its results are those, each with a memory of its own."""
    options = options.beside(module.graph)
    with _lock:
        report.count_graph()
        statics = static_nodes(module.graph, options.freeze) if frozen else frozenset()
        expect_growth(module.graph, statics, kept or {})
        read_memory(module.graph)
        shared = 0 if gradients else _users_results()
        views = dict.fromkeys(returned_views(module.graph, shared), "a view for PyTorch to make")
        empty = Recorder(statics, not frozen, options.range_checks, options.memory)
        recorder, refused = trial(module.graph, empty)
        sources = size_sources(module.graph)
        for node, why in refused.items():
            if node not in views and not _follows(node, refused):
                _left(node, why, options)
        refused.update(views)
        parts = parts_of(module.graph, refused)
        compiled = []
        for part in parts:
            whole = recorder if len(parts) == 1 and not refused else None
            compiled += compile_part(part, statics, sources, options, whole)
        if not compiled:
            return eager(module)
        try:
            return make_boxed_func(assemble(module, compiled, refused).forward)
        except CompileError as error:
            if options.strict:
                raise
            report.count_failure(f"{error}")
            return eager(module)


def _users_results() -> int | None:
    """How many results are not for a backward graph, if that is known: the first ones."""
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    return None if metadata is None else metadata.num_forward_returns


def _left(node: fx.Node, why: str, options: Options) -> None:
    """A word about an operation that PyTorch computes. Raises Unsupported, if none may be."""
    meant = why == DRAWN
    if options.strict and not meant:
        raise Unsupported(f"{node.target}: {why} {report.where(node)}")
    report.count_fallback(node, why, meant)


def eager(module: fx.GraphModule) -> Callable[..., Any]:
    return make_boxed_func(module.forward)


def _follows(node: fx.Node, refused: Mapping[fx.Node, str]) -> bool:
    """A part of a result that PyTorch computes: no operation of its own."""
    source = node.args[0] if node.args else None
    return source in refused and not isinstance(node.target, torch._ops.OpOverload)


def static_nodes(graph: fx.Graph, weights: bool) -> frozenset[fx.Node]:
    """Weights and constants: inputs that AOTAutograd knows to stay, and that are not mutated."""
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    constants = [node for node in graph.nodes if node.op == "get_attr"]
    if metadata is None or not weights:
        return frozenset(constants)
    mutated = {n for n, info in enumerate(metadata.input_info) if info.mutates_data}
    given = [node for node in graph.nodes if node.op == "placeholder"]
    chosen = [n for n in metadata.static_input_indices if n not in mutated and n < len(given)]
    return frozenset(constants + [given[n] for n in chosen])


def compile_part(
    part: Part, statics: frozenset[fx.Node], sources: Mapping[str, fx.Node], options: Options,
    recorder: Recorder | None = None, end: float | None = None,
) -> list[tuple[Part, Program, list[fx.Node]]]:  # fmt: skip
    """(part, its program, the nodes that the program reads). Where our compiler fails, each half
    is tried alone, until the clock shows `end`; what fails in the end is left to PyTorch."""
    names = sorted({n for node in part.nodes for n in sizes_of(node)} & sources.keys())
    try:
        empty = Recorder(statics, True, options.range_checks, options.memory)
        recorder = recorded(part, recorder or empty)
        reads = [put.node for put in recorder.inputs] + [sources[name] for name in names]
        key = fingerprint(part, recorder, names, options)
        program = _programs.get(key)
        reused = program is not None
        plain = partial(plain_module, part, reads)
        again = partial(thaw, part, names, options, plain)
        settled = None
        if recorder.settled:
            settled = plain_module(leading_to(part, recorder.settled), reads)
        program = program or Program(recorder, names, options, plain, again, settled)
    except Exception as error:  # whatever goes wrong in the compiler, the user's model must run
        if options.strict:
            raise
        end = time.monotonic() + MOST_SECONDS if end is None else end
        pieces = halves(part) if time.monotonic() < end else []
        _failed(part, error, final=not pieces)
        return [
            made for half in pieces
            for made in compile_part(half, statics, sources, options, end=end)
        ]  # fmt: skip
    _remember(key, program)
    report.count_native(sum(not is_number(n) for n in part.nodes), reused)
    return [(part, program, reads)]


def recorded(part: Part, recorder: Recorder) -> Recorder:
    """The nodes of a part (if they are not recorded yet) with its outputs marked."""
    for node in part.nodes if recorder.node is None else ():
        recorder.record(node)
    for node in part.outputs:
        recorder.output(node)
    recorder.output_checks()
    return recorder


def thaw(
    part: Part, names: Sequence[str], options: Options, plain: Callable[[], torch.nn.Module]
) -> Program:
    """The program of a part that takes its weights as inputs."""
    recorder = recorded(part, Recorder(checked=options.range_checks, memory=options.memory))
    return Program(recorder, names, options, plain)


def _remember(key: str, program: Program) -> None:
    _programs.pop(key, None)
    _programs[key] = program  # the youngest last
    if len(_programs) > MOST_PROGRAMS:
        del _programs[next(iter(_programs))]


def _failed(part: Part, error: Exception, final: bool) -> None:
    first = next((node for node in part.nodes if report.where(node)), part.nodes[0])
    kind = type(error).__name__
    text = f"{error}".split("\n")[0]
    report.count_failure(f"{len(part.nodes)} operations: {kind}: {text}\n    {report.where(first)}")
    for node in part.nodes if final else ():
        report.count_fallback(node, f"{kind} in its part", quiet=True)
