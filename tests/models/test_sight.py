"""Vision-language models with tiny random weights, against transformers."""

import gc
import io
import json
from base64 import b64encode
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner
from PIL import Image
from starlette.testclient import TestClient
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from luminal import LLM
from luminal.cli import main
from luminal.errors import InputError
from luminal.models.llm import Engine, Wishes
from luminal.models.llm.pictures import Pictures, check_tokens
from luminal.models.llm.reply import Reply
from luminal.models.vision.clip import CLIPTextConfig
from luminal.models.vision.pixtral import PixtralSight
from luminal.models.vision.sight import Eyes
from luminal.models.vision.towers import TowerConfig
from luminal.server import create_app
from luminal.weights.fields import Fields

from .tiny_diffusion import lively

WORDS = ["what", "is", "this", "user", "a", "b", "c", "d", "e", "f", "g", "h"]
SPECIAL = ["<image>", "<fake_token_around_image>", "<global-img>", "<end>"]
SPECIAL += [f"<row_{y}_col_{x}>" for y in (1, 2) for x in (1, 2)]
SIZE, PATCH, WIDTH = 16, 4, 32
TEMPLATE = (
    "{% for m in messages %}{{ m.role }} {% for p in m.content %}"
    "{{ '<image>' if p.type == 'image' else p.text }} {% endfor %}{% endfor %}"
)
TEXT = {"vocab_size": 24, "hidden_size": WIDTH, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
        "eos_token_id": 15, "bos_token_id": 0, "pad_token_id": 0}  # fmt: skip
TOWER = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3,
         "num_attention_heads": 2, "image_size": SIZE, "patch_size": PATCH}  # fmt: skip


def llava(vision="CLIPVisionConfig", layer=-2, kept="default", bias=True):
    config = transformers.LlavaConfig(
        vision_config=getattr(transformers, vision)(**TOWER),
        text_config=transformers.LlamaConfig(**TEXT), image_token_index=12,
        vision_feature_layer=layer, vision_feature_select_strategy=kept,
        multimodal_projector_bias=bias,
    )  # fmt: skip
    return transformers.LlavaForConditionalGeneration(config)


def idefics(kind):
    names = {"Idefics3": "Idefics3VisionConfig", "SmolVLM": "SmolVLMVisionConfig"}
    tower = getattr(transformers.models, kind.lower())
    vision = getattr(getattr(tower, f"configuration_{kind.lower()}"), names[kind])(**TOWER)
    config = getattr(transformers, f"{kind}Config")(
        vision_config=vision, text_config=transformers.LlamaConfig(**TEXT), image_token_id=12,
        scale_factor=2, pad_token_id=0,
    )  # fmt: skip
    return getattr(transformers, f"{kind}ForConditionalGeneration")(config)


def internvl():
    from transformers.models.internvl import InternVLVisionConfig

    vision = InternVLVisionConfig(
        **TOWER | {"image_size": (SIZE, SIZE), "patch_size": (PATCH, PATCH)}, use_qk_norm=True,
        norm_type="rms_norm", use_mean_pooling=False,
    )  # fmt: skip
    config = transformers.InternVLConfig(
        vision_config=vision, text_config=transformers.Qwen2Config(**TEXT), image_token_id=12,
        tie_word_embeddings=False,
    )  # fmt: skip
    return transformers.InternVLForConditionalGeneration(config)


def llava_next():
    grids = [[SIZE, 2 * SIZE], [2 * SIZE, SIZE], [2 * SIZE, 2 * SIZE]]
    config = transformers.LlavaNextConfig(
        vision_config=transformers.CLIPVisionConfig(**TOWER), image_token_index=12,
        text_config=transformers.LlamaConfig(**TEXT), image_grid_pinpoints=grids,
        vision_feature_layer=-2, vision_feature_select_strategy="default",
    )  # fmt: skip
    return transformers.LlavaNextForConditionalGeneration(config)


def pixtral(kind):
    vision = transformers.PixtralVisionConfig(**TOWER, head_dim=12, hidden_act="silu")
    text = {"vision_config": vision, "text_config": transformers.MistralConfig(**TEXT),
            "image_token_index": 12, "vision_feature_layer": -1}  # fmt: skip
    if kind == "mistral3":
        config = transformers.Mistral3Config(**text, spatial_merge_size=2)
        return transformers.Mistral3ForConditionalGeneration(config)
    config = transformers.LlavaConfig(**text, vision_feature_select_strategy="full")
    return transformers.LlavaForConditionalGeneration(config)


KINDS = {
    "llava": llava,
    "llava-siglip": lambda: llava("SiglipVisionConfig", -1, "full", False),
    "llava-next": llava_next,
    "pixtral": lambda: pixtral("llava"),
    "mistral3": lambda: pixtral("mistral3"),
    "internvl": internvl,
    "idefics3": lambda: idefics("Idefics3"),
    "smolvlm": lambda: idefics("SmolVLM"),
}


def tokenizer(folder, special, template):
    """Of single words."""
    raw = Tokenizer(models.WordLevel({w: n for n, w in enumerate(WORDS + special)}, "a"))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.WhitespaceSplit(), decoders.Fuse()
    raw.add_special_tokens(special)
    raw.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))


