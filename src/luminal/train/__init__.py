"""Training, outside the compiler: derivatives and updates are recorded like anything else.

Reverse mode (`backward`, `vjp`), forward mode (`jvp`), both of results of themselves; optimizers
(SGD, Adam, AdamW, Lion, RMSprop), schedules and clipping; `Step` makes one program of it all.
"""

from .autograd import backward, jvp, stop_gradient, vjp
from .checkpoint import checkpoint
from .clipping import clip_norm, clip_value, norm
from .data import Batches
from .log import Record
from .optimizers import SGD, Adam, AdamW, Lion, Optimizer, RMSprop
from .schedules import Schedule, constant, cosine, linear, one_cycle, warm_up
from .step import Step
from .trainer import Trainer

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Batches",
    "Lion",
    "Optimizer",
    "RMSprop",
    "Record",
    "Schedule",
    "Step",
    "Trainer",
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
