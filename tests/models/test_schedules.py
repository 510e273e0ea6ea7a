"""Samplers as tables against the schedulers of diffusers, with a net that is one formula."""

import diffusers
import numpy as np
import pytest
import torch
from diffusers.schedulers import scheduling_euler_ancestral_discrete as ancestral

from luminal.errors import InputError, Unsupported, WeightsError
from luminal.models.diffusion.schedule import CLASSES, COLUMNS, schedule
from luminal.weights.fields import Fields

NOISE = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
FLOW = "FlowMatchEulerDiscreteScheduler"
SPACED = [
    ("DDIMScheduler", {"clip_sample": False, "set_alpha_to_one": False}),
    ("PNDMScheduler", {"skip_prk_steps": True}),
    ("EulerDiscreteScheduler", {}),
    ("EulerDiscreteScheduler", {"use_karras_sigmas": True}),
    ("EulerDiscreteScheduler", {"use_karras_sigmas": True, "sigma_min": 0.01, "sigma_max": 9.0}),
    ("EulerAncestralDiscreteScheduler", {}),
    ("DPMSolverMultistepScheduler", {}),
    ("DPMSolverMultistepScheduler", {"use_karras_sigmas": True, "solver_type": "heun"}),
]
CASES = [
    (name, {**NOISE, **more, "steps_offset": 1, "timestep_spacing": spacing,
            "prediction_type": kind})
    for name, more in SPACED
    for spacing in ("leading", "linspace", "trailing")
    for kind in ("epsilon", "v_prediction")
    if (name, kind) != ("PNDMScheduler", "v_prediction")
]  # fmt: skip
CASES += [
    ("FlowMatchEulerDiscreteScheduler", {"shift": 3.0}),
    ("DDIMScheduler", {"clip_sample": False, "prediction_type": "sample"}),
    ("DDIMScheduler", {"clip_sample": False, "beta_schedule": "squaredcos_cap_v2"}),
]


def net(x, time):
    return torch.sin(x * 1.3 + float(time) / 1000)


def fresh(n):
    return np.random.default_rng(n).standard_normal((1, 2, 4, 4))


def followed(plan, x):
    """Latents after all steps of a table."""
    history = [np.zeros_like(x)] * 5
    for n, (time, numbers) in enumerate(zip(plan.times, plan.table)):
        row = dict(zip(COLUMNS, numbers.astype(float)))
        y = net(torch.from_numpy(x * row["scale"]), time).numpy()
        history = [row["from_x"] * x + row["from_y"] * y, *history[:4]]
        x = row["keep"] * x + sum(row[f"h{k}"] * h for k, h in enumerate(history))
        x = x + row["noise"] * fresh(n)
    return x


@pytest.mark.parametrize(("name", "config"), CASES)
def test_tables_are_the_schedulers_of_diffusers(name, config, monkeypatch):
    for steps in (1, 4, 15):
        theirs, drawn = getattr(diffusers, name)(**config), iter(range(steps))
        monkeypatch.setattr(ancestral, "randn_tensor",
                            lambda *_, n=drawn, **__: torch.from_numpy(fresh(next(n))))  # fmt: skip
        theirs.set_timesteps(steps)
        plan = schedule(Fields({**theirs.config, "_class_name": name}, "config"), steps)
        start = float(getattr(theirs, "init_noise_sigma", 1.0))
        assert plan.start == pytest.approx(start, rel=1e-4)
        np.testing.assert_allclose(plan.times, theirs.timesteps.numpy(), rtol=1e-4)
        x = torch.from_numpy(fresh(99)) * start
        ours = followed(plan, x.numpy())
        for time in theirs.timesteps:
            scale = getattr(theirs, "scale_model_input", lambda x, time: x)
            x = theirs.step(net(scale(x, time), time), time, x).prev_sample
        assert np.abs(ours - x.numpy()).max() <= 1e-4 * np.abs(x.numpy()).max()


