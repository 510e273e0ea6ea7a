"""Model files, with their weights beside them.

Weights that lie outside (`external_data`) are mapped into memory, and only from files in the
model's own folder: a location that leaves it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from ...errors import WeightsError
from . import kinds

OLDEST, NEWEST = 7, 28  # operator sets of ai.onnx


def read_model(source: Any) -> tuple[onnx.ModelProto, Path | None]:
    """A model from a path, from bytes, or as it is; and the folder of its weights. Raises
    WeightsError for a file that is no model, OSError."""
    if isinstance(source, onnx.ModelProto):
        return source, None
    folder = None
    if not isinstance(source, bytes):
        path = Path(source)
        source, folder = path.read_bytes(), path.resolve().parent
        what = str(path)
    else:
        what = f"{len(source)} bytes"
    model = onnx.ModelProto()
    try:
        model.ParseFromString(source)
    except DecodeError as error:
        raise WeightsError(f"{what}: no ONNX model, or a damaged one ({error})") from None
    if not model.HasField("graph") or not model.opset_import:
        raise WeightsError(f"{what}: no ONNX model, or a damaged one: it has no graph or no opset")
    return model, folder


def array_of(tensor: onnx.TensorProto, folder: Path | None) -> np.ndarray:
    """The values of a tensor of the file. Raises WeightsError."""
    _check_dims(tensor.name, tensor.dims)
    try:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return _external(tensor, folder)
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise WeightsError(f"tensor {tensor.name!r} of the model is damaged: {error}") from None
    return np.asarray(array)


def _check_dims(name: str, dims: Iterable[int]) -> None:
    if any(size < 0 for size in dims):
        raise WeightsError(f"tensor {name!r} of the model is damaged: dimensions {[*dims]}")


def dense(sparse: onnx.SparseTensorProto, folder: Path | None) -> np.ndarray:
    """A sparse tensor of the file, with its zeros. Raises WeightsError."""
    _check_dims(sparse.values.name, sparse.dims)
    values, places = array_of(sparse.values, folder), array_of(sparse.indices, folder)
    result = np.zeros(tuple(sparse.dims), values.dtype)
    if places.ndim == 1:
        result.reshape(-1)[places] = values
    else:
        result[tuple(places.T)] = values
    return result


def _external(tensor: onnx.TensorProto, folder: Path | None) -> np.ndarray:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = _beside(tensor.name, entries.get("location", ""), folder)
    kind, dims = tensor.data_type, tuple(tensor.dims)
    wanted = kinds.numpy_of(kind)
    per_byte = {"INT4": 2, "UINT4": 2, "FLOAT4E2M1": 2, "INT2": 4, "UINT2": 4}.get(
        kinds.name_of(kind), 0
    )
    count = int(np.prod(dims, dtype=np.int64))
    size = -(-count // per_byte) if per_byte else count * wanted.itemsize
    offset, length = int(entries.get("offset", 0)), int(entries.get("length", size))
    if length != size or offset < 0 or offset + size > path.stat().st_size:
        raise WeightsError(
            f"tensor {tensor.name!r} needs {size} bytes at {offset} of {path.name}, which has "
            f"{path.stat().st_size}: the file is truncated, or of another model"
        )
    if not size:
        return np.zeros(dims, wanted)
    if per_byte:
        inner = onnx.TensorProto(data_type=kind, dims=dims)
        inner.raw_data = np.memmap(path, np.uint8, "r", offset, size).tobytes()
        return np.asarray(numpy_helper.to_array(inner))
    return np.memmap(path, wanted, "r", offset, dims)


def _beside(name: str, location: str, folder: Path | None) -> Path:
    """A file in the folder of the model. Raises WeightsError."""
    if folder is None:
        raise WeightsError(
            f"tensor {name!r} lies in {location!r}, beside a model that was given without a path: "
            "load the model by its path"
        )
    path = (folder / location).resolve()
    if not location or not path.is_relative_to(folder):
        raise WeightsError(
            f"tensor {name!r} points outside the folder of the model ({location!r}): refused"
        )
    if not path.is_file():
        raise WeightsError(f"tensor {name!r} lies in {location!r}, which is not beside the model")
    return path


def opsets(model: onnx.ModelProto) -> dict[str, int]:
    """The version of each operator set that a model imports."""
    return {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}


def nodes_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, and those of their subgraphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from nodes_of(graph.node)
