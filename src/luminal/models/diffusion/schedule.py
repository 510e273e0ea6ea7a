"""Samplers as tables of numbers: a step of every one of them is linear in what is known.

With x the latents, y what the net says of x scale and `time`, and h what a sampler keeps of it:

    h = from_x x + from_y y
    x = keep x + h0 h + h1 h(one step ago) + ... + h4 h(four ago) + noise n

n being fresh noise. So one program makes the steps of all samplers; rows are its input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ...errors import InputError, Unsupported
from ...weights.fields import Fields

COLUMNS = ("scale", "from_x", "from_y", "keep", "h0", "h1", "h2", "h3", "h4", "noise")
HISTORY = 4  # earlier values of h
Row = dict[str, float]


@dataclass(frozen=True)
class Schedule:
    """times (steps,) and table (steps, COLUMNS), f32. start: what fresh noise is multiplied by, to
    be the first latents. signal, sigma (steps + 1,): before step i latents are signal[i] x +
    sigma[i] n of a clean x; the last entry is after the end."""

    times: np.ndarray
    table: np.ndarray
    start: float
    signal: np.ndarray
    sigma: np.ndarray

    @property
    def steps(self) -> int:
        return len(self.times)

    @property
    def random(self) -> bool:
        """Whether steps need noise."""
        return bool(self.table[:, COLUMNS.index("noise")].any())


@dataclass(frozen=True)
class Noise:
    """How much noise the net was trained with: alphas (times,), the products of 1 - beta."""

    alphas: np.ndarray
    prediction: str
    spacing: str
    offset: int
    given: Fields

    @staticmethod
    def read(given: Fields, spacing: str, prediction: str = "epsilon") -> Noise:
        """Of a scheduler_config.json. Raises WeightsError, Unsupported."""
        if given.flag("thresholding"):
            raise Unsupported(f"{given.where}: thresholding of what is predicted")
        count = given.count("num_train_timesteps", 1000, high=100_000)
        betas = _betas(given, count)
        if given.flag("rescale_betas_zero_snr"):
            raise Unsupported(f"{given.where}: betas that are rescaled to no signal at the end")
        return Noise(
            np.cumprod(1 - betas, dtype=np.float64).astype(np.float32).astype(np.float64),
            given.text("prediction_type", prediction, ("epsilon", "sample", "v_prediction")),
            given.text("timestep_spacing", spacing, among=("linspace", "leading", "trailing")),
            given.count("steps_offset", 0, low=0), given,
        )  # fmt: skip

    @property
    def sigmas(self) -> np.ndarray:
        """Noise over signal, of each time."""
        return ((1 - self.alphas) / self.alphas) ** 0.5

    def spaced(self, steps: int) -> np.ndarray:
        """So many times, the latest first, as the config spaces them."""
        count = len(self.alphas)
        if self.spacing == "linspace":
            return np.linspace(0, count - 1, steps)[::-1]
        if self.spacing == "leading":
            return (np.arange(steps) * (count // steps))[::-1] + float(self.offset)
        return np.round(np.arange(count, 0, -count / steps)) - 1.0

    def start(self, sigmas: np.ndarray) -> float:
        """What fresh noise is multiplied by where latents are signal + sigma noise."""
        most = float(sigmas.max())
        return most if self.spacing != "leading" else (most**2 + 1) ** 0.5


def _betas(given: Fields, count: int) -> np.ndarray:
    kind = given.text("beta_schedule", "linear", ("linear", "scaled_linear", "squaredcos_cap_v2"))
    if given.has("trained_betas"):
        return np.array(given.numbers("trained_betas", count), np.float32)
    if kind == "squaredcos_cap_v2":
        bar = np.cos((np.arange(count + 1) / count + 0.008) / 1.008 * np.pi / 2) ** 2
        return np.minimum(1 - bar[1:] / bar[:-1], 0.999).astype(np.float32)
    low, high = given.number("beta_start", 0.0001), given.number("beta_end", 0.02)
    if kind == "linear":
        return np.linspace(low, high, count, dtype=np.float32)
    return np.linspace(low**0.5, high**0.5, count, dtype=np.float32) ** 2


def _clean(kind: str, signal: float, sigma: float) -> tuple[float, float]:
    """(of x, of y) in the clean picture, for x = signal clean + sigma noise."""
    if kind == "sample":
        return 0.0, 1.0
    return (1 / signal, -sigma / signal) if kind == "epsilon" else (signal, -sigma)


def _noise(kind: str, signal: float, sigma: float) -> tuple[float, float]:
    """(of x, of y) in the noise of x."""
    if kind == "epsilon":
        return 0.0, 1.0
    return (1 / sigma, -signal / sigma) if kind == "sample" else (sigma, signal)


def _whole(noise: Noise, steps: int) -> np.ndarray:
    times = noise.spaced(steps).round().astype(int)
    if times.max() >= len(noise.alphas):
        raise InputError(f"{steps} steps: with a steps_offset of {noise.offset} there are fewer")
    return times


def _made(times: np.ndarray, rows: list[Row], start: float, signal: np.ndarray,
          sigma: np.ndarray, begin: int) -> Schedule:  # fmt: skip
    signal[-1], sigma[-1] = 1, 0
    table = np.array([[row.get(name, 0.0) for name in COLUMNS] for row in rows], np.float32)
    return Schedule(
        times[begin:].astype(np.float32), table.reshape(-1, len(COLUMNS)), start,
        signal[begin:].astype(np.float32), sigma[begin:].astype(np.float32),
    )  # fmt: skip


def ddim(given: Fields, steps: int, begin: int = 0, eta: float = 0.0) -> Schedule:
    """Song et al. 2020, https://arxiv.org/abs/2010.02502, formula 12."""
    noise = Noise.read(given, "leading")
    if given.flag("clip_sample", True):
        raise Unsupported(f"{given.where}: pictures that are clipped at every step")
    times = _whole(noise, steps)
    before = times - len(noise.alphas) // steps
    alphas = noise.alphas[times]
    last = 1.0 if given.flag("set_alpha_to_one", True) else noise.alphas[0]
    after = np.where(before >= 0, noise.alphas[np.maximum(before, 0)], last)
    rows = []
    for now, then in list(zip(alphas, after))[begin:]:
        fresh = eta * ((1 - then) / (1 - now) * (1 - now / then)) ** 0.5
        clean = _clean(noise.prediction, now**0.5, (1 - now) ** 0.5)
        dirt = _noise(noise.prediction, now**0.5, (1 - now) ** 0.5)
        rest = max(1 - then - fresh**2, 0.0) ** 0.5
        h = [then**0.5 * a + rest * b for a, b in zip(clean, dirt)]
        rows.append(_plain(h[0], h[1], 0.0, 1.0) | {"noise": fresh})
    return _made(times, rows, 1.0, *_signals(alphas, last), begin)


