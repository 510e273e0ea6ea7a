"""YOLO from weights, suppression, pictures of every kind, and `luminal detect`."""

import io

import numpy as np
import onnx
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from safetensors.numpy import save_file

import luminal
from luminal.bench import yolo as twin
from luminal.cli import main
from luminal.errors import InputError, Unsupported, WeightsError
from luminal.models.vision import images
from luminal.models.vision.boxes import suppressed
from luminal.models.vision.detector import Detector, letterbox, masked
from luminal.models.vision.draw import drawn
from luminal.models.vision.yolo import Yolo, folded, fuse

NAMES = {  # of the twin's layers -> of ultralytics'
    "stem.0": 0, "stem.1": 1, "stem.2": 2, "p3.0": 3, "p3.1": 4, "p4.0": 5, "p4.1": 6, "p5.0": 7,
    "p5.1": 8, "p5.2": 9, "up4": 12, "up3": 15, "down3": 16, "out4": 18, "down4": 19, "out5": 21,
    "boxes": "22.cv2", "classes": "22.cv3",
}  # fmt: skip
SIZE, CLASSES = 64, 3


@pytest.fixture(scope="module")
def net():
    """(a net in PyTorch with lively weights, its state under ultralytics' names)."""
    torch.manual_seed(0)
    made = twin.Yolo(width=4, blocks=(1, 1, 1, 1), classes=CLASSES).eval()
    for module in made.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eps = 1e-3
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
        if isinstance(module, torch.nn.Conv2d):
            module.weight.data.normal_(0, 1.5 / module.weight[0].numel() ** 0.5)
    state = {"model.22.dfl.conv.weight": np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1)}
    for name, value in made.state_dict().items():
        start = next(n for n in NAMES if name.startswith(n + "."))
        state[f"model.{NAMES[start]}{name[len(start) :]}"] = value.numpy()
    return made, state


def pixels(seed=0, size=SIZE):
    return np.random.default_rng(seed).random((1, 3, size, size), np.float32)


def decoded(raw):
    """Boxes and scores (4 + classes, cells) of the raw maps of a head (64 + classes, cells)."""
    shares = np.exp(raw[:64].reshape(4, 16, -1))
    sides = (shares * np.arange(16)[:, None]).sum(1) / shares.sum(1)
    columns = []
    for stride in (8, 16, 32):
        side = SIZE // stride
        cells = [(x + 0.5, y + 0.5, stride) for y in range(side) for x in range(side)]
        columns += cells
    x, y, stride = np.array(columns).T
    left, top, right, bottom = sides
    box = np.stack([x + (right - left) / 2, y + (bottom - top) / 2, left + right, top + bottom])
    return np.concatenate([box * stride, 1 / (1 + np.exp(-raw[64:]))])


def fused(state):
    """As ultralytics saves a net whose norms were folded: biases in their place."""
    found = {}
    for name, value in folded(state).items():
        base, _, kind = name.rpartition(".")
        found[name if name in state else f"{base}.conv.{kind}"] = value
    return found


@pytest.mark.parametrize("norms", [True, False])
def test_yolo_v8_from_its_weights(net, norms):
    made, state = net
    state = state if norms else fused(state)
    with torch.no_grad():
        raw = made(torch.from_numpy(pixels()))[0].numpy()
    graph = luminal.Graph()
    images_in = graph.tensor((1, 3, SIZE, SIZE))
    output = Yolo(state).record(images_in)[0].output()
    program = graph.compile(device="reference")
    program[images_in] = pixels()
    program.run()
    np.testing.assert_allclose(program[output][0], decoded(raw), rtol=1e-4, atol=1e-4)


def test_parts_of_other_results_are_added_at_the_size():
    """CBFuse of YOLO v9e: the second part of each of those that have one."""
    rng, graph = np.random.default_rng(0), luminal.Graph()
    given = [rng.standard_normal(shape).astype("f4") for shape in
             ((1, 5, 8, 12), (1, 3, 16, 24), (1, 8, 8, 12), (1, 9, 4, 6))]  # fmt: skip
    inputs = [graph.tensor(each.shape) for each in given]
    output = fuse(1, inputs[0], inputs[1:]).output()
    program = graph.compile(device="reference")
    for tensor, value in zip(inputs, given):
        program[tensor] = value
    program.run()
    x, _, second, third = (torch.from_numpy(each) for each in given)
    wanted = x + second[:, 3:8] + torch.nn.functional.interpolate(third[:, 3:8], (8, 12))
    np.testing.assert_allclose(program[output], wanted.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["yolov9t", "yolov9e", "yolo11n", "yolo11n-seg", "yolov8n-pose"])
