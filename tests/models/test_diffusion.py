"""Pipelines of diffusers with tiny random weights: the same pictures."""

import io
import shutil
from base64 import b64decode
from contextlib import nullcontext

import diffusers
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from safetensors.torch import load_file
from starlette.testclient import TestClient

from luminal.cli import main
from luminal.errors import InputError, LuminalError, Unsupported, WeightsError
from luminal.models.diffusion import Pipeline
from luminal.models.llm import Engine
from luminal.models.tokens import Tokens
from luminal.server import create_app
from luminal.server.painting import Painter

from . import tiny_diffusion as tiny

PROMPT = {"prompt": "a red light"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """kind -> (folder, the pipeline of diffusers)."""
    made = {}

    def get(kind):
        if kind not in made:
            root = tmp_path_factory.mktemp(kind)
            pipe = getattr(tiny, kind)(root)
            pipe.set_progress_bar_config(disable=True)
            pipe.save_pretrained(root / "model")
            made[kind] = root / "model", pipe
        return made[kind]

    return get


@pytest.fixture(scope="module")
def ours(saved):
    return Pipeline(saved("stable_diffusion")[0], device="reference")


def noise(channels=4, seed=0):
    return np.random.default_rng(seed).standard_normal((1, channels, 8, 8), np.float32)


def picture(seed, size=tiny.SIZE):
    return Image.fromarray(
        np.random.default_rng(seed).integers(0, 256, (size, size, 3)).astype(np.uint8)
    )


def expect(pipe, found, steps, **given):
    """Within rounding of what diffusers makes of the same."""
    wanted = pipe(num_inference_steps=steps, output_type="np", **given).images[0] * 255
    assert found.dtype == np.uint8 and found.std() > 10
    assert np.abs(found - wanted).max() < 0.6


def test_stable_diffusion_and_all_its_samplers(saved, ours):
    _, pipe = saved("stable_diffusion")
    given = {**PROMPT, "guidance_scale": 5.0, "latents": torch.from_numpy(noise())}
    steps = []
    found = ours(**PROMPT, negative="d", steps=5, guidance=5.0, noise=noise(),
                 watch=lambda done, count: steps.append((done, count)))  # fmt: skip
    assert steps == [(n + 1, 6) for n in range(6)]  # PNDM visits the second time twice
    expect(pipe, found, 5, negative_prompt="d", **given)
    for name in ("DDIMScheduler", "EulerDiscreteScheduler", "DPMSolverMultistepScheduler"):
        other = getattr(diffusers, name)(
            **tiny.NOISE, steps_offset=1, timestep_spacing="leading",
            **({"clip_sample": False, "set_alpha_to_one": False} if "DDIM" in name else {}),
        )  # fmt: skip
        pipe.scheduler, before = other, pipe.scheduler
        sampler = {"DD": "ddim", "Eu": "euler", "DP": "dpm++"}[name[:2]]
        found = ours(**PROMPT, steps=4, guidance=5.0, noise=noise(), sampler=sampler)
        expect(pipe, found, 4, **given)
        pipe.scheduler = before
    assert len(ours._samplers) == 1


def test_clip_from_its_vocabulary(tmp_path):
    """As folders have it that were made before there was a tokenizer.json."""
    theirs, ours = tiny.clip_tokenizer(tmp_path / "words"), Tokens(tmp_path / "words", 12)
    for text in ("", "A  red\nlight", "it's 12 é", "red light " * 9, "<|endoftext|>red", "!\xa0?"):
        wanted = theirs(text, padding="max_length", truncation=True, max_length=12).input_ids
        with pytest.warns(match="cut") if len(theirs(text).input_ids) > 12 else nullcontext():
            assert ours(text)[0].tolist() == wanted


def test_seeds(ours):
    made = [ours(**PROMPT, steps=2, seed=seed, sampler="euler-ancestral") for seed in (1, 1, 2)]
    assert (made[0] == made[1]).all() and (made[0] != made[2]).any()


@pytest.mark.parametrize("kind", ["stable_diffusion_xl", "stable_diffusion_3", "flux"])
def test_other_families(saved, kind):
    folder, pipe = saved(kind)
    ours, latents = Pipeline(folder, device="reference"), torch.from_numpy(noise())
    if kind == "flux":
        latents = pipe._pack_latents(latents, 1, 4, 8, 8)
    given = {**PROMPT, "guidance_scale": 5.0, "latents": latents, "height": 16, "width": 16}
    size = {"width": 16, "height": 16}
    expect(pipe, ours(**PROMPT, steps=3, guidance=5.0, noise=noise(), **size), 3, **given)
    if kind == "flux":  # which is told the guidance, and knows nothing of what must not be
        with pytest.raises(InputError, match="no run without the prompt"):
            ours(**PROMPT, negative="d", steps=3)
    else:
        found = ours(**PROMPT, negative="d", steps=3, guidance=5.0, noise=noise(), **size)
        expect(pipe, found, 3, negative_prompt="d", **given)


def test_stable_diffusion_3_without_t5(tmp_path):
    pipe = tiny.stable_diffusion_3(tmp_path)
    pipe.register_modules(text_encoder_3=None, tokenizer_3=None)
    pipe.set_progress_bar_config(disable=True)
    pipe.save_pretrained(tmp_path / "m")
    found = Pipeline(tmp_path / "m", device="reference")(
        **PROMPT, steps=1, guidance=1.0, noise=noise(), width=16, height=16
    )
    expect(pipe, found, 1, **PROMPT, guidance_scale=1.0, latents=torch.from_numpy(noise()),
           width=16, height=16)  # fmt: skip


def certain(pipe):
    """An autoencoder whose latents hardly spread."""
    last = pipe.vae.quant_conv or pipe.vae.encoder.conv_out
    with torch.no_grad():
        last.bias[4:] = -1000
        last.weight[4:] = 0


@pytest.mark.parametrize("kind", ["stable_diffusion_xl", "stable_diffusion_3", "flux"])
def test_other_families_from_a_picture(kind, tmp_path):
    pipe = getattr(tiny, kind)(tmp_path)
    certain(pipe)
    pipe.save_pretrained(tmp_path / "m")
    ours, start = Pipeline(tmp_path / "m", device="reference"), picture(1)
    steps = 5 if kind == "stable_diffusion_xl" else 4  # of which half a step is a whole one
    drawn = torch.Generator().manual_seed(3)
    torch.randn((1, 4, 8, 8), generator=drawn)  # of the autoencoder
    added = torch.randn((1, 4, 8, 8), generator=drawn).numpy()
    again = diffusers.AutoPipelineForImage2Image.from_pipe(pipe)
    again.set_progress_bar_config(disable=True)
    sizes = {} if kind == "stable_diffusion_xl" else {"width": 16, "height": 16}
    found = ours(**PROMPT, steps=steps, guidance=4.0, image=start, strength=0.6, noise=added)
    expect(again, found, steps, **PROMPT, image=start, strength=0.6, guidance_scale=4.0,
           generator=torch.Generator().manual_seed(3), **sizes)  # fmt: skip


def test_from_a_picture_and_inside_of_a_mask(saved, tmp_path):
    _, pipe = saved("stable_diffusion")
    certain(pipe)
    pipe.save_pretrained(tmp_path / "m")
    ours = Pipeline(tmp_path / "m", device="reference")
    start, mask = picture(1), Image.new("L", (16, 16))
    mask.paste(255, (0, 0, 9, 16))
    parts = {**pipe.components, "requires_safety_checker": False}
    drawn = torch.Generator().manual_seed(3)
    torch.randn((1, 4, 8, 8), generator=drawn)  # of the autoencoder
    added = torch.randn((1, 4, 8, 8), generator=drawn).numpy()
    again = diffusers.StableDiffusionImg2ImgPipeline(**parts)
    again.set_progress_bar_config(disable=True)
    found = ours(**PROMPT, steps=6, guidance=4.0, image=start, strength=0.6, noise=added)
    expect(again, found, 6, **PROMPT, image=start, strength=0.6, guidance_scale=4.0,
           generator=torch.Generator().manual_seed(3))  # fmt: skip
    inside = diffusers.StableDiffusionInpaintPipeline(**parts)
    inside.set_progress_bar_config(disable=True)
    for strength in (0.6, 1.0):
        found = ours(**PROMPT, steps=5, guidance=4.0, image=start, mask=mask, noise=added,
                     strength=strength)  # fmt: skip
        expect(inside, found, 5, **PROMPT, image=start, mask_image=mask, guidance_scale=4.0,
               strength=strength, generator=torch.Generator().manual_seed(3), height=16,
               width=16)  # fmt: skip


def test_what_cannot_be(saved, ours, tmp_path):
    folder, _ = saved("stable_diffusion")
    for message, error, wrong in [
        ("multiples of 2", InputError, {"width": 17}),
        ("multiples of 2", InputError, {"height": 1 << 20}),
        ("strength", InputError, {"image": picture(0), "strength": 0}),
        ("no step is left", InputError, {"image": picture(0), "strength": 0.01}),
        ("a mask says", InputError, {"mask": picture(0)}),
        ("multiples of 2", InputError, {"height": 0}),
        ("multiples of 2", InputError, {"width": 0, "image": picture(0)}),
        ("0 steps", InputError, {"steps": 0}),
        ("steps is a whole number, not 2.5", InputError, {"steps": 2.5}),
        ("width is a whole number, not 16.0", InputError, {"width": 16.0}),
        ("seed is a whole number, not -1", InputError, {"seed": -1}),
        ("guidance is a finite number", InputError, {"guidance": "much"}),
        ("strength is a finite number", InputError, {"strength": None}),
        ("a negative prompt is a text, not 5", InputError, {"negative": 5}),
        ("noise has the shape", InputError, {"noise": noise(3)}),
        ("noise has an infinite or NaN", InputError, {"noise": noise() * np.nan}),
        ("not a picture", InputError, {"image": b"nothing"}),
    ]:
        with pytest.raises(error, match=message):
            ours(**{**PROMPT, "steps": 2, "sampler": "ddim", **wrong})
    with pytest.raises(WeightsError, match="no such folder"):
        Pipeline(tmp_path / "none")
    with pytest.raises(WeightsError, match=r"no model_index\.json"):
        Pipeline(tmp_path)
    (tmp_path / "model_index.json").write_text('{"_class_name": "KandinskyPipeline"}')
    with pytest.raises(Unsupported, match="'KandinskyPipeline'"):
        Pipeline(tmp_path)
    (tmp_path / "model_index.json").write_text((folder / "model_index.json").read_text())
    with pytest.raises(LuminalError, match="unet"):
        Pipeline(tmp_path)


def test_a_folder_of_pytorchs_files(saved, tmp_path):
    folder, _ = saved("smallest")
    copy = shutil.copytree(folder, tmp_path / "copy")
    for file in copy.glob("*/*.safetensors"):
        stem = "pytorch_model" if file.stem == "model" else file.stem
        torch.save(load_file(file), file.with_name(f"{stem}.bin"))
        file.unlink()
    asked = {"steps": 1, "seed": 4}
    found, wanted = (
        Pipeline(place, device="reference")("a red light", **asked) for place in (copy, folder)
    )
    np.testing.assert_array_equal(found, wanted)


def test_the_command(saved, tmp_path):
    """Compiled, its picture is the reference's."""
    folder, _ = saved("smallest")
    out = tmp_path / "out.png"
    given = ["imagine", "a red light", "--model", str(folder), "-o", str(out), "--steps", "2",
             "--threads", "1", "--progress", "--seed", "4"]  # fmt: skip
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 0, result.output
    assert "8 x 8" in result.output
    wanted = Pipeline(folder, device="reference")("a red light", steps=2, seed=4)
    assert np.abs(np.asarray(Image.open(out)).astype(int) - wanted).max() <= 1
    result = CliRunner().invoke(main, [*given, "--width", "5000"])
    assert result.exit_code == 1 and "up to 4096" in result.output
    result = CliRunner().invoke(main, [*given, "--guidance", "nan"])
    assert result.exit_code == 1 and "guidance is a finite number" in result.output
    result = CliRunner().invoke(main, ["imagine", "x", "--model", str(tmp_path)])
    assert result.exit_code == 1 and "no model_index.json" in result.output


def test_the_server_makes_pictures(saved):
    folder, _ = saved("smallest")
    engine = Engine.load("luminal-tiny", context=32, batch=1, chunk=4, device="reference")
    painter = Painter(folder, device="reference")
    with TestClient(create_app(engine, "words", painter=painter), "http://localhost") as client:
        path, asked = "/v1/images/generations", {"prompt": "a red light", "steps": 2, "seed": 4}
        reply = client.post(path, json=asked | {"n": 2, "size": "8x8", "model": folder.name})
        assert reply.status_code == 200, reply.text
        for n, each in enumerate(reply.json()["data"]):
            found = np.asarray(Image.open(io.BytesIO(b64decode(each["b64_json"]))))
            wanted = Pipeline(folder, device="reference")("a red light", steps=2, seed=4 + n)
            np.testing.assert_array_equal(found, wanted)
        assert folder.name in [each["id"] for each in client.get("/v1/models").json()["data"]]
        for wrong in ({"size": "5000x8"}, {"size": "much"}, {"n": 0}, {"stream": True},
                      {"response_format": "url"}, {"prompt": None}):  # fmt: skip
            assert client.post(path, json=asked | wrong).status_code == 400, wrong
        assert client.post(path, json=asked | {"model": "other"}).status_code == 404