def _plain(from_x: float, from_y: float, keep: float, h0: float, scale: float = 1.0) -> Row:
    return {"scale": scale, "from_x": from_x, "from_y": from_y, "keep": keep, "h0": h0}


def _signals(alphas: np.ndarray, last: float) -> tuple[np.ndarray, np.ndarray]:
    every = np.append(alphas, last)
    return every**0.5, (1 - every) ** 0.5


WEIGHTS = (  # of the noise of this step and of those before, Adams and Bashforth's
    (1.0,), (1.5, -0.5), (23 / 12, -16 / 12, 5 / 12), (55 / 24, -59 / 24, 37 / 24, -9 / 24),
)  # fmt: skip


def pndm(given: Fields, steps: int, begin: int = 0) -> Schedule:
    """Liu et al. 2022, https://arxiv.org/abs/2202.09778, without Runge-Kutta steps: the second time
    is visited twice, the second visit starting where the first did."""
    noise = Noise.read(given, "leading")
    if not given.flag("skip_prk_steps") or noise.prediction != "epsilon":
        raise Unsupported(f"{given.where}: PNDM with Runge-Kutta steps, or of other than noise")
    once = _whole(noise, steps)
    times = np.concatenate([once[:2], once[1:]])
    last = 1.0 if given.flag("set_alpha_to_one") else noise.alphas[0]
    width = len(noise.alphas) // steps

    def alpha(time: int) -> float:
        return float(noise.alphas[time]) if time >= 0 else float(last)

    rows: list[Row] = []
    for n, time in enumerate(times[begin:]):
        now, then = (alpha(time), alpha(time - width))
        if n == 1:
            now, then = alpha(time + width), alpha(time)
        keep, share = _transfer(now, then)
        row = {"scale": 1.0, "keep": keep, "from_y": 1.0}
        if n == 1:  # x is what the first step made of the first latents: x = a first + b h1
            a, b = rows[0]["keep"], rows[0]["h0"]
            row |= {"keep": keep / a, "h0": share / 2, "h1": share / 2 - keep * b / a}
        else:
            weights = WEIGHTS[min(max(0, n - 1), 3)]
            ago = [
                k if k < n - 1 else n for k in range(len(weights))
            ]  # the second visit is left out
            row |= {f"h{back}": share * weight for back, weight in zip(ago, weights)}
        rows.append(row)
    signal, sigma = _signals(noise.alphas[times], last)
    return _made(times, rows, 1.0, signal, sigma, begin)