def test_the_others_against_ultralytics(kind):
    tasks = pytest.importorskip("ultralytics.nn.tasks")
    kinds = {"seg": tasks.SegmentationModel, "pose": tasks.PoseModel}
    torch.manual_seed(0)
    theirs = kinds.get(kind.partition("-")[2], tasks.DetectionModel)(f"{kind}.yaml", verbose=False)
    for module in theirs.eval().modules():
        if type(module).__name__ == "SPPF":
            module.cv1.act = torch.nn.SiLU()  # as in all published weights
    with torch.no_grad():
        wanted = theirs(torch.from_numpy(pixels()))[0]
    wanted = (wanted[0] if isinstance(wanted, tuple) else wanted).numpy()
    graph = luminal.Graph()
    images_in = graph.tensor((1, 3, SIZE, SIZE))
    state = {name: value.numpy() for name, value in theirs.state_dict().items()}
    output = Yolo(state).record(images_in)[0].output()
    program = graph.compile(device="reference")
    program[images_in] = pixels()
    program.run()
    np.testing.assert_allclose(program[output], wanted, rtol=1e-3, atol=1e-3)


def test_keypoints_without_how_sure_they_are(net):
    """Each is twice what the head says, from the corner of its cell; two numbers a point."""
    _, state = net
    told, state = np.arange(8, dtype=np.float32) / 4 - 1, dict(state)
    for n in range(3):
        channels = state[f"model.22.cv2.{n}.0.conv.weight"].shape[1]
        state[f"model.22.cv4.{n}.0.conv.weight"] = np.ones((8, channels, 3, 3), np.float32)
        state[f"model.22.cv4.{n}.1.conv.weight"] = np.ones((8, 8, 3, 3), np.float32)
        state[f"model.22.cv4.{n}.2.weight"] = np.zeros((8, 8, 1, 1), np.float32)
        state[f"model.22.cv4.{n}.2.bias"] = told
    detector = Detector(state, SIZE, device="reference")
    assert detector.task == "pose"
    found = detector(Image.new("RGB", (SIZE, SIZE)), 0.0)
    assert found
    for one in found:
        assert one.points.shape == (4, 3) and (one.points[:, 2] == 1).all()
    cells = [(x * stride, y * stride, stride) for stride in (8, 16, 32)
             for y in range(SIZE // stride) for x in range(SIZE // stride)]  # fmt: skip
    wanted = [np.clip(np.array(cell[:2]) + 2 * told.reshape(4, 2) * cell[2], 0, SIZE).tolist()
              for cell in cells]  # fmt: skip
    assert all(one.points[:, :2].tolist() in wanted for one in found)
    with pytest.raises(Unsupported, match="7 numbers beside each box"):
        Yolo(state | {"model.22.cv4.0.2.weight": np.zeros((7, 8, 1, 1), np.float32)})


def exported(shape, outputs, **told):
    """An ONNX model that sees images of a shape and always finds the same, (1, ...) each."""
    helper = onnx.helper
    nodes = [helper.make_node("ReduceMax", ["images"], ["max"], keepdims=0),
             helper.make_node("Sub", ["max", "max"], ["zero"])]  # fmt: skip
    given, results = [], []
    for n, rows in enumerate(outputs):
        rows = np.repeat(np.asarray(rows, np.float32), shape[0], 0)
        given.append(onnx.numpy_helper.from_array(rows, f"rows{n}"))
        nodes.append(helper.make_node("Add", [f"rows{n}", "zero"], [f"output{n}"]))
        results.append(helper.make_tensor_value_info(f"output{n}", 1, rows.shape))
    image = helper.make_tensor_value_info("images", 1, shape)
    graph = helper.make_graph(nodes, "net", [image], results, given)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(model, {name: str(value) for name, value in told.items()})
    return luminal.onnx.load(model)


NAMED = {0: "cat", 1: "dog"}


def found_rows(*columns):
    """(1, 4 + ..., cells) of a YOLO v8: one cell each, and empty ones."""
    rows = np.zeros((1, len(columns[0]), 21), np.float32)
    rows[0, :, : len(columns)] = np.transpose(columns)
    return rows


@pytest.mark.parametrize("batch", [1, 2])
def test_an_export_of_its_own_sides_and_batch(batch):
    """A picture of 640 x 256 lies in 320 x 256 at half of its size, 64 rows from above."""
    rows = found_rows((160, 128, 320, 128, 0.2, 0.9), (40, 84, 20, 20, 0.8, 0.1))
    model = exported((batch, 3, 256, 320), [rows], names=NAMED, imgsz=[256, 320])
    detector = Detector(model, device="reference")
    found = detector(Image.new("RGB", (640, 256)))
    assert [(one.name, one.box) for one in found] == [
        ("dog", (0, 0, 640, 256)), ("cat", (60, 20, 100, 60))]  # fmt: skip
    with pytest.raises(InputError, match="sees 256 x 320 pixels, not 320"):
        Detector(model, 320, device="reference")
    free = exported((batch, 3, "height", "width"), [rows], names=NAMED, imgsz=[256, 320])
    assert Detector(free, 64, device="reference").sides == (64, 64)
    assert Detector(free, device="reference").sides == (256, 320)


def test_an_export_for_poses_tells_the_numbers_of_a_point():
    rows = found_rows((32, 32, 64, 64, 0.9, *range(12)))
    for shape, count in (([4, 3], 4), ([6, 2], 6)):
        model = exported((1, 3, 64, 64), [rows], names={0: "cat"}, task="pose", kpt_shape=shape)
        (one,) = Detector(model, device="reference")(Image.new("RGB", (64, 64)))
        assert one.points[1, :2].tolist() == ([3, 4] if count == 4 else [2, 3])
        assert len(one.points) == count and (count == 4 or (one.points[:, 2] == 1).all())
    model = exported((1, 3, 64, 64), [rows], names={0: "cat"}, task="pose", kpt_shape=[7, 3])
    with pytest.raises(Unsupported, match="12 numbers beside each box"):
        Detector(model, device="reference")


@pytest.mark.parametrize("task", ["detect", "segment", "pose"])
def test_an_export_with_suppression_in_it(task):
    """Rows of corners, score, class and what more there is; the rest of 300 is 0."""
    more = {"detect": (), "segment": (1.0, 0.0), "pose": (8.0, 16.0, 0.5)}[task]
    rows = np.zeros((1, 300, 6 + len(more)), np.float32)
    rows[0, 0], rows[0, 1] = (8, 8, 24, 32, 0.6, 0, *more), (0, 16, 64, 48, 0.9, 1, *more)
    protos = [np.ones((1, 2, 16, 16))] if task == "segment" else []
    told = {"kpt_shape": [1, 3]} if task == "pose" else {}
    model = exported((1, 3, 64, 64), [rows, *protos], names=NAMED, task=task, **told)
    found = Detector(model, device="reference")(Image.new("RGB", (128, 64)))
    assert [(one.name, one.box) for one in found] == [
        ("dog", (0, 0, 128, 64)), ("cat", (16, 0, 48, 32))]  # fmt: skip
    if task == "segment":
        assert found[1].mask.sum() == 32 * 32
    if task == "pose":
        np.testing.assert_allclose(found[0].points, [[16, 0, 0.5]])


def greedy(boxes, scores, labels, most, least):
    """The indices that are kept, best first."""
    kept = []
    for n in np.argsort(-scores, kind="stable"):
        if scores[n] <= least:
            break
        for other in kept:
            low = np.maximum(boxes[n, :2], boxes[other, :2])
            shared = np.prod(np.maximum(np.minimum(boxes[n, 2:], boxes[other, 2:]) - low, 0))
            sizes = [np.prod(boxes[i, 2:] - boxes[i, :2]) for i in (n, other)]
            if labels[n] == labels[other] and shared / (sum(sizes) - shared) > most:
                break
        else:
            kept.append(n)
    return kept


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_suppression(device):
    graph, count = luminal.Graph(), 40
    given = [graph.tensor((count, 4)), graph.tensor((count,)), graph.tensor((count,), "i64")]
    limits = [graph.tensor(()), graph.tensor(())]
    outputs = [t.output() for t in suppressed(*given, *limits)]
    program = graph.compile(device=device, threads=1)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        low = rng.random((count, 2), np.float32) * 20
        boxes = np.concatenate([low, low + 1 + 20 * rng.random((count, 2), np.float32)], 1)
        scores, labels = rng.random(count, np.float32), rng.integers(0, 3, count)
        limit = np.float32(rng.random()), np.float32(0.3)
        for tensor, value in zip([*given, *limits], [boxes, scores, labels, *limit]):
            program[tensor] = value
        program.run()
        left, place = (program[tensor] for tensor in outputs)
        assert place[left > 0].tolist() == greedy(boxes, scores, labels, *limit)


def test_a_picture_lies_in_a_square_and_back():
    image = Image.new("RGB", (200, 100), (255, 0, 0))
    square, placed = letterbox(image, (64, 64))
    assert square.shape == (1, 3, 64, 64) and (placed.left, placed.top) == (0, 16)
    np.testing.assert_allclose(square[0, :, 32, 32], (1, 0, 0))
    np.testing.assert_allclose(square[0, :, 2, 2], 114 / 255)
    x, y = placed.back(np.array([0.0, 32.0, 80.0]), np.array([16.0, 32.0, 80.0]))
    np.testing.assert_allclose([x, y], [[0, 100, 200], [0, 50, 100]])
    protos = np.stack([np.ones((16, 16)), np.tile(np.arange(16.0) - 7.5, (16, 1))]).astype("f4")
    shares, edges = np.array([0.0, 1.0], "f4"), ([0.0, 150.0], [10.0, 90.0])
    mask = masked(shares, protos, placed, (64, 64), edges)
    assert mask.shape == (100, 200)
    assert mask[50, 120] and not mask[50, 80] and not mask[50, 160] and not mask[5, 120]


def test_the_command(net, tmp_path):
    """What is printed is what the detector finds, and lies where the picture is drawn on."""
    _, state = net
    save_file({n: np.ascontiguousarray(v) for n, v in state.items()}, tmp_path / "m.safetensors")
    picture = Image.fromarray((pixels(3)[0].transpose(1, 2, 0) * 255).astype(np.uint8))
    picture.save(tmp_path / "in.png")
    detector = Detector(state, SIZE, device="reference")
    found = detector(picture, 0.5, 0.4)
    assert found and found == sorted(found, key=lambda one: -one.score)
    given = ["detect", str(tmp_path / "in.png"), "--model", str(tmp_path / "m.safetensors"),
             "-o", str(tmp_path / "out.png"), "--confidence", "0.5", "--overlap", "0.4", "--size",
             str(SIZE), "--device", "reference"]  # fmt: skip
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 0, result.output
    lines = [line for line in result.output.splitlines() if "class" in line]
    assert [line.split()[0] for line in lines] == [f"{one.score:.3f}" for one in found]
    out = np.asarray(Image.open(tmp_path / "out.png"))
    np.testing.assert_array_equal(out, drawn(picture, found))
    assert (out != np.asarray(picture)).any()
    for wrong, message in [
        ([*given, "--size", "33"], "multiple of 32"),
        (["detect", "nothing.png", *given[2:]], "cannot be read"),
        ([*given[:3], str(tmp_path / "in.png")], "safetensors"),
        ([*given[:3], str(tmp_path / "m.pt")], "no such file"),
    ]:
        result = CliRunner().invoke(main, wrong)
        assert result.exit_code == 1 and message in result.output, result.output


def test_wrong_weights(net, tmp_path):
    _, state = net
    (tmp_path / "m.pt").write_bytes(b"")
    with pytest.raises(Unsupported, match="pickle"):
        Detector(tmp_path / "m.pt")
    with pytest.raises(Unsupported, match="no YOLO"):
        Yolo({"layer1.weight": np.zeros((2, 2))})
    with pytest.raises(WeightsError, match=r"no weight 'model\.4\.cv2\.weight'"):
        Detector({n: v for n, v in state.items() if "model.4.cv2." not in n}, SIZE)
    with pytest.raises(InputError, match="2 names for 3 classes"):
        Detector(state, SIZE, ["a", "b"], device="reference")


def encoded(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize(("brightest", "seen"), [(255, 255), (0xFFFF, 255), (0x8000, 128)])
def test_grey_of_more_than_eight_bits(brightest, seen):
    """Older Pillows read files of 16 bits as integers of 32."""
    given = Image.fromarray(np.array([[0, brightest]], np.int32))
    for image in (given, encoded(given, "TIFF")):
        assert images.to_array(images.read_image(image))[0, :, 0].tolist() == [0, seen]
    for far in (-1, 0x10000):
        with pytest.raises(InputError, match="8 or 16 bits"):
            images.read_image(Image.fromarray(np.array([[far]], np.int32)))


@pytest.mark.parametrize("brightest", [250, 256, 0xFFFF])
def test_how_bright_a_file_of_16_bits_is_does_not_depend_on_its_brightest(brightest):
    file = b"P5 2 1 65535\n" + np.array([128, brightest], ">u2").tobytes()
    short = Image.fromarray(np.array([[128, brightest]], np.uint16))
    for source in (file, short, encoded(short, "TIFF")):
        seen = images.to_array(images.read_image(source))[0, :, 0].tolist()
        assert seen == [0, brightest >> 8]


def test_half_a_file_is_refused_by_whomever_it_is_opened():
    half = encoded(Image.new("RGB", (64, 64), (9, 80, 200)), "PNG")[:-40]
    for source in (half, Image.open(io.BytesIO(half))):
        with pytest.raises(InputError, match="not a picture that can be read"):
            images.read_image(source)


@pytest.mark.parametrize(("brightest", "seen"), [(1.0, [0, 128, 255]), (200.0, [0, 100, 200])])
def test_grey_of_floats(brightest, seen):
    given = Image.fromarray(np.array([[0, brightest / 2, brightest]], np.float32))
    for image in (given, encoded(given, "TIFF")):
        assert images.to_array(images.read_image(image))[0, :, 0].tolist() == seen
    for far in (-0.1, 256, np.nan):
        with pytest.raises(InputError, match=r"floats are 0 \.\. 1, or 0 \.\. 255"):
            images.read_image(Image.fromarray(np.array([[far]], np.float32)))


def test_pictures_of_every_kind(tmp_path, monkeypatch):
    base = Image.fromarray((pixels(1)[0].transpose(1, 2, 0) * 255).astype(np.uint8))
    red = Image.new("CMYK", (4, 4), (0, 255, 255, 0))
    np.testing.assert_allclose(
        images.to_array(images.read_image(encoded(red, "TIFF")))[0, 0], (255, 0, 0), atol=2
    )
    assert images.read_image(encoded(red, "JPEG")).mode == "RGB"
    for mode in ("L", "LA", "P", "RGBA", "1", "I;16"):
        given = base.convert("L").convert("I;16") if mode == "I;16" else base.convert(mode)
        assert images.read_image(encoded(given, "PNG")).mode == "RGB"
    assert images.read_image(base.convert("LA").convert("La")).mode == "RGB"
    turned = Image.new("RGB", (6, 3))
    exif = turned.getexif()
    exif[images.ORIENTATION] = 6
    assert images.read_image(encoded(turned, "JPEG", exif=exif)).size == (3, 6)
    whole = encoded(base, "JPEG")
    for damaged in (whole[: len(whole) // 2], b"", b"GIF89a", whole[:20], b"\0" * 100):
        with pytest.raises(InputError, match="not a picture"):
            images.read_image(damaged)
    monkeypatch.setattr(images, "MOST_PIXELS", 4000)
    with pytest.raises(InputError, match="64 x 64 pixels; at most 4000"):
        images.read_image(encoded(base, "PNG"))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)
    with pytest.raises(InputError, match="picture: too many pixels; at most 4000"):
        images.read_image(encoded(Image.new("L", (80, 80)), "PNG"))
    with pytest.raises(InputError, match=r"cannot be read|not a file"):
        images.read_image(tmp_path)
    for nothing in (Image.new("L", (0, 5)), np.zeros((5, 0, 3), np.uint8)):
        with pytest.raises(InputError, match="0 x 5 pixels"):
            images.read_image(nothing)
    with pytest.raises(InputError, match=r"u8, not \(5, 5, 3\) float32"):
        images.read_image(np.zeros((5, 5, 3), np.float32))
    for other, kind in ((None, "NoneType"), (5, "int")):
        with pytest.raises(InputError, match=f"a picture is a path, .*, not {kind}"):
            images.read_image(other)
    with pytest.raises(InputError, match="data:image"):
        images.read_image("data:nothing")
    with pytest.raises(InputError, match="base64"):
        images.read_image("data:image/png;base64,???")
