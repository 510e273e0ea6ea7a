"""Methods of tensors that luminal.ops registers; by scripts/tensor_methods.py."""

import builtins
import collections.abc
import typing

import numpy

import luminal.graph.index
import luminal.graph.node
import luminal.graph.parse
import luminal.ops.base
import luminal.ops.complex
import luminal.ops.conv
import luminal.ops.ctc
import luminal.ops.random
import luminal.ops.reduction
from luminal.graph.tensor import Tensor

class Methods:
    @property
    def H(self) -> Tensor:
        """All dimensions in reverse order."""
    @property
    def T(self) -> Tensor:
        """All dimensions in reverse order."""
    def abs(self) -> Tensor:
        """|x|. The most negative integer stays as it is."""
    def absolute(self) -> Tensor:
        """|x|. The most negative integer stays as it is."""
    def acos(self) -> Tensor:
        """2 atan(sqrt((1 - x) / (1 + x)))."""
    def acosh(self) -> Tensor:
        """log(x + sqrt(x^2 - 1)), for x >= 1."""
    def adaptive_avg_pool1d(self, output_size: builtins.int) -> Tensor:
        """Means over windows that give the size wanted."""
    def adaptive_avg_pool2d(self, output_size: builtins.int |
        collections.abc.Sequence[builtins.int | None]) -> Tensor:
        """Means over windows that give the size wanted."""
    def adaptive_avg_pool3d(self, output_size: builtins.int |
        collections.abc.Sequence[builtins.int | None]) -> Tensor:
        """Means over windows that give the size wanted."""
    def adaptive_max_pool1d(self, output_size: builtins.int |
        collections.abc.Sequence[builtins.int | None], return_indices: builtins.bool =
        ...) -> typing.Any:
        """Maxima over windows that give the size wanted."""
    def adaptive_max_pool1d_with_indices(self, output_size: builtins.int |
        collections.abc.Sequence[builtins.int | None], return_indices: builtins.bool =
        ...) -> typing.Any:
        """Maxima over windows that give the size wanted."""
    def adaptive_max_pool2d(self, output_size: builtins.int |
        collections.abc.Sequence[builtins.int | None], return_indices: builtins.bool =
        ...) -> typing.Any:
        """Maxima over windows that give the size wanted."""
    def adaptive_max_pool2d_with_indices(self, output_size: builtins.int |
        collections.abc.Sequence[builtins.int | None], return_indices: builtins.bool =
        ...) -> typing.Any:
        """Maxima over windows that give the size wanted."""
    def adaptive_max_pool3d(self, output_size: builtins.int |
        collections.abc.Sequence[builtins.int | None], return_indices: builtins.bool =
        ...) -> typing.Any:
        """Maxima over windows that give the size wanted."""
    def adaptive_max_pool3d_with_indices(self, output_size: builtins.int |
        collections.abc.Sequence[builtins.int | None], return_indices: builtins.bool =
        ...) -> typing.Any:
        """Maxima over windows that give the size wanted."""
    def add(self, b: luminal.ops.base.Value = ..., alpha: luminal.ops.base.Value = ..., *,
        other: luminal.ops.base.Value = ...) -> Tensor:
        """a + alpha b. Of two bools: or."""
    def addbmm(self, a: Tensor, b: Tensor = ..., beta: builtins.float = ..., alpha:
        builtins.float = ..., *, other: Tensor = ...) -> Tensor:
        """beta x + alpha times the sum of the products of two batches of matrices."""
    def addcdiv(self, a: Tensor, b: Tensor = ..., value: luminal.ops.base.Value = ..., *, other:
        Tensor = ..., fill_value: luminal.ops.base.Value = ...) -> Tensor:
        """x + value a / b."""
    def addcmul(self, a: Tensor, b: Tensor = ..., value: luminal.ops.base.Value = ..., *, other:
        Tensor = ..., fill_value: luminal.ops.base.Value = ...) -> Tensor:
        """x + value a b."""
    def addmm(self, a: Tensor, b: Tensor = ..., beta: builtins.float = ..., alpha:
        builtins.float = ..., *, other: Tensor = ...) -> Tensor:
        """beta x + alpha (a @ b), narrow floats in f32 and rounded once; x does not count, not even
        as NaN, where beta is 0. Integers take the whole part of both factors."""
    def addmv(self, a: Tensor, b: Tensor = ..., beta: builtins.float = ..., alpha:
        builtins.float = ..., *, other: Tensor = ...) -> Tensor:
        """beta x + alpha (a @ b), narrow floats in f32 and rounded once; x does not count, not even
        as NaN, where beta is 0. Integers take the whole part of both factors."""
    def addr(self, a: Tensor, b: Tensor = ..., beta: builtins.float = ..., alpha: builtins.float
        = ..., *, other: Tensor = ...) -> Tensor:
        """beta x + alpha times the products of all pairs of elements of two vectors."""
    def adjoint(self) -> Tensor:
        """The last two dimensions swapped."""
    def affine_grid(self, size: collections.abc.Sequence[builtins.int], align_corners:
        builtins.bool | None = ...) -> Tensor:
        """The points that a matrix (batch, n, n + 1) maps a regular grid to, for grid_sample:
        (batch, *spatial, n). size: (batch, channels, *spatial)."""
    def alibi_slopes(self, heads: builtins.int) -> Tensor:
        """2^(-8 (h + 1) / heads) for each head (a power of two of them)."""
    def all(self, dim: luminal.ops.base.Dims = ..., keepdim: builtins.bool = ..., *, axis:
        luminal.ops.base.Dims = ..., keepdims: builtins.bool = ...) -> Tensor:
        """No element is zero."""
    def allclose(self, b: Tensor = ..., rtol: builtins.float = ..., atol: builtins.float = ...,
        equal_nan: builtins.bool = ..., *, other: Tensor = ...) -> Tensor:
        """All elements are close, as a bool tensor ()."""
    def alpha_dropout(self, p: builtins.float = ..., training: builtins.bool = ..., *, seed:
        luminal.ops.random.Seed = ..., stream: builtins.int | None = ...) -> Tensor:
        """Dropout to selu's lowest value that keeps mean and variance (Klambauer et al. 2017)."""
    def amax(self, dim: luminal.ops.base.Dims = ..., keepdim: builtins.bool = ..., *, axis:
        luminal.ops.base.Dims = ..., keepdims: builtins.bool = ...) -> Tensor:
        """The largest element; NaN if there is one."""
    def amin(self, dim: luminal.ops.base.Dims = ..., keepdim: builtins.bool = ..., *, axis:
        luminal.ops.base.Dims = ..., keepdims: builtins.bool = ...) -> Tensor:
        """The smallest element; NaN if there is one."""
    def aminmax(self, dim: luminal.ops.base.Dims = ..., keepdim: builtins.bool = ..., *, axis:
        luminal.ops.base.Dims = ..., keepdims: builtins.bool = ...) -> tuple[Tensor, Tensor]:
        """(amin, amax)."""
    def angle(self) -> Tensor:
        """Of a real number: 0, or pi below 0; NaN stays."""
    def any(self, dim: luminal.ops.base.Dims = ..., keepdim: builtins.bool = ..., *, axis:
        luminal.ops.base.Dims = ..., keepdims: builtins.bool = ...) -> Tensor:
        """One element is not zero."""
    def apply_rotary(self, cos: Tensor, sin: Tensor) -> Tensor:
        """x cos + rotate_half(x) sin, the halves layout of Hugging Face models; cos and sin
        broadcast against (..., positions, width)."""
    def apply_rotary_pairs(self, cos: Tensor, sin: Tensor) -> Tensor:
        """The same rotation of neighbouring pairs; cos and sin: (positions, width / 2)."""
    def arccos(self) -> Tensor:
        """2 atan(sqrt((1 - x) / (1 + x)))."""
    def arccosh(self) -> Tensor:
        """log(x + sqrt(x^2 - 1)), for x >= 1."""
    def arcsin(self) -> Tensor:
        """2 atan(x / (1 + sqrt(1 - x^2)))."""
    def arcsinh(self) -> Tensor:
        """sign(x) log(|x| + sqrt(x^2 + 1))."""
    def arctan(self) -> Tensor:
        """The angle with this tangent: two half angles, then the series (|y| <= 0.2)."""
    def arctan2(self, x: Tensor = ..., *, input: Tensor = ...) -> Tensor:
        """The angle of the point (x, y), in -pi .. pi, with the sign of y."""
    def arctanh(self) -> Tensor:
        """log((1 + x) / (1 - x)) / 2."""
    def argmax(self, dim: builtins.int | None = ..., keepdim: builtins.bool = ..., *, axis:
        builtins.int | None = ..., keepdims: builtins.bool = ...) -> Tensor:
        """Where the largest element (or a NaN) stands first; without dim, in the flattened x."""
    def argmin(self, dim: builtins.int | None = ..., keepdim: builtins.bool = ..., *, axis:
        builtins.int | None = ..., keepdims: builtins.bool = ...) -> Tensor:
        """Where the smallest element (or a NaN) stands first; without dim, in the flattened x."""
    def argsort(self, dim: builtins.int = ..., descending: builtins.bool = ..., stable:
        builtins.bool = ..., *, axis: builtins.int = ...) -> Tensor:
        """Where each element of the sorted tensor stood."""
    def argwhere(self, *, size: builtins.int | None = ..., fill: builtins.int = ...) -> Tensor:
        """As nonzero_static. Raises Unsupported without `size`: a graph has no shape for it."""
    def asin(self) -> Tensor:
        """2 atan(x / (1 + sqrt(1 - x^2)))."""
    def asinh(self) -> Tensor:
        """sign(x) log(|x| + sqrt(x^2 + 1))."""
    def astype(self, kind: typing.Any) -> Tensor:
        """x in another dtype (of ours, NumPy's or PyTorch's), or in that of another tensor."""
    def atan(self) -> Tensor:
        """The angle with this tangent: two half angles, then the series (|y| <= 0.2)."""
    def atan2(self, x: Tensor = ..., *, input: Tensor = ...) -> Tensor:
        """The angle of the point (x, y), in -pi .. pi, with the sign of y."""
    def atanh(self) -> Tensor:
        """log((1 + x) / (1 - x)) / 2."""
    def atleast_1d(self) -> Tensor:
        """A scalar as a vector of one element."""
    def atleast_2d(self) -> Tensor:
        """A vector as a row."""
    def atleast_3d(self) -> Tensor:
        """A vector or a matrix with dimensions of size 1: (1, n, 1), (n, m, 1)."""
    def avg_pool1d(self, kernel_size: luminal.ops.conv.Numbers, stride: luminal.ops.conv.Numbers
        | None = ..., padding: luminal.ops.conv.Numbers = ..., ceil_mode: builtins.bool = ...,
        count_include_pad: builtins.bool = ..., divisor_override: builtins.int | None =
        ...) -> Tensor:
        """The mean of each window."""
    def avg_pool2d(self, kernel_size: luminal.ops.conv.Numbers, stride: luminal.ops.conv.Numbers
        | None = ..., padding: luminal.ops.conv.Numbers = ..., ceil_mode: builtins.bool = ...,
        count_include_pad: builtins.bool = ..., divisor_override: builtins.int | None =
        ...) -> Tensor:
        """The mean of each window."""
    def avg_pool3d(self, kernel_size: luminal.ops.conv.Numbers, stride: luminal.ops.conv.Numbers
        | None = ..., padding: luminal.ops.conv.Numbers = ..., ceil_mode: builtins.bool = ...,
        count_include_pad: builtins.bool = ..., divisor_override: builtins.int | None =
        ...) -> Tensor:
        """The mean of each window."""
    def baddbmm(self, a: Tensor, b: Tensor = ..., beta: builtins.float = ..., alpha:
        builtins.float = ..., *, other: Tensor = ...) -> Tensor:
        """beta x + alpha (a @ b), narrow floats in f32 and rounded once; x does not count, not even
        as NaN, where beta is 0. Integers take the whole part of both factors."""
    def basic(self, key: typing.Any) -> Tensor:
        """x[key], where no item of the key is an array or a tensor."""
    def batch_norm(self, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor
        | None = ..., bias: Tensor | None = ..., training: builtins.bool = ..., momentum:
        builtins.float = ..., eps: builtins.float = ...) -> Tensor:
        """Normalise each channel (dimension 1): by the running statistics, or by those of the
        batch. (They stay as they are: momentum is for modules, which update them.)"""
    def bernoulli(self, *, seed: luminal.ops.random.Seed = ..., stream: builtins.int | None =
        ...) -> Tensor:
        """1 with probability p, else 0."""
    def bfloat16(self) -> Tensor:
        ...
    def bilinear(self, b: Tensor = ..., weight: Tensor = ..., bias: Tensor | None = ..., *,
        other: Tensor = ...) -> Tensor:
        """a^T W_o b for each output o. a: (..., m), b: (..., n), weight: (out, m, n)."""
    def binary_cross_entropy(self, target: Tensor, weight: Tensor | None = ..., *, reduction:
        str = ...) -> Tensor:
        """Of probabilities x; logarithms are limited to -100 as in PyTorch."""
    def binary_cross_entropy_with_logits(self, target: Tensor, weight: Tensor | None = ..., *,
        reduction: str = ..., pos_weight: Tensor | None = ...) -> Tensor:
        """Of logits x, without overflow."""
    def bincount(self, weights: Tensor | None = ..., minlength: builtins.int = ...) -> Tensor:
        """How often each of 0 .. minlength - 1 occurs in a vector, or the sum of their weights; the
        static size must be said."""
    def bitwise_and(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """Bits set in both."""
    def bitwise_left_shift(self, b: luminal.ops.base.Value = ..., *, other:
        luminal.ops.base.Value = ...) -> Tensor:
        """a 2^b, wrapping around; 0 <= b < bits of the dtype."""
    def bitwise_not(self) -> Tensor:
        """Every bit flipped; of a bool: not."""
    def bitwise_or(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """Bits set in one."""
    def bitwise_right_shift(self, b: luminal.ops.base.Value = ..., *, other:
        luminal.ops.base.Value = ...) -> Tensor:
        """floor(a / 2^b); 0 <= b < bits of the dtype."""
    def bitwise_xor(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """Bits set in just one."""
    def bmm(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """The products of two batches of matrices."""
    def bool(self) -> Tensor:
        ...
    def broadcast_to(self, *sizes: typing.Any) -> Tensor:
        """Repeat dimensions of size 1; -1 keeps a size; new dimensions come first."""
    def bucketize(self, boundaries: Tensor, *, out_int32: builtins.bool = ..., right:
        builtins.bool = ...) -> Tensor:
        """Which interval between the sorted boundaries (n,) each value falls into."""
    def byte(self) -> Tensor:
        ...
    def causal(self, offset: luminal.ops.base.Size = ...) -> Tensor:
        """True where key position <= query position + offset, for scores (..., queries, keys)."""
    def cdist(self, b: Tensor = ..., p: builtins.float = ..., *, other: Tensor = ...) -> Tensor:
        """The p-norms of the differences of all pairs of rows: (..., n, d), (..., m, d) to (..., n,
        m)."""
    def ceil(self) -> Tensor:
        """The smallest whole number that is not below x."""
    def celu(self, alpha: builtins.float = ...) -> Tensor:
        """x, or alpha (e^(x / alpha) - 1) below 0."""
    def channel_shuffle(self, groups: builtins.int) -> Tensor:
        """(batch, g c, ...) to (batch, c g, ...)."""
    def char(self) -> Tensor:
        ...
    def cholesky(self, upper: builtins.bool = ...) -> Tensor:
        """The lower triangle L with L L^T = a, for symmetric positive definite (..., n, n), n
        fixed; its transpose if upper. NaN where a is not positive definite. Of a its lower triangle
        is read; the gradient is symmetric."""
    def cholesky_inverse(self, upper: builtins.bool = ...) -> Tensor:
        """The inverse of L L^T from the triangle L, or U^T U from U."""
    def cholesky_solve(self, a: Tensor = ..., upper: builtins.bool = ..., *, input: Tensor =
        ...) -> Tensor:
        """x with L L^T x = b for the triangle a = L, or U^T U for a = U."""
    def chunk(self, chunks: builtins.int, dim: builtins.int = ..., *, axis: builtins.int =
        ...) -> list[Tensor]:
        """At most `chunks` pieces of equal size (the last may be smaller)."""
    def clamp(self, min: luminal.ops.base.Value | None = ..., max: luminal.ops.base.Value | None
        = ...) -> Tensor:
        """x limited to min .. max; NaN stays. Where a limit is met the slope is 1, that of
        `limited` 0."""
    def clamp_max(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """a, or b where that is smaller; NaN if either is. Where both meet, all the slope is that
        of a."""
    def clamp_min(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """a, or b where that is larger; NaN if either is. Where both meet, all the slope is that of
        a."""
    def clip(self, min: luminal.ops.base.Value | None = ..., max: luminal.ops.base.Value | None
        = ...) -> Tensor:
        """x limited to min .. max; NaN stays. Where a limit is met the slope is 1, that of
        `limited` 0."""
    def clone(self) -> Tensor:
        """x: a tensor is a value, which nothing overwrites."""
    def cond(self, true_fn: collections.abc.Callable[..., typing.Any], false_fn:
        collections.abc.Callable[..., typing.Any], *operands: typing.Any) -> typing.Any:
        """true_fn(*operands) where pred, one bool, holds, else false_fn(*operands): as
        `jax.lax.cond`, but both are computed, as by `where`. Raises ShapeError, InputError where
        they differ in kind."""
    def conj(self) -> Tensor:
        """x: where its values lie, and whether they are conjugate, is nothing of the graph's."""
    def conj_physical(self) -> Tensor:
        """x: where its values lie, and whether they are conjugate, is nothing of the graph's."""
    def contiguous(self) -> Tensor:
        """x: where values lie in memory is the compiler's business."""
    def conv1d(self, weight: Tensor, bias: Tensor | None = ..., stride: luminal.ops.conv.Numbers
        = ..., padding: luminal.ops.conv.Numbers | str = ..., dilation: luminal.ops.conv.Numbers
        = ..., groups: builtins.int = ...) -> Tensor:
        """x: (batch, in, length), weight: (out, in / groups, kernel)."""
    def conv2d(self, weight: Tensor, bias: Tensor | None = ..., stride: luminal.ops.conv.Numbers
        = ..., padding: luminal.ops.conv.Numbers | str = ..., dilation: luminal.ops.conv.Numbers
        = ..., groups: builtins.int = ...) -> Tensor:
        """x: (batch, in, height, width), weight: (out, in / groups, kernel height, kernel
        width)."""
    def conv3d(self, weight: Tensor, bias: Tensor | None = ..., stride: luminal.ops.conv.Numbers
        = ..., padding: luminal.ops.conv.Numbers | str = ..., dilation: luminal.ops.conv.Numbers
        = ..., groups: builtins.int = ...) -> Tensor:
        """x: (batch, in, depth, height, width), weight: (out, in / groups, *kernel)."""
    def conv_transpose1d(self, weight: Tensor, bias: Tensor | None = ..., stride:
        luminal.ops.conv.Numbers = ..., padding: luminal.ops.conv.Numbers = ..., output_padding:
        luminal.ops.conv.Numbers = ..., groups: builtins.int = ..., dilation:
        luminal.ops.conv.Numbers = ...) -> Tensor:
        """x: (batch, in, length), weight: (in, out / groups, kernel)."""
    def conv_transpose2d(self, weight: Tensor, bias: Tensor | None = ..., stride:
        luminal.ops.conv.Numbers = ..., padding: luminal.ops.conv.Numbers = ..., output_padding:
        luminal.ops.conv.Numbers = ..., groups: builtins.int = ..., dilation:
        luminal.ops.conv.Numbers = ...) -> Tensor:
        """x: (batch, in, height, width), weight: (in, out / groups, kernel height, kernel
        width)."""
    def conv_transpose3d(self, weight: Tensor, bias: Tensor | None = ..., stride:
        luminal.ops.conv.Numbers = ..., padding: luminal.ops.conv.Numbers = ..., output_padding:
        luminal.ops.conv.Numbers = ..., groups: builtins.int = ..., dilation:
        luminal.ops.conv.Numbers = ...) -> Tensor:
        """x: (batch, in, depth, height, width), weight: (in, out / groups, *kernel)."""
    def copysign(self, sign: luminal.ops.base.Value) -> Tensor:
        """|size| with the sign of the other, also of -0; of integers in f32."""
    def corrcoef(self) -> Tensor:
        """The correlations of the rows of a matrix, in -1 .. 1."""
    def cos(self) -> Tensor:
        """The cosine of x radians."""
    def cosh(self) -> Tensor:
        """(e^x + e^-x) / 2."""
    def cosine_embedding_loss(self, b: Tensor = ..., target: Tensor = ..., margin:
        builtins.float = ..., *, reduction: str = ..., other: Tensor = ...) -> Tensor:
        """1 - cos where the target is 1, max(0, cos - margin) where it is -1."""
    def cosine_similarity(self, b: Tensor = ..., dim: builtins.int = ..., eps: builtins.float =
        ..., *, axis: builtins.int = ..., other: Tensor = ...) -> Tensor:
        """The product of a / max(|a|, eps) and b / max(|b|, eps), added up."""
    def count_nonzero(self, dim: luminal.ops.base.Dims = ..., *, axis: luminal.ops.base.Dims =
        ...) -> Tensor:
        """How many elements are not zero."""
    def cov(self, *, correction: builtins.int = ...) -> Tensor:
        """The covariances of the rows of a matrix: (rows, rows); of a vector its variance."""
    def cpu(self) -> Tensor:
        """x: where its values lie, and whether they are conjugate, is nothing of the graph's."""
    def cross(self, b: Tensor = ..., dim: builtins.int | None = ..., *, axis: builtins.int |
        None = ..., other: Tensor = ...) -> Tensor:
        """The vector product along a dimension of size 3, by default the first of that size."""
    def cross_entropy(self, target: Tensor, weight: Tensor | None = ..., *, ignore_index:
        builtins.int = ..., reduction: str = ..., label_smoothing: builtins.float =
        ...) -> Tensor:
        """Of logits x (batch, classes, ...) or (classes,): classes as integers, or
        probabilities."""
    def ctc_loss(self, targets: Tensor, input_lengths: luminal.ops.ctc.Lengths, target_lengths:
        luminal.ops.ctc.Lengths, blank: builtins.int = ..., reduction: str = ..., zero_infinity:
        builtins.bool = ...) -> Tensor:
        """-log of the probability of all ways to spell the targets with blanks and repetitions."""
    def cummax(self, dim: builtins.int = ..., *, axis: builtins.int =
        ...) -> luminal.ops.reduction.Extreme:
        """The largest element up to each, and where it stands last."""
    def cummin(self, dim: builtins.int = ..., *, axis: builtins.int =
        ...) -> luminal.ops.reduction.Extreme:
        """The smallest element up to each, and where it stands last."""
    def cumprod(self, dim: builtins.int = ..., dtype: typing.Any = ..., *, axis: builtins.int =
        ...) -> Tensor:
        """The product of all elements up to each; integers in i64."""
    def cumsum(self, dim: builtins.int = ..., dtype: typing.Any = ..., *, axis: builtins.int =
        ...) -> Tensor:
        """The sum of all elements up to each; integers in i64."""
    def deg2rad(self) -> Tensor:
        """Degrees to radians."""
    def det(self) -> Tensor:
        """The determinant of matrices (..., n, n), n fixed."""
    def detach(self) -> Tensor:
        """x: gradients are a pass over the graph, not a property of tensors."""
    def diag(self, diagonal: builtins.int = ...) -> Tensor:
        """A matrix with this diagonal, or the diagonal of a matrix."""
    def diag_embed(self, offset: builtins.int = ...) -> Tensor:
        """The last dimension as a diagonal of two new ones."""
    def diagflat(self, offset: builtins.int = ...) -> Tensor:
        """A matrix with all elements on a diagonal."""
    def diagonal(self, offset: builtins.int = ..., dim1: builtins.int = ..., dim2: builtins.int
        = ...) -> Tensor:
        """The elements (i, i + offset) of two dimensions, as a new last dimension."""
    def diagonal_scatter(self, src: Tensor, offset: builtins.int = ..., dim1: builtins.int =
        ..., dim2: builtins.int = ...) -> Tensor:
        """x with a diagonal replaced."""
    def diff(self, n: builtins.int = ..., dim: builtins.int = ..., *, axis: builtins.int =
        ...) -> Tensor:
        """Differences of neighbours, n times."""
    def digamma(self) -> Tensor:
        """The derivative of lgamma, by the same shift and reflection; -+inf at +-0, NaN at -1,
        ..."""
    def dilate(self, step: luminal.graph.parse.DimLike, dim: builtins.int = ..., value:
        luminal.graph.node.Number = ..., *, axis: builtins.int = ..., fill_value:
        luminal.graph.node.Number = ...) -> Tensor:
        """step - 1 elements of `value` between neighbours along a dimension."""
    def dim(self) -> builtins.int:
        """How many dimensions."""
    def dist(self, b: Tensor = ..., p: builtins.float = ..., *, other: Tensor = ...) -> Tensor:
        """The norm of a - b."""
    def div(self, b: luminal.ops.base.Value = ..., rounding_mode: str | None = ..., *, other:
        luminal.ops.base.Value = ...) -> Tensor:
        """a / b in floats; with rounding_mode "floor" or "trunc" in the common dtype."""
    def divide(self, b: luminal.ops.base.Value = ..., rounding_mode: str | None = ..., *, other:
        luminal.ops.base.Value = ...) -> Tensor:
        """a / b in floats; with rounding_mode "floor" or "trunc" in the common dtype."""
    def dot(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """The inner product of two vectors."""
    def double(self) -> Tensor:
        ...
    def dropout(self, p: builtins.float = ..., training: builtins.bool = ..., *, seed:
        luminal.ops.random.Seed = ..., stream: builtins.int | None = ...) -> Tensor:
        """In training 0 with probability p, else x / (1 - p); otherwise x."""
    def dropout1d(self, p: builtins.float = ..., training: builtins.bool = ..., *, seed:
        luminal.ops.random.Seed = ..., stream: builtins.int | None = ...) -> Tensor:
        """Dropout of whole channels of x (batch, channels, length) or (channels, length)."""
    def dropout2d(self, p: builtins.float = ..., training: builtins.bool = ..., *, seed:
        luminal.ops.random.Seed = ..., stream: builtins.int | None = ...) -> Tensor:
        """Dropout of whole channels of x (batch, channels, ...)."""
    def dropout3d(self, p: builtins.float = ..., training: builtins.bool = ..., *, seed:
        luminal.ops.random.Seed = ..., stream: builtins.int | None = ...) -> Tensor:
        """Dropout of whole channels of x (batch, channels, depth, height, width), or without
        batch."""
    def dsplit(self, sections: builtins.int |
        collections.abc.Sequence[builtins.int]) -> list[Tensor]:
        """tensor_split along dimension 2."""
    def element_size(self) -> builtins.int:
        """Bytes of an element."""
    def elu(self, alpha: builtins.float = ...) -> Tensor:
        """x, or alpha (e^x - 1) below 0."""
    def embedding(self, weight: Tensor, padding_idx: builtins.int | None = ...) -> Tensor:
        """Rows of weight (rows, ...) at indices of any shape. That of padding_idx has no
        gradient."""
    def embedding_bag(self, weight: Tensor, offsets: Tensor | None = ..., *, mode: str = ...,
        per_sample_weights: Tensor | None = ..., include_last_offset: builtins.bool = ...,
        padding_idx: builtins.int | None = ...) -> Tensor:
        """The sum, mean or maximum of the rows of each bag: (bags, width), 0 for an empty one."""
    def empty_like(self, *, dtype: typing.Any = ...) -> Tensor:
        """As zeros_like."""
    def entr(self) -> Tensor:
        """-x log x; 0 at 0, minus infinity below."""
    def eq(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """a = b."""
    def equal(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """One shape and all elements equal, as a bool tensor ()."""
    def erf(self) -> Tensor:
        """The error function: x p(x^2) / q(x^2) where it differs from 1 and -1."""
    def erfc(self) -> Tensor:
        """1 - erf(x), accurate in the tail: e^(-x^2) p(2 / (2 + x))."""
    def erfinv(self) -> Tensor:
        """Winitzki's start (0.2% off), then Newton's steps: erf'(y) = 2 / sqrt(pi) e^(-y^2)."""
    def exp(self) -> Tensor:
        """e^x = 2^(x log2 e)."""
    def exp2(self) -> Tensor:
        """2^x."""
    def expand(self, *sizes: typing.Any) -> Tensor:
        """Repeat dimensions of size 1; -1 keeps a size; new dimensions come first."""
    def expand_as(self, other: Tensor) -> Tensor:
        """With the shape of another tensor."""
    def expm1(self) -> Tensor:
        """e^x - 1, accurate near 0."""
    def feature_alpha_dropout(self, p: builtins.float = ..., training: builtins.bool = ..., *,
        seed: luminal.ops.random.Seed = ..., stream: builtins.int | None = ...) -> Tensor:
        """alpha_dropout of whole channels of x (batch, channels, ...)."""
    def fix(self) -> Tensor:
        """x without its fraction."""
    def flatten(self, start_dim: builtins.int = ..., end_dim: builtins.int = ...) -> Tensor:
        """Merge the dimensions start_dim .. end_dim into one."""
    def flip(self, *dims: typing.Any) -> Tensor:
        """Backwards along these dimensions; a number stays as it is, as in PyTorch."""
    def fliplr(self) -> Tensor:
        """Backwards along dimension 1."""
    def flipud(self) -> Tensor:
        """Backwards along dimension 0."""
    def float(self) -> Tensor:
        ...
    def float_power(self, exponent: luminal.ops.base.Value) -> Tensor:
        """base^exponent in f64."""
    def floor(self) -> Tensor:
        """The largest whole number that is not above x."""
    def floor_divide(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """floor(a / b), exact; integers stay integers and a zero divisor gives 0 for them. A zero
        has the sign of a / b."""
    def fmax(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """The larger, the first of equal ones; a NaN counts as missing."""
    def fmin(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """The smaller, the first of equal ones; a NaN counts as missing."""
    def fmod(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """a modulo b with the sign of a, as in C."""
    def fold(self, output_size: luminal.ops.conv.Numbers, kernel_size: luminal.ops.conv.Numbers,
        dilation: luminal.ops.conv.Numbers = ..., padding: luminal.ops.conv.Numbers = ...,
        stride: luminal.ops.conv.Numbers = ...) -> Tensor:
        """Columns back as patches that are added up where they overlap, the transpose of `unfold`:
        (batch, c kernel, positions), or without batch, to (batch, c, *output_size)."""
    def frac(self) -> Tensor:
        """x - trunc(x)."""
    def fractional_max_pool2d(self, kernel_size: luminal.ops.conv.Numbers, output_size:
        luminal.ops.conv.Numbers | None = ..., output_ratio: builtins.float |
        collections.abc.Sequence[builtins.float] | None = ..., return_indices: builtins.bool =
        ..., _random_samples: Tensor | None = ..., *, seed: luminal.ops.random.Seed =
        ...) -> typing.Any:
        """Maxima of windows at drawn distances. _random_samples: (batch, channels, 2) in 0 .. 1."""
    def fractional_max_pool2d_with_indices(self, kernel_size: luminal.ops.conv.Numbers,
        output_size: luminal.ops.conv.Numbers | None = ..., output_ratio: builtins.float |
        collections.abc.Sequence[builtins.float] | None = ..., return_indices: builtins.bool =
        ..., _random_samples: Tensor | None = ..., *, seed: luminal.ops.random.Seed =
        ...) -> typing.Any:
        """Maxima of windows at drawn distances. _random_samples: (batch, channels, 2) in 0 .. 1."""
    def fractional_max_pool3d(self, kernel_size: luminal.ops.conv.Numbers, output_size:
        luminal.ops.conv.Numbers | None = ..., output_ratio: builtins.float |
        collections.abc.Sequence[builtins.float] | None = ..., return_indices: builtins.bool =
        ..., _random_samples: Tensor | None = ..., *, seed: luminal.ops.random.Seed =
        ...) -> typing.Any:
        """Maxima of windows at drawn distances. _random_samples: (batch, channels, 3) in 0 .. 1."""
    def fractional_max_pool3d_with_indices(self, kernel_size: luminal.ops.conv.Numbers,
        output_size: luminal.ops.conv.Numbers | None = ..., output_ratio: builtins.float |
        collections.abc.Sequence[builtins.float] | None = ..., return_indices: builtins.bool =
        ..., _random_samples: Tensor | None = ..., *, seed: luminal.ops.random.Seed =
        ...) -> typing.Any:
        """Maxima of windows at drawn distances. _random_samples: (batch, channels, 3) in 0 .. 1."""
    def frexp(self) -> tuple[Tensor, Tensor]:
        """(fractions from 1/2 to 1, exponents of 2, i32); x and 0 where x is 0 or not finite."""
    def gather(self, dim: builtins.int = ..., index: Tensor = ..., *, axis: builtins.int =
        ...) -> Tensor:
        """out[.., i, ..] = x[.., index[.., i, ..], ..]; index may be smaller in other
        dimensions."""
    def gaussian_nll_loss(self, target: Tensor, var: Tensor, full: builtins.bool = ..., eps:
        builtins.float = ..., reduction: str = ...) -> Tensor:
        """(log var + (x - target)^2 / var) / 2; full adds log(2 pi) / 2. var: like x, or with 1
        for, or without, the last dimension, or a number."""
    def gcd(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """Euclid's: the last remainder that is not 0, of as many as the slowest pair of the dtype
        (Fibonacci's numbers) has. Each has the sign of its dividend, so that two signs take turns:
        they matter for the most negative number, whose absolute value is itself."""
    def ge(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """a >= b: false for NaN."""
    def gelu(self, approximate: str = ...) -> Tensor:
        """x times the normal distribution function at x; approximate "tanh" as in GPT-2."""
    def ger(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """The products of all pairs of elements of two vectors."""
    def glu(self, dim: builtins.int = ..., *, axis: builtins.int = ...) -> Tensor:
        """The first half of a dimension times the sigmoid of the second."""
    def greater(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """a > b."""
    def greater_equal(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """a >= b: false for NaN."""
    def grid_sample(self, grid: Tensor, mode: str = ..., padding_mode: str = ..., align_corners:
        builtins.bool | None = ...) -> Tensor:
        """x (batch, channels, *spatial) at points (batch, ..., n) between -1 and 1, the last
        coordinate first: (batch, channels, ...). mode: bilinear, nearest, bicubic (images only);
        padding_mode: zeros, border, reflection. align_corners: -1 and 1 are the middles of the last
        elements."""
    def group_norm(self, num_groups: builtins.int, weight: Tensor | None = ..., bias: Tensor |
        None = ..., eps: builtins.float = ...) -> Tensor:
        """Mean 0 and variance 1 over each group of channels (dimension 1) and all that follows."""
    def gt(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """a > b."""
    def gumbel_softmax(self, tau: builtins.float = ..., hard: builtins.bool = ..., eps:
        builtins.float = ..., dim: builtins.int = ..., *, seed: luminal.ops.random.Seed = ...,
        stream: builtins.int | None = ..., axis: builtins.int = ...) -> Tensor:
        """softmax((x + Gumbel noise) / tau); with hard, 1 at its maximum, else 0, and the
        derivative is still that of the softmax. (eps is unused.)"""
    def half(self) -> Tensor:
        ...
    def hardmax(self, dim: builtins.int = ..., *, axis: builtins.int = ...) -> Tensor:
        """1 at the first maximum along a dimension, else 0."""
    def hardshrink(self, lambd: builtins.float = ...) -> Tensor:
        """x, but 0 where |x| <= lambd."""
    def hardsigmoid(self) -> Tensor:
        """x / 6 + 1/2, limited to 0 .. 1."""
    def hardswish(self) -> Tensor:
        """x hardsigmoid(x)."""
    def hardtanh(self, min_val: builtins.float = ..., max_val: builtins.float = ...) -> Tensor:
        """x limited to min_val .. max_val, whole numbers for integers."""
    def heaviside(self, values: Tensor) -> Tensor:
        """1 above 0, `values` at 0, else 0."""
    def hinge_embedding_loss(self, target: Tensor, margin: builtins.float = ..., *, reduction:
        str = ...) -> Tensor:
        """x where the target is 1, max(0, margin - x) where it is -1."""
    def histc(self, bins: builtins.int = ..., min: builtins.float = ..., max: builtins.float =
        ...) -> Tensor:
        """How many elements lie in each of equal bins between min and max (of the data, if equal),
        in the dtype of x. (bins,)"""
    def hsplit(self, sections: builtins.int |
        collections.abc.Sequence[builtins.int]) -> list[Tensor]:
        """tensor_split along dimension 1, or 0 of vectors."""
    def huber_loss(self, target: Tensor, reduction: str = ..., delta: builtins.float =
        ...) -> Tensor:
        """Square near 0, linear beyond delta."""
    def hypot(self, y: Tensor) -> Tensor:
        """sqrt(x^2 + y^2) without overflow."""
    def i0(self) -> Tensor:
        """The modified Bessel function of order 0."""
    def index(self, key: typing.Any) -> Tensor:
        """x[key], as NumPy and PyTorch read it; keys may contain integer tensors, arrays, and bool
        masks whose values are known."""
    def index_add(self, dim: builtins.int = ..., index: Tensor = ..., source: Tensor = ...,
        alpha: builtins.float = ..., *, axis: builtins.int = ...) -> Tensor:
        """x with slices of source added at a vector of indices."""
    def index_copy(self, dim: builtins.int = ..., index: Tensor = ..., source: Tensor = ..., *,
        axis: builtins.int = ...) -> Tensor:
        """x with slices of source written at a vector of indices."""
    def index_fill(self, dim: builtins.int = ..., index: Tensor = ..., value:
        luminal.ops.base.Value = ..., *, axis: builtins.int = ..., fill_value:
        luminal.ops.base.Value = ...) -> Tensor:
        """x with a value in the slices at a vector of indices."""
    def index_put(self, key: typing.Any, values: luminal.ops.base.Value, accumulate:
        builtins.bool = ...) -> Tensor:
        """x with values written (or added) at x[key]. A single bool mask takes a scalar value."""
    def index_reduce(self, dim: builtins.int = ..., index: Tensor = ..., source: Tensor = ...,
        reduce: str = ..., *, include_self: builtins.bool = ..., axis: builtins.int =
        ...) -> Tensor:
        """x with slices of source combined in at a vector of indices: prod, mean, amax or amin."""
    def index_select(self, dim: builtins.int = ..., index: Tensor = ..., *, axis: builtins.int =
        ...) -> Tensor:
        """The slices of x at a vector of indices along a dimension."""
    def inner(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """The sums of the products along the last dimensions of both."""
    def instance_norm(self, running_mean: Tensor | None = ..., running_var: Tensor | None = ...,
        weight: Tensor | None = ..., bias: Tensor | None = ..., use_input_stats: builtins.bool =
        ..., momentum: builtins.float = ..., eps: builtins.float = ...) -> Tensor:
        """Mean 0 and variance 1 over the spatial dimensions of each channel; without
        use_input_stats by the running statistics. (These stay as they are: momentum is for modules,
        which update them.)"""
    def int(self) -> Tensor:
        ...
    def interpolate(self, size: luminal.ops.base.Size |
        collections.abc.Sequence[luminal.ops.base.Size] | None = ..., scale_factor:
        builtins.float | collections.abc.Sequence[builtins.float] | None = ..., mode: str = ...,
        align_corners: builtins.bool | None = ..., recompute_scale_factor: builtins.bool | None
        = ..., antialias: builtins.bool = ...) -> Tensor:
        """x: (batch, channels, *spatial), as `torch.nn.functional.interpolate`."""
    def inverse(self) -> Tensor:
        """The inverse of matrices (..., n, n), n fixed; infinite or NaN for singular ones."""
    def is_complex(self) -> builtins.bool:
        """False: complex numbers are pairs of tensors."""
    def is_floating_point(self) -> builtins.bool:
        """Of a float dtype."""
    def is_nonzero(self) -> typing.Any:
        ...
    def is_same_size(self, other: Tensor) -> builtins.bool:
        """Both have one shape."""
    def is_signed(self) -> builtins.bool:
        """Of a dtype with negative numbers."""
    def isclose(self, b: Tensor = ..., rtol: builtins.float = ..., atol: builtins.float = ...,
        equal_nan: builtins.bool = ..., *, other: Tensor = ...) -> Tensor:
        """|a - b| <= atol + rtol |b|, or equal."""
    def isfinite(self) -> Tensor:
        """x is neither infinite nor NaN."""
    def isinf(self) -> Tensor:
        """x is plus or minus infinity."""
    def isnan(self) -> Tensor:
        """x is no number."""
    def isneginf(self) -> Tensor:
        """x is minus infinity."""
    def isposinf(self) -> Tensor:
        """x is plus infinity."""
    def isreal(self) -> Tensor:
        """True: there are no complex tensors."""
    def item(self) -> typing.Any:
        ...
    @property
    def itemsize(self) -> builtins.int:
        ...
    def kl_div(self, target: Tensor, *, reduction: str = ..., log_target: builtins.bool =
        ...) -> Tensor:
        """target (log target - x), for log-probabilities x; "batchmean" divides by the batch."""
    def kron(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """The Kronecker product; the tensor of lower rank has dimensions of size 1 at the front."""
    def kthvalue(self, k: builtins.int, dim: builtins.int = ..., keepdim: builtins.bool = ...,
        *, axis: builtins.int = ..., keepdims: builtins.bool =
        ...) -> luminal.ops.reduction.Extreme:
        """The k-th smallest element (counted from 1), and where it stands."""
    def l1_loss(self, target: Tensor, *, reduction: str = ..., weight: Tensor | None =
        ...) -> Tensor:
        """|x - target|; with weights the mean is over them."""
    def layer_norm(self, normalized_shape: luminal.ops.base.Size |
        collections.abc.Sequence[luminal.ops.base.Size], weight: Tensor | None = ..., bias:
        Tensor | None = ..., eps: builtins.float = ...) -> Tensor:
        """Mean 0 and variance 1 over the last dimensions, then scale and shift."""
    def lcm(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """|a / gcd b|; 0 where one is 0."""
    def ldexp(self, exponent: Tensor) -> Tensor:
        """x 2^exponent, rounded once where x is a float and the exponent an integer: in three
        factors, of which the first ones round no number that the last leaves above 0."""
    def le(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """a <= b: false for NaN."""
    def leaky_relu(self, negative_slope: builtins.float = ...) -> Tensor:
        """x, or negative_slope x below 0."""
    def lerp(self, end: Tensor, weight: luminal.ops.base.Value) -> Tensor:
        """start + weight (end - start), exact at both ends."""
    def less(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """a < b."""
    def less_equal(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """a <= b: false for NaN."""
    def lgamma(self) -> Tensor:
        """log |gamma(x)|: Stirling's series at x + 8, less the log of x (x + 1) ... (x + 7); for x
        < 1/2 the reflection log(pi / |sin pi x|) - lgamma(1 - x)."""
    def linear(self, weight: Tensor, bias: Tensor | None = ...) -> Tensor:
        """x @ weight^T + bias. x: (..., in), weight: (out, in), bias: (out,)."""
    def local_response_norm(self, size: builtins.int, alpha: builtins.float = ..., beta:
        builtins.float = ..., k: builtins.float = ...) -> Tensor:
        """x / (k + alpha mean of x^2 over `size` neighbouring channels)^beta."""
    def log(self) -> Tensor:
        """The natural logarithm."""
    def log10(self) -> Tensor:
        """The logarithm to base 10."""
    def log1p(self) -> Tensor:
        """log(1 + x), accurate near 0: there 2 artanh(s) with s = x / (2 + x)."""
    def log2(self) -> Tensor:
        """The logarithm to base 2."""
    def log_softmax(self, dim: builtins.int | None = ..., dtype: typing.Any = ..., *, axis:
        builtins.int | None = ...) -> Tensor:
        """log(softmax(x)) without underflow."""
    def logaddexp(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """log(e^a + e^b) without overflow."""
    def logaddexp2(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """log2(2^a + 2^b) without overflow."""
    def logcumsumexp(self, dim: builtins.int = ..., *, axis: builtins.int = ...) -> Tensor:
        """log of the running sum of e^x: for each element a sum over those up to it, relative to
        the largest of them."""
    def logdet(self) -> Tensor:
        """The log of the determinant; NaN where that is below 0."""
    def logical_and(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """Both are not zero."""
    def logical_not(self) -> Tensor:
        """x is zero."""
    def logical_or(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """One is not zero."""
    def logical_xor(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """Just one is not zero."""
    def logit(self, eps: builtins.float | None = ...) -> Tensor:
        """log(x / (1 - x)), with x limited to eps .. 1 - eps, both rounded to its dtype."""
    def logsigmoid(self) -> Tensor:
        """log(sigmoid(x)) without overflow."""
    def logsumexp(self, dim: luminal.ops.base.Dims = ..., keepdim: builtins.bool = ..., *, axis:
        luminal.ops.base.Dims = ..., keepdims: builtins.bool = ...) -> Tensor:
        """log(sum e^x) without overflow; exact for infinite maxima."""
    def long(self) -> Tensor:
        ...
    def lp_pool1d(self, norm_type: builtins.float, kernel_size: luminal.ops.conv.Numbers,
        stride: luminal.ops.conv.Numbers | None = ..., ceil_mode: builtins.bool =
        ...) -> Tensor:
        """The p-norm of each window (without absolute values, as PyTorch has it for even p)."""
    def lp_pool2d(self, norm_type: builtins.float, kernel_size: luminal.ops.conv.Numbers,
        stride: luminal.ops.conv.Numbers | None = ..., ceil_mode: builtins.bool =
        ...) -> Tensor:
        """The p-norm of each window (without absolute values, as PyTorch has it for even p)."""
    def lp_pool3d(self, norm_type: builtins.float, kernel_size: luminal.ops.conv.Numbers,
        stride: luminal.ops.conv.Numbers | None = ..., ceil_mode: builtins.bool =
        ...) -> Tensor:
        """The p-norm of each window (without absolute values, as PyTorch has it for even p)."""
    def lt(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """a < b."""
    @property
    def mH(self) -> Tensor:
        """The last two dimensions swapped."""
    @property
    def mT(self) -> Tensor:
        """The last two dimensions swapped."""
    def margin_ranking_loss(self, b: Tensor = ..., target: Tensor = ..., margin: builtins.float
        = ..., *, reduction: str = ..., other: Tensor = ...) -> Tensor:
        """max(0, -target (a - b) + margin)."""
    def masked_fill(self, mask: Tensor, value: luminal.ops.base.Value = ..., *, fill_value:
        luminal.ops.base.Value = ...) -> Tensor:
        """x with a value where the mask holds; keeps the dtype of x."""
    def masked_scatter(self, mask: Tensor, source: Tensor) -> Tensor:
        """x, whose k-th true place takes the k-th element of the source."""
    def masked_select(self, mask: Tensor, *, size: builtins.int | None = ..., fill: typing.Any =
        ...) -> Tensor:
        """The elements where the mask holds: (size,), with `fill` after the last. Raises
        Unsupported without `size`: a graph has no shape for it."""
    def matmul(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """The matrix product over the last two dimensions; vectors and batches as in PyTorch."""
    def matrix_exp(self) -> Tensor:
        """1 + a + a^2 / 2 + ..., of a / 2^16 with 8 terms, then squared sixteen times, in f64."""
    def matrix_power(self, n: builtins.int) -> Tensor:
        """a a ... a, n times; of the inverse for n < 0; the unit matrix for 0."""
    def max(self, dim: builtins.int | Tensor | None = ..., keepdim: builtins.bool = ..., *,
        axis: builtins.int | Tensor | None = ..., keepdims: builtins.bool = ...) -> typing.Any:
        """As `torch.max`: the largest; (values, indices) along a dim; maximum of two tensors."""
    def max_pool1d(self, kernel_size: luminal.ops.conv.Numbers, stride: luminal.ops.conv.Numbers
        | None = ..., padding: luminal.ops.conv.Numbers = ..., dilation:
        luminal.ops.conv.Numbers = ..., ceil_mode: builtins.bool = ..., return_indices:
        builtins.bool = ...) -> typing.Any:
        """The largest element of each window; NaN wins. x: (..., length)."""
    def max_pool1d_with_indices(self, kernel_size: luminal.ops.conv.Numbers, stride:
        luminal.ops.conv.Numbers | None = ..., padding: luminal.ops.conv.Numbers = ...,
        dilation: luminal.ops.conv.Numbers = ..., ceil_mode: builtins.bool = ...,
        return_indices: builtins.bool = ...) -> typing.Any:
        """The largest element of each window; NaN wins. x: (..., length)."""
    def max_pool2d(self, kernel_size: luminal.ops.conv.Numbers, stride: luminal.ops.conv.Numbers
        | None = ..., padding: luminal.ops.conv.Numbers = ..., dilation:
        luminal.ops.conv.Numbers = ..., ceil_mode: builtins.bool = ..., return_indices:
        builtins.bool = ...) -> typing.Any:
        """The largest element of each window; NaN wins. x: (..., height, width)."""
    def max_pool2d_with_indices(self, kernel_size: luminal.ops.conv.Numbers, stride:
        luminal.ops.conv.Numbers | None = ..., padding: luminal.ops.conv.Numbers = ...,
        dilation: luminal.ops.conv.Numbers = ..., ceil_mode: builtins.bool = ...,
        return_indices: builtins.bool = ...) -> typing.Any:
        """The largest element of each window; NaN wins. x: (..., height, width)."""
    def max_pool3d(self, kernel_size: luminal.ops.conv.Numbers, stride: luminal.ops.conv.Numbers
        | None = ..., padding: luminal.ops.conv.Numbers = ..., dilation:
        luminal.ops.conv.Numbers = ..., ceil_mode: builtins.bool = ..., return_indices:
        builtins.bool = ...) -> typing.Any:
        """The largest element of each window; NaN wins. x: (..., depth, height, width)."""
    def max_pool3d_with_indices(self, kernel_size: luminal.ops.conv.Numbers, stride:
        luminal.ops.conv.Numbers | None = ..., padding: luminal.ops.conv.Numbers = ...,
        dilation: luminal.ops.conv.Numbers = ..., ceil_mode: builtins.bool = ...,
        return_indices: builtins.bool = ...) -> typing.Any:
        """The largest element of each window; NaN wins. x: (..., depth, height, width)."""
    def max_unpool1d(self, indices: Tensor, kernel_size: luminal.ops.conv.Numbers, stride:
        luminal.ops.conv.Numbers | None = ..., padding: luminal.ops.conv.Numbers = ...,
        output_size: collections.abc.Sequence[builtins.int] | None = ...) -> Tensor:
        """Maxima back at the places that max_pool1d gave, 0 elsewhere."""
    def max_unpool2d(self, indices: Tensor, kernel_size: luminal.ops.conv.Numbers, stride:
        luminal.ops.conv.Numbers | None = ..., padding: luminal.ops.conv.Numbers = ...,
        output_size: collections.abc.Sequence[builtins.int] | None = ...) -> Tensor:
        """Maxima back at the places that max_pool2d gave, 0 elsewhere."""
    def max_unpool3d(self, indices: Tensor, kernel_size: luminal.ops.conv.Numbers, stride:
        luminal.ops.conv.Numbers | None = ..., padding: luminal.ops.conv.Numbers = ...,
        output_size: collections.abc.Sequence[builtins.int] | None = ...) -> Tensor:
        """Maxima back at the places that max_pool3d gave, 0 elsewhere."""
    def maximum(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """The larger; NaN if either is."""
    def mean(self, dim: luminal.ops.base.Dims = ..., keepdim: builtins.bool = ..., *, axis:
        luminal.ops.base.Dims = ..., keepdims: builtins.bool = ...) -> Tensor:
        """The sum over the number of elements."""
    def median(self, dim: builtins.int | None = ..., keepdim: builtins.bool = ..., *, axis:
        builtins.int | None = ..., keepdims: builtins.bool =
        ...) -> Tensor | luminal.ops.reduction.Extreme:
        """The middle element (the lower of two); NaN if there is one, or of nothing. With dim:
        (values, indices)."""
    def min(self, dim: builtins.int | Tensor | None = ..., keepdim: builtins.bool = ..., *,
        axis: builtins.int | Tensor | None = ..., keepdims: builtins.bool = ...) -> typing.Any:
        """As `torch.min`: the smallest; (values, indices) along a dim; minimum of two tensors."""
    def minimum(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """The smaller; NaN if either is."""
    def mish(self) -> Tensor:
        """x tanh(softplus(x))."""
    def mm(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """The product of two matrices."""
    def mode(self, dim: builtins.int = ..., keepdim: builtins.bool = ..., *, axis: builtins.int
        = ..., keepdims: builtins.bool = ...) -> luminal.ops.reduction.Extreme:
        """(the smallest of the most frequent elements along a dimension, where it stands last)."""
    def moveaxis(self, source: builtins.int, destination: builtins.int) -> Tensor:
        """One dimension at another place."""
    def movedim(self, source: builtins.int, destination: builtins.int) -> Tensor:
        """One dimension at another place."""
    def mse_loss(self, target: Tensor, *, reduction: str = ..., weight: Tensor | None =
        ...) -> Tensor:
        """(x - target)^2; with weights the mean is over them."""
    def msort(self) -> Tensor:
        """Sorted along the first dimension."""
    def mul(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """a b. Of two bools: and."""
    def multi_margin_loss(self, target: Tensor, p: builtins.int = ..., margin: builtins.float =
        ..., weight: Tensor | None = ..., *, reduction: str = ...) -> Tensor:
        """The mean over the other classes of max(0, margin - x[target] + x)^p, times the weight of
        the target. x: (batch, classes) or (classes,)."""
    def multilabel_margin_loss(self, target: Tensor, *, reduction: str = ...) -> Tensor:
        """The sum over targets j and other classes i of max(0, 1 - x[j] + x[i]), over the number of
        classes. target: like x, classes in front, then -1."""
    def multilabel_soft_margin_loss(self, target: Tensor, weight: Tensor | None = ..., *,
        reduction: str = ...) -> Tensor:
        """The mean over classes of the binary cross entropy of logits x."""
    def multinomial(self, num_samples: builtins.int = ..., replacement: builtins.bool = ..., *,
        seed: luminal.ops.random.Seed = ..., stream: builtins.int | None = ...) -> Tensor:
        """Indices drawn for each row of weights (not negative, need not add up to 1): (...,
        samples), none twice unless with replacement. By the largest of log w + Gumbel noise."""
    def multiply(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """a b. Of two bools: and."""
    def mv(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """A matrix times a vector."""
    def mvlgamma(self, p: builtins.int) -> Tensor:
        """The log of the multivariate gamma function of dimension p."""
    def nan_to_num(self, nan: builtins.float = ..., posinf: builtins.float | None = ..., neginf:
        builtins.float | None = ...) -> Tensor:
        """NaN and the infinities replaced; by default by 0 and the largest finite numbers."""
    def nanmean(self, dim: luminal.ops.base.Dims = ..., keepdim: builtins.bool = ..., *, axis:
        luminal.ops.base.Dims = ..., keepdims: builtins.bool = ...) -> Tensor:
        """The mean of what is no NaN."""
    def nanmedian(self, dim: builtins.int | None = ..., keepdim: builtins.bool = ..., *, axis:
        builtins.int | None = ..., keepdims: builtins.bool = ...) -> typing.Any:
        """The middle one (the lower of two) of the numbers; NaN, and where the first stands, if
        there is none. With dim: (values, indices)."""
    def nanquantile(self, q: builtins.float, dim: builtins.int | None = ..., keepdim:
        builtins.bool = ..., *, axis: builtins.int | None = ..., keepdims: builtins.bool =
        ...) -> Tensor:
        """The q-quantile of the numbers, interpolated linearly; NaN if there is none."""
    def nansum(self, dim: luminal.ops.base.Dims = ..., keepdim: builtins.bool = ..., *, axis:
        luminal.ops.base.Dims = ..., keepdims: builtins.bool = ...) -> Tensor:
        """The sum of what is no NaN."""
    def narrow(self, dim: builtins.int = ..., start: luminal.graph.parse.DimLike = ..., length:
        luminal.graph.parse.DimLike = ..., *, axis: builtins.int = ...) -> Tensor:
        """The elements start .. start + length - 1 along a dimension; all must be there."""
    def narrow_copy(self, dim: builtins.int = ..., start: typing.Any = ..., length: typing.Any =
        ..., *, axis: builtins.int = ...) -> Tensor:
        """As narrow."""
    @property
    def nbytes(self) -> typing.Any:
        ...
    def ndimension(self) -> builtins.int:
        """How many dimensions."""
    def ne(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """Not a = b: true for NaN."""
    def neg(self) -> Tensor:
        """-x; unsigned integers wrap around."""
    def negative(self) -> Tensor:
        """-x; unsigned integers wrap around."""
    def nelement(self) -> builtins.int | luminal.graph.index.Index:
        """How many elements."""
    def new_empty(self, *sizes: typing.Any, dtype: typing.Any = ...) -> Tensor:
        """As new_zeros: there is no memory whose contents do not matter."""
    def new_full(self, size: collections.abc.Sequence[luminal.ops.base.Size], fill_value:
        luminal.graph.node.Number, *, dtype: typing.Any = ...) -> Tensor:
        """One value everywhere, in the dtype of x."""
    def new_ones(self, *sizes: typing.Any, dtype: typing.Any = ...) -> Tensor:
        """1 everywhere, in the dtype of x."""
    def new_tensor(self, data: typing.Any, *, dtype: typing.Any = ...) -> Tensor:
        """Known values, in the dtype of x."""
    def new_zeros(self, *sizes: typing.Any, dtype: typing.Any = ...) -> Tensor:
        """0 everywhere, in the dtype of x."""
    def nextafter(self, y: Tensor) -> Tensor:
        """The neighbour of x on the side of y: a step of 0.7 to 1.4 spacings, in f64, rounded."""
    def nll_loss(self, target: Tensor, weight: Tensor | None = ..., *, ignore_index:
        builtins.int = ..., reduction: str = ...) -> Tensor:
        """-x[target], for log-probabilities x (batch, classes, ...) or (classes,). A program raises
        no errors for values: classes outside are clamped, as indices are (negative ones count from
        the end)."""
    def nonzero(self, *, size: builtins.int | None = ..., fill: builtins.int = ...) -> Tensor:
        """As nonzero_static. Raises Unsupported without `size`: a graph has no shape for it."""
    def nonzero_static(self, *, size: builtins.int, fill_value: builtins.int = ...) -> Tensor:
        """The places of the first `size` elements that are not 0, row by row: (size, ndim)."""
    def norm(self, p: builtins.float | str = ..., dim: luminal.ops.base.Dims = ..., keepdim:
        builtins.bool = ..., *, axis: luminal.ops.base.Dims = ..., keepdims: builtins.bool =
        ...) -> Tensor:
        """(sum |x|^p)^(1/p); for p infinite the largest |x|, for 0 how many are not zero."""
    def normalize(self, p: builtins.float = ..., dim: builtins.int = ..., eps: builtins.float =
        ..., *, axis: builtins.int = ...) -> Tensor:
        """x / max(norm(x), eps)."""
    def not_equal(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """Not a = b: true for NaN."""
    def numel(self) -> builtins.int | luminal.graph.index.Index:
        """How many elements."""
    def numpy(self) -> numpy.ndarray:
        """The value, computed node by node in NumPy: for looking, not for speed. What was `set`
        counts."""
    def one_hot(self, num_classes: builtins.int) -> Tensor:
        """1 at the index along a new last dimension, else 0."""
    def ones_like(self, dtype: typing.Any = ...) -> Tensor:
        """1, with the shape and dtype of x."""
    def outer(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """The products of all pairs of elements of two vectors."""
    def pad(self, widths: collections.abc.Sequence[typing.Any], value: luminal.graph.node.Number
        = ..., *, fill_value: luminal.graph.node.Number = ...) -> Tensor:
        """`value` around the tensor: a (before, after) pair for each dimension, or PyTorch's flat
        list (last dimension first). Negative widths cut off."""
    def pairwise_distance(self, b: Tensor = ..., p: builtins.float = ..., eps: builtins.float =
        ..., keepdim: builtins.bool = ..., *, keepdims: builtins.bool = ..., other: Tensor =
        ...) -> Tensor:
        """The norm of a - b + eps along the last dimension."""
    def pdist(self, p: builtins.float = ...) -> Tensor:
        """The p-norms of the differences of all pairs of rows (n, d), n fixed: (n (n - 1) / 2,)."""
    def permute(self, *dims: typing.Any) -> Tensor:
        """Dimension d of the result is dimension dims[d]."""
    def pinverse(self) -> Tensor:
        """The pseudo-inverse of matrices of full rank: (a^T a)^-1 a^T, or a^T (a a^T)^-1."""
    def pixel_shuffle(self, upscale_factor: builtins.int) -> Tensor:
        """(..., c r r, h, w) to (..., c, h r, w r)."""
    def pixel_unshuffle(self, downscale_factor: builtins.int) -> Tensor:
        """(..., c, h r, w r) to (..., c r r, h, w)."""
    def poisson_nll_loss(self, target: Tensor, log_input: builtins.bool = ..., full:
        builtins.bool = ..., *, eps: builtins.float = ..., reduction: str = ...) -> Tensor:
        """e^x - target x for logarithms x, else x - target log(x + eps); full adds Stirling's
        formula for log target! where the target is above 1."""
    def polygamma(self, n: typing.Any) -> Tensor:
        ...
    def positive(self) -> Tensor:
        """+x."""
    def pow(self, exponent: luminal.ops.base.Value) -> Tensor:
        """base^exponent: integers exactly, negative bases for whole exponents, else NaN."""
    def prelu(self, weight: Tensor) -> Tensor:
        """As leaky_relu, with one slope, or one for each channel (dimension 1)."""
    def prod(self, dim: builtins.int | None = ..., keepdim: builtins.bool = ..., dtype:
        typing.Any = ..., *, axis: builtins.int | None = ..., keepdims: builtins.bool =
        ...) -> Tensor:
        """The product; integers and bools multiply in i64."""
    def put(self, index: Tensor, source: Tensor, accumulate: builtins.bool = ...) -> Tensor:
        """x with the source written (or added) at places in its flattened form."""
    def qr(self, some: builtins.bool = ...) -> tuple[Tensor, Tensor]:
        """(Q, R): orthonormal columns and an upper triangle, by Gram and Schmidt, twice. PyTorch's
        signs may differ column by column: here the diagonal of R is positive. Takes rows >=
        columns."""
    def quantile(self, q: builtins.float, dim: builtins.int | None = ..., keepdim: builtins.bool
        = ..., *, axis: builtins.int | None = ..., keepdims: builtins.bool = ...) -> Tensor:
        """The q-quantile, interpolated linearly; NaN if there is one."""
    def rad2deg(self) -> Tensor:
        """Radians to degrees."""
    def ravel(self) -> Tensor:
        """All elements in a vector."""
    def reciprocal(self) -> Tensor:
        """1 / x."""
    def relu(self) -> Tensor:
        """max(x, 0); NaN stays."""
    def relu6(self) -> Tensor:
        """x limited to 0 .. 6."""
    def remainder(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """a modulo b with the sign of b, as Python's %; a zero has the sign of a."""
    def renorm(self, p: builtins.float, dim: builtins.int = ..., maxnorm: builtins.float = ...,
        *, axis: builtins.int = ...) -> Tensor:
        """The slices along a dimension, scaled down to a norm of maxnorm where theirs is larger."""
    def repeat(self, *counts: typing.Any) -> Tensor:
        """The tensor side by side, counts[d] times along dimension d (as torch.Tensor.repeat)."""
    def repeat_interleave(self, repeats: luminal.graph.parse.DimLike, dim: builtins.int | None =
        ..., *, axis: builtins.int | None = ...) -> Tensor:
        """Each element `repeats` times in a row along a dimension; without one, of all elements."""
    def reshape(self, *sizes: typing.Any) -> Tensor:
        """The same elements in row-major order under another shape; one size may be -1."""
    def reshape_as(self, other: Tensor) -> Tensor:
        """With the shape of another tensor of as many elements."""
    def resolve_conj(self) -> Tensor:
        """x: where its values lie, and whether they are conjugate, is nothing of the graph's."""
    def resolve_neg(self) -> Tensor:
        """x: where its values lie, and whether they are conjugate, is nothing of the graph's."""
    def rms_norm(self, normalized_shape: luminal.ops.base.Size |
        collections.abc.Sequence[luminal.ops.base.Size], weight: Tensor | None = ..., eps:
        builtins.float | None = ...) -> Tensor:
        """x over its root mean square along the last dimensions; eps by default the dtype's."""
    def roll(self, shifts: luminal.graph.parse.DimLike |
        collections.abc.Sequence[luminal.graph.parse.DimLike], dims: luminal.ops.base.Dims =
        ..., *, axis: luminal.ops.base.Dims = ..., axes: luminal.ops.base.Dims = ...) -> Tensor:
        """Element i goes to (i + shift) mod n along dimensions; without any in the flattened
        tensor."""
    def rot90(self, k: builtins.int = ..., dims: collections.abc.Sequence[builtins.int] = ...,
        *, axis: collections.abc.Sequence[builtins.int] = ..., axes:
        collections.abc.Sequence[builtins.int] = ...) -> Tensor:
        """k quarter turns in the plane of two dimensions."""
    def rotate_half(self) -> Tensor:
        """(-x2, x1) of the two halves of the last dimension."""
    def round(self, decimals: builtins.int = ...) -> Tensor:
        """To the nearest whole number, half to even; or to `decimals` digits."""
    def rrelu(self, lower: builtins.float = ..., upper: builtins.float = ..., training:
        builtins.bool = ..., *, seed: luminal.ops.random.Seed = ..., stream: builtins.int | None
        = ...) -> Tensor:
        """x, or below 0 a slope times x: drawn from lower .. upper in training, else their mean."""
    def rsqrt(self) -> Tensor:
        """1 / sqrt(x)."""
    def rsub(self, b: luminal.ops.base.Value = ..., *, other: luminal.ops.base.Value =
        ...) -> Tensor:
        """b - a."""
    def scaled_dot_product_attention(self, key: Tensor, value: Tensor = ..., attn_mask: Tensor |
        None = ..., dropout_p: builtins.float = ..., is_causal: builtins.bool = ..., scale:
        builtins.float | None = ..., enable_gqa: builtins.bool = ..., *, offset:
        luminal.ops.base.Size = ..., fill_value: Tensor = ...) -> Tensor:
        """softmax(query key^T scale + mask) value; 0 in a row that a mask leaves nothing to see."""
    def scatter(self, dim: builtins.int = ..., index: Tensor = ..., src: luminal.ops.base.Value
        = ..., reduce: str | None = ..., *, axis: builtins.int = ...) -> Tensor:
        """x with src written at index along a dimension; of several at one place the last stays."""
    def scatter_add(self, dim: builtins.int = ..., index: Tensor = ..., src: Tensor = ..., *,
        axis: builtins.int = ...) -> Tensor:
        """x with src added at index along a dimension."""
    def scatter_reduce(self, dim: builtins.int = ..., index: Tensor = ..., src: Tensor = ...,
        reduce: str = ..., include_self: builtins.bool = ..., *, axis: builtins.int =
        ...) -> Tensor:
        """x with src combined in: sum, prod, mean, amax or amin."""
    def searchsorted(self, values: luminal.ops.base.Value, *, out_int32: builtins.bool = ...,
        right: builtins.bool = ..., side: str | None = ..., sorter: Tensor | None =
        ...) -> Tensor:
        """How many elements of a sorted vector (or of rows of them) stand before each value: of
        equal ones none, or all with right=True or side="right". NaN stands after all numbers."""
    def select(self, dim: builtins.int = ..., index: luminal.graph.parse.DimLike = ..., *, axis:
        builtins.int = ...) -> Tensor:
        """One element along a dimension, which is dropped."""
    def select_scatter(self, src: Tensor, dim: builtins.int = ..., index: builtins.int = ..., *,
        axis: builtins.int = ...) -> Tensor:
        """x with one slice along a dimension replaced."""
    def selu(self) -> Tensor:
        """Self-normalising elu."""
    def sgn(self) -> Tensor:
        """-1, 0 or 1; 0 for NaN."""
    def short(self) -> Tensor:
        ...
    def sigmoid(self) -> Tensor:
        """1 / (1 + e^-x)."""
    def sign(self) -> Tensor:
        """-1, 0 or 1; 0 for NaN."""
    def signbit(self) -> Tensor:
        """Whether the sign bit is set, also of -0 (1 / -0 is minus infinity)."""
    def silu(self) -> Tensor:
        """x sigmoid(x)."""
    def sin(self) -> Tensor:
        """The sine of x radians."""
    def sinc(self) -> Tensor:
        """sin(pi x) / (pi x), 1 at 0."""
    def sinh(self) -> Tensor:
        """(e^x - e^-x) / 2, a series near 0."""
    def size(self, dim: builtins.int | None = ..., *, axis: builtins.int | None =
        ...) -> typing.Any:
        """The shape, or the size of one dimension."""
    def slice_scatter(self, src: Tensor, dim: builtins.int = ..., start: builtins.int | None =
        ..., end: builtins.int | None = ..., step: builtins.int = ..., *, axis: builtins.int =
        ...) -> Tensor:
        """x with x[start:end:step] along a dimension replaced."""
    def slogdet(self) -> tuple[Tensor, Tensor]:
        """(sign of the determinant, log of its absolute value)."""
    def smooth_l1_loss(self, target: Tensor, *, reduction: str = ..., beta: builtins.float =
        ...) -> Tensor:
        """Square near 0, linear beyond beta, divided by beta."""
    def soft_margin_loss(self, target: Tensor, *, reduction: str = ...) -> Tensor:
        """log(1 + e^(-target x))."""
    def softmax(self, dim: builtins.int | None = ..., dtype: typing.Any = ..., *, axis:
        builtins.int | None = ...) -> Tensor:
        """e^x / sum e^x along a dimension."""
    def softmin(self, dim: builtins.int | None = ..., dtype: typing.Any = ..., *, axis:
        builtins.int | None = ...) -> Tensor:
        """softmax(-x)."""
    def softplus(self, beta: builtins.float = ..., threshold: builtins.float = ...) -> Tensor:
        """log(1 + e^(beta x)) / beta; x itself above the threshold."""
    def softshrink(self, lambd: builtins.float = ...) -> Tensor:
        """x moved towards 0 by lambd."""
    def softsign(self) -> Tensor:
        """x / (1 + |x|)."""
    def solve(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """x with a x = b. a: (..., n, n), n fixed; b: (..., n, m) or, like the rows of a, (...,
        n)."""
    def sort(self, dim: builtins.int = ..., descending: builtins.bool = ..., stable:
        builtins.bool = ..., *, axis: builtins.int = ...) -> luminal.ops.reduction.Extreme:
        """(values in order, where each stood). Always stable."""
    def split(self, sizes: luminal.ops.base.Size |
        collections.abc.Sequence[luminal.ops.base.Size], dim: builtins.int = ..., *, axis:
        builtins.int = ...) -> list[Tensor]:
        """Pieces of a size (the last may be smaller), or of the sizes listed."""
    def split_with_sizes(self, sizes: luminal.ops.base.Size |
        collections.abc.Sequence[luminal.ops.base.Size], dim: builtins.int = ..., *, axis:
        builtins.int = ...) -> list[Tensor]:
        """Pieces of a size (the last may be smaller), or of the sizes listed."""
    def sqrt(self) -> Tensor:
        """The square root; NaN below 0."""
    def square(self) -> Tensor:
        """x x."""
    def squeeze(self, dim: builtins.int | collections.abc.Sequence[builtins.int] | None = ...,
        *, axis: builtins.int | collections.abc.Sequence[builtins.int] | None = ...) -> Tensor:
        """Drop dimensions of size 1: all, or those given that have it."""
    def std(self, dim: luminal.ops.base.Dims = ..., unbiased: builtins.bool = ..., keepdim:
        builtins.bool = ..., *, correction: builtins.int | None = ..., axis:
        luminal.ops.base.Dims = ..., keepdims: builtins.bool = ...) -> Tensor:
        """The square root of the variance."""
    def std_mean(self, dim: luminal.ops.base.Dims = ..., unbiased: builtins.bool = ..., keepdim:
        builtins.bool = ..., *, correction: builtins.int | None = ..., axis:
        luminal.ops.base.Dims = ..., keepdims: builtins.bool = ...) -> tuple[Tensor, Tensor]:
        """(standard deviation, mean)."""
    def stft(self, n_fft: builtins.int, hop_length: builtins.int | None = ..., win_length:
        builtins.int | None = ..., window: Tensor | None = ..., center: builtins.bool = ...,
        pad_mode: str = ..., normalized: builtins.bool = ..., onesided: builtins.bool | None =
        ..., return_complex: builtins.bool | None =
        ...) -> luminal.ops.complex.Complex | Tensor:
        """Spectra of windows of n_fft samples, one every hop_length (n_fft // 4): x (samples) or
        (batch, samples) to (..., frequencies, frames). return_complex=False: real and imaginary
        parts as a last dimension."""
    def sub(self, b: luminal.ops.base.Value = ..., alpha: luminal.ops.base.Value = ..., *,
        other: luminal.ops.base.Value = ...) -> Tensor:
        """a - alpha b."""
    def subtract(self, b: luminal.ops.base.Value = ..., alpha: luminal.ops.base.Value = ..., *,
        other: luminal.ops.base.Value = ...) -> Tensor:
        """a - alpha b."""
    def sum(self, dim: luminal.ops.base.Dims = ..., keepdim: builtins.bool = ..., dtype:
        typing.Any = ..., *, axis: luminal.ops.base.Dims = ..., keepdims: builtins.bool =
        ...) -> Tensor:
        """The sum; integers and bools add up in i64."""
    def sum_to_size(self, *sizes: typing.Any) -> Tensor:
        """Sums over what broadcasting from these sizes had added."""
    def swapaxes(self, first: builtins.int, second: builtins.int) -> Tensor:
        """Two dimensions exchanged."""
    def swapdims(self, first: builtins.int, second: builtins.int) -> Tensor:
        """Two dimensions exchanged."""
    def swiglu(self, gate: luminal.ops.base.Value | None = ..., dim: builtins.int = ..., *,
        axis: builtins.int = ...) -> Tensor:
        """silu(gate) x; without a gate, the first half of x is the gate of the second."""
    def t(self) -> Tensor:
        """The transpose of a matrix; a vector stays."""
    def take(self, index: Tensor) -> Tensor:
        """Elements of the flattened x."""
    def take_along_dim(self, index: Tensor, dim: builtins.int | None = ..., *, axis:
        builtins.int | None = ...) -> Tensor:
        """As gather, with broadcasting of the other dimensions; without dim in the flattened x."""
    def tan(self) -> Tensor:
        """sin(x) / cos(x)."""
    def tanh(self) -> Tensor:
        """1 - 2 / (1 + e^2x), a series near 0."""
    def tanhshrink(self) -> Tensor:
        """x - tanh(x)."""
    def tensor_split(self, sections: builtins.int | collections.abc.Sequence[builtins.int], dim:
        builtins.int = ..., *, axis: builtins.int = ...) -> list[Tensor]:
        """Pieces as equal as possible, or cut at the positions listed."""
    def tensordot(self, b: Tensor = ..., dims: builtins.int |
        tuple[collections.abc.Sequence[builtins.int], collections.abc.Sequence[builtins.int]] =
        ..., *, axis: builtins.int | tuple[collections.abc.Sequence[builtins.int],
        collections.abc.Sequence[builtins.int]] = ..., axes: builtins.int |
        tuple[collections.abc.Sequence[builtins.int], collections.abc.Sequence[builtins.int]] =
        ..., other: Tensor = ...) -> Tensor:
        """The sum over pairs of dimensions: the last of a with the first of b, or those listed."""
    def threshold(self, threshold: builtins.float, value: builtins.float = ..., *, fill_value:
        builtins.float = ...) -> Tensor:
        """x where it is above the threshold, else the value; NaN stays."""
    def tile(self, *counts: typing.Any) -> Tensor:
        """As repeat; missing counts at the front are 1."""
    def to(self, kind: typing.Any) -> Tensor:
        """x in another dtype (of ours, NumPy's or PyTorch's), or in that of another tensor."""
    def tolist(self) -> typing.Any:
        ...
    def topk(self, k: builtins.int, dim: builtins.int = ..., largest: builtins.bool = ...,
        sorted: builtins.bool = ..., *, axis: builtins.int =
        ...) -> luminal.ops.reduction.Extreme:
        """The k largest (or smallest) elements in order, and where they stand."""
    def trace(self) -> Tensor:
        """The sum of the diagonal of a matrix."""
    def transpose(self, first: builtins.int, second: builtins.int) -> Tensor:
        """Two dimensions exchanged."""
    def tril(self, diagonal: builtins.int = ...) -> Tensor:
        """Zero above a diagonal of the last two dimensions."""
    def triplet_margin_loss(self, positive: Tensor, negative: Tensor, margin: builtins.float =
        ..., p: builtins.float = ..., eps: builtins.float = ..., swap: builtins.bool = ..., *,
        reduction: str = ...) -> Tensor:
        """max(0, |anchor - positive| - |anchor - negative| + margin); with swap the distance from
        the positive to the negative counts where it is less."""
    def triplet_margin_with_distance_loss(self, positive: Tensor, negative: Tensor, *,
        distance_function: collections.abc.Callable[[Tensor, Tensor], Tensor] | None = ...,
        margin: builtins.float = ..., swap: builtins.bool = ..., reduction: str =
        ...) -> Tensor:
        """triplet_margin_loss of any distance, by default the pairwise one."""
    def triu(self, diagonal: builtins.int = ...) -> Tensor:
        """Zero below a diagonal of the last two dimensions."""
    def true_divide(self, b: luminal.ops.base.Value = ..., rounding_mode: str | None = ..., *,
        other: luminal.ops.base.Value = ...) -> Tensor:
        """a / b in floats; with rounding_mode "floor" or "trunc" in the common dtype."""
    def trunc(self) -> Tensor:
        """x without its fraction."""
    def type_as(self, other: Tensor) -> Tensor:
        """x in the dtype of another tensor."""
    def unbind(self, dim: builtins.int = ..., *, axis: builtins.int = ...) -> list[Tensor]:
        """All slices along a dimension."""
    def unflatten(self, dim: builtins.int = ..., sizes:
        collections.abc.Sequence[luminal.graph.parse.DimLike] = ..., *, axis: builtins.int =
        ...) -> Tensor:
        """Split a dimension into several; one size may be -1."""
    def unfold(self, dim: builtins.int = ..., size: luminal.graph.parse.DimLike = ..., step:
        luminal.graph.parse.DimLike = ..., *, axis: builtins.int = ...) -> Tensor:
        """Windows along a dimension, as a new last dimension (as torch.Tensor.unfold)."""
    def unique(self, sorted: builtins.bool = ..., return_inverse: builtins.bool = ...,
        return_counts: builtins.bool = ..., dim: builtins.int | None = ..., *, size:
        builtins.int | None = ..., fill: luminal.ops.base.Value = ..., axis: builtins.int | None
        = ...) -> typing.Any:
        """The distinct elements, ascending: (size,), with `fill` after the last; NaN is distinct
        from all. With return_inverse also where each element of x is among them, with return_counts
        how often each occurs. Raises Unsupported without `size`: a graph has no shape for it."""
    def unique_consecutive(self, return_inverse: builtins.bool = ..., return_counts:
        builtins.bool = ..., dim: builtins.int | None = ..., *, size: builtins.int | None = ...,
        fill: luminal.ops.base.Value = ..., axis: builtins.int | None = ...) -> typing.Any:
        """The first of each run of equal elements, as `unique`."""
    def unsafe_chunk(self, chunks: builtins.int, dim: builtins.int = ..., *, axis: builtins.int
        = ...) -> list[Tensor]:
        """At most `chunks` pieces of equal size (the last may be smaller)."""
    def unsafe_split(self, sizes: luminal.ops.base.Size |
        collections.abc.Sequence[luminal.ops.base.Size], dim: builtins.int = ..., *, axis:
        builtins.int = ...) -> list[Tensor]:
        """Pieces of a size (the last may be smaller), or of the sizes listed."""
    def unsafe_split_with_sizes(self, sizes: luminal.ops.base.Size |
        collections.abc.Sequence[luminal.ops.base.Size], dim: builtins.int = ..., *, axis:
        builtins.int = ...) -> list[Tensor]:
        """Pieces of a size (the last may be smaller), or of the sizes listed."""
    def unsqueeze(self, dim: builtins.int = ..., *, axis: builtins.int = ...) -> Tensor:
        """A new dimension of size 1."""
    def upsample(self, size: luminal.ops.base.Size |
        collections.abc.Sequence[luminal.ops.base.Size] | None = ..., scale_factor:
        builtins.float | collections.abc.Sequence[builtins.float] | None = ..., mode: str = ...,
        align_corners: builtins.bool | None = ...) -> Tensor:
        """interpolate, under its older name."""
    def upsample_bilinear(self, size: luminal.ops.base.Size |
        collections.abc.Sequence[luminal.ops.base.Size] | None = ..., scale_factor:
        builtins.float | collections.abc.Sequence[builtins.float] | None = ...) -> Tensor:
        """interpolate linearly in both dimensions, corners on corners."""
    def upsample_nearest(self, size: luminal.ops.base.Size |
        collections.abc.Sequence[luminal.ops.base.Size] | None = ..., scale_factor:
        builtins.float | collections.abc.Sequence[builtins.float] | None = ...) -> Tensor:
        """interpolate by the nearest element."""
    def var(self, dim: luminal.ops.base.Dims = ..., unbiased: builtins.bool = ..., keepdim:
        builtins.bool = ..., *, correction: builtins.int | None = ..., axis:
        luminal.ops.base.Dims = ..., keepdims: builtins.bool = ...) -> Tensor:
        """The mean square distance to the mean, with n - correction (1, or 0 if not unbiased) in
        place of n."""
    def var_mean(self, dim: luminal.ops.base.Dims = ..., unbiased: builtins.bool = ..., keepdim:
        builtins.bool = ..., *, correction: builtins.int | None = ..., axis:
        luminal.ops.base.Dims = ..., keepdims: builtins.bool = ...) -> tuple[Tensor, Tensor]:
        """(variance, mean)."""
    def vdot(self, b: Tensor = ..., *, other: Tensor = ...) -> Tensor:
        """The inner product of two vectors."""
    def view(self, *sizes: typing.Any) -> Tensor:
        """The same elements in row-major order under another shape; one size may be -1."""
    def view_as(self, other: Tensor) -> Tensor:
        """With the shape of another tensor of as many elements."""
    def vsplit(self, sections: builtins.int |
        collections.abc.Sequence[builtins.int]) -> list[Tensor]:
        """tensor_split along dimension 0."""
    def where(self, condition: Tensor, other: luminal.ops.base.Value) -> Tensor:
        """`x.where(condition, other)`: x where the condition holds, else other."""
    def windows(self, dims: collections.abc.Sequence[builtins.int] = ..., sizes:
        collections.abc.Sequence[luminal.graph.parse.DimLike] = ..., steps:
        collections.abc.Sequence[luminal.graph.parse.DimLike] = ..., dilations:
        collections.abc.Sequence[luminal.graph.parse.DimLike] | None = ..., *, axis:
        collections.abc.Sequence[builtins.int] = ..., axes:
        collections.abc.Sequence[builtins.int] = ...) -> Tensor:
        """Sliding windows: each of `dims` counts windows, new last dimensions walk inside them."""
    def xlog1py(self, y: Tensor) -> Tensor:
        """x log(1 + y), and 0 where x is 0 and y is a number."""
    def xlogy(self, y: Tensor) -> Tensor:
        """x log y, and 0 where x is 0 and y is a number."""
    def zeros_like(self, dtype: typing.Any = ...) -> Tensor:
        """0, with the shape and dtype of x."""
    def __neg__(self) -> Tensor: ...
    def __abs__(self) -> Tensor: ...
    def __invert__(self) -> Tensor: ...
    def __getitem__(self, key: typing.Any) -> Tensor: ...
    def __add__(self, other: typing.Any) -> Tensor: ...
    def __sub__(self, other: typing.Any) -> Tensor: ...
    def __mul__(self, other: typing.Any) -> Tensor: ...
    def __truediv__(self, other: typing.Any) -> Tensor: ...
    def __floordiv__(self, other: typing.Any) -> Tensor: ...
    def __mod__(self, other: typing.Any) -> Tensor: ...
    def __pow__(self, other: typing.Any) -> Tensor: ...
    def __matmul__(self, other: typing.Any) -> Tensor: ...
    def __and__(self, other: typing.Any) -> Tensor: ...
    def __or__(self, other: typing.Any) -> Tensor: ...
    def __xor__(self, other: typing.Any) -> Tensor: ...
    def __lshift__(self, other: typing.Any) -> Tensor: ...
    def __rshift__(self, other: typing.Any) -> Tensor: ...
    def __lt__(self, other: typing.Any) -> Tensor: ...
    def __le__(self, other: typing.Any) -> Tensor: ...
    def __gt__(self, other: typing.Any) -> Tensor: ...
    def __ge__(self, other: typing.Any) -> Tensor: ...
    def __eq__(self, other: typing.Any) -> Tensor: ...  # type: ignore[override]
    def __ne__(self, other: typing.Any) -> Tensor: ...  # type: ignore[override]
    def __radd__(self, other: typing.Any) -> Tensor: ...
    def __rsub__(self, other: typing.Any) -> Tensor: ...
    def __rmul__(self, other: typing.Any) -> Tensor: ...
    def __rtruediv__(self, other: typing.Any) -> Tensor: ...
    def __rfloordiv__(self, other: typing.Any) -> Tensor: ...
    def __rmod__(self, other: typing.Any) -> Tensor: ...
    def __rpow__(self, other: typing.Any) -> Tensor: ...
    def __rmatmul__(self, other: typing.Any) -> Tensor: ...
    def __rand__(self, other: typing.Any) -> Tensor: ...
    def __ror__(self, other: typing.Any) -> Tensor: ...
    def __rxor__(self, other: typing.Any) -> Tensor: ...
