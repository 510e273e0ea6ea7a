"""Safetensors files against the reference library, and every way in which a file can be broken."""

import json
import os

import ml_dtypes
import numpy as np
import pytest
import safetensors
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

from luminal.errors import WeightsError
from luminal.weights import Safetensors, locate


def write(path, header, data=b""):
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_reads_what_the_library_wrote(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "a.weight": rng.standard_normal((3, 5)).astype(np.float32),
        "ids": rng.integers(-(2**60), 2**60, (4,)),
        "flag": np.array([True, False]),
        "empty": np.zeros((0, 7), np.float16),
        "scalar": np.array(2.5),
    }
    save_file(arrays, tmp_path / "model.safetensors")
    got = Safetensors(tmp_path / "model.safetensors")
    assert set(got) == set(arrays) and len(got) == 5
    for name, array in arrays.items():
        assert got[name].dtype == array.dtype and got[name].shape == array.shape
        np.testing.assert_array_equal(got[name], array)
        assert not got[name].flags.writeable or array.size == 0


def test_bfloat16(tmp_path):
    x = torch.randn(4, 3).bfloat16()
    save_torch({"x": x}, tmp_path / "m.safetensors")
    got = Safetensors(tmp_path)["x"]
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(got.astype(np.float32), x.float().numpy())


