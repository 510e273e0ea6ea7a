"""Classifiers of pictures with tiny random weights, against transformers."""

import json

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from luminal.errors import InputError, Unsupported, WeightsError
from luminal.models.vision.classifier import Classifier
from luminal.models.vision.pairs import Pairs

from .tiny_diffusion import lively

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


@pytest.mark.parametrize("kind", MODELS)
def test_logits_and_names(kind, tmp_path):
    model = lively(MODELS[kind]())
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "scale" in name:
                value.uniform_(0.5, 1.5)
    model.config.id2label = {n: f"thing {n}" for n in range(5)}
    model.save_pretrained(tmp_path)
    ours = Classifier(tmp_path, device="reference")
    pixels = np.random.default_rng(0).standard_normal((3, 16, 16), np.float32)
    with torch.inference_mode():
        wanted = model(torch.from_numpy(pixels)[None]).logits[0].numpy()
    assert np.abs(ours.scores(pixels) - wanted).max() < 1e-5 * np.abs(wanted).max()
    image = Image.fromarray((pixels.transpose(1, 2, 0) * 40 + 128).clip(0, 255).astype(np.uint8))
    found = ours(image.resize((40, 30)), 2)
    assert len(found) == 2 and found[0][1] >= found[1][1] and found[0][0].startswith("thing")
    with pytest.raises(InputError, match="not a picture"):
        ours(b"nothing")


TOWER = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 16,
         "patch_size": 4, "intermediate_size": 40}  # fmt: skip
TEXT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 24, "vocab_size": 20}  # fmt: skip


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_pictures_and_texts(kind, tmp_path):
    if kind == "clip":
        text = {**TEXT, "eos_token_id": 19, "max_position_embeddings": 8}
        config = transformers.CLIPConfig(text_config=text, vision_config=TOWER, projection_dim=12)
        model = transformers.CLIPModel(config)
    else:
        text = {**TEXT, "max_position_embeddings": 8, "projection_size": 24}
        config = transformers.SiglipConfig(text_config=text, vision_config=TOWER)
        model = transformers.SiglipModel(config)
    lively(model).save_pretrained(tmp_path)
    ours = Pairs(tmp_path, device="reference")
    rng = np.random.default_rng(0)
    pixels = rng.standard_normal((2, 3, 16, 16), np.float32)
    ids = rng.integers(2, 19, (3, 8))
    ids[:, 5:] = 19
    with torch.inference_mode():
        wanted = model(input_ids=torch.from_numpy(ids), pixel_values=torch.from_numpy(pixels))
    found = ours.fit(np.stack([ours.pixels(p) for p in pixels]),
                     np.stack([ours.tokens(row) for row in ids]))  # fmt: skip
    logits = wanted.logits_per_image.numpy()
    assert np.abs(found - logits).max() < 1e-5 * np.abs(logits).max()
    with pytest.raises(InputError, match="filled up to 8"):
        ours.tokens([1, 2])


def test_wrong_folders(tmp_path):
    with pytest.raises(WeightsError, match=r"no config\.json"):
        Classifier(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "yolos"}))
    with pytest.raises(Unsupported, match="'yolos'"):
        Classifier(tmp_path)
