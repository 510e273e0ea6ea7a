"""`luminal.torch.export`: a PyTorch module as a program of ours, which runs without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from ...errors import Unsupported
from ...runtime.executable import Executable
from .arrays import array_of
from .decompose import decompositions
from .program import Options
from .record import REFUSALS, Recorder
from .report import where
from .sizes import LARGEST, whole
from .split import is_number


def export(
    model: torch.nn.Module, example_inputs: Sequence[Any] | torch.Tensor,
    path: str | Path | None = None, kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None, options: Mapping[str, Any] | None = None,
) -> Executable:  # fmt: skip
    """The model's forward pass for such inputs (a tensor, or several), compiled, with its weights.

    path: where it is saved; `luminal.load(path)` runs it. Inputs are row-major and go by the names
    of forward's arguments, outputs are "output0", "output1", ... dynamic_shapes: as
    `torch.export.export` takes them. options: the fields of `Options`. Raises Unsupported for
    operations without a rule, for numbers and sizes that depend on values, and for a model that
    changes its buffers.

    >>> program = luminal.torch.export(torch.nn.Linear(2, 1), torch.ones(3, 2))
    >>> program.inputs
    ('input',)
    """
    if isinstance(example_inputs, torch.Tensor):
        example_inputs = (example_inputs,)
    examples = tuple(_row_major(example) for example in example_inputs)
    with torch.no_grad():
        exported = torch.export.export(model, examples, dict(kwargs or {}),
                                       dynamic_shapes=dynamic_shapes)  # fmt: skip
        exported = exported.run_decompositions(decompositions())
    weights = _weights(exported)
    recorder = Recorder(weights.keys())
    for size, ends in exported.range_constraints.items():
        most = min(whole(ends.upper, LARGEST), LARGEST)
        recorder.graph.dim(str(size), whole(ends.lower, 0), most)
    _record(recorder, exported.graph)
    chosen = Options.of(options or {})
    program = chosen.compile(recorder.graph)
    for put in recorder.inputs:
        if put.static:
            held = weights[put.node].permute(put.order)
            program[put.tensor] = array_of(held if held.is_contiguous() else held.contiguous())
    if path is not None:
        program.save(path)
    return program


def _row_major(value: Any) -> Any:
    return value.contiguous() if isinstance(value, torch.Tensor) else value


def _weights(exported: Any) -> dict[fx.Node, torch.Tensor]:
    """Parameters, buffers and constants: the values of placeholders. Raises Unsupported."""
    signature = exported.graph_signature
    changed = {**signature.buffers_to_mutate, **signature.user_inputs_to_mutate}
    if changed:
        names = ", ".join(map(str, changed.values()))
        raise Unsupported(f"the model changes {names} as it runs: call model.eval() first")
    tensors = {
        **signature.inputs_to_parameters, **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }  # fmt: skip
    values = {**exported.state_dict, **exported.constants}
    given = [node for node in exported.graph.nodes if node.op == "placeholder"]
    return {node: values[tensors[node.name]] for node in given if node.name in tensors}


def _record(recorder: Recorder, graph: fx.Graph) -> None:
    """The whole graph, with its outputs row-major. Raises Unsupported."""
    refused: dict[fx.Node, str] = {}
    for node in graph.nodes:
        try:
            if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor):
                recorder.result(node)  # inputs in the order of forward's arguments
            elif node.op == "call_function" and not is_number(node):
                recorder.record(node)
            elif node.meta.get("unbacked_bindings"):
                refused[node] = "a number that depends on values"
        except REFUSALS as error:
            refused[node] = f"{error}".split("\n")[0] or type(error).__name__
    if refused:
        lines = [f"{node.target}: {why} {where(node)}" for node, why in refused.items()]
        raise Unsupported("these operations have no rule:\n  " + "\n  ".join(lines))
    results = next(node for node in graph.nodes if node.op == "output").args[0]
    for node in results:
        if not isinstance(node, fx.Node):
            raise Unsupported(f"an output that is no tensor: {node!r}")
        result = recorder.result(node)
        while any(result is known for known in recorder.graph.outputs):
            result = recorder.graph.apply("cast", [result], result.dtype)  # another, of its values
        result.output()
