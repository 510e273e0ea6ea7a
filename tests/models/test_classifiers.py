"""Classifiers of pictures with tiny random weights, against transformers."""

import json

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from transformers.models.convnext.image_processing_pil_convnext import ConvNextImageProcessorPil
from transformers.models.detr.image_processing_pil_detr import DetrImageProcessorPil
from transformers.models.dpt.image_processing_pil_dpt import DPTImageProcessorPil
from transformers.models.efficientnet.image_processing_pil_efficientnet import (
    EfficientNetImageProcessorPil,
)
from transformers.models.segformer.image_processing_pil_segformer import SegformerImageProcessorPil

from luminal.errors import InputError, Unsupported, WeightsError
from luminal.models.vision.classifier import Classifier, Features
from luminal.models.vision.depth import Depth
from luminal.models.vision.images import middle, prepared, processor, with_usual
from luminal.models.vision.looker import Looker
from luminal.models.vision.pairs import Pairs
from luminal.models.vision.segformer import Scene
from luminal.models.vision.segmenter import Segmenter
from luminal.weights.fields import Fields

from . import tiny_vision
from .tiny_diffusion import lively, t5_tokenizer

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 16,
         "patch_size": 4, "num_labels": 5}  # fmt: skip
MODELS = {
    "vit": lambda: transformers.ViTForImageClassification(
        transformers.ViTConfig(**SIZES, intermediate_size=40)
    ),
    "dinov2": lambda: transformers.Dinov2ForImageClassification(
        transformers.Dinov2Config(**SIZES, mlp_ratio=2)
    ),
    "convnext": lambda: transformers.ConvNextForImageClassification(
        transformers.ConvNextConfig(
            hidden_sizes=[8, 16], depths=[1, 2], num_stages=2, image_size=16, num_labels=5,
            layer_scale_init_value=0.5,
        )
    ),
}  # fmt: skip


MODELS |= {
    "registers": lambda: transformers.Dinov2WithRegistersForImageClassification(
        transformers.Dinov2WithRegistersConfig(
            **SIZES, mlp_ratio=2, num_register_tokens=3, use_swiglu_ffn=True
        )
    ),
    "swin": tiny_vision.swin,
    "swin-absolute": lambda: tiny_vision.swin(use_absolute_embeddings=True, qkv_bias=False),
    "swinv2": lambda: tiny_vision.swin("v2"),
    "swinv2-finer": lambda: tiny_vision.swin("v2", pretrained_window_sizes=[3, 4]),
    "efficientnet": tiny_vision.efficientnet,
}


@pytest.mark.parametrize("kind", MODELS)
def test_logits_and_names(kind, tmp_path):
    torch.manual_seed(0)
    model = MODELS[kind]()
    model.config.id2label = {n: f"thing {n}" for n in range(5)}
    tiny_vision.saved(model, tmp_path)
    ours = Classifier(tmp_path, device="reference")
    image = tiny_vision.picture()
    pixels = ours._folder.pixels(image)
    side = model.config.image_size
    assert pixels.shape == (3, side, side)
    with torch.inference_mode():
        wanted = model(torch.from_numpy(pixels)[None]).logits[0].numpy()
    found = ours.scores(pixels)
    assert np.abs(found - wanted).max() < 1e-5 * np.abs(wanted).max()
    best = ours(image, 2)
    assert [name for name, _ in best] == [f"thing {n}" for n in np.argsort(-wanted)[:2]]
    assert best[0][1] >= best[1][1]
    with pytest.raises(InputError, match="not a picture"):
        ours(b"nothing")


@pytest.mark.parametrize("more", [{}, {"use_gated_mlp": True, "query_bias": False}])
def test_features_of_any_size(more, tmp_path):
    model = tiny_vision.saved(tiny_vision.dinov3(**more), tmp_path)
    given = json.loads((tmp_path / "config.json").read_text())
    given.pop("num_attention_heads")  # 6, as usual
    (tmp_path / "config.json").write_text(json.dumps(given))
    ours = Features(tmp_path, device="reference")
    pixels = np.random.default_rng(0).standard_normal((3, 24, 40), np.float32)
    with torch.inference_mode():
        wanted = model(torch.from_numpy(pixels)[None]).last_hidden_state[0].numpy()
    found = ours.run(pixels)
    assert found.shape == (1 + 2 + 15, 48)
    assert np.abs(found - wanted).max() < 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("kind", ["dinov2", "registers", "swinv2"])
