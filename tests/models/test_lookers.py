"""DETR and RT-DETR with tiny random weights, against transformers."""

import json
import shutil

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from safetensors.numpy import load_file, save_file
from transformers.models.detr.image_processing_pil_detr import DetrImageProcessorPil
from transformers.models.rt_detr.image_processing_pil_rt_detr import RTDetrImageProcessorPil

import luminal
from luminal.cli import main
from luminal.errors import InputError, ShapeError, Unsupported, WeightsError
from luminal.models.vision.draw import drawn
from luminal.models.vision.images import padded, prepared
from luminal.models.vision.looker import Looker
from luminal.models.vision.named import Named
from luminal.models.vision.rtdetr import _deformable
from luminal.weights.fields import Fields

from .tiny_vision import detr, picture, rt_detr, saved

KINDS = {
    "detr": detr,
    "rt_detr": rt_detr,
    "rt_detr_v2": lambda: rt_detr("V2", "bottleneck", decoder_offset_scale=0.7),
    "discrete": lambda: rt_detr("V2", decoder_method="discrete"),
}
PROCESSORS = {
    "detr": DetrImageProcessorPil(size={"shortest_edge": 64, "longest_edge": 80}),
    "rt_detr": RTDetrImageProcessorPil(size={"height": 64, "width": 96}),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """kind -> (folder, model, processor)."""
    known = {}

    def get(kind):
        if kind not in known:
            folder = tmp_path_factory.mktemp(kind)
            processor = PROCESSORS["detr" if kind == "detr" else "rt_detr"]
            processor.save_pretrained(folder)
            torch.manual_seed(1)  # of what is not made lively: near ties choose other queries
            known[kind] = folder, saved(KINDS[kind](), folder), processor
        return known[kind]

    return get


def theirs(model, processor, image, sides=(1, 1)):
    """(pixels, logits, boxes, what is found above 0) of transformers. sides: (height, width) of
    what boxes are shares of, in those of the picture."""
    given = processor(image, return_tensors="pt")
    with torch.inference_mode():
        out = model(**given)
    sizes = [(image.height * sides[0], image.width * sides[1])]
    found = processor.post_process_object_detection(out, 0.0, target_sizes=sizes)[0]
    pixels = given["pixel_values"][0].numpy()
    return pixels, out.logits[0].numpy(), out.pred_boxes[0].numpy(), found


@pytest.mark.parametrize("kind", KINDS)
def test_boxes(made, kind):
    folder, model, processor = made(kind)
    ours, image = Looker(folder, device="reference"), picture()
    pixels, logits, boxes, wanted = theirs(model, processor, image)
    seen = prepared(image, ours._prepared)
    np.testing.assert_allclose(seen, pixels, atol=1e-5)
    found = ours.run(seen)
    assert np.abs(found[0] - logits).max() < 1e-4 * np.abs(logits).max()
    np.testing.assert_allclose(found[1], boxes, atol=1e-5)
    same(ours(image, 0.0), wanted)


def same(detections, wanted):
    order = np.argsort(-wanted["scores"].numpy(), kind="stable")
    assert [one.label for one in detections] == wanted["labels"].numpy()[order].tolist()
    edges = wanted["boxes"].numpy()[order]
    np.testing.assert_allclose([one.box for one in detections], edges, atol=1e-3)


@pytest.mark.parametrize(
    ("kind", "height", "width", "sides"),
    [("detr", 100, 130, (1, 1)), ("rt_detr", 96, 192, (1.5, 2))],
)
def test_padded_pictures(made, tmp_path, kind, height, width, sides):
    """DETR leaves the padding out of attention and of positions; RT-DETR sees it, and its boxes
    are shares of all."""
    folder, model, _ = made(kind)
    size = {"height": height, "width": width}
    processor = type(PROCESSORS[kind])(size=PROCESSORS[kind].size, do_pad=True, pad_size=size)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    processor.save_pretrained(tmp_path)
    ours, image = Looker(tmp_path, device="reference"), picture()
    pixels, _, _, wanted = theirs(model, processor, image, sides)
    seen = padded(prepared(image, ours._prepared), ours._prepared)
    np.testing.assert_allclose(seen, pixels, atol=1e-5)
    same(ours(image, 0.0), wanted)
    smaller = Fields({**ours._prepared.values, "pad_size": {"height": 40, "width": 40}}, "a file")
    with pytest.raises(InputError, match="padding to 40 x 40 takes as many"):
        padded(seen, smaller)


TIMM = {"convolution": "conv", "normalization": "bn"}


def timm_name(name):
    """A name of Hugging Face's ResNet as timm's."""
    start = "model.backbone.conv_encoder.model."
    if not name.startswith(start):
        return name
    parts = name.removeprefix(start).split(".")
    if parts[0] == "embedder":
        return f"{start}{TIMM[parts[2]]}1.{parts[3]}"
    stage, layer, kind, rest = int(parts[2]) + 1, parts[4], parts[5], parts[6:]
    if kind == "shortcut":
        place = list(TIMM).index(rest[0])
        return f"{start}layer{stage}.{layer}.downsample.{place}.{rest[1]}"
    return f"{start}layer{stage}.{layer}.{TIMM[rest[1]]}{int(rest[0]) + 1}.{rest[2]}"


def test_the_command_and_names_of_timm(made, tmp_path):
    """What is printed is what the detector finds; as published, DETR's backbone has timm's names.
    A size that is asked for is that of both sides."""
    folder, _, _ = made("detr")
    picture().save(tmp_path / "in.png")
    wanted = Looker(folder, 64, device="reference")(picture(), 0.3)
    state = {timm_name(n): v for n, v in load_file(folder / "model.safetensors").items()}
    assert "model.backbone.conv_encoder.model.layer2.0.downsample.1.weight" in state
    save_file(state, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    given = ["detect", str(tmp_path / "in.png"), "--model", str(tmp_path), "-o",
             str(tmp_path / "out.png"), "--confidence", "0.3", "--size", "64",
             "--device", "reference"]  # fmt: skip
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 0, result.output
    lines = [line for line in result.output.splitlines() if "LABEL" in line]
    assert [line.split()[-1] for line in lines] == [one.name for one in wanted] != []
    np.testing.assert_allclose([float(line.split()[0]) for line in lines],
                               [one.score for one in wanted], atol=2e-3)  # fmt: skip
    out = np.asarray(Image.open(tmp_path / "out.png"), int)
    assert np.abs(out - drawn(picture(), wanted)).mean() < 1


def test_wrong_folders(made, tmp_path):
    folder, _, _ = made("rt_detr")
    result = CliRunner().invoke(main, ["detect", __file__, "--model", str(folder)])
    assert result.exit_code == 1 and "not a picture" in result.output
    given = json.loads((folder / "config.json").read_text())
    for change, error, message in [
        ({"model_type": "yolos"}, Unsupported, "'yolos'; there are detr, rt_detr"),
        ({"normalize_before": True}, Unsupported, "norms before layers"),
        ({"num_queries": 10_000}, WeightsError, "num_queries must be at most 84"),
        ({"encoder_attention_heads": 3}, ShapeError, "3"),
    ]:
        (tmp_path / "config.json").write_text(json.dumps({**given, **change}))
        save_file(load_file(folder / "model.safetensors"), tmp_path / "model.safetensors")
        with pytest.raises(error, match=message):
            Looker(tmp_path, 64, device="reference")(picture())
    (tmp_path / "config.json").write_text(json.dumps(given))
    state = load_file(folder / "model.safetensors")
    del state["model.encoder.pan_blocks.0.conv1.norm.running_mean"]
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"no weight 'model\.encoder\.pan_blocks\.0\.conv1"):
        Looker(tmp_path, 64, device="reference")(picture())


def test_points_at_the_width_of_published_models():
    """300 queries of 8 heads: kernels that small ones do not have."""
    rng, width, sizes = np.random.default_rng(0), 256, [(8, 8), (4, 4), (2, 2)]
    rows = {"value_proj": width, "sampling_offsets": 192, "attention_weights": 96,
            "output_proj": width}  # fmt: skip
    state = {f"{n}.weight": rng.standard_normal((count, width)) / 16 for n, count in rows.items()}
    shapes = (1, 300, width), (1, 84, width), (1, 300, 4)
    arrays = [rng.random(shape, np.float32) for shape in shapes]
    found = []
    for device in ("cpu", "reference"):
        graph = luminal.Graph()
        given = [graph.tensor(array.shape) for array in arrays]
        w = Named(graph, state)
        out = _deformable(w, given[0], given[1], sizes, given[2], 8, Fields({}, "none")).output()
        program = graph.compile(device=device, threads=2)
        for tensor, array in zip(given, arrays):
            program[tensor] = array
        program.run()
        found.append(np.array(program[out]))
    np.testing.assert_allclose(*found, atol=1e-4)