def test_shards(tmp_path):
    save_file({"a": np.arange(3)}, tmp_path / "m-1.safetensors")
    save_file({"b": np.arange(4)}, tmp_path / "m-2.safetensors")
    index = {"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}
    (tmp_path / "m.safetensors.index.json").write_text(json.dumps(index))
    for path in (tmp_path, tmp_path / "m.safetensors.index.json"):
        assert sorted(Safetensors(path)) == ["a", "b"]
    (tmp_path / "m-2.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"m-2\.safetensors is missing"):
        Safetensors(tmp_path)


def test_the_usual_file_stands_for_the_folder(tmp_path):
    """Whisper large v3 has its weights in f32 beside it, under an index of another name."""
    save_file({"a": np.arange(3)}, tmp_path / "model.safetensors")
    save_file({"a": np.arange(4)}, tmp_path / "model.fp32-00001-of-00002.safetensors")
    assert Safetensors(tmp_path)["a"].tolist() == [0, 1, 2]


def test_truncated(tmp_path):
    whole = tmp_path / "whole.safetensors"
    save_file({"a": np.arange(1000)}, whole)
    content = whole.read_bytes()
    for length in (0, 4, 8, 20, len(content) - 1):
        cut = tmp_path / "cut.safetensors"
        cut.write_bytes(content[:length])
        with pytest.raises(WeightsError, match=r"cut\.safetensors"):
            Safetensors(cut)


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
NONE = {"dtype": "F32", "shape": [0], "data_offsets": [8, 8]}
TWICE = b'{"a": %s, "a": %s}' % ((json.dumps(ENTRY).encode(),) * 2)


@pytest.mark.parametrize(
    "header, message",
    [
        ({"a": {**ENTRY, "dtype": "F99"}}, "dtype must be one of F64"),
        ({"a": {**ENTRY, "dtype": ["F32"]}}, "dtype must be one of F64"),
        ({"a": {**ENTRY, "shape": [3]}}, "needs 12 bytes"),
        ({"a": {**ENTRY, "shape": [-2]}}, "shape must be a list of whole numbers"),
        ({"a": {**ENTRY, "shape": [2.5]}}, "shape must be a list of whole numbers"),
        ({"a": {**ENTRY, "shape": [10**400]}}, "shape must be a list of whole numbers"),
        ({"a": {**ENTRY, "data_offsets": [-4, 4]}}, "data_offsets must be a list of whole"),
        ({"a": {**ENTRY, "data_offsets": [0, float("nan")]}}, "data_offsets must be"),
        ({"a": {**ENTRY, "data_offsets": [0, 8, 8]}}, "must be a list of 2 whole numbers"),
        ({"a": {"dtype": "F32"}}, "shape must be a list of whole numbers, not nothing"),
        ({"a": 3}, "a must be an object, not 3"),
        ({"a": None}, "a: dtype must be one of"),
        (b'{"\\ud800": {}}', "surrogates not allowed"),
        (b"[1, 2]", "not a JSON object"),
        (b"{nonsense", "not JSON"),
        (b"\xff\xff", "not JSON"),
        (b'{"a":' * 20_000, "nested too deeply"),
        (TWICE, "'a' stands twice"),
        ({"__metadata__": {"a": 1}, "a": ENTRY}, "a must be a text"),
        ({"a": ENTRY, "b": ENTRY}, "begins at byte 0 of the data, where those before it end at 8"),
        ({"a": {**ENTRY, "shape": [1], "data_offsets": [4, 8]}}, "begins at byte 4"),
        ({"a": {**ENTRY, "shape": [1], "data_offsets": [0, 4]}}, "8 bytes of data, of which"),
    ],
)
def test_malformed(tmp_path, header, message):
    """The reference library refuses them too, but for a name that stands twice."""
    file = write(tmp_path / "x.safetensors", header, bytes(8))
    with pytest.raises(WeightsError, match=message):
        Safetensors(file)
    if header != TWICE:
        with pytest.raises((safetensors.SafetensorError, TypeError)):
            safetensors.safe_open(file, "numpy").__enter__().get_tensor("a")


def test_an_empty_tensor_of_a_shape_that_no_array_has(tmp_path):
    entry = {**NONE, "shape": [0, 2**62]}
    file = write(tmp_path / "x.safetensors", {"a": ENTRY, "b": entry}, bytes(8))
    with pytest.raises(WeightsError, match="no array has the shape"):
        Safetensors(file)


def test_unaligned_data_is_right(tmp_path):
    data = np.array([1.5, -2.0], np.float32)
    header = json.dumps({"a": ENTRY}).encode()
    header += b" " * ((3 - len(header)) % 4)
    file = write(tmp_path / "x.safetensors", header, data.tobytes())
    np.testing.assert_array_equal(Safetensors(file)["a"], data)


def test_missing(tmp_path):
    with pytest.raises(WeightsError, match="no such file"):
        Safetensors(tmp_path / ("a" * 3000))
    with pytest.raises(WeightsError, match="no such file"):
        Safetensors(tmp_path / "nothing.safetensors")
    with pytest.raises(WeightsError, match=r"no \*\.safetensors"):
        Safetensors(tmp_path)
    save_file({"a": np.arange(3)}, tmp_path / "m.safetensors")
    with pytest.raises(WeightsError, match="no tensor 'b'"):
        Safetensors(tmp_path)["b"]


OUTSIDE = ["../x.safetensors", "a/../../x.safetensors", "/etc/passwd", ""]


@pytest.mark.parametrize("shard", OUTSIDE)
def test_a_shard_outside_of_the_models_folder(tmp_path, shard):
    save_file({"a": np.zeros(3, np.float32)}, tmp_path / "x.safetensors")
    folder = tmp_path / "model"
    (folder / "a").mkdir(parents=True)
    (folder / "m.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(WeightsError, match="outside of the model's folder"):
        Safetensors(folder)


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.safetensors")
    index = {"weight_map": {"a": "x.safetensors"}}
    (tmp_path / "m.safetensors.index.json").write_text(json.dumps(index))
    for path in (tmp_path, tmp_path / "x.safetensors"):
        with pytest.raises(WeightsError, match="not a regular file"):
            Safetensors(path)
    with pytest.raises(WeightsError, match="not a regular file"):
        locate(tmp_path / "x.safetensors")


def test_links_into_another_folder_are_followed(tmp_path):
    """The hub's cache is made of them."""
    save_file({"a": np.ones(3, np.float32)}, tmp_path / "blob")
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / "x.safetensors").symlink_to("../blob")
    index = {"weight_map": {"a": "x.safetensors"}}
    (folder / "m.safetensors.index.json").write_text(json.dumps(index))
    assert Safetensors(folder)["a"].tolist() == [1.0] * 3
