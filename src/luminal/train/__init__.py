"""Training, outside the compiler: derivatives and updates are recorded like anything else.

Reverse mode (`backward`, `vjp`), forward mode (`jvp`), both of results of themselves, `checkpoint`,
`custom` rules; optimizers, schedules and clipping; `Step` makes one program of it all, `Trainer`
runs it on data.
"""

from .autograd import backward, jvp, stop_gradient, vjp
from .checkpoint import checkpoint
from .clipping import clip_norm, clip_value, norm
from .custom import custom
from .data import Batches
from .log import Record
from .losses import contrastive_loss, dice_loss, focal_loss, linear_cross_entropy
from .matrices import Adafactor, Muon
from .optimizers import SGD, Adam, AdamW, Lion, Optimizer, RMSprop
from .scaling import LossScale
from .schedules import Schedule, constant, cosine, linear, one_cycle, warm_up
from .step import Step
from .trainer import Trainer

__all__ = [
    "SGD",
    "Adafactor",
    "Adam",
    "AdamW",
    "Batches",
    "Lion",
    "LossScale",
    "Muon",
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
    "contrastive_loss",
    "cosine",
    "custom",
    "dice_loss",
    "focal_loss",
    "jvp",
    "linear",
    "linear_cross_entropy",
    "norm",
    "one_cycle",
    "stop_gradient",
    "vjp",
    "warm_up",
]