def written(kind, folder):
    """The model of transformers, written to a folder."""
    model = lively(KINDS[kind]().float())
    model.save_pretrained(folder)
    special, template = SPECIAL, TEMPLATE
    sizes = {"size": {"longest_edge": 2 * SIZE}, "max_image_size": {"longest_edge": SIZE}}
    if kind == "llava-siglip":
        sizes = {"size": {"height": SIZE, "width": SIZE}, "image_mean": [0.5] * 3,
                 "image_std": [0.5] * 3}  # fmt: skip
    if kind == "internvl":
        special = ["<IMG_CONTEXT>", "<img>", "</img>", *SPECIAL[3:]]
        template = TEMPLATE.replace("<image>", "<IMG_CONTEXT>")
        sizes = {"size": {"height": SIZE, "width": SIZE}, "max_patches": 6}
    if kind in ("pixtral", "mistral3"):
        special = ["[IMG]", "[IMG_BREAK]", "[IMG_END]", *SPECIAL[3:]]
        template = TEMPLATE.replace("<image>", "[IMG]")
    tokenizer(folder, special, template)
    (folder / "preprocessor_config.json").write_text(json.dumps(sizes))
    return model


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """kind -> (folder, the model of transformers)."""
    made = {}

    def get(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            made[kind] = folder, written(kind, folder)
        return made[kind]

    return get


def picture(seed=0, size=(20, 13)):
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    return Image.fromarray(pixels)


def url(image):
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return "data:image/png;base64," + b64encode(stream.getvalue()).decode()


def asked(*images):
    parts = [{"type": "image_url", "image_url": {"url": url(image)}} for image in images]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": "what is this"}]}]


def theirs(kind, folder, model, image, ids):
    """Logits of transformers for the same picture; ids of its rows are the token for pictures."""
    sight = transformers_pixels(kind, image)
    plain = torch.tensor([[min(token, 12) if token >= 24 else token for token in ids]])
    with torch.inference_mode():
        return model(input_ids=plain, **sight).logits[0].numpy()


def transformers_pixels(kind, image):
    if kind == "llava":
        from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

        processor = CLIPImageProcessorPil(
            size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE}
        )
        return {"pixel_values": processor(image, return_tensors="pt").pixel_values}
    if kind == "llava-siglip":
        from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

        processor = SiglipImageProcessorPil(size={"height": SIZE, "width": SIZE})
        return {"pixel_values": processor(image, return_tensors="pt").pixel_values}
    if kind == "llava-next":
        from transformers.models.llava_next.image_processing_pil_llava_next import (
            LlavaNextImageProcessorPil,
        )

        grids = [[SIZE, 2 * SIZE], [2 * SIZE, SIZE], [2 * SIZE, 2 * SIZE]]
        sides = {"size": {"shortest_edge": SIZE}, "crop_size": {"height": SIZE, "width": SIZE}}
        processor = LlavaNextImageProcessorPil(**sides, image_grid_pinpoints=grids)
        return dict(processor(image, return_tensors="pt"))
    if kind in ("pixtral", "mistral3"):
        from transformers.models.pixtral.image_processing_pil_pixtral import (
            PixtralImageProcessorPil,
        )

        step = PATCH * (2 if kind == "mistral3" else 1)
        processor = PixtralImageProcessorPil(
            size={"longest_edge": 2 * SIZE}, patch_size={"height": step, "width": step}
        )
        return dict(processor(image, return_tensors="pt"))
    if kind == "internvl":
        from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import (
            GotOcr2ImageProcessorPil,
        )

        processor = GotOcr2ImageProcessorPil(
            size={"height": SIZE, "width": SIZE}, crop_to_patches=True, max_patches=6
        )
        return {"pixel_values": processor(image, return_tensors="pt").pixel_values}
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    processor = Idefics3ImageProcessorPil(
        size={"longest_edge": 2 * SIZE}, max_image_size={"longest_edge": SIZE}
    )
    found = processor([[image]], return_tensors="pt")
    return {"pixel_values": found.pixel_values, "pixel_attention_mask": found.pixel_attention_mask}


@pytest.mark.parametrize("theirs", [
    transformers.CLIPVisionConfig, transformers.CLIPTextConfig, transformers.SiglipVisionConfig,
    transformers.models.idefics3.configuration_idefics3.Idefics3VisionConfig,
    transformers.models.smolvlm.configuration_smolvlm.SmolVLMVisionConfig,
])  # fmt: skip
def test_sizes_that_a_file_leaves_out(theirs):
    own = CLIPTextConfig if "Text" in theirs.__name__ else TowerConfig
    found = vars(own.read(Fields({"model_type": theirs.model_type}, "given")))
    assert {n: v for n, v in found.items() if getattr(theirs(), n, v) != v} == {}