def test_pictures_of_other_sizes_than_in_training(kind, tmp_path):
    model = tiny_vision.saved(MODELS[kind](), tmp_path)
    ours = Classifier(tmp_path, device="reference")
    for size in ((8, 12), (28, 16)) if kind[0] != "s" else ((24, 24), (45, 36)):
        pixels = np.random.default_rng(0).standard_normal((3, *size), np.float32)
        with torch.inference_mode():
            wanted = model(torch.from_numpy(pixels)[None]).logits[0].numpy()
        assert np.abs(ours.scores(pixels) - wanted).max() < 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("kind", ["relative", "metric"])
def test_depth(kind, tmp_path):
    model = tiny_vision.depth_anything(depth_estimation_type=kind, max_depth=20)
    processor = DPTImageProcessorPil(
        size={"height": 28, "width": 28}, keep_aspect_ratio=True, ensure_multiple_of=7
    )
    processor.save_pretrained(tmp_path)
    tiny_vision.saved(model, tmp_path)
    image = tiny_vision.picture((50, 37))
    given = processor(image, return_tensors="pt")
    with torch.inference_mode():
        wanted = model(**given)
    ours = Depth(tmp_path, device="reference")
    pixels = prepared(image, ours._prepared)
    np.testing.assert_allclose(pixels, given.pixel_values[0].numpy(), atol=1e-5)
    near = wanted.predicted_depth[0].numpy()
    assert near.max() > 0 and np.abs(ours.run(pixels) - near).max() < 1e-5 * near.max()
    whole = processor.post_process_depth_estimation(wanted, [(37, 50)])[0]["predicted_depth"]
    np.testing.assert_allclose(ours(image), whole.numpy(), atol=1e-4 * near.max())


def test_a_class_for_every_pixel(tmp_path):
    model = tiny_vision.saved(tiny_vision.segformer(), tmp_path)
    processor = SegformerImageProcessorPil(size={"height": 64, "width": 96})
    processor.save_pretrained(tmp_path)
    image, ours = tiny_vision.picture(), Scene(tmp_path, device="reference")
    given = processor(image, return_tensors="pt")
    with torch.inference_mode():
        wanted = model(**given)
    pixels = prepared(image, ours._prepared)
    np.testing.assert_allclose(pixels, given.pixel_values[0].numpy(), atol=1e-5)
    logits = wanted.logits[0].numpy()
    assert np.abs(ours.scores(pixels) - logits).max() < 1e-4 * np.abs(logits).max()
    (whole,) = processor.post_process_semantic_segmentation(wanted, [(37, 50)])
    found = ours(image)
    assert len(np.unique(found)) > 1 and (found != whole.numpy()).mean() < 1e-3


TOWER = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 16,
         "patch_size": 4, "intermediate_size": 40}  # fmt: skip
TEXT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 24, "vocab_size": 20}  # fmt: skip


def pairs(kind):
    """The model of transformers."""
    if kind == "clip":
        text = {**TEXT, "eos_token_id": 19, "max_position_embeddings": 8}
        config = transformers.CLIPConfig(text_config=text, vision_config=TOWER, projection_dim=12)
        return transformers.CLIPModel(config)
    text = {**TEXT, "max_position_embeddings": 8, "projection_size": 24}
    config = transformers.SiglipConfig(text_config=text, vision_config=TOWER)
    return transformers.SiglipModel(config)


def drawn():
    """(pixels of two pictures, tokens of three texts)."""
    rng = np.random.default_rng(0)
    pixels = rng.standard_normal((2, 3, 16, 16), np.float32)
    ids = rng.integers(2, 19, (3, 8))
    ids[:, 5:] = 19
    return pixels, ids


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_pictures_and_texts(kind, tmp_path):
    model = lively(pairs(kind))
    model.save_pretrained(tmp_path)
    ours, (pixels, ids) = Pairs(tmp_path, device="reference"), drawn()
    with torch.inference_mode():
        wanted = model(input_ids=torch.from_numpy(ids), pixel_values=torch.from_numpy(pixels))
    found = ours.fit(np.stack([ours.pixels(p) for p in pixels]),
                     np.stack([ours.tokens(row) for row in ids]))  # fmt: skip
    logits = wanted.logits_per_image.numpy()
    assert np.abs(found - logits).max() < 1e-5 * np.abs(logits).max()
    with pytest.raises(InputError, match="filled up to 8"):
        ours.tokens([1, 2])


