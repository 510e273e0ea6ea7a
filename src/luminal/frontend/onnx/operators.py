"""Nodes of an ONNX graph as we walk them, and bodies (of functions, branches, loops) put in place.

A body becomes plain operators whose inner names are made unique, so that recording knows one list
of operators and one table of names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ...errors import WeightsError
from . import reading


@dataclass(frozen=True)
class Body:
    """A graph or a function: operators, what goes in, what comes out, constants by name. proto: the
    graph of the file."""

    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Any]
    proto: onnx.GraphProto | None = None

    @property
    def free(self) -> set[str]:
        """Names that it reads from around it."""
        made = {*self.inputs, *self.constants}
        found: set[str] = set()
        for operator in self.operators:
            found |= operator.reads - made
            made |= {name for name in operator.outputs if name}
        return found | (set(self.outputs) - made)


@dataclass(frozen=True)
class Operator:
    """One node. version: of its operator set. attributes: Python's values, arrays, bodies. label:
    the node's name in the file, or its number."""

    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    version: int
    label: str
    versions: Mapping[str, int]

    def __str__(self) -> str:
        name = f"{self.domain}.{self.name}" if self.domain else self.name
        return f"{name} (opset {self.version}, node {self.label})"

    @property
    def reads(self) -> set[str]:
        """Every value that it needs, those of its bodies included."""
        found = {name for name in self.inputs if name}
        for value in self.attributes.values():
            if isinstance(value, Body):
                found |= value.free
        return found

    def renamed(self, names: Mapping[str, str], prefix: str) -> Operator:
        """The same under other names; `names` grows by what it makes."""
        inputs = tuple(names.get(name, name) for name in self.inputs)
        attributes = {
            key: _renamed_body(value, names) if isinstance(value, Body) else value
            for key, value in self.attributes.items()
        }
        outputs = tuple(prefix + name if name else "" for name in self.outputs)
        return replace(self, inputs=inputs, outputs=outputs, attributes=attributes,
                       label=f"{prefix}{self.label}")  # fmt: skip


def _renamed_body(body: Body, names: Mapping[str, str]) -> Body:
    """Its free names replaced; its own, which may not clash with what they become, stay."""
    own = {*body.inputs, *body.constants}
    own.update(name for operator in body.operators for name in operator.outputs)
    visible = {old: new for old, new in names.items() if old not in own}
    operators = tuple(
        replace(
            o,
            inputs=tuple(visible.get(name, name) for name in o.inputs),
            attributes={
                key: _renamed_body(value, visible) if isinstance(value, Body) else value
                for key, value in o.attributes.items()
            },
        )
        for o in body.operators
    )
    outputs = tuple(visible.get(name, name) for name in body.outputs)
    return replace(body, operators=operators, outputs=outputs)


def placed(
    body: Body, arguments: Sequence[str], results: Sequence[str], prefix: str
) -> tuple[list[Operator], dict[str, Any]]:
    """A body in place: its operators under unique names and, at the end, one that names each
    result; its constants, by their new names."""
    names = dict(zip(body.inputs, arguments))
    names.update({name: "" for name in body.inputs[len(arguments) :]})
    constants = {}
    for name, value in body.constants.items():
        names[name] = prefix + name
        constants[prefix + name] = value
    made = []
    for operator in body.operators:
        made.append(operator.renamed(names, prefix))
        names.update({name: prefix + name for name in operator.outputs if name})
    for inner, outer in zip(body.outputs, results):
        if outer:
            made.append(plain("Identity", [names.get(inner, inner)], [outer]))
    return made, constants


def plain(name: str, inputs: Iterable[str], outputs: Iterable[str], **attributes: Any) -> Operator:
    """An operator of our own making, of a late operator set."""
    made = tuple(outputs)
    return Operator("", name, tuple(inputs), made, attributes, 21, made[0], {"": 21})


# ---- from the file


