"""Moondream 2 with tiny random weights. No library that is installed has it, so its formulas are
written out here with PyTorch; both layouts of names in which it was published."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from luminal import LLM
from luminal.errors import InputError
from luminal.models.llm import Engine, Wishes

from .test_sight import asked, tokenizer
from .tiny_vision import picture

TEXT = {"dim": 32, "ff_dim": 48, "n_layers": 2, "vocab_size": 24, "max_context": 160, "n_heads": 2}
VISION = {"enc_dim": 16, "enc_patch_size": 4, "enc_n_layers": 2, "enc_ff_dim": 24, "enc_n_heads": 2,
          "proj_out_dim": 32, "crop_size": 24, "in_channels": 3, "max_crops": 6,
          "overlap_margin": 1, "proj_inner_dim": 40}  # fmt: skip
SPOKEN = {"bos_id": 0, "eos_id": 15, "templates": {
    "query": {"prefix": [12, 13], "suffix": [14]}, "caption": {"normal": [12, 14]}}}  # fmt: skip
OLDER = (  # our short names -> those of 2024
    ("vision.patch_emb.", "vision_encoder.encoder.model.visual.patch_embed.linear."),
    ("vision.pos_emb", "vision_encoder.encoder.model.visual.pos_embed"),
    ("vision.post_ln.", "vision_encoder.encoder.model.visual.norm."),
    ("vision.proj_mlp.", "vision_encoder.projection.mlp."),
    ("vision.blocks.", "vision_encoder.encoder.model.visual.blocks."),
    (".ln1.", ".norm1."), (".ln2.", ".norm2."),
    ("text.wte", "text_model.transformer.embd.wte.weight"),
    ("text.post_ln.", "text_model.lm_head.ln."), ("text.lm_head.", "text_model.lm_head.linear."),
    ("text.blocks.", "text_model.transformer.h."),
)  # fmt: skip
MIXER = ((".attn.qkv.", ".mixer.Wqkv."), (".attn.proj.", ".mixer.out_proj."))  # of the decoder


def weights():
    generator, made = torch.Generator().manual_seed(0), {}

    def linear(name, width, out):
        made[f"{name}.weight"] = torch.randn(out, width, generator=generator) / math.sqrt(width)
        made[f"{name}.bias"] = torch.randn(out, generator=generator) * 0.1

    def norm(name, width):
        made[f"{name}.weight"] = 1 + 0.1 * torch.randn(width, generator=generator)
        made[f"{name}.bias"] = 0.1 * torch.randn(width, generator=generator)

    def block(name, width, inner, norms):
        for each in norms:
            norm(f"{name}.{each}", width)
        linear(f"{name}.attn.qkv", width, 3 * width)
        linear(f"{name}.attn.proj", width, width)
        linear(f"{name}.mlp.fc1", width, inner)
        linear(f"{name}.mlp.fc2", inner, width)

    width, inner = VISION["enc_dim"], VISION["proj_inner_dim"]
    patch = 3 * VISION["enc_patch_size"] ** 2
    tokens = (VISION["crop_size"] // VISION["enc_patch_size"]) ** 2
    linear("vision.patch_emb", patch, width)
    made["vision.pos_emb"] = torch.randn(1, tokens, width, generator=generator) * 0.5
    for n in range(VISION["enc_n_layers"]):
        block(f"vision.blocks.{n}", width, VISION["enc_ff_dim"], ("ln1", "ln2"))
    norm("vision.post_ln", width)
    linear("vision.proj_mlp.fc1", 2 * width, inner)
    linear("vision.proj_mlp.fc2", inner, TEXT["dim"])
    made["text.wte"] = torch.randn(TEXT["vocab_size"], TEXT["dim"], generator=generator)
    for n in range(TEXT["n_layers"]):
        block(f"text.blocks.{n}", TEXT["dim"], TEXT["ff_dim"], ("ln",))
    norm("text.post_ln", TEXT["dim"])
    linear("text.lm_head", TEXT["dim"], TEXT["vocab_size"])
    made["region.coord_encoder.weight"] = torch.zeros(2, 2)
    return made


# ---- the formulas


def applied(w, name, x):
    return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])


def normed(w, name, x):
    return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])


def mlp(w, name, x):
    return applied(w, f"{name}.fc2", F.gelu(applied(w, f"{name}.fc1", x), approximate="tanh"))


def attention(w, name, x, heads, turn=None, mask=None):
    parts = applied(w, f"{name}.qkv", x).chunk(3, -1)
    q, k, v = (p.unflatten(-1, (heads, -1)).transpose(0, 1) for p in parts)
    q, k = (q, k) if turn is None else (turn(q), turn(k))
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return applied(w, f"{name}.proj", mixed.transpose(0, 1).flatten(1))


def looked(w, pixels):
    """pixels (3, size, size) to (patches, width)."""
    patch, name = VISION["enc_patch_size"], "vision"
    cut = pixels.unfold(1, patch, patch).unfold(2, patch, patch)  # (3, rows, columns, patch, patch)
    x = applied(w, f"{name}.patch_emb", cut.permute(1, 2, 0, 3, 4).flatten(2).flatten(0, 1))
    x = x + w[f"{name}.pos_emb"][0]
    for n in range(VISION["enc_n_layers"]):
        at = f"{name}.blocks.{n}"
        x = x + attention(w, f"{at}.attn", normed(w, f"{at}.ln1", x), VISION["enc_n_heads"])
        x = x + mlp(w, f"{at}.mlp", normed(w, f"{at}.ln2", x))
    return normed(w, f"{name}.post_ln", x)


def rows_of(w, image, tiles):
    """What the decoder is given: squares overlap by two margins; inside of the picture each gives
    up its margins."""
    size, patch, margin = VISION["crop_size"], VISION["enc_patch_size"], VISION["overlap_margin"]
    step, side = size - 2 * margin * patch, size // patch

    def pixels(square):
        given = torch.tensor(np.array(square.convert("RGB")), dtype=torch.float32)
        return (given.permute(2, 0, 1) / 255 - 0.5) / 0.5

    whole = looked(w, pixels(image.resize((size, size), 1)))  # 1: Lanczos
    large = image.resize((tiles[1] * step + size - step, tiles[0] * step + size - step), 1)
    lines = []
    for y in range(tiles[0]):
        line = []
        for x in range(tiles[1]):
            box = (x * step, y * step, x * step + size, y * step + size)
            found = looked(w, pixels(large.crop(box))).unflatten(0, (side, side))
            top, left = margin * (y > 0), margin * (x > 0)
            bottom = side - margin * (y < tiles[0] - 1)
            line.append(found[top:bottom, left : side - margin * (x < tiles[1] - 1)])
        lines.append(torch.cat(line, 1))
    grid = F.adaptive_avg_pool2d(torch.cat(lines).permute(2, 0, 1), (side, side))
    joint = torch.cat([whole, grid.permute(1, 2, 0).flatten(0, 1)], -1)
    return mlp(w, "vision.proj_mlp", joint)


def logits_of(w, ids, rows=None):
    """Of tokens behind the first one and a picture's rows, which see each other."""
    x, seen = w["text.wte"][list(ids)], 0
    if rows is not None:
        x, seen = torch.cat([x[:1], rows, x[1:]]), 1 + len(rows)
    count, heads, turning = len(x), TEXT["n_heads"], TEXT["dim"] // TEXT["n_heads"] // 2
    angles = torch.arange(count)[:, None] / 10000 ** (torch.arange(0, turning, 2) / turning)
    mask = torch.ones(count, count, dtype=torch.bool).tril()
    mask[:seen, :seen] = True

    def turn(q):
        first, second = q[..., : turning // 2], q[..., turning // 2 : turning]
        turned = (first * angles.cos() - second * angles.sin(),
                  first * angles.sin() + second * angles.cos())  # fmt: skip
        return torch.cat([*turned, q[..., turning:]], -1)

    for n in range(TEXT["n_layers"]):
        at = f"text.blocks.{n}"
        inside = normed(w, f"{at}.ln", x)
        x = x + attention(w, f"{at}.attn", inside, heads, turn, mask) + mlp(w, f"{at}.mlp", inside)
    return applied(w, "text.lm_head", normed(w, "text.post_ln", x)).numpy()


# ---- what is compared


def old_name(name):
    for ours, theirs in OLDER + MIXER * name.startswith("text."):
        name = name.replace(ours, theirs)
    return name


def written(folder, older=False):
    w = weights()
    names = {name: old_name(name) if older else f"model.{name}" for name in w}
    save_file({names[name]: value for name, value in w.items()}, folder / "model.safetensors")
    given = {"model_type": "moondream1", "config": {"text": TEXT, "vision": VISION,
                                                    "tokenizer": SPOKEN}}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(given))
    tokenizer(folder, ["<begin>", "<q>", "<a>", "<end>"], "")
    (folder / "tokenizer_config.json").write_text("{}")
    return w


