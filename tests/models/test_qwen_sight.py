"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL with tiny random weights, against transformers: pictures of any
size, positions with rows and columns, replies with a cache and in a batch."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
    Qwen2VLImageProcessorPil,
    smart_resize,
)

from luminal import LLM
from luminal.errors import InputError
from luminal.models.llm import Engine, Wishes
from luminal.models.llm.checkpoint import read_config
from luminal.models.llm.pictures import Pictures
from luminal.models.vision.qwen import QwenSight
from luminal.models.vision.sight import Eyes
from luminal.weights.fields import Fields

from . import tiny_vision
from .test_sight import asked, picture, tokenizer

PLACE, TOKEN, VOCABULARY, PATCH = "<|image_pad|>", 12, 24, 4
TEMPLATE = (
    "{% for m in messages %}{{ m.role }} {% for p in m.content %}"
    "{{ '<|image_pad|>' if p.type == 'image' else p.text }} {% endfor %}{% endfor %}"
)
TEXT = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 128, "eos_token_id": 15, "bos_token_id": 0}  # fmt: skip


def turning(*sections, **more):
    return {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": sections, **more}


def qwen2():
    eye = {"depth": 2, "embed_dim": 16, "hidden_size": 32, "num_heads": 2, "patch_size": PATCH,
           "mlp_ratio": 2}  # fmt: skip
    text = {**TEXT, "rope_parameters": turning(1, 1, 2)}
    config = transformers.Qwen2VLConfig(vision_config=eye, text_config=text, image_token_id=TOKEN)
    return transformers.Qwen2VLForConditionalGeneration(config)


def qwen25():
    eye = {"depth": 3, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2,
           "window_size": 16, "patch_size": PATCH, "out_hidden_size": 32,
           "fullatt_block_indexes": [1]}  # fmt: skip
    text = {**TEXT, "rope_parameters": turning(1, 1, 2)}
    config = transformers.Qwen2_5_VLConfig(
        vision_config=eye, text_config=text, image_token_id=TOKEN
    )
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


def qwen3():
    eye = {"depth": 3, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2,
           "patch_size": PATCH, "out_hidden_size": 32, "deepstack_visual_indexes": [0, 1],
           "num_position_embeddings": 16}  # fmt: skip
    text = {**TEXT, "head_dim": 12, "rope_parameters": turning(2, 3, 1, mrope_interleaved=True)}
    config = transformers.Qwen3VLConfig(vision_config=eye, text_config=text, image_token_id=TOKEN)
    return transformers.Qwen3VLForConditionalGeneration(config)


def qwen3_moe():
    eye = qwen3().config.vision_config.to_dict()
    text = {**TEXT, "head_dim": 12, "rope_parameters": turning(2, 3, 1, mrope_interleaved=True),
            "moe_intermediate_size": 20, "num_experts": 4, "num_experts_per_tok": 2}  # fmt: skip
    config = transformers.Qwen3VLMoeConfig(
        vision_config=eye, text_config=text, image_token_id=TOKEN
    )
    return transformers.Qwen3VLMoeForConditionalGeneration(config)


def qwen35(kind="Qwen3_5", **more):
    eye = {"depth": 3, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2,
           "patch_size": PATCH, "out_hidden_size": 32, "num_position_embeddings": 16}  # fmt: skip
    text = {**TEXT, "head_dim": 24, "num_hidden_layers": 4, "linear_num_value_heads": 4,
            "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
            "rope_parameters": turning(2, 2, 2, mrope_interleaved=True, partial_rotary_factor=0.5)}
    config = getattr(transformers, f"{kind}Config")(
        vision_config=eye, text_config=text | more, image_token_id=TOKEN
    )
    return getattr(transformers, f"{kind}ForConditionalGeneration")(config)


def qwen35_moe():
    return qwen35(
        "Qwen3_5Moe", moe_intermediate_size=20, num_experts=4, num_experts_per_tok=2,
        shared_expert_intermediate_size=12,
    )  # fmt: skip


KINDS = {"qwen2": qwen2, "qwen2.5": qwen25, "qwen3": qwen3, "qwen3-moe": qwen3_moe,
         "qwen3.5": qwen35, "qwen3.5-moe": qwen35_moe}  # fmt: skip
SIZES = {"size": {"shortest_edge": 8 * 8 * 2, "longest_edge": 40 * 48}, "patch_size": PATCH}


def written(kind, folder):
    """The model of transformers, written to a folder: one that never replies with the token that
    stands for a picture, as one of random weights can."""
    torch.manual_seed(0)
    model = tiny_vision.saved(KINDS[kind]().float(), folder)
    tokenizer(folder, [PLACE, "<end>"], TEMPLATE)
    Qwen2VLImageProcessorPil(**SIZES).save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """kind -> (folder, the model of transformers)."""
    known = {}

    def get(kind):
        if kind not in known:
            folder = tmp_path_factory.mktemp(kind)
            known[kind] = folder, written(kind, folder)
        return known[kind]

    return get


def theirs(model, images, ids):
    """Logits of transformers, all of them, in f64: its f32 is 2e-4 off where processors have other
    instructions. ids of rows of pictures are the token for these."""
    model = copy.deepcopy(model).double()
    model.set_experts_implementation("eager")  # others know no f64
    given = Qwen2VLImageProcessorPil(**SIZES)(images, return_tensors="pt")
    given["pixel_values"] = given["pixel_values"].double()
    plain = torch.tensor([[TOKEN if token >= VOCABULARY else token for token in ids]])
    kinds = (plain == TOKEN).int()
    with torch.inference_mode():
        out = model(input_ids=plain, mm_token_type_ids=kinds, **given)
    return out.logits[0].numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_logits_with_pictures(made, kind):
    folder, model = made(kind)
    llm = LLM(folder, context=128, threads=1, precision="f32", device="reference")
    llm.program.chunk = 11  # cuts pictures
    images = [picture(0, (20, 13)), picture(1, (41, 70))]
    ids = llm.ids([*asked(images[0]), *asked(images[1])])
    assert sum(token >= VOCABULARY for token in ids) == 2 * 2 + 7 * 4
    wanted = theirs(model, images, ids)
    found = llm.logits(ids)
    assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()
    words = llm.ids([{"role": "user", "content": "what is this"}])
    with torch.inference_mode():
        plain = model(input_ids=torch.tensor([words])).logits[0].numpy()
    assert np.abs(llm.logits(words) - plain).max() < 1e-4 * np.abs(plain).max()
    with pytest.raises(InputError, match="200 times as long"):
        llm.ids(asked(picture(0, (201, 1))))


@pytest.mark.parametrize("kind", ["qwen2.5", "qwen3", "qwen3.5"])
def test_replies_in_a_batch(made, kind):
    folder, model = made(kind)
    engine = Engine.load(folder, context=128, batch=2, chunk=24, precision="f32",
                         device="reference")  # fmt: skip
    engine.config = replace(engine.config, end_tokens=())
    try:
        pictures = [picture(2, (24, 17)), picture(3, (9, 30))]
        prompts = [engine.tokenizer.chat(asked(image)) for image in pictures]
        replies = engine.complete(prompts, Wishes(4))
        for image, ids, pieces in zip(pictures, prompts, replies):
            for _ in range(4):
                ids.append(int(theirs(model, [image], ids)[-1].argmax()))
            assert [p.token for p in pieces if p.token is not None] == ids[-4:]
    finally:
        engine.close(10)


def test_small_pictures_become_as_large_as_transformers_makes_them():
    """Where a side is a multiple of a token's to the last bit, or just not."""
    given = Fields({"vision_config": {"patch_size": PATCH}}, "given")
    sight = QwenSight(Eyes(given, Fields({}, "nothing"), dict), Pictures(24, 32))
    for side in range(1, 60):
        for size in ((side, side), (side, 4 * side)):
            found = sight.wanted(size)[::-1]
            assert found == smart_resize(*size[::-1], 2 * PATCH, 56 * 56, 28 * 28 * 1280)


def test_a_config_as_it_was_published(made):
    """All of it in one object, with the older name of what stretches positions."""
    folder, _ = made("qwen2.5")
    given = json.loads((folder / "config.json").read_text())
    _, wanted = read_config(folder, Fields(given, "given"))
    words = given.pop("text_config")
    section = words.pop("rope_parameters")["mrope_section"]
    flat = {**words, **given, "rope_scaling": {"type": "mrope", "mrope_section": section}}
    _, found = read_config(folder, Fields(flat, "flat"))
    assert found == wanted and found.placed and found.ropes["all"].sections == (1, 1, 2)


def test_experts_lie_either_way_round(made, tmp_path):
    """As Qwen3-VL's mixtures were published, the columns of experts are their outputs."""
    folder, _ = made("qwen3-moe")
    for file in folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    state = load_file(folder / "model.safetensors")
    turned = {name: np.ascontiguousarray(value.swapaxes(1, 2)) if ".experts." in name else value
              for name, value in state.items()}  # fmt: skip
    assert sum(turned[name].shape != state[name].shape for name in state) == 2 * 3
    (tmp_path / "model.safetensors").unlink()
    save_file(turned, tmp_path / "model.safetensors")
    options = {"context": 64, "threads": 1, "precision": "f32", "device": "reference"}
    both = [LLM(each, **options).logits([1, 2, 3]) for each in (folder, tmp_path)]
    np.testing.assert_array_equal(*both)


def test_places_of_pictures_among_words():
    held = Pictures(10, 2)
    wide = held.add(b"a", np.ones((6, 2)), (2, 3))
    flat = held.add(b"b", np.ones((2, 2)), (1, 2))
    found = held.places([4, 4, *wide, 5, *flat, 6, 7], 0)
    assert found[:, 0].tolist() == [0, 1, *[2] * 6, 5, 6, 6, 8, 9]
    assert found[2:8, 1].tolist() == [2, 2, 2, 3, 3, 3]
    assert found[2:8, 2].tolist() == [2, 3, 4, 2, 3, 4]
    assert found[8:, 2].tolist() == [5, 6, 7, 8, 9]
    np.testing.assert_array_equal(held.places([4, 4, *wide[:4]], 3), found[3:6])
