"""What tests of GGUF files have alike: models whose files are written, and that they are read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from luminal import LLM

from .checkpoints import FAMILIES, make_model, reference_logits

# name: (family of transformers, architecture of the file, what differs)
Cases = Mapping[str, tuple[str, str, dict[str, Any]]]
CODE = gguf.GGMLQuantizationType.Q8_0


def names(cases: Cases, always: Collection[str]) -> list[Any]:
    """Of cases; those not in `always` differ in less from the others and are slow tests."""
    return [n if n in always else pytest.param(n, marks=pytest.mark.slow) for n in cases]


def model_of(cases: Cases, name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, str]:
    """(the model of a case, the architecture of its file)."""
    family, architecture, more = cases[name]
    kind, own = FAMILIES[family]
    monkeypatch.setitem(FAMILIES, family, (kind, own | more))
    return make_model(family), architecture


def check_logits(file: Path, model: Any, ids: list[int] | None = None) -> None:
    """Those of a file are those of the model, within f32's rounding."""
    ids = ids or list(range(3, 40))
    expected = reference_logits(model, ids)
    got = LLM(file, precision="f32", context=64, threads=1).logits(ids)
    bound = 1e-5 * max(10.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(got, expected, atol=bound, rtol=0)


def rounded(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(blocks of Q8_0, the numbers that they have)."""
    raw = gguf.quants.quantize(np.ascontiguousarray(values, np.float32), CODE)
    return raw, gguf.quants.dequantize(raw, CODE)


def add_fields(writer: Any, given: Mapping[str, Any]) -> None:
    """Metadata by whole names; None: not there."""
    for field, value in given.items():
        if isinstance(value, bool):
            writer.add_bool(field, value)
        elif isinstance(value, int):
            writer.add_uint32(field, value)
        elif isinstance(value, float):
            writer.add_float32(field, value)
        elif isinstance(value, str):
            writer.add_string(field, value)
        elif value is not None:
            writer.add_array(field, value)


def finish(writer: Any) -> None:
    """Write the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
