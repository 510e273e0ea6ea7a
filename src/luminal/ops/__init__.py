"""Everything that a user calls on tensors, under PyTorch's names and with PyTorch's semantics.

An operation is one function, composed of the primitives of `luminal.graph`. Where PyTorch has a
method of the same name, tensors have it too: `x.softmax(-1)`, `x + y`. What takes only sizes in
PyTorch takes the graph first here: `ops.zeros(graph, (2, 3))`.
"""

# ruff: noqa: F401, I001
from __future__ import annotations

from . import fft, methods, movement, protocol, random, spelling
from .elementwise import (
    abs, add, addcdiv, addcmul, ceil, div, floor, floor_divide, fmax, fmin, frac,
    isclose, isfinite, isinf, lerp, maximum, minimum, mul, nan_to_num, neg, reciprocal, round,
    rsub, sign, square, sub, trunc,
)  # fmt: skip
from .clamping import clamp, clamp_max, clamp_min
from .logic import (
    cast, eq, ge, gt, isnan, isneginf, isposinf, le, logical_and, logical_not, logical_or,
    logical_xor, lt, masked_fill, ne, where,
)  # fmt: skip
from .bits import (
    bitwise_and, bitwise_left_shift, bitwise_not, bitwise_or, bitwise_right_shift, bitwise_xor,
)  # fmt: skip
from .remainders import fmod, remainder
from .powers import pow
from .math import (
    acos, acosh, asin, asinh, atan, atan2, atanh, cos, cosh, exp, exp2, expm1, log, log10,
    log1p, log2, logaddexp, logit, rsqrt, sin, sinh, sqrt, tan, tanh,
)  # fmt: skip
from .erf import erf, erfc
from .activation import (
    celu, elu, gelu, glu, hardshrink, hardsigmoid, hardswish, hardtanh, leaky_relu, logsigmoid,
    mish, prelu, relu, relu6, selu, sigmoid, silu, softplus, softshrink, softsign, swiglu,
    tanhshrink, threshold,
)  # fmt: skip
from .reduction import (
    Extreme, all, amax, amin, aminmax, any, argmax, argmin, count_nonzero, dist, logsumexp, max,
    mean, min, nanmean, nansum, norm, normalize, prod, std, std_mean, sum, var, var_mean,
)  # fmt: skip
from .logits import (
    gumbel_softmax, hardmax, log_softmax, softmax, softmin,
)  # fmt: skip
from .linalg import (
    addbmm, addmm, addmv, addr, baddbmm, bilinear, bmm, cdist, cross, dot, einsum, kron, linear,
    matmul, mm, mv, outer, pdist, tensordot, vdot,
)  # fmt: skip
from .conv import (
    channel_shuffle, conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d,
    fold, pixel_shuffle, pixel_unshuffle, unfold,
)  # fmt: skip
from .pooling import (
    adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, avg_pool1d, avg_pool2d,
    avg_pool3d, lp_pool1d, lp_pool2d, lp_pool3d,
)  # fmt: skip
from .maxima import (
    adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d_with_indices, fractional_max_pool2d_with_indices,
    fractional_max_pool3d_with_indices, max_pool1d_with_indices, max_pool2d_with_indices,
    max_pool3d_with_indices,
    adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d, fractional_max_pool2d,
    fractional_max_pool3d, max_pool1d, max_pool2d, max_pool3d, max_unpool1d, max_unpool2d,
    max_unpool3d,
)  # fmt: skip
from .resize import (
    interpolate, upsample, upsample_bilinear, upsample_nearest,
)  # fmt: skip
from .normalisation import (
    batch_norm, group_norm, instance_norm, layer_norm, local_response_norm, rms_norm,
)  # fmt: skip
from .indexing import (
    gather, index, index_add, index_copy, index_fill, index_put,
    index_select, one_hot, scatter, scatter_add, scatter_reduce,
    select_scatter, take, take_along_dim,
)  # fmt: skip
from .searching import (
    bincount, bucketize, histc, searchsorted,
)  # fmt: skip
from .control import cond, scan, while_loop
from .scans import (
    cummax, cummin, cumprod, cumsum, diff, logcumsumexp,
)  # fmt: skip
from .sorting import (
    argsort, kthvalue, median, msort, quantile, sort, topk,
)  # fmt: skip
from .attention import (
    alibi_slopes, apply_rotary, apply_rotary_pairs, causal, rotate_half,
    scaled_dot_product_attention,
)  # fmt: skip
from .loss import (
    binary_cross_entropy, binary_cross_entropy_with_logits, cosine_similarity, cross_entropy,
    huber_loss, kl_div, l1_loss, mse_loss, nll_loss, pairwise_distance, smooth_l1_loss,
)  # fmt: skip
from .margins import (
    cosine_embedding_loss, gaussian_nll_loss, hinge_embedding_loss, margin_ranking_loss,
    multi_margin_loss, multilabel_margin_loss, multilabel_soft_margin_loss, poisson_nll_loss,
    soft_margin_loss, triplet_margin_loss, triplet_margin_with_distance_loss,
)  # fmt: skip
from .ctc import ctc_loss
from .bags import embedding, embedding_bag
from .sampling import affine_grid, grid_sample
from .movement import (
    broadcast_to, diagonal, expand, flatten, flip, movedim, narrow, permute, repeat_interleave,
    reshape, roll, select, squeeze, tile, transpose, unflatten, unsqueeze,
)  # fmt: skip
from .shape import (
    cat, chunk, concat, concatenate, diag, diag_embed, hstack, meshgrid, pad, rot90, split, stack,
    tensor_split, trace, tril, triu, unbind, vstack,
)  # fmt: skip
from .creation import (
    arange, eye, full, linspace, logspace, ones, ones_like, size_tensor, tri, tril_indices, zeros,
    zeros_like,
)  # fmt: skip
from .random import (
    bernoulli, exponential, gumbel, manual_seed, multinomial, normal, rand, randint, randn,
    random_bits, randperm, uniform,
)  # fmt: skip
from .noise import (
    alpha_dropout, dropout, dropout1d, dropout2d, dropout3d, feature_alpha_dropout, rrelu,
)  # fmt: skip
from .special import (
    copysign, deg2rad, entr, heaviside, hypot, rad2deg, signbit, sinc, xlog1py, xlogy,
)  # fmt: skip
from .numbers import (
    angle, erfinv, float_power, frexp, gcd, isreal, lcm, ldexp, logaddexp2, mvlgamma, nextafter,
    positive,
)  # fmt: skip
from .gamma import digamma, lgamma, polygamma
from .bessel import i0
from .statistics import (
    allclose, corrcoef, cov, equal, mode, nanmedian, nanquantile, renorm, unique,
    unique_consecutive,
)  # fmt: skip
from .writing import (
    argwhere, diagonal_scatter, index_reduce, masked_scatter, masked_select, nonzero,
    nonzero_static, put, slice_scatter,
)  # fmt: skip
from .solve import (
    cholesky, cholesky_inverse, cholesky_solve, det, inverse, logdet, matrix_exp, matrix_power,
    pinverse, qr, slogdet, solve,
)  # fmt: skip
from .likenesses import (
    atleast_1d, atleast_2d, atleast_3d, clone, column_stack, diagflat, dsplit, dstack,
    element_size, empty_like, fliplr, flipud, hsplit, inner, is_complex, is_floating_point,
    is_same_size, is_signed, narrow_copy, new_empty, new_full, new_ones, new_tensor, new_zeros,
    ravel, reshape_as, split_with_sizes, sum_to_size, view_as, vsplit,
)  # fmt: skip
from .complex import Complex
from .spectrogram import hann_window, istft, stft
from .methods import ALIASES

globals().update({alias: globals()[name] for alias, name in ALIASES.items()})
spelling.translate(globals())
methods.register(globals(), vars(movement))
protocol.register_protocol()
