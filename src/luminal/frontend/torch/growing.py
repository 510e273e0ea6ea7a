"""Sizes that will change, known at the first call: those of tensors that an object keeps.

A decoder that appends to a cache gives it tensors as long as the prompt. At the next call they are
longer, and Dynamo, which sees them for the first time, would compile once for that length and once
more for any length. AOTAutograd marks results whose sizes vary, so that Dynamo takes them as
varying where they come in again; here the results of a first call are marked likewise.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import torch
from torch import fx
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.variables.base import AttributeMutationExisting
from torch._guards import TracingContext


def kept_results(module: fx.GraphModule) -> dict[int, torch.Size]:
    """number of a result -> its shape, for those that become attributes of objects that were there
    before the call. Dynamo knows; nothing is found where it does not run."""
    try:
        changes = InstructionTranslator.current_tx().output.side_effects.store_attr_mutations
        kept = {
            value.as_proxy().node
            for owner, attributes in changes.items()
            if isinstance(owner.mutation_type, AttributeMutationExisting)
            for value in attributes.values()
            if value.is_tensor()
        }
    except AttributeError:
        return {}
    results = next(node for node in module.graph.nodes if node.op == "output").args[0]
    return {n: r.meta["example_value"].shape for n, r in enumerate(results) if r in kept}


def expect_growth(
    graph: fx.Graph, statics: Collection[fx.Node], kept: dict[int, torch.Size]
) -> None:
    """Mark the dimensions of kept results that are as large as one of the inputs, bar weights."""
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if not kept or metadata is None:
        return
    given = [node.meta.get("val") for node in graph.nodes if node.op == "placeholder"
             and node not in statics]  # fmt: skip
    shapes = [value.shape for value in given if isinstance(value, torch.Tensor)]
    sizes = {size for shape in shapes for size in shape if isinstance(size, int)}
    for number, shape in kept.items():
        info = metadata.output_info[number]
        alike = {dim for dim, size in enumerate(shape) if isinstance(size, int) and size in sizes}
        marked = (info.dynamic_dims or set()) | alike
        metadata.output_info[number] = replace(info, dynamic_dims=marked or None)
    metadata.dynamic_outputs = any(info.dynamic_dims for info in metadata.output_info)
