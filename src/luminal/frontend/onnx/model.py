"""A model file as a program: what a user holds."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ...errors import InputError, ShapeError, Unsupported, WeightsError
from ...graph.graph import Graph
from ...graph.index import Index
from ...options import checked_threads
from . import kinds, reading
from .context import Context, has_function
from .operators import Body, Operator, Reader
from .owned import owned
from .stages import Runner, Stage
from .table import HOST, RULES

Source = str | Path | bytes | onnx.ModelProto
EXAMPLE = 64  # of a size that the model leaves free
_RESERVED = re.compile(r"[ia]\d+|(size|value)_\w*_\d+")  # the latter are sizes of values


@dataclass(frozen=True)
class Port:
    """An input or output. dtype: as NumPy calls it, or "string", "sequence", ... shape: numbers and
    names of sizes, None where the model says nothing."""

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None
    numpy: Any = None

    def __str__(self) -> str:
        shape = "?" if self.shape is None else f"({', '.join(map(str, self.shape))})"
        return f"{self.name}: {self.dtype} {shape}"


class Model:
    """An ONNX model, compiled when it first runs on inputs of a kind.

    inputs, outputs: ports by name, in the order of the file.

    >>> y = (cx.tensor(2, name="x") * 2.0).output("y")
    >>> model = luminal.onnx.load(luminal.onnx.export(cx))
    >>> list(model.inputs), list(model.outputs)
    (['x'], ['y'])
    """

    def __init__(
        self, source: Source, options: Mapping[str, Any], dynamic: bool | None = None
    ) -> None:
        self.proto, folder = reading.read_model(source)
        versions = reading.opsets(self.proto)
        reader = Reader(folder)
        functions = {("" if f.domain == "ai.onnx" else f.domain, f.name): f
                     for f in self.proto.functions}  # fmt: skip
        self.context = Context(reader, functions, dict(options), dynamic)
        self.body = reader.graph(self.proto.graph, versions)
        graph = self.proto.graph
        self.all_inputs = {i.name: _port(i) for i in graph.input}
        self.inputs = {n: p for n, p in self.all_inputs.items() if n not in self.body.constants}
        self.outputs = {o.name: _port(o) for o in graph.output}
        _check_version(versions)
        _check_functions(functions)
        _check_operators(self.body, self.context)
        self.runner = Runner(self.context, self.body, _templates(self.all_inputs))
        self._lock = threading.Lock()

    # ---- running

    def run(
        self, inputs: Sequence[Any] | Mapping[str, Any], outputs: Sequence[str] | None = None
    ) -> list[Any]:
        """The outputs (those named, or all) for arrays in order or by name, each in memory of its
        own. Raises InputError for a missing or unknown name and for a wrong dtype or shape. Several
        threads may call it."""
        store = self._checked(inputs)
        given = list(store.values())
        with self._lock:
            results = dict(zip(self.outputs, owned(self.runner.run(store), given)))
        unknown = [name for name in outputs or () if name not in results]
        if unknown:
            raise InputError(f"no output {unknown[0]!r}; the outputs are {', '.join(results)}")
        return [results[name] for name in outputs or results]

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """One output as an array, several as a tuple."""
        given = dict(zip(self.inputs, arrays)) | named
        if len(arrays) > len(self.inputs):
            raise InputError(f"{len(arrays)} arrays given; {self._names()}")
        results = self.run(given)
        return results[0] if len(results) == 1 else tuple(results)

    def _checked(self, inputs: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(inputs, Mapping):
            if len(inputs) > len(self.inputs):
                raise InputError(f"{len(inputs)} inputs given; {self._names()}")
            inputs = dict(zip(self.inputs, inputs))
        unknown = [name for name in inputs if name not in self.all_inputs]
        missing = [n for n in self.inputs if n not in inputs and self.inputs[n].dtype != "optional"]
        if unknown or missing:
            what = f"no input {unknown[0]!r}" if unknown else f"input {missing[0]!r} is missing"
            raise InputError(f"{what}; {self._names()}")
        store = {name: _array(self.all_inputs[name], value) for name, value in inputs.items()}
        if len(store) < len(self.inputs):
            store.update({name: None for name in self.inputs if name not in store})
        return store

    def _names(self) -> str:
        return "the inputs are " + ", ".join(map(str, self.inputs.values()))

    # ---- what it is

    def stage(self) -> Stage:
        """The first program, with the sizes that the model names free. Raises Unsupported where
        it cannot be recorded without values."""
        store = {name: _example(port) for name, port in self.inputs.items()}
        shapes = _templates(self.all_inputs)
        free = Runner(replace(self.context, dynamic=True), self.body, shapes)
        return free.record(free.start, store, shapes, {})

    def graph(self) -> Graph:
        """The whole model as a graph, with named inputs and outputs. Raises Unsupported for a model
        that is several programs, or one for each value of an input."""
        stage = self.stage()
        if stage.rest or stage.hosts or stage.fixed:
            parts = [str(o) for o in stage.hosts] or sorted(stage.fixed) or [str(stage.rest[0])]
            raise Unsupported(
                f"the model is no single graph: {parts[0]} takes part in what is recorded; "
                "run the model itself"
            )
        return stage.graph

    @property
    def operators(self) -> dict[str, int]:
        """How often each operator occurs, those in branches and loops included."""
        counts: dict[str, int] = {}

        def count(body: Body) -> None:
            for operator in body.operators:
                name = f"{operator.domain}.{operator.name}".lstrip(".")
                counts[name] = counts.get(name, 0) + 1
                for value in operator.attributes.values():
                    if isinstance(value, Body):
                        count(value)

        count(self.body)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def load(
    source: Source, *, dynamic: bool | None = None, threads: int | None = None,
    precision: str = "f32", flush_denormals: bool = True, **options: Any,
) -> Model:  # fmt: skip
    """A model from a path, from bytes, or an `onnx.ModelProto`.

    threads: at most so many; a program of short steps takes one. dynamic: sizes that the model
    names are free in its program (True), as large as in a run, for
    each of which a program is compiled (False), or free once a run has other ones (None).
    flush_denormals: subnormal floats may count as zeros: channels that died in training are full of
    them (OpenVINO's default; `session.set_denormal_as_zero` of onnxruntime).

    Other options are those of `Graph.compile`. Raises WeightsError for a damaged file or one whose
    weights are missing, Unsupported for an operator without a rule, OSError.

    >>> y = (cx.tensor(2, name="x") * 2.0).output("y")
    >>> model = luminal.onnx.load(luminal.onnx.export(cx))
    >>> model.run({"x": np.float32([1, 2])})
    [array([2., 4.], dtype=float32)]
    """
    threads = checked_threads(threads)
    options |= {"threads": threads, "precision": precision, "flush_denormals": flush_denormals}
    return Model(source, options, dynamic)


# ---- ports


def _port(info: onnx.ValueInfoProto) -> Port:
    kind = info.type.WhichOneof("value") or "tensor_type"
    if kind != "tensor_type":
        return Port(info.name, kind.removesuffix("_type"), None)
    tensor = info.type.tensor_type
    name = (
        "string"
        if tensor.elem_type == kinds.STRING
        else (str(kinds.numpy_of(tensor.elem_type)) if tensor.elem_type else "?")
    )
    numpy = kinds.numpy_of(tensor.elem_type) if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return Port(info.name, name, None, numpy)
    sizes: list[int | str] = []
    for d, size in enumerate(tensor.shape.dim):
        if size.WhichOneof("value") == "dim_value" and size.dim_value > 0:
            sizes.append(size.dim_value)
        elif size.dim_param.strip() not in ("", "?"):
            sizes.append(size.dim_param)
        else:
            sizes.append(f"{info.name}.{d}")
    return Port(info.name, name, tuple(sizes), numpy)


def size_name(name: str) -> str:
    """A name that our sizes may have."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not plain.isidentifier() or _RESERVED.fullmatch(plain) or plain in ("min", "max"):
        plain = f"size_{plain}"
    return plain


def _size_names(names: Sequence[str]) -> dict[str, str]:
    """The names of our sizes by those of the model, each its own: "a.b" is no "a_b"."""
    found: dict[str, str] = {}
    for name in sorted(dict.fromkeys(names), key=lambda name: name != size_name(name)):
        plain = size_name(name)
        while plain in found.values():
            plain += "_"
        found[name] = plain
    return found


def _templates(ports: Mapping[str, Port]) -> dict[str, tuple[Any, ...]]:
    shapes = [port.shape for port in ports.values() if port.shape is not None]
    names = _size_names([s for shape in shapes for s in shape if isinstance(s, str)])
    return {
        name: tuple(s if isinstance(s, int) else Index.of(names[s]) for s in port.shape)
        for name, port in ports.items()
        if port.shape is not None
    }


def _array(port: Port, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list) and port.dtype in ("sequence", "optional"):
        return [np.asarray(part) for part in value]
    array = np.asarray(value)
    if port.dtype in ("sequence", "optional", "?"):
        return array
    if port.dtype == "string":
        if array.dtype.kind not in "OSU":
            raise InputError(f"input {port.name!r} is text, not {array.dtype}")
        return array.astype(object)
    if array.dtype != port.numpy:
        raise InputError(
            f"input {port.name!r} is {port.dtype}, not {array.dtype}: convert it with "
            f"array.astype({port.dtype!r})"
        )
    if port.shape is None:
        return array
    fits = len(port.shape) == array.ndim and all(
        isinstance(s, str) or s == n for s, n in zip(port.shape, array.shape)
    )
    if not fits:
        raise ShapeError(f"input {port} does not take an array of shape {array.shape}")
    return array


def _example(port: Port) -> Any:
    """An array that has the port's rank and dtype."""
    if port.shape is None or port.dtype in ("string", "sequence", "optional", "?"):
        raise Unsupported(f"input {port}: the model says too little about it")
    shape = [s if isinstance(s, int) else EXAMPLE for s in port.shape]
    return np.broadcast_to(np.zeros((), np.dtype(port.dtype)), shape)


# ---- checks at once


def _check_version(versions: Mapping[str, int]) -> None:
    newest = versions.get("", reading.OLDEST)
    if newest > reading.NEWEST:
        raise Unsupported(
            f"opset {newest} of ai.onnx: versions up to {reading.NEWEST} are supported"
        )


def _check_functions(functions: Mapping[tuple[str, str], onnx.FunctionProto]) -> None:
    """None calls itself, directly or through others."""
    placed = {key: function for key, function in functions.items() if key not in RULES}
    calls: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for key, function in placed.items():
        nodes = reading.nodes_of(function.node)
        called = {("" if n.domain == "ai.onnx" else n.domain, n.op_type) for n in nodes}
        calls[key] = sorted(called & placed.keys())
    try:
        TopologicalSorter(calls).prepare()
    except CycleError as error:
        circle = ", ".join(f"{domain}.{name}".lstrip(".") for domain, name in error.args[1])
        raise WeightsError(
            f"damaged model: functions that call each other in a circle: {circle}"
        ) from None


def _check_operators(body: Body, context: Context) -> None:
    """Every operator has a rule, a body, or is one of the host's."""
    missing = [o for o in _all(body) if not _known(o, context)]
    if missing:
        names = ", ".join(dict.fromkeys(map(str, missing)))
        search = _SEARCH if any(o.name in _SEARCHES for o in missing) else ""
        raise Unsupported(f"no rule for {names}{search}")


_SEARCHES = {"BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"}
_SEARCH = (
    ": a model that holds its own search for text. Export the decoder alone, with its cache as "
    "inputs and outputs, and call it for each token; or give `luminal run` or `luminal transcribe` "
    "the folder of weights that the file was made from, which search by themselves"
)


def _all(body: Body) -> list[Operator]:
    found = []
    for operator in body.operators:
        found.append(operator)
        for value in operator.attributes.values():
            if isinstance(value, Body):
                found += _all(value)
    return found


def _known(operator: Operator, context: Context) -> bool:
    key = operator.domain, operator.name
    return key in RULES or key in HOST or key in context.functions or has_function(operator)
