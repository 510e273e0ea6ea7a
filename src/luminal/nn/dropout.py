"""Noise in training: dropout and its relatives. In inference mode all but RReLU give what goes in.

Without a seed every run has other noise (see `ops.manual_seed`); a number gives all runs the same,
a scalar integer tensor that of its value.
"""

from __future__ import annotations

from .. import ops
from .function import noise_module

Dropout = noise_module("Dropout", ops.dropout, p=0.5, inplace=False)
Dropout1d = noise_module("Dropout1d", ops.dropout1d, p=0.5, inplace=False)
Dropout2d = noise_module("Dropout2d", ops.dropout2d, p=0.5, inplace=False)
Dropout3d = noise_module("Dropout3d", ops.dropout3d, p=0.5, inplace=False)
AlphaDropout = noise_module("AlphaDropout", ops.alpha_dropout, p=0.5, inplace=False)
FeatureAlphaDropout = noise_module(
    "FeatureAlphaDropout", ops.feature_alpha_dropout, p=0.5, inplace=False
)
RReLU = noise_module("RReLU", ops.rrelu, lower=1 / 8, upper=1 / 3, inplace=False)