def _transfer(now: float, then: float) -> tuple[float, float]:
    """(of x, of the noise) in x at another time: formula 9 of PNDM."""
    below = now * (1 - then) ** 0.5 + (now * (1 - now) * then) ** 0.5
    return (then / now) ** 0.5, -(then - now) / below


def _spread(noise: Noise, times: np.ndarray, whole: bool) -> tuple[np.ndarray, np.ndarray]:
    """(times, sigmas), the largest first; by the rule of Karras et al. 2022
    (https://arxiv.org/abs/2206.00364), formula 5, if the config says so. whole: between the largest
    and the smallest sigma of all, at whole times: the nearest, or as diffusers has it for cosine
    betas, those below."""
    sigmas = np.interp(times, np.arange(len(noise.alphas)), noise.sigmas)
    if noise.given.flag("use_exponential_sigmas") or noise.given.flag("use_beta_sigmas"):
        raise Unsupported(f"{noise.given.where}: exponential or beta sigmas")
    if noise.given.flag("use_karras_sigmas"):
        single = noise.sigmas.astype(np.float32)  # as diffusers: by rounding, times are cut
        ends = single[[-1, 0]].astype(np.float64) if whole else sigmas[[0, -1]]
        if not whole:
            ends = [noise.given.number(f"sigma_{n}", end) for n, end in zip(("max", "min"), ends)]
        high, low = np.power(ends, 1 / 7)
        sigmas = (high + np.linspace(0, 1, len(times)) * (low - high)) ** 7
        logs = np.log(single)
        times = np.interp(np.log(sigmas), logs, np.arange(len(logs)))
        if whole:
            cosine = noise.given.values.get("beta_schedule") == "squaredcos_cap_v2"
            times = np.floor(times) if cosine else times.round()
    return times, sigmas


CHOSEN = (  # what says which sigmas Euler's steps have
    "use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas", "sigma_min", "sigma_max",
    "final_sigmas_type", "interpolation_type", "timestep_type",
)  # fmt: skip


def euler(given: Fields, steps: int, begin: int = 0) -> Schedule:
    """Karras et al. 2022, https://arxiv.org/abs/2206.00364, algorithm 2 of first order."""
    return _euler(given, steps, begin, ancestral=False)


def euler_ancestral(given: Fields, steps: int, begin: int = 0) -> Schedule:
    """Euler to below the next sigma, then fresh noise up to it. It has no choice of sigmas: what
    another sampler's config says of them is not read."""
    plain = {n: v for n, v in given.values.items() if n not in CHOSEN}
    return _euler(Fields(plain, given.where), steps, begin, ancestral=True)


def _euler(given: Fields, steps: int, begin: int, ancestral: bool) -> Schedule:
    noise = Noise.read(given, "linspace")
    given.text("final_sigmas_type", "zero", among=("zero",))
    given.text("interpolation_type", "linear", among=("linear",))
    given.text("timestep_type", "discrete", among=("discrete",))
    times, sigmas = _spread(noise, noise.spaced(steps), whole=False)
    every = np.append(sigmas, 0.0)
    rows = []
    for now, then in list(pairwise(every))[begin:]:
        fresh = (then**2 * (now**2 - then**2) / now**2) ** 0.5 if ancestral else 0.0
        to = (then**2 - fresh**2) ** 0.5 if ancestral else then
        scale = 1 / (now**2 + 1) ** 0.5
        # the net sees x scale, whose signal is `scale` and whose noise is now scale
        a, b = _noise(noise.prediction, scale, now * scale)
        rows.append(_plain(a * scale, b, 1.0, to - now, scale) | {"noise": fresh})
    return _made(times, rows, noise.start(every), np.ones_like(every), every, begin)


