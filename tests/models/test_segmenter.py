"""Segment Anything with tiny random weights, against transformers; `luminal segment`."""

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from transformers.models.sam.image_processing_pil_sam import SamImageProcessorPil

from luminal.cli import main
from luminal.errors import InputError
from luminal.models.vision.images import prepared
from luminal.models.vision.segmenter import Segmenter

from .tiny_vision import picture, sam, sam2, saved

SQUARE = {"height": 64, "width": 64}
PROCESSORS = {
    "sam": {"size": {"longest_edge": 64}, "pad_size": SQUARE},
    "sam2": {"size": SQUARE},
}
PROMPTS = [  # points, points beside the object, box
    ([(20, 11)], [], None),
    ([(20, 11), (31.5, 20)], [(5, 30)], None),
    ([], [], (4, 5, 30, 33)),
    ([(20, 11)], [], (4, 5, 30, 33)),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """kind -> (folder, model, ours)."""
    known = {}

    def get(kind):
        if kind not in known:
            folder = tmp_path_factory.mktemp(kind)
            torch.manual_seed(0)  # of what `saved` draws no weights for: embeddings of places
            model = saved({"sam": sam, "sam2": sam2}[kind](), folder, **PROCESSORS[kind])
            known[kind] = folder, model, Segmenter(folder, device="reference")
        return known[kind]

    return get


def theirs(model, pixels, scale, points, besides, box, several):
    """(logits, scores) of transformers."""
    given = {}
    if points or besides:
        places = np.array([*points, *besides], np.float32) * scale
        labels = [1] * len(points) + [0] * len(besides)
        given["input_points"] = torch.from_numpy(places.astype(np.float32))[None, None]
        given["input_labels"] = torch.tensor(labels)[None, None]
    if box is not None:
        edges = np.array(box, np.float32) * np.tile(scale, 2)
        given["input_boxes"] = torch.from_numpy(edges.astype(np.float32))[None, None]
    with torch.inference_mode():
        out = model(pixel_values=torch.from_numpy(pixels), multimask_output=several, **given)
    return out.pred_masks[0, 0].numpy(), out.iou_scores[0, 0].numpy()


@pytest.mark.parametrize("kind", PROCESSORS)
def test_masks(made, kind):
    _, model, ours = made(kind)
    image = picture((50, 37))
    ours.see(image)
    pixels = np.zeros((1, 3, 64, 64), np.float32)
    seen = prepared(image, ours._prepared)
    pixels[0, :, : seen.shape[1], : seen.shape[2]] = seen
    scale = np.array(seen.shape[:0:-1]) / np.array(image.size)
    if kind == "sam":
        processor = SamImageProcessorPil(**PROCESSORS["sam"])
        wanted = processor(image, return_tensors="pt")
        np.testing.assert_allclose(pixels, wanted["pixel_values"].numpy(), atol=1e-5)
    for points, besides, box in PROMPTS:
        alone = len(points) == 1 and box is None
        logits, scores = theirs(model, pixels, scale, points, besides, box, alone)
        found = ours.prompt(image.size, points, besides, box)
        order = np.argsort(-scores, kind="stable")
        np.testing.assert_allclose([one.score for one in found], scores[order], rtol=1e-4)
        for one, n in zip(found, order):
            whole = enlarged(kind, logits[n], seen.shape[1:], image)
            differ = one.mask != (whole > 0)
            assert one.mask.shape == (37, 50) and not (differ & (np.abs(whole) > 1e-5)).any()
            assert 0 < one.mask.sum() < one.mask.size


def enlarged(kind, logits, seen, image):
    """As transformers does."""
    at = torch.from_numpy(logits)[None, None]
    if kind == "sam":
        at = torch.nn.functional.interpolate(at, (64, 64), mode="bilinear")
        at = at[..., : seen[0], : seen[1]]
    whole = torch.nn.functional.interpolate(at, (image.height, image.width), mode="bilinear")
    return whole[0, 0].numpy()


def test_the_command(made, tmp_path):
    """Each box is an object, drawn in a colour of its own."""
    folder, _, ours = made("sam2")
    picture().save(tmp_path / "in.png")
    boxes = (4, 5, 30, 33), (20, 2, 44, 20)
    ours.see(picture())
    wanted = [ours.prompt((50, 37), box=box)[0] for box in boxes]
    given = ["segment", str(tmp_path / "in.png"), "--model", str(folder), "-o",
             str(tmp_path / "out.png"), "--device", "reference"]  # fmt: skip
    asked = [word for box in boxes for word in ("--box", ",".join(map(str, box)))]
    result = CliRunner().invoke(main, [*given, *asked])
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines() if "%" in line]
    for (score, share), one in zip(lines, wanted, strict=True):
        assert abs(float(score) - one.score) < 2e-3
        assert abs(float(share[:-1]) / 100 - one.mask.mean()) < 2e-3
    before, after = (np.asarray(Image.open(tmp_path / n), int) for n in ("in.png", "out.png"))
    changed = (before != after).any(-1)
    assert (changed != (wanted[0].mask | wanted[1].mask)).mean() < 0.01
    for wrong, message in [
        ([*given], "a point or a box"),
        ([*given, "--point", "60,3"], "lies outside of a picture of 50 x 37"),
        ([*given, "--box", "9,9,3,12"], "left, top, right, bottom"),
        ([*given, "--box", "9,9,3"], "'9,9,3' is not left,top,right,bottom"),
        ([*given, *asked, "--point", "3,3"], "points go with one box"),
        (["segment", str(folder / "config.json"), *given[2:], "--point", "1,1"], "not a picture"),
        ([*given[:3], str(tmp_path), "--point", "1,1"], "no config.json"),
    ]:
        result = CliRunner().invoke(main, wrong)
        assert result.exit_code != 0 and message in " ".join(result.output.split()), result.output
    with pytest.raises(InputError, match="61 points; at most 60"):
        ours.prompt((50, 37), [(1, 1)] * 61)