def test_mistral_joins_patches_where_its_file_does_not_say_so():
    for kind, merge in (("mistral3", 2), ("llava", 1)):
        assert PixtralSight(Eyes(Fields({"model_type": kind}, "given"), Fields({}, "nothing"),
                                 dict), Pictures(24, 8)).merge == merge  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_logits_with_a_picture(saved, kind):
    folder, model = saved(kind)
    llm = LLM(folder, context=96, threads=1, precision="f32", device="reference")
    ids = llm.ids(asked(picture()))
    rows = {"llava": 16, "llava-siglip": 16, "internvl": 7 * 4, "pixtral": 5 * 4, "mistral3": 3 * 2,
            "llava-next": 16 + 4 * 7}.get(kind, 5 * 4)  # tiles and the whole, four rows each
    assert sum(token >= 24 for token in ids) == rows
    wanted = theirs(kind, folder, model, picture(), ids)
    found = llm.logits(ids)
    assert np.abs(found - wanted).max() < 2e-3 * np.abs(wanted).max()  # pictures are resized alike
    assert llm.ids(asked(picture())) == ids and llm.ids(asked(picture(1))) != ids
    words = llm.ids([{"role": "user", "content": "what is this"}])
    assert max(words) < 24
    with torch.inference_mode():
        plain = model(input_ids=torch.tensor([words])).logits[0].numpy()
    assert np.abs(llm.logits(words) - plain).max() < 1e-4 * np.abs(plain).max()


def test_the_command_and_what_is_refused(saved, tmp_path):
    folder, _ = saved("llava")
    picture().save(tmp_path / "in.png")
    given = ["run", str(folder), "what is this", "--image", str(tmp_path / "in.png"), "--threads",
             "1", "--context", "64", "--max-tokens", "3"]  # fmt: skip
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 0, result.output
    (tmp_path / "bad.png").write_bytes(b"nothing")
    result = CliRunner().invoke(main, [*given[:4], str(tmp_path / "bad.png"), *given[5:]])
    assert result.exit_code == 1 and "not a picture" in result.output
    llm = LLM(folder, context=96, threads=1, precision="f32", device="reference")
    parts = [{"type": "image_url", "image_url": {"url": "/etc/passwd"}}]
    with pytest.raises(InputError, match="data URL"):
        llm.ids([{"role": "user", "content": parts}])
    with pytest.raises(InputError, match="no picture that is held"):
        llm.logits([1, 10_000])


def test_the_server_takes_pictures(saved):
    """Through the batched engine; the same picture has the same reply, and is held once."""
    folder, model = saved("smolvlm")
    engine = Engine.load(folder, context=96, batch=2, chunk=48, precision="f32", device="reference")
    engine.config = replace(engine.config, end_tokens=())
    try:
        client = TestClient(create_app(engine, "tiny"), "http://localhost")
        body = {"model": "tiny", "messages": asked(picture()), "max_tokens": 4, "temperature": 0}
        replies = [client.post("/v1/chat/completions", json=body) for _ in range(2)]
        assert [reply.status_code for reply in replies] == [200, 200], replies[0].text
        said = [reply.json()["choices"][0]["message"]["content"] for reply in replies]
        ids = engine.tokenizer.chat(asked(picture()))
        assert max(ids) == 24 + 20 - 1
        for _ in range(4):
            logits = theirs("smolvlm", folder, model, picture(), ids)[-1]
            ids.append(int(logits.argmax()))
        assert said == [engine.tokenizer.decode(ids[-4:])] * 2
        body["messages"][0]["content"][0]["image_url"]["url"] = "https://example.org/a.png"
        refused = client.post("/v1/chat/completions", json=body)
        assert refused.status_code == 400 and "data URL" in refused.text
    finally:
        engine.close(10)


def test_pictures_stay_for_whoever_has_them(monkeypatch):
    """Others' pictures take the place of those that no reply waits for, and these are forgotten."""
    monkeypatch.setattr("luminal.models.llm.pictures.MOST_ROWS", 4)
    held = Pictures(10, 2)
    first = held.add(b"a", np.ones((4, 2)), (2, 2))
    reply = Reply([5, *first], Wishes(), None, 64, check_tokens([5, *first], 10, held))
    for name in (b"b", b"c"):
        second = held.add(name, np.zeros((4, 2)), (2, 2))
    assert held.find(b"a") is None
    np.testing.assert_array_equal(held.rows(reply.tokens)[:, 0], [0, 1, 1, 1, 1])
    assert held.places(reply.tokens, 0)[:, 1].tolist() == [0, 1, 1, 2, 2]
    assert held.left(reply.tokens).tolist() == [0, 3, 2, 1, 0]
    assert [seen.start for seen in held.known([*second, *first])] == [first[0], second[0]]
    del reply
    gc.collect()
    assert held.known(first) == [] and len(held._known) == 1
    with pytest.raises(InputError, match="of no picture that is held"):
        check_tokens(first, 10, held)


def test_rows_of_pictures():
    held = Pictures(10, 2)
    first = held.add(b"a", np.ones((3, 2)))
    second = held.add(b"b", np.full((2, 2), 5.0))
    assert (first, second) == ([10, 11, 12], [13, 14])
    assert held.find(b"a") == first and held.find(b"c") is None
    np.testing.assert_array_equal(held.rows([4, 14, 10])[:, 0], [0, 5, 1])
    with pytest.raises(InputError, match="token 15"):
        held.rows([15])