def dpm(given: Fields, steps: int, begin: int = 0) -> Schedule:
    """DPM-Solver++ (Lu et al. 2022, https://arxiv.org/abs/2211.01095) of first or second order."""
    given.text("algorithm_type", "dpmsolver++", among=("dpmsolver++",))
    solver = given.text("solver_type", "midpoint", among=("midpoint", "heun"))
    final = given.text("final_sigmas_type", "zero", among=("zero", "sigma_min"))
    for name in ("use_lu_lambdas", "use_flow_sigmas"):
        if given.flag(name):
            raise Unsupported(f"{given.where}: {name}")
    if given.values.get("lambda_min_clipped") not in (None, -np.inf):
        raise Unsupported(f"{given.where}: lambda_min_clipped")
    noise, order = Noise.read(given, "linspace"), given.count("solver_order", 2, high=2)
    more = noise.spacing != "trailing"  # a time more, which is left out
    times = (noise.spaced(steps + 1)[:-1] if more else noise.spaced(steps)).round()
    times, sigmas = _spread(noise, times, whole=True)
    every = np.append(sigmas, 0.0 if final == "zero" else noise.sigmas[0])
    signal = 1 / (every**2 + 1) ** 0.5
    scaled = every * signal
    with np.errstate(divide="ignore"):
        levels = np.log(signal) - np.log(scaled)
    first_at_end = final == "zero" or given.flag("euler_at_final") or (
        given.flag("lower_order_final", True) and steps < 15
    )  # fmt: skip
    rows = []
    for n in range(begin, steps):
        h = levels[n + 1] - levels[n]
        share = -signal[n + 1] * np.expm1(-h)  # of the clean picture
        row = _plain(*_clean(noise.prediction, signal[n], scaled[n]), scaled[n + 1] / scaled[n],
                     share)  # fmt: skip
        if order > 1 and n > begin and not (n == steps - 1 and first_at_end):
            slope = share / 2
            if solver == "heun":
                slope = signal[n + 1] * (np.expm1(-h) / h + 1)
            slope *= h / (levels[n] - levels[n - 1])
            row |= {"h0": share + slope, "h1": -slope}
        rows.append(row)
    return _made(times, rows, 1.0, signal, scaled, begin)


def flow(
    given: Fields, steps: int, begin: int = 0, shift: float | None = None, even: bool = False
) -> Schedule:
    """Euler along straight lines from noise to pictures (Lipman et al. 2022,
    https://arxiv.org/abs/2210.02747; Esser et al. 2024, https://arxiv.org/abs/2403.03206). shift:
    the exponent of a config that shifts by the size of the picture. even: from 1 to 1 / steps
    before the shift, whatever the config's last one is."""
    for name in ("use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas", "invert_sigmas",
                 "stochastic_sampling", "shift_terminal"):  # fmt: skip
        if given.values.get(name):
            raise Unsupported(f"{given.where}: {name}")
    given.text("time_shift_type", "exponential", among=("exponential",))
    count = given.count("num_train_timesteps", 1000)
    if given.flag("use_dynamic_shifting"):
        if shift is None:
            raise InputError("this schedule is shifted by the size of the picture")
        ratio, even = np.exp(shift), True
    else:
        ratio = given.number("shift", 1.0)
    low = 1 / steps if even else ratio / count / (1 + (ratio - 1) / count)
    sigmas = np.linspace(1.0, low, steps)
    sigmas = ratio * sigmas / (1 + (ratio - 1) * sigmas)
    every = np.append(sigmas, 0.0)
    rows = [_plain(0.0, 1.0, 1.0, then - now) for now, then in pairwise(every)][begin:]
    return _made(sigmas * count, rows, 1.0, 1 - every, every, begin)


SAMPLERS: dict[str, Callable[..., Schedule]] = {
    "ddim": ddim, "pndm": pndm, "euler": euler, "euler-ancestral": euler_ancestral, "dpm++": dpm,
    "flow": flow,
}  # fmt: skip
CLASSES = {
    "DDIMScheduler": "ddim", "PNDMScheduler": "pndm", "EulerDiscreteScheduler": "euler",
    "EulerAncestralDiscreteScheduler": "euler-ancestral", "DPMSolverMultistepScheduler": "dpm++",
    "FlowMatchEulerDiscreteScheduler": "flow",
}  # fmt: skip


def schedule(
    given: Fields, steps: int, sampler: str | None = None, begin: int = 0,
    **flowing: Any,
) -> Schedule:  # fmt: skip
    """The steps of a scheduler_config.json, or of another sampler over its noise, from step `begin`
    on; flowing: what `flow` takes. Raises WeightsError, Unsupported, InputError."""
    if sampler is None:
        name = given.text("_class_name", among=CLASSES)
        sampler = CLASSES[name]
    if sampler not in SAMPLERS:
        raise InputError(f"no sampler {sampler!r}; there are {', '.join(SAMPLERS)}")
    own = CLASSES.get(str(given.values.get("_class_name")))
    if (sampler == "flow") != (own == "flow"):
        raise InputError(f"{given.where}: {own} cannot be replaced by {sampler}")
    if not 1 <= steps <= given.count("num_train_timesteps", 1000):
        raise InputError(f"{steps} steps: there are as many as the net was trained with, or fewer")
    if own != sampler:  # another sampler's config says nothing of clipping: latents are not clipped
        given = Fields({**given.values, "clip_sample": False}, given.where)
    with np.errstate(divide="ignore", invalid="ignore"):
        made = SAMPLERS[sampler](given, steps, begin, **(flowing if sampler == "flow" else {}))
    if not np.isfinite(made.table).all():
        raise InputError(f"{steps} steps: between some of these there is no noise to take away")
    return made