QUESTION = [12, 13, 0, 1, 2, 14, 14]  # the suffix twice, as the authors' code puts it
PICTURES = {(50, 37): (2, 3), (15, 90): (1, 1), (33, 80): (3, 1)}  # size -> rows, columns


@pytest.mark.parametrize("older", [False, True])
def test_logits_with_a_picture(tmp_path, older):
    w = written(tmp_path, older)
    llm = LLM(tmp_path, threads=1, precision="f32", device="reference")
    seen = set()
    for size, tiles in list(PICTURES.items())[: 1 if older else 3]:
        image = picture(size)
        ids = llm.ids(asked(image))
        assert ids[37:] == QUESTION and max(ids[:37]) == 24 + 37 * len(seen := {*seen, size}) - 1
        wanted = logits_of(w, [0, *QUESTION], rows_of(w, image, tiles))
        found = llm.logits(ids)
        assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()
    words = llm.ids([{"role": "user", "content": "what is this"}])
    assert words == [0, *QUESTION] and llm.tokenizer.converses
    wanted = logits_of(w, words)
    assert np.abs(llm.logits(words) - wanted).max() < 1e-4 * np.abs(wanted).max()


def test_replies_in_a_batch(tmp_path):
    """Beside each other, one of them without a picture; a picture alone is described."""
    w, image = written(tmp_path), picture((50, 37))
    engine = Engine.load(tmp_path, batch=3, chunk=40, precision="f32", device="reference")
    engine.config = replace(engine.config, end_tokens=())
    try:
        messages = [asked(image), [{"role": "user", "content": "what is this"}], asked(image)]
        del messages[2][0]["content"][1]
        prompts = [engine.tokenizer.chat(each) for each in messages]
        assert prompts[2][-2:] == [12, 14]
        replies = engine.complete(prompts, Wishes(5))
        rows = rows_of(w, image, PICTURES[50, 37])
        for seen, ids, pieces in zip((rows, None, rows), prompts, replies):
            said = [token for token in ids if token < 24]
            said = [0, *said] if seen is not None else said
            for _ in range(5):
                said.append(int(logits_of(w, said, seen)[-1].argmax()))
            assert [p.token for p in pieces if p.token is not None] == said[-5:]
        with pytest.raises(InputError, match="one question"):
            engine.tokenizer.chat([*asked(image), {"role": "assistant", "content": "a"}])
        with pytest.raises(InputError, match="one picture, not at 2"):
            engine.tokenizer.chat(asked(image, image))
    finally:
        engine.close(10)
