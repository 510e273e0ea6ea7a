"""Published ONNX models out of Python packages, in turns with ONNX Runtime and OpenVINO.

    pip install --no-deps rapidocr nudenet silero-vad magika basic-pitch piper-tts
    pip install onnxruntime openvino
    python benchmarks/onnx_models.py [--threads 2] [--cpu] [--only ocr,vad] [--bytes]

Every side is called as its users call it; results are compared first. --cpu: processor time, with
one thread a side, for a machine on which others work. --bytes: convolutional ones, quantised by
onnxruntime's tools (QDQ; a rounding that falls otherwise is a step of a byte). --json FILE: rows.
Prints Markdown, with geometric means.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from luminal.bench.onnx_peers import Row, chosen, measure, table

random = np.random.default_rng(0)


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (random.standard_normal(shape) * scale).astype(np.float32)


def windows(count: int) -> dict[str, np.ndarray]:
    """32 ms of 16 kHz each."""
    return {"input": normal(count, 576, scale=0.1)}


def picture(height: int, width: int) -> np.ndarray:
    return normal(1, 3, height, width)


# name: (package, file in it, inputs)
MODELS: dict[str, tuple[str, str, Callable[[], dict[str, np.ndarray]]]] = {
    "Basic Pitch, 2 s of sound": (
        "basic_pitch", "saved_models/icassp_2022/nmp.onnx",
        lambda: {"serving_default_input_2:0": normal(1, 43844, 1, scale=0.1)}),
    "Magika, 2048 bytes": (
        "magika", "models/standard_v3_3/model.onnx",
        lambda: {"bytes": random.integers(0, 256, (1, 2048)).astype(np.int32)}),
    "PP-OCR direction, 48 x 192": (
        "rapidocr", "models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
        lambda: {"x": picture(48, 192)}),
    "PP-OCRv6 detection, 480 x 640": (
        "rapidocr", "models/PP-OCRv6_det_small.onnx", lambda: {"x": picture(480, 640)}),
    "PP-OCRv6 recognition, 48 x 320": (
        "rapidocr", "models/PP-OCRv6_rec_small.onnx", lambda: {"x": picture(48, 320)}),
    "YOLOv8n (nudenet), 320 x 320": (
        "nudenet", "320n.onnx",
        lambda: {"images": random.random((1, 3, 320, 320)).astype(np.float32)}),
    "YOLOv8n (nudenet), 640 x 640": (
        "nudenet", "320n.onnx",
        lambda: {"images": random.random((1, 3, 640, 640)).astype(np.float32)}),
    "Silero VAD, 32 ms": (
        "silero_vad", "data/silero_vad.onnx",
        lambda: {**windows(1), "state": normal(2, 1, 128, scale=0), "sr": np.array(16000)}),
    "Silero VAD, 32 windows in one call": (
        "silero_vad", "data/silero_vad_16k_sequence.onnx",
        lambda: {**windows(32), "h": normal(1, 1, 128, scale=0),
                 "c": normal(1, 1, 128, scale=0)}),
    "Tashkeel (piper-tts), 40 letters": (
        "piper", "tashkeel/model.onnx",
        lambda: {"char_inputs": random.integers(1, 30, (1, 40)),
                 "diac_inputs": np.zeros((1, 40), np.int64), "input_lengths": np.array([40])}),
    "Nakdimon (piper-tts), 24 letters": (
        "piper", "hebrew/nakdimon.onnx",
        lambda: {"input_1": random.integers(1, 40, (1, 24)).astype(np.float32)}),
}  # fmt: skip

QUANTISED = "PP-OCR direction", "PP-OCRv6 detection", "PP-OCRv6 recognition", "320 x 320"


class Samples:
    """Inputs by which ranges of values are found."""

    def __init__(self, inputs: Callable[[], dict[str, np.ndarray]]) -> None:
        self.left = [inputs() for _ in range(4)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self.left.pop() if self.left else None


def in_bytes(path: Path, inputs: Callable[[], dict[str, np.ndarray]], folder: str) -> Path:
    """The model with weights in i8 and activations in u8."""
    from onnxruntime.quantization import QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    plain, made = Path(folder) / "plain.onnx", Path(folder) / "bytes.onnx"
    quant_pre_process(path, plain, skip_symbolic_shape=True)
    quantize_static(
        plain, made, Samples(inputs),
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each side and round")
    parser.add_argument("--cpu", action="store_true", help="processor time; with one thread")
    parser.add_argument("--peers", default=None, help="onnxruntime,openvino")
    parser.add_argument("--only", default="", help="parts of names, with commas")
    parser.add_argument("--bytes", action="store_true", help="quantised")
    parser.add_argument("--json", type=Path)
    wishes = parser.parse_args()
    if wishes.cpu and wishes.threads > 1:
        parser.error("threads that wait for others spin: --cpu wants --threads 1")
    peers, rows = chosen(wishes.peers), list[Row]()
    for name, (package, file, inputs) in MODELS.items():
        if not any(part.strip().lower() in name.lower() for part in wishes.only.split(",")):
            continue
        found = importlib.util.find_spec(package)
        if found is None or found.origin is None:
            print(f"skipped: {name}: {package} is not installed", flush=True)
            continue
        if wishes.bytes and not any(part in name for part in QUANTISED):
            continue
        path = Path(found.origin).parent / file
        with tempfile.TemporaryDirectory() as folder:
            path = in_bytes(path, inputs, folder) if wishes.bytes else path
            row = measure(name, path, inputs(), wishes.threads, peers, wishes.rounds,
                          wishes.seconds, "cpu" if wishes.cpu else "wall")  # fmt: skip
        told = ", ".join(f"{p} {s.median:.2f}" for p, s in row.ratio.items())
        wrong = ", ".join(f"{e:.0e}" for e in row.error.values())
        print(f"{name}: first {row.first:.1f} s, off by {wrong}; {told}", *row.faults.items(),
              flush=True)  # fmt: skip
        rows.append(row)
    print(f"\n{table(rows)}")
    if wishes.json:
        wishes.json.write_text(json.dumps(list(map(asdict, rows)), indent=1) + "\n")


if __name__ == "__main__":
    main()