@pytest.mark.parametrize("pad", ["<pad>", "</s>"])
def test_texts_are_filled_up_as_the_folder_says(pad, tmp_path):
    lively(pairs("siglip")).save_pretrained(tmp_path)
    tokenizer = t5_tokenizer(tmp_path / "words")
    tokenizer.pad_token = pad
    tokenizer.save_pretrained(tmp_path)
    ours = Pairs(tmp_path, device="reference")
    for text in ("red", ""):
        wanted = tokenizer(text, padding="max_length", max_length=8).input_ids
        assert ours.encode(text) == wanted


LOADERS = [Classifier, Features, Depth, Looker, Segmenter, Pairs, Scene]


@pytest.mark.parametrize("load", LOADERS)
def test_wrong_folders(load, tmp_path):
    """Whatever is wrong is told by the name of the folder or file."""
    with pytest.raises(WeightsError, match=r"no config\.json"):
        load(tmp_path / "nothing")
    with pytest.raises(WeightsError, match=r"no config\.json"):
        load(tmp_path)
    config = tmp_path / "config.json"
    for text, error, message in [
        ("{", WeightsError, "not JSON"),
        ("[]", WeightsError, "not a JSON object"),
        ("{}", WeightsError, "model_type must be"),
        ('{"model_type": "yolos"}', Unsupported, "'yolos'; there are"),
    ]:
        config.write_text(text)
        with pytest.raises(error, match=message):
            load(tmp_path)
    kind = {Depth: "depth_anything", Looker: "detr", Segmenter: "sam", Pairs: "clip",
            Scene: "segformer"}  # fmt: skip
    backbone = {"backbone_config": {"model_type": "dinov2"}}
    config.write_text(json.dumps({"model_type": kind.get(load, "vit"), **backbone}))
    with pytest.raises(WeightsError, match=str(tmp_path)):
        load(tmp_path)


@pytest.mark.parametrize(("kind", "more"), [
    (DetrImageProcessorPil, {"size": 40, "max_size": 50, "do_pad": False}),
    (ConvNextImageProcessorPil, {"size": 24}),
    (ConvNextImageProcessorPil, {"size": {"shortest_edge": 384}}),
    (EfficientNetImageProcessorPil, {"rescale_offset": True, "do_normalize": False}),
])  # fmt: skip
def test_preprocessors_of_older_files(kind, more, tmp_path):
    """A size alone, and what a processor's kind says where its file says nothing."""
    own = {"feature_extractor_type": kind.__name__.replace("ImageProcessorPil", "FeatureExtractor")}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**own, **more}))
    usual = {name: getattr(kind, name) for name in ("size", "resample", "image_mean", "image_std")}
    usual["include_top"] = kind is EfficientNetImageProcessorPil
    found = prepared(tiny_vision.picture(), with_usual(processor(tmp_path), usual))
    wanted = kind(**more)(tiny_vision.picture(), return_tensors="np").pixel_values[0]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_pictures_that_are_long_and_narrow():
    long = Image.new("RGB", (1, 100_000))
    plain = {"do_normalize": False, "size": {"shortest_edge": 80, "longest_edge": 133}}
    assert prepared(long, Fields(plain, "given")).shape == (3, 133, 1)
    theirs = DetrImageProcessorPil(size=dict(plain["size"]))
    for size in [(1, 224), (224, 1), (224, 2), (300, 3)]:
        image = Image.new("RGB", size)
        wanted = theirs(image, return_tensors="np").pixel_values.shape[1:]
        assert prepared(image, Fields(plain, "given")).shape == wanted
    plain["size"].pop("longest_edge")
    for call in (lambda: prepared(long, Fields(plain, "given")), lambda: middle(long, 80, 80)):
        with pytest.raises(InputError, match="1 x 100000 pixels is seen as 80 x 8000000"):
            call()


def test_wrong_preprocessors(tmp_path):
    """What says how pictures are prepared may be missing, but not wrong."""
    tiny_vision.saved(tiny_vision.swin(), tmp_path)
    assert Classifier(tmp_path)._folder.pixels(tiny_vision.picture()).shape == (3, 36, 36)
    for given, message in [
        ({"size": "large"}, "size must be an object"),
        ({"size": {"width": 4}}, "height and width, or shortest_edge"),
        ({"size": {"height": 0, "width": 4}}, "height must be a whole number"),
        ({"resample": 17}, "resample must be"),
        ({"image_mean": [0, 0]}, "image_mean must be a list of 3 numbers"),
        ({"do_resize": "yes"}, "do_resize must be true or false"),
    ]:
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(given))
        with pytest.raises(WeightsError, match=message):
            Classifier(tmp_path)(tiny_vision.picture())