class Reader:
    """Turns graphs of a file into bodies."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._arrays: dict[int, tuple[Any, np.ndarray]] = {}  # of tensors, by identity

    def graph(
        self, graph: onnx.GraphProto, versions: Mapping[str, int],
        given: Mapping[str, Any] | None = None,
    ) -> Body:  # fmt: skip
        """given: attributes of the function that the graph stands in."""
        constants: dict[str, Any] = {t.name: t for t in graph.initializer}
        constants |= {s.values.name: s for s in graph.sparse_initializer}
        inputs = tuple(i.name for i in graph.input)
        outputs = tuple(o.name for o in graph.output)
        operators = list(self._nodes(graph.node, versions, given))
        _check_names(inputs, "is two inputs")
        _check_names(outputs, "is two outputs")
        made = (name for operator in operators for name in operator.outputs if name)
        _check_names([*{*inputs, *constants}, *made], "is made twice")
        return Body(_in_order(operators), inputs, outputs, constants, graph)

    def function(self, function: onnx.FunctionProto, call: Mapping[str, Any]) -> Body:
        """The body of a function for these attributes of a call."""
        versions = {"" if o.domain == "ai.onnx" else o.domain: o.version
                    for o in function.opset_import}  # fmt: skip
        defaults = {a.name: self._value(a, versions) for a in function.attribute_proto}
        given = {**defaults, **call}
        operators = _in_order(list(self._nodes(function.node, versions, given)))
        return Body(operators, tuple(function.input), tuple(function.output), {})

    def _nodes(
        self, nodes: Iterable[onnx.NodeProto], versions: Mapping[str, int],
        given: Mapping[str, Any] | None = None,
    ) -> Iterator[Operator]:  # fmt: skip
        for number, node in enumerate(nodes):
            attributes: dict[str, Any] = {}
            for a in node.attribute:
                if not a.ref_attr_name:
                    attributes[a.name] = self._value(a, versions, given)
                elif given and a.ref_attr_name in given:
                    attributes[a.name] = given[a.ref_attr_name]
            domain = "" if node.domain == "ai.onnx" else node.domain
            version = versions.get(domain, 1)
            label = repr(node.name) if node.name else str(number)
            yield Operator(domain, node.op_type, tuple(node.input), tuple(node.output), attributes,
                           version, label, versions)  # fmt: skip

    def _value(
        self, a: onnx.AttributeProto, versions: Mapping[str, int],
        given: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        kind = a.type
        if kind == onnx.AttributeProto.GRAPH:
            return self.graph(a.g, versions, given)
        if kind == onnx.AttributeProto.TENSOR:
            return reading.array_of(a.t, self.folder)
        if kind == onnx.AttributeProto.SPARSE_TENSOR:
            return reading.dense(a.sparse_tensor, self.folder)
        if kind == onnx.AttributeProto.TENSORS:
            return [reading.array_of(t, self.folder) for t in a.tensors]
        if kind == onnx.AttributeProto.STRING:
            return a.s.decode("utf-8", "surrogateescape")
        if kind == onnx.AttributeProto.STRINGS:
            return [s.decode("utf-8", "surrogateescape") for s in a.strings]
        value = onnx.helper.get_attribute_value(a)
        return list(value) if kind in _LISTS else value

    def array(self, held: Any) -> np.ndarray:
        """A constant of the file, read when first asked for: one array for all programs."""
        if isinstance(held, np.ndarray):
            return held
        if id(held) not in self._arrays:
            sparse = isinstance(held, onnx.SparseTensorProto)
            read = reading.dense if sparse else reading.array_of
            self._arrays[id(held)] = held, read(held, self.folder)
        return self._arrays[id(held)][1]


def _in_order(operators: Sequence[Operator]) -> tuple[Operator, ...]:
    """As they are, each behind what it reads; else sorted so: some exporters append what stands
    first. Raises WeightsError where some wait for each other."""
    makers = {name: n for n, o in enumerate(operators) for name in o.outputs if name}
    needed = {n: [makers[name] for name in sorted(o.reads) if name in makers]
              for n, o in enumerate(operators)}  # fmt: skip
    if all(maker < n for n, found in needed.items() for maker in found):
        return tuple(operators)
    try:
        return tuple(operators[n] for n in TopologicalSorter(needed).static_order())
    except CycleError as error:
        circle = ", ".join(str(operators[n]) for n in error.args[1])
        raise WeightsError(f"damaged model: operators that wait for each other: {circle}") from None


def _check_names(names: Iterable[str], what: str) -> None:
    """Raises WeightsError where a name stands for several values."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise WeightsError(f"damaged model: {name!r} {what}")
        seen.add(name)


_LISTS = (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS)
