"""Normalisations. Variances are means of squares of centred values, which lose no digits."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ShapeError
from ..graph.tensor import Tensor
from .base import Dims, Size, count, extent, floating, of_shape, same_size
from .elementwise import add, mul, square, sub
from .math import rsqrt
from .reduction import mean


def _last_dims(x: Tensor, normalized_shape: Size | Sequence[Size]) -> tuple[int, ...]:
    """The dimensions that a shape at the end stands for."""
    if isinstance(normalized_shape, (list, tuple)):
        wanted = tuple(normalized_shape)
    else:
        wanted = (normalized_shape,)
    dims = tuple(range(x.ndim - len(wanted), x.ndim))
    for d, size in zip(dims, wanted):
        if d < 0 or not same_size(x.node.shape[d], size):
            raise ShapeError(f"normalisation over {wanted} does not fit the end of {x}")
    return dims


def moments(x: Tensor, dims: Dims, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x standardised, mean, 1 / deviation), with dimensions of size 1 in place of dims."""
    average = mean(x, dims, keepdim=True)
    centred = sub(x, average)
    variance = mean(square(centred), dims, keepdim=True)
    factor = rsqrt(add(variance, eps))
    return mul(centred, factor), average, factor


def affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """x weight + bias, in the dtype of x if that is the widest."""
    if weight is not None:
        x = mul(x, weight)
    return x if bias is None else add(x, bias)


def per_channel(x: Tensor, values: Tensor | None) -> Tensor | None:
    """(channels,) shaped to broadcast along dimension 1 of x."""
    if values is None:
        return None
    if x.ndim < 2:
        raise ShapeError(f"(batch, channels, ...) is normalised, not {x}")
    values = of_shape(values, (extent(x, 1),), "what each channel has")
    return values.reshape((-1, *(1,) * (x.ndim - 2)))


def several(x: Tensor, dims: Sequence[int]) -> None:
    """More than one value is needed for a variance. Raises ShapeError."""
    if count(x, dims) == 1:
        raise ShapeError(f"more than one value of each channel is expected, not {x}")


@floating
def layer_norm(
    x: Tensor, normalized_shape: Size | Sequence[Size], weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Mean 0 and variance 1 over the last dimensions, then scale and shift.

    >>> ops.layer_norm(cx.constant([[1.0, 2.0, 3.0, 4.0]]), (4,)).numpy().round(3)
    array([[-1.342, -0.447,  0.447,  1.342]], dtype=float32)
    """
    return affine(moments(x, _last_dims(x, normalized_shape), eps)[0], weight, bias)


@floating
def rms_norm(
    x: Tensor, normalized_shape: Size | Sequence[Size], weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:  # fmt: skip
    """x over its root mean square along the last dimensions; eps by default the dtype's.

    >>> ops.rms_norm(cx.constant([[3.0, 4.0]]), (2,)).numpy().round(3)
    array([[0.849, 1.131]], dtype=float32)
    """
    dims = _last_dims(x, normalized_shape)
    small = {"f32": 2.0**-23, "f64": 2.0**-52}[x.dtype.name] if eps is None else eps
    return affine(mul(x, rsqrt(add(mean(square(x), dims, keepdim=True), small))), weight, None)


@floating
def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Mean 0 and variance 1 over each group of channels (dimension 1) and all that follows.

    >>> ops.group_norm(cx.tensor((2, 8, "s")), 4).shape
    (2, 8, s)
    """
    split = x.unflatten(1, (num_groups, -1))
    result = moments(split, tuple(range(2, split.ndim)), eps)[0].flatten(1, 2)
    return affine(result, per_channel(x, weight), per_channel(x, bias))


@floating
def instance_norm(
    x: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Mean 0 and variance 1 over the spatial dimensions of each channel; without use_input_stats by
    the running statistics. (These stay as they are: momentum is for modules, which update them.)

    >>> ops.instance_norm(cx.constant([[[1.0, 3.0]]])).numpy().round(3)
    array([[[-1.,  1.]]], dtype=float32)
    """
    if not use_input_stats:
        return batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    result = moments(x, tuple(range(2, x.ndim)), eps)[0]
    return affine(result, per_channel(x, weight), per_channel(x, bias))


@floating
def batch_norm(
    x: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise each channel (dimension 1): by the running statistics, or by those of the batch.
    (They stay as they are: momentum is for modules, which update them.)

    >>> a, b, c = cx.constant([[1.0], [3.0]]), cx.constant([1.0]), cx.constant([4.0])
    >>> ops.batch_norm(a, b, c).numpy().round(3)
    array([[0.],
           [1.]], dtype=float32)
    """
    scale, shift = per_channel(x, weight), per_channel(x, bias)
    if training or running_mean is None or running_var is None:
        dims = (0, *range(2, x.ndim))
        several(x, dims)
        return affine(moments(x, dims, eps)[0], scale, shift)
    factor = rsqrt(add(running_var, eps))
    if weight is not None:
        factor = mul(factor, weight)
    centred = sub(x, per_channel(x, running_mean))  # type: ignore[arg-type]
    return affine(centred, per_channel(x, factor), shift)


@floating
def local_response_norm(
    x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """x / (k + alpha mean of x^2 over `size` neighbouring channels)^beta.

    >>> ops.local_response_norm(cx.constant([[[1.0], [2.0]]]), 2, alpha=1.0).numpy().round(3)
    array([[[0.738],
            [0.782]]], dtype=float32)
    """
    from .powers import pow

    if size < 1:
        raise ShapeError(f"local_response_norm over {size} channels: at least 1 is expected")
    before = size // 2
    widths = [(0, 0), (before, size - 1 - before)] + [(0, 0)] * (x.ndim - 2)
    near = mean(square(x).pad(widths).unfold(1, size, 1), -1)
    return x / pow(add(mul(near, alpha), k), beta)
