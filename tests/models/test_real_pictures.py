"""Published models on photographs and on drawn text: what onnxruntime finds, found."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

import luminal.onnx
from luminal.models.vision.detector import Detector, letterbox
from luminal.models.vision.images import read_image

from .test_detect import greedy


def package(name):
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        pytest.skip(f"{name} is not installed")
    return Path(found.origin).parent


@pytest.mark.parametrize("picture", ["astronaut.png", "rocket.jpg"])
def test_boxes_in_a_photograph(picture):
    runtime = pytest.importorskip("onnxruntime")
    model, photo = package("nudenet") / "320n.onnx", package("skimage") / "data" / picture
    found = Detector(luminal.onnx.load(model, threads=1), threads=1)(photo)
    session = runtime.InferenceSession(str(model))
    square, placed = letterbox(read_image(photo), 320)
    raw = session.run(None, {"images": square})[0][0].T
    half = raw[:, 2:4] / 2
    boxes = np.concatenate([raw[:, :2] - half, raw[:, :2] + half], 1)
    scores, labels = raw[:, 4:].max(1), raw[:, 4:].argmax(1)
    kept = greedy(boxes, scores, labels, 0.7, 0.25)
    assert [one.label for one in found] == labels[kept].tolist()
    assert len(found) == (picture == "astronaut.png")
    for one, row in zip(found, kept):
        x, y = placed.back(boxes[row, 0::2], boxes[row, 1::2])
        np.testing.assert_allclose(one.box, (x[0], y[0], x[1], y[1]), atol=0.05)
        assert one.score == pytest.approx(scores[row], abs=1e-4)
    assert Image.open(photo).size == read_image(photo).size


def test_text_that_was_drawn():
    """PP-OCR's recognition: what is read, and what onnxruntime reads."""
    runtime, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
    file = package("rapidocr") / "models" / "PP-OCRv6_rec_small.onnx"
    told = {p.key: p.value for p in onnx.load(file, load_external_data=False).metadata_props}
    letters = ["", *told["character"].splitlines(), " "]
    model, session = luminal.onnx.load(file, threads=1), runtime.InferenceSession(str(file))
    for text in ("Luminal reads this", "42 boxes, 7 words"):
        line = Image.new("RGB", (320, 48), "white")
        font = ImageFont.load_default(size=32)
        ImageDraw.Draw(line).text((6, 4), text, fill="black", font=font)
        pixels = (np.asarray(line, np.float32) / 127.5 - 1).transpose(2, 0, 1)[None, ::-1]
        given = [np.ascontiguousarray(pixels)]
        (ours,), (theirs,) = model.run(given), session.run(None, {"x": given[0]})
        np.testing.assert_allclose(ours, theirs, atol=1e-3)
        best = ours[0].argmax(1)
        read = [n for n, before in zip(best, [0, *best]) if n != before and n]
        assert "".join(letters[n] for n in read) == text
