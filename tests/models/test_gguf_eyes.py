"""GGUF models with mmproj files, written as llama.cpp's converters do, against transformers."""

import json

import gguf
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from tests.llm.gguf_files import add_fields, finish

from luminal import LLM
from luminal.cli import main
from luminal.errors import InputError, Unsupported, WeightsError
from luminal.models.vision.projector import Projector

from . import gguf_eyes, test_gemma_sight, test_qwen_sight, test_sight
from .test_sight import SIZE, SPECIAL, asked, picture

CLIP = {"mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711]}
HALF = {"mean": [0.5] * 3, "std": [0.5] * 3}
WORDY = "{% for m in messages %}{{ m.role + ' ' + m.content }} {% endfor %}"  # knows no parts
QWEN = {"image_min_pixels": 8 * 8 * 2, "image_max_pixels": 40 * 48, "spatial_merge_size": 2}


def qwen(kind):
    sizes = CLIP | QWEN | ({"n_wa_pattern": 2} if kind == "qwen2.5" else {})
    special = [test_qwen_sight.PLACE, "<end>"]
    return test_qwen_sight.written, special, test_qwen_sight.TEMPLATE, sizes


def case(kind):
    """(what makes the folder, special tokens, the template, metadata of the eyes)."""
    if kind.startswith("qwen"):
        return qwen(kind)
    if kind == "gemma3":
        make = lambda kind, folder: test_gemma_sight.written(folder)[1]  # noqa: E731
        sizes = HALF | {"projector.scale_factor": 2}
        return make, test_gemma_sight.SPECIAL, test_gemma_sight.TEMPLATE, sizes
    if kind == "internvl":
        special = ["<IMG_CONTEXT>", "<img>", "</img>", "<end>"]
        sizes = CLIP | {"projector.scale_factor": 2, "preproc_max_tiles": 6}
        template = test_sight.TEMPLATE.replace("<image>", "<IMG_CONTEXT>")
        return test_sight.written, special, template, sizes
    if kind == "llava":  # its vocabulary has no token for pictures
        return test_sight.written, ["<x>", *SPECIAL[1:]], WORDY, dict(CLIP)
    sizes = HALF | {"projector.scale_factor": 2, "preproc_image_size": 2 * SIZE}
    return test_sight.written, SPECIAL, test_sight.TEMPLATE, sizes


def theirs(kind, folder, model, images, ids):
    if kind.startswith("qwen"):
        return test_qwen_sight.theirs(model, images, ids)
    if kind == "gemma3":
        processor = test_gemma_sight.Gemma3ImageProcessorPil(
            size={"height": test_gemma_sight.SIZE, "width": test_gemma_sight.SIZE}
        )
        return test_gemma_sight.theirs((folder, model, processor), images, ids)
    return test_sight.theirs(kind, folder, model, images[0], ids)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """kind -> (folder, the model of transformers)."""
    known = {}

    def get(kind):
        if kind not in known:
            folder, files = (tmp_path_factory.mktemp(f"{kind}{n}") for n in (1, 2))
            make, special, template, sizes = case(kind)
            model = make(kind, folder)
            gguf_eyes.write(kind, model, files, special, template, sizes)
            known[kind] = files, model
        return known[kind]

    return get


@pytest.mark.parametrize("kind", gguf_eyes.ARCHITECTURES)
def test_logits_with_a_picture(made, kind):
    files, model = made(kind)
    llm = LLM(files / "model.gguf", context=128, threads=1, precision="f32", kv="f32",
              device="reference")  # fmt: skip
    image = picture()
    ids = llm.ids(asked(image))
    wanted = theirs(kind, files, model, [image], ids)
    bound = 2e-3 if kind in test_sight.KINDS else 1e-4  # pictures are resized alike
    assert np.abs(llm.logits(ids) - wanted).max() < bound * np.abs(wanted).max()
    words = llm.ids([{"role": "user", "content": "what is this"}])
    assert max(words) < 24 and len(words) > 3
    with torch.inference_mode():
        plain = model(input_ids=torch.tensor([words])).logits[0].numpy()
    assert np.abs(llm.logits(words) - plain).max() < 1e-4 * np.abs(plain).max()


def test_the_command(made, tmp_path):
    """The file beside the model is found; one that is named counts; what fits nothing is told."""
    files, _ = made("smolvlm")
    picture().save(tmp_path / "in.png")
    question = ["what is this", "--image", str(tmp_path / "in.png"), "--threads", "1", "--context",
                "96", "--max-tokens", "3", "--json"]  # fmt: skip
    beside = CliRunner().invoke(main, ["run", str(files / "model.gguf"), *question])
    assert beside.exit_code == 0, beside.output
    alone = tmp_path / "words.gguf"
    alone.write_bytes((files / "model.gguf").read_bytes())
    blind = CliRunner().invoke(main, ["run", str(alone), *question])
    assert blind.exit_code == 1 and "no mmproj file" in blind.output
    eyes = ["--mmproj", str(files / "mmproj-model.gguf")]
    named = CliRunner().invoke(main, ["run", str(alone), *question, *eyes])
    assert named.exit_code == 0, named.output
    assert json.loads(named.stdout)["tokens"] == json.loads(beside.stdout)["tokens"]
    with pytest.raises(Unsupported, match="the eyes of a model"):
        LLM(files / "mmproj-model.gguf")
    with pytest.raises(WeightsError, match="its architecture is not"):
        LLM(alone, mmproj=files / "model.gguf")


def test_of_several_files_the_one_that_fits(made, tmp_path):
    files, _ = made("smolvlm")
    for name in ("model.gguf", "mmproj-model.gguf"):
        (tmp_path / name).write_bytes((files / name).read_bytes())
    writer = gguf.GGUFWriter(tmp_path / "mmproj-a.gguf", "clip")
    add_fields(writer, {"clip.projector_type": "idefics3"})
    writer.add_tensor("mm.model.fc.weight", np.zeros((16, 96), np.float32))
    finish(writer)
    llm = LLM(tmp_path, context=96, threads=1, device="reference")
    assert llm.ids(asked(picture()))[-1] < 24
    with pytest.raises(WeightsError, match="rows of 16 for a model of 32"):
        LLM(tmp_path, mmproj=tmp_path / "mmproj-a.gguf")
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "clip")
    add_fields(writer, {"clip.projector_type": "resampler"})
    finish(writer)
    with pytest.raises(Unsupported, match="projector 'resampler'"):
        Projector(tmp_path / "other.gguf")
    with pytest.raises(InputError, match="places for"):
        llm.ids([{"role": "user", "content": "what <image>"}])


@pytest.mark.parametrize(
    "left_out", ["v.patch_embd.weight.1", "v.blk.1.attn_k.weight", "v.blk.0.ln1.weight"]
)
def test_a_file_without_a_tensor(made, tmp_path, left_out):
    files, _ = made("qwen2")
    reader = gguf.GGUFReader(files / "mmproj-model.gguf")
    writer = gguf.GGUFWriter(tmp_path / "eyes.gguf", "clip")
    for field in reader.fields.values():
        if field.name.startswith("clip."):
            add_fields(writer, {field.name: field.contents()})
    for tensor in reader.tensors:
        if tensor.name != left_out:
            writer.add_tensor(tensor.name, np.array(tensor.data))
    finish(writer)
    sees = LLM(files / "model.gguf", context=96, device="reference")
    assert sees.ids(asked(picture()))  # its rows are no others'
    llm = LLM(files / "model.gguf", mmproj=tmp_path / "eyes.gguf", context=96, device="reference")
    with pytest.raises(WeightsError):
        llm.ids(asked(picture()))
