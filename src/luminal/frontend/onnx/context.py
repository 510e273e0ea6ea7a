"""What all programs of one model share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx

from .operators import Body, Operator, Reader

BOUNDS = (1, 1 << 20)  # of a size that the model names; others are programs of their own


@dataclass
class Context:
    """reader: of the file. functions: those of the model itself, by domain and name. options: of
    `Graph.compile`. dynamic: sizes are free from the first run on (True), never (False), or once a
    run has another one (None)."""

    reader: Reader
    functions: Mapping[tuple[str, str], onnx.FunctionProto]
    options: Mapping[str, Any]
    dynamic: bool | None = None
    bounds: tuple[int, int] = BOUNDS
    runners: dict[Any, Any] = field(default_factory=dict)  # of bodies that the host repeats

    def function(self, operator: Operator, types: Callable[[str], Any]) -> Body | None:
        """What an operator without a rule is made of, by the model or by the standard."""
        own = self.functions.get((operator.domain, operator.name))
        if own is not None:
            return self.reader.function(own, operator.attributes)
        found = standard_function(operator, types)
        return None if found is None else self.reader.function(found, operator.attributes)


def has_function(operator: Operator) -> bool:
    """The standard says what the operator is made of."""
    schema = schema_of(operator)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def schema_of(operator: Operator) -> Any:
    """The standard's description of an operator in its version, or None."""
    try:
        return onnx.defs.get_schema(operator.name, operator.version, operator.domain)
    except onnx.defs.SchemaError:
        return None


def standard_function(operator: Operator, types: Callable[[str], Any]) -> onnx.FunctionProto | None:
    """The body that the standard gives for these attributes and element types."""
    schema = schema_of(operator)
    if schema is None:
        return None
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= operator.versions.get("", 21)]
        chosen = max(versions or schema.function_opset_versions)
        text = schema.get_function_with_opset_version(chosen)
        return _parsed(text)
    if not schema.has_context_dependent_function:
        return None
    attributes = {key: value.proto if isinstance(value, Body) else value
                  for key, value in operator.attributes.items()}  # fmt: skip
    node = onnx.helper.make_node(
        operator.name, operator.inputs, operator.outputs, domain=operator.domain, **attributes
    )
    described = []
    for name in operator.inputs:
        if name:
            kind, shape, several = types(name)
            made = onnx.helper.make_tensor_type_proto(kind, shape)
            made = onnx.helper.make_sequence_type_proto(made) if several else made
            described.append(made.SerializeToString())
        else:
            described.append(onnx.TypeProto().SerializeToString())
    versions = schema.context_dependent_function_opset_versions
    fitting = [v for v in versions if v <= operator.versions.get("", 21)]
    text = schema.get_context_dependent_function_with_opset_version(
        max(fitting or versions), node.SerializeToString(), described
    )
    return _parsed(text)


def _parsed(text: bytes) -> onnx.FunctionProto:
    function = onnx.FunctionProto()
    function.ParseFromString(text)
    return function