@pytest.mark.parametrize("name", CLASSES)
def test_a_start_in_the_middle(name):
    """What a clean picture is mixed with, and steps that know nothing of those left out."""
    more = {"PNDMScheduler": {"skip_prk_steps": True}, "DDIMScheduler": {"clip_sample": False}}
    config = {} if name.startswith("Flow") else NOISE | {"steps_offset": 1} | more.get(name, {})
    theirs = getattr(diffusers, name)(**config)
    theirs.set_timesteps(10)
    plan = schedule(Fields({**theirs.config, "_class_name": name}, "config"), 10, begin=4)
    times = theirs.timesteps[4:]
    np.testing.assert_allclose(plan.times, times.numpy(), rtol=1e-4)
    clean, noise = torch.from_numpy(fresh(1)), torch.from_numpy(fresh(2))
    getattr(theirs, "set_begin_index", lambda n: None)(4)
    add = theirs.scale_noise if name.startswith("Flow") else theirs.add_noise
    given = (clean, times[:1], noise) if name.startswith("Flow") else (clean, noise, times[:1])
    mixed = plan.signal[0] * clean + plan.sigma[0] * noise
    np.testing.assert_allclose(mixed.numpy(), add(*given).numpy(), rtol=1e-4)
    assert (plan.signal[-1], plan.sigma[-1]) == (1, 0)


@pytest.mark.parametrize("betas", ["squaredcos_cap_v2", "scaled_linear"])
def test_whole_times_of_karras(betas):
    """Cut or rounded; of cosine betas several are equal, with which diffusers cannot step."""
    name = "DPMSolverMultistepScheduler"
    theirs = getattr(diffusers, name)(use_karras_sigmas=True, beta_schedule=betas)
    for steps in (1, 4, 15, 50):
        theirs.set_timesteps(steps)
        plan = schedule(Fields({**theirs.config, "_class_name": name}, "config"), steps)
        np.testing.assert_array_equal(plan.times, theirs.timesteps.numpy())


def test_ancestral_steps_have_no_choice_of_sigmas():
    """As in diffusers, whatever the folder's own sampler has been told."""
    more = {"use_karras_sigmas": True, "sigma_min": 0.01, "sigma_max": 9.0, "use_beta_sigmas": True}
    plain, told = (
        schedule(Fields({"_class_name": "EulerDiscreteScheduler", **NOISE, **given}, "config"), 4,
                 "euler-ancestral") for given in ({}, more)
    )  # fmt: skip
    np.testing.assert_array_equal(plain.table, told.table)


def test_what_is_not_built_is_refused():
    plain = {"_class_name": "DDIMScheduler", "clip_sample": False}
    for config, error, message in [
        ({"_class_name": "LCMScheduler"}, WeightsError, "one of DDIMScheduler"),
        ({**plain, "clip_sample": True}, Unsupported, "clipped"),
        ({**plain, "thresholding": True}, Unsupported, "thresholding"),
        ({**plain, "beta_schedule": "sigmoid"}, WeightsError, "beta_schedule"),
        ({"_class_name": "PNDMScheduler"}, Unsupported, "Runge-Kutta"),
        ({"_class_name": "EulerDiscreteScheduler", "timestep_type": "continuous"}, WeightsError,
         "timestep_type"),
        ({"_class_name": "DPMSolverMultistepScheduler", "lambda_min_clipped": -5.1}, Unsupported,
         "lambda_min_clipped"),
        ({"_class_name": FLOW, "shift_terminal": 0.1}, Unsupported, "shift_terminal"),
        ({"_class_name": FLOW, "stochastic_sampling": True}, Unsupported, "stochastic_sampling"),
        ({"_class_name": FLOW, "time_shift_type": "linear"}, WeightsError, "time_shift_type"),
    ]:
        with pytest.raises(error, match=message):
            schedule(Fields(config, "config"), 4)
    with pytest.raises(InputError, match="no sampler 'plms'"):
        schedule(Fields(plain, "config"), 4, "plms")
    with pytest.raises(InputError, match="cannot be replaced by flow"):
        schedule(Fields(plain, "config"), 4, "flow")
    with pytest.raises(InputError, match="1001 steps"):
        schedule(Fields(plain, "config"), 1001)
    plain |= {"skip_prk_steps": True}
    moved = {**plain, "steps_offset": 1}
    for sampler in ("ddim", "pndm"):
        assert schedule(Fields(plain, "config"), 1000, sampler).steps >= 1000
        with pytest.raises(InputError, match="1000 steps: with a steps_offset of 1"):
            schedule(Fields(moved, "config"), 1000, sampler)
    with pytest.raises(InputError, match="1000 steps: between"):
        schedule(Fields(plain, "config"), 1000, "dpm++")
