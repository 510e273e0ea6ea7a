"""Gemma 3 with tiny random weights, against transformers: tokens of a picture see each other, also
in prompts that are cut into chunks and in batches."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

from luminal import LLM
from luminal.errors import Unsupported
from luminal.models.llm import Engine, Wishes
from luminal.models.llm.checkpoint import read_config
from luminal.weights.fields import Fields

from . import tiny_vision
from .test_sight import asked, picture, tokenizer

SPECIAL = ["<image_soft_token>", "<start_of_image>", "<end_of_image>", "<end>"]
TOKEN, VOCABULARY, SIZE = 12, 24, 24
TEMPLATE = (
    "{% for m in messages %}{{ m.role }} {% for p in m.content %}"
    "{{ '<start_of_image>' if p.type == 'image' else p.text }} {% endfor %}{% endfor %}"
)


def written(folder):
    """(folder, the model of transformers, its processor of pictures)."""
    config = transformers.Gemma3Config(
        vision_config={"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
                       "num_attention_heads": 2, "image_size": SIZE, "patch_size": 4},
        text_config={"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48,
                     "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
                     "head_dim": 8, "sliding_window": 9, "query_pre_attn_scalar": 8,
                     "max_position_embeddings": 128, "bos_token_id": 0, "eos_token_id": 15,
                     "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
        mm_tokens_per_image=9, image_token_index=TOKEN, boi_token_index=13, eoi_token_index=14,
    )  # fmt: skip
    model = transformers.Gemma3ForConditionalGeneration(config).float()
    tiny_vision.saved(model, folder)
    tokenizer(folder, SPECIAL, TEMPLATE)
    processor = Gemma3ImageProcessorPil(size={"height": SIZE, "width": SIZE})
    processor.save_pretrained(folder)
    return folder, model, processor


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return written(tmp_path_factory.mktemp("gemma3"))


def theirs(made, images, ids):
    """Logits of transformers, all of them."""
    _, model, processor = made
    pixels = processor(images, return_tensors="pt").pixel_values
    plain = torch.tensor([[TOKEN if token >= VOCABULARY else token for token in ids]])
    kinds = (plain == TOKEN).int()
    with torch.inference_mode():
        out = model(input_ids=plain, token_type_ids=kinds, pixel_values=pixels)
    return out.logits[0].numpy()


def test_logits_with_pictures(made):
    folder, model, _ = made
    llm = LLM(folder, context=96, threads=1, precision="f32", device="reference")
    llm.program.chunk = 10  # holds one picture
    images = [picture(0, (20, 13)), picture(1, (41, 70))]
    ids = llm.ids([*asked(images[0]), *asked(images[1])])
    assert sum(token >= VOCABULARY for token in ids) == 18
    wanted, found = theirs(made, images, ids), llm.logits(ids)
    assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()
    words = llm.ids([{"role": "user", "content": "what is this"}])
    with torch.inference_mode():
        plain = model(input_ids=torch.tensor([words])).logits[0].numpy()
    assert np.abs(llm.logits(words) - plain).max() < 1e-4 * np.abs(plain).max()


def test_replies_in_a_batch(made):
    """The first pages of the second prompt are those of the first, up to the middle of the picture;
    the third does not fit beside the others at first."""
    engine = Engine.load(made[0], context=96, batch=3, chunk=14, precision="f32",
                         device="reference")  # fmt: skip
    engine.config = replace(engine.config, end_tokens=())
    try:
        pictures = [picture(2, (24, 17)), picture(2, (24, 17)), picture(3, (9, 30))]
        prompts = [engine.tokenizer.chat(asked(image)) for image in pictures]
        prompts[1][-1] = 5
        replies = engine.complete(prompts, Wishes(4))
        replies += engine.complete(prompts[1:2], Wishes(4))
        for image, ids, pieces in zip(pictures, prompts, replies):
            for _ in range(4):
                ids.append(int(theirs(made, [image], ids)[-1].argmax()))
            assert [p.token for p in pieces if p.token is not None] == ids[-4:]
        assert replies[3][0].token == replies[1][0].token
    finally:
        engine.close(10)


def test_windows_that_cut_pictures(made):
    given = json.loads((made[0] / "config.json").read_text())
    given["text_config"]["sliding_window"] = 8
    with pytest.raises(Unsupported, match="windows shorter than a picture"):
        read_config(made[0], Fields(given, "given"))
