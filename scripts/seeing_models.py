"""The second table of docs/models.md: models of pictures against transformers and diffusers, on
tiny random weights.

    python scripts/seeing_models.py [NAME ...]

With names: these rows anew.

Needs the packages of the tests. On the CPU, one thread.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.models import (
    test_classifiers,
    test_gemma_sight,
    test_lookers,
    test_moondream,
    test_qwen_sight,
    test_sight,
    tiny_diffusion,
    tiny_vision,
)
from tests.models.tiny_vision import picture, saved

from luminal import LLM
from luminal.models.diffusion import Pipeline
from luminal.models.vision.classifier import Classifier, Features
from luminal.models.vision.depth import Depth
from luminal.models.vision.images import prepared
from luminal.models.vision.looker import Looker
from luminal.models.vision.pairs import Pairs
from luminal.models.vision.segformer import Scene
from luminal.models.vision.segmenter import Segmenter

HEAD = """
## Models of pictures

Written by `scripts/seeing_models.py` in the same way: tiny models with random weights on a picture,
prepared by luminal. What is compared: the largest difference over the largest size; of pictures
that are made, in shades of 255.

| model | `model_type` | compared | off by |
|---|---|---|---|"""
Row = tuple[str, str, float]  # model_type, what is compared, off by
ON = {"threads": 1}


def off(found: Any, wanted: Any) -> float:
    found, wanted = np.asarray(found), np.asarray(wanted)
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def looked(name: str, folder: Path) -> Row:
    kind = "detr" if name == "detr" else "rt_detr"
    model, processor = saved(test_lookers.KINDS[name](), folder), test_lookers.PROCESSORS[kind]
    processor.save_pretrained(folder)
    ours = Looker(folder, **ON)
    pixels = prepared(picture(), ours._prepared)
    wanted = model(pixel_values=torch.from_numpy(pixels)[None])
    found = ours.run(pixels)
    both = off(found[0], wanted.logits[0]), off(found[1], wanted.pred_boxes[0])
    return model.config.model_type, "logits, boxes", max(both)


def segmented(name: str, folder: Path) -> Row:
    model = saved(getattr(tiny_vision, name)(), folder)
    ours = Segmenter(folder, **ON)
    pixels = np.random.default_rng(0).standard_normal((3, 64, 64)).astype(np.float32)
    ours.look(pixels)
    points = torch.tensor([[[[20.0, 11.0], [31.0, 20.0]]]])
    wanted = model(
        pixel_values=torch.from_numpy(pixels)[None], input_points=points,
        input_labels=torch.tensor([[[1, 0]]]), multimask_output=True,
    )  # fmt: skip
    places = np.array([[20, 11], [31, 20], [0, 0]])
    logits, scores = ours.logits(places, [1, 0, -1])
    both = off(logits[1:], wanted.pred_masks[0, 0]), off(scores[1:], wanted.iou_scores[0, 0])
    return model.config.model_type, "logits of masks, scores", max(both)


def classified(name: str, folder: Path) -> Row:
    model = saved(test_classifiers.MODELS[name](), folder)
    ours = Classifier(folder, **ON)
    pixels = ours._folder.pixels(picture())
    wanted = model(torch.from_numpy(pixels)[None]).logits[0]
    return model.config.model_type, "logits", off(ours.scores(pixels), wanted)


def featured(folder: Path) -> Row:
    model = saved(tiny_vision.dinov3(), folder)
    pixels = np.random.default_rng(0).standard_normal((3, 24, 40)).astype(np.float32)
    wanted = model(torch.from_numpy(pixels)[None]).last_hidden_state[0]
    return "dinov3_vit", "features", off(Features(folder, **ON).run(pixels), wanted)


def deep(folder: Path) -> Row:
    model = saved(tiny_vision.depth_anything(), folder)
    pixels = np.random.default_rng(0).standard_normal((3, 28, 35)).astype(np.float32)
    wanted = model(torch.from_numpy(pixels)[None]).predicted_depth[0]
    return "depth_anything", "depth", off(Depth(folder, **ON).run(pixels), wanted)


def scene(folder: Path) -> Row:
    model = saved(tiny_vision.segformer(), folder)
    pixels = np.random.default_rng(0).standard_normal((3, 64, 96)).astype(np.float32)
    wanted = model(torch.from_numpy(pixels)[None]).logits[0]
    return "segformer", "logits of pixels", off(Scene(folder, **ON).scores(pixels), wanted)


def paired(name: str, folder: Path) -> Row:
    model = saved(test_classifiers.pairs(name), folder)
    ours, (pixels, ids) = Pairs(folder, **ON), test_classifiers.drawn()
    wanted = model(input_ids=torch.from_numpy(ids), pixel_values=torch.from_numpy(pixels))
    found = ours.fit(np.stack([ours.pixels(p) for p in pixels]),
                     np.stack([ours.tokens(row) for row in ids]))  # fmt: skip
    return name, "logits of pictures and texts", off(found, wanted.logits_per_image)


def asked(folder: Path, kind: str, theirs: Callable[[Any, list[int]], np.ndarray]) -> Row:
    llm, image = LLM(folder, context=96, precision="f32", **ON), test_sight.picture()
    ids = llm.ids(test_sight.asked(image))
    return kind, "logits of a question", off(llm.logits(ids), theirs(image, ids))


def told(name: str, folder: Path) -> Row:
    model = test_sight.written(name, folder)
    theirs = partial(test_sight.theirs, name, folder, model)
    return asked(folder, model.config.model_type, theirs)


def qwen(name: str, folder: Path) -> Row:
    model = test_qwen_sight.written(name, folder)
    kind = model.config.model_type
    return asked(folder, kind, lambda image, ids: test_qwen_sight.theirs(model, [image], ids))


def gemma(folder: Path) -> Row:
    made = test_gemma_sight.written(folder)
    return asked(folder, "gemma3", lambda image, ids: test_gemma_sight.theirs(made, [image], ids))


def moondream(folder: Path) -> Row:
    w = test_moondream.written(folder)

    def theirs(image: Any, ids: list[int]) -> np.ndarray:
        rows = test_moondream.rows_of(w, image, (1, 1))
        return test_moondream.logits_of(w, [0, *test_moondream.QUESTION], rows)

    return asked(folder, "moondream1", theirs)


def imagined(name: str, folder: Path) -> Row:
    pipe = getattr(tiny_diffusion, name)(folder)
    pipe.set_progress_bar_config(disable=True)
    pipe.save_pretrained(folder / "model")
    noise = np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype(np.float32)
    latents = torch.from_numpy(noise)
    latents = pipe._pack_latents(latents, 1, 4, 8, 8) if name == "flux" else latents
    given = {"prompt": "a red light", "width": 16, "height": 16}
    wanted = pipe(**given, num_inference_steps=3, output_type="np", guidance_scale=5.0,
                  latents=latents).images[0] * 255  # fmt: skip
    found = Pipeline(folder / "model", **ON)(**given, steps=3, guidance=5.0, noise=noise)
    return type(pipe).__name__, "picture", float(np.abs(found - wanted).max())


TABLE: dict[str, Callable[[Path], Row]] = {
    **{name: partial(looked, name) for name in ("detr", "rt_detr", "rt_detr_v2")},
    **{name: partial(segmented, name) for name in ("sam", "sam2")},
    **{name: partial(classified, name) for name in test_classifiers.MODELS},
    "dinov3": featured,
    "depth-anything": deep,
    "segformer": scene,
    "clip": partial(paired, "clip"),
    "siglip": partial(paired, "siglip"),
    **{name: partial(told, name) for name in test_sight.KINDS},
    **{f"{name}-vl": partial(qwen, name) for name in test_qwen_sight.KINDS},
    "gemma3-vl": gemma,
    "moondream2": moondream,
    **{name.replace("_", "-"): partial(imagined, name)
       for name in ("stable_diffusion", "stable_diffusion_xl", "stable_diffusion_3", "flux")},
}  # fmt: skip


def main(names: list[str]) -> None:
    logging.disable(logging.WARNING)
    page = Path(__file__).resolve().parent.parent / "docs/models.md"
    text, _, old = page.read_text().partition(HEAD)
    rows = {line.split("|")[1].strip(): line for line in old.splitlines() if line} if names else {}
    for name in names or TABLE:
        with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
            kind, what, far = TABLE[name](Path(folder))
        rows[name] = f"| {name} | `{kind}` | {what} | {far:.0e} |"
        print(rows[name], flush=True)
        known = [rows[name] for name in TABLE if name in rows]
        page.write_text("\n".join([text + HEAD, *known, ""]))


if __name__ == "__main__":
    main(sys.argv[1:])
