"""Training, outside the compiler: derivatives and updates are recorded like anything else.

Reverse mode (`backward`, `vjp`), forward mode (`jvp`), both of results of themselves; optimizers
(SGD, Adam, AdamW, Lion, RMSprop), schedules and clipping; `Step` makes one program of it all.
"""

from .autograd import backward, jvp, stop_gradient, vjp
from .checkpoint import checkpoint
from .clipping import clip_norm, clip_value, norm
from .optimizers import SGD, Adam, AdamW, Lion, Optimizer, RMSprop
from .schedules import Schedule, constant, cosine, linear, one_cycle, warm_up
from .step import Step

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Lion",
    "Optimizer",
    "RMSprop",
    "Schedule",
    "Step",
    "backward",
    "checkpoint",
    "clip_norm",
    "clip_value",
    "constant",
    "cosine",
    "jvp",
    "linear",
    "norm",
    "one_cycle",
    "stop_gradient",
    "vjp",
    "warm_up",
]
