"""Random numbers from a counter: every element is a function of (seed, stream, its position).

The function is Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", 2011). The same seed gives the same numbers on every device, for any number of threads.

Without a seed every run has other numbers: the graph counts its runs in a state, "random.run", and
starts from the number given to `manual_seed`. A seed that is a number gives each run the same
numbers, one that is a scalar tensor those of its value; it is an integer of 64 bits, with a sign or
without. Each call takes the next stream of its graph unless one (of 32 bits) is named.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import ml_dtypes
import numpy as np

from ..errors import DTypeError, InputError
from ..graph.dtype import DType, f32, f64, i64, u32, u64
from ..graph.dtype import dtype as dtype_of
from ..graph.graph import Graph
from ..graph.index import Index
from ..graph.tensor import Tensor
from .base import Size, full_like, literal
from .bits import bitwise_left_shift, bitwise_or, bitwise_right_shift, bitwise_xor
from .elementwise import add, minimum, mul, neg, sub
from .logic import lt, where
from .math import LN_2, cos, log, sqrt
from .reduction import argmax
from .sorting import argsort, topk

Seed = int | Tensor | None
Shape = Size | Sequence[Size]

RUN = "random.run"  # the name of the state that counts runs

_streams: WeakKeyDictionary[Graph, int] = WeakKeyDictionary()
_seeds: WeakKeyDictionary[Graph, int] = WeakKeyDictionary()


def manual_seed(graph: Graph, seed: int) -> None:
    """What the graph's calls without a seed, from here on, start from; 0 where nothing is said.

    >>> other = luminal.Graph()
    >>> _ = [ops.manual_seed(graph, 3) for graph in (cx, other)]
    >>> bool((ops.rand(cx, 2).numpy() == ops.rand(other, 2).numpy()).all())
    True
    """
    _seeds[graph] = _seed(seed)


def run_counter(graph: Graph) -> Tensor:
    """The number of the run, i64: a state that starts at 0. Set it to repeat a run."""
    for state, _ in graph.states:
        if state.node.attribute.name == RUN:
            return state
    state = graph.tensor((), i64, RUN).set(0)
    graph.donate(state, add(state, 1))
    return state


def _seed(seed: int) -> int:
    return _within("a seed", seed, -(1 << 63), 1 << 64)


def _within(what: str, value: int, low: int, high: int) -> int:
    """An integer from low, below high. Raises InputError."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{what} must be an integer, not {value!r}") from None
    if not low <= number < high:
        raise InputError(f"{what} must lie in {low} .. {high - 1}, not be {number}")
    return number


def next_stream(graph: Graph) -> int:
    """0, 1, 2, ... for the calls on one graph."""
    stream = _streams.get(graph, 0)
    _streams[graph] = stream + 1
    return stream


# ---- bits

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def _rotate(x: Tensor, bits: int) -> Tensor:
    return bitwise_or(
        bitwise_left_shift(x, full_like(x, bits)), bitwise_right_shift(x, full_like(x, 32 - bits))
    )


def threefry(key: tuple[Tensor, Tensor], counter: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Two random u32 words for each (counter, key), all of one shape."""
    keys = (*key, bitwise_xor(bitwise_xor(*key), full_like(key[0], _PARITY)))
    x, y = add(counter[0], keys[0]), add(counter[1], keys[1])
    for block in range(5):
        for bits in _ROTATIONS[block % 2]:
            x = add(x, y)
            y = bitwise_xor(_rotate(y, bits), x)
        x = add(x, keys[(block + 1) % 3])
        y = add(add(y, keys[(block + 2) % 3]), full_like(y, block + 1))
    return x, y


def random_words(
    graph: Graph, shape: Shape, seed: Seed = None, stream: int | None = None
) -> tuple[Tensor, Tensor]:
    """Two independent u32 tensors of random bits."""
    sizes = graph.shape(shape)
    flat = Index.of(0)
    for d, size in enumerate(sizes):
        flat = flat * size + Index.of(f"i{d}")
    low, high = _halves(graph.iota(sizes, flat, i64))
    stream = next_stream(graph) if stream is None else _within("a stream", stream, 0, 1 << 32)
    first, second = _key(graph, seed)
    second = bitwise_xor(second, full_like(second, stream * 0x9E3779B9))
    return threefry((first.expand(sizes), second.expand(sizes)), (low, high))


def _key(graph: Graph, seed: Seed) -> tuple[Tensor, Tensor]:
    """The two words of a seed; without one they are drawn anew from the number of the run."""
    if isinstance(seed, Tensor):
        if not seed.dtype.is_integer:
            raise InputError(f"a seed must be an integer, not {seed.dtype}")
        return _halves(seed)
    if seed is not None:
        return _halves(literal(graph, _seed(seed), u64))
    start = literal(graph, _seeds.get(graph, 0), u64)
    return threefry(_halves(start), _halves(run_counter(graph)))


def _halves(number: Tensor) -> tuple[Tensor, Tensor]:
    """The lower and the upper 32 bits, u32."""
    bits = number.cast(u64)
    return bits.cast(u32), bitwise_right_shift(bits, full_like(bits, 32)).cast(u32)


def random_bits(
    graph: Graph, shape: Shape, *, seed: Seed = None, stream: int | None = None
) -> Tensor:
    """Random u32.

    >>> ops.random_bits(cx, 3).dtype
    u32
    """
    return random_words(graph, shape, seed, stream)[0]


# ---- distributions


def _unit(words: tuple[Tensor, Tensor], kind: Any) -> Tensor:
    """Uniform in [0, 1): 24 bits for f32, 53 for f64."""
    high, low = words
    if kind is not f64:
        bits = bitwise_right_shift(high, full_like(high, 8))
        return mul(bits.cast(f32), 2.0**-24).cast(kind)
    upper = bitwise_right_shift(high, full_like(high, 5)).cast(f64)
    lower = bitwise_right_shift(low, full_like(low, 6)).cast(f64)
    return mul(add(mul(upper, 2.0**26), lower), 2.0**-53)


def rand(
    graph: Graph, shape: Shape, *, seed: Seed = None, stream: int | None = None, dtype: Any = "f32"
) -> Tensor:
    """Uniform in [0, 1).

    >>> draws = ops.rand(cx, (2, 3)).numpy()
    >>> draws.shape, bool(((0 <= draws) & (draws < 1)).all())
    ((2, 3), True)
    """
    return uniform(graph, shape, seed=seed, stream=stream, dtype=dtype)


def uniform(
    graph: Graph, shape: Shape, low: float = 0.0, high: float = 1.0, *, seed: Seed = None,
    stream: int | None = None, dtype: Any = "f32",
) -> Tensor:  # fmt: skip
    """Uniform in [low, high), low and high as the dtype has them; low where they are equal.

    >>> ops.uniform(cx, (2, 3), -1.0, 1.0).shape
    (2, 3)
    """
    kind = dtype_of(dtype)
    if not kind.is_float:
        raise DTypeError(f"rand and uniform give floats, not {kind}; see randint")
    wide = kind if kind is f64 else f32
    _range("uniform", low, high, kind, wide)
    unit = _unit(random_words(graph, shape, seed, stream), wide)
    if (low, high) == (0, 1) and kind is wide:
        return unit
    drawn = add(mul(unit, high - low), low).cast(kind)
    return where(lt(drawn, high), drawn, low)  # rounding may reach high


def _range(name: str, low: float, high: float, kind: DType, wide: DType) -> None:
    """Raises InputError where numbers between the two cannot be drawn in these dtypes."""
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        raise InputError(f"{name}: low and high are numbers, not tensors")
    if not low <= high:
        raise InputError(f"{name}: low, {low}, must not be above high, {high}")
    with np.errstate(over="ignore"):
        ends = [kind.numpy.type(low), kind.numpy.type(high), wide.numpy.type(high - low)]
    if not all(math.isfinite(float(end)) for end in ends):
        raise InputError(f"{name}: {low} .. {high} is too wide for {kind}")


def randn(
    graph: Graph, shape: Shape, *, seed: Seed = None, stream: int | None = None, dtype: Any = "f32"
) -> Tensor:
    """Normal with mean 0 and variance 1, by Box and Muller.

    >>> ops.randn(cx, ("batch", 4)).shape
    (batch, 4)
    """
    kind = dtype_of(dtype)
    first, second = random_words(graph, shape, seed, stream)
    radius_unit = add(_unit((first, first), f32), 2.0**-25)  # in (0, 1], rounded
    radius = sqrt(mul(log(radius_unit), -2.0))
    return mul(radius, cos(mul(_unit((second, second), f32), 2 * math.pi))).cast(kind)


def normal(
    graph: Graph, mean: float, std: float, size: Shape, *, seed: Seed = None,
    stream: int | None = None, dtype: Any = "f32",
) -> Tensor:  # fmt: skip
    """Normal with a mean and a standard deviation.

    >>> ops.normal(cx, 0.0, 1.0, (2, 3)).shape
    (2, 3)
    """
    noise = randn(graph, size, seed=seed, stream=stream, dtype=dtype)
    return add(mul(noise, std), mean)


def exponential(
    graph: Graph, shape: Shape, rate: float = 1.0, *, seed: Seed = None, stream: int | None = None
) -> Tensor:
    """Exponential, of a rate.

    >>> ops.exponential(cx, (2, 3), rate=2.0).shape
    (2, 3)
    """
    unit = rand(graph, shape, seed=seed, stream=stream)
    return mul(graph.apply("log2", [sub(1.0, unit)]), -LN_2 / rate)


def gumbel(graph: Graph, shape: Shape, *, seed: Seed = None, stream: int | None = None) -> Tensor:
    """Gumbel noise: -log(-log u), finite.

    >>> ops.gumbel(cx, (2, 3)).shape
    (2, 3)
    """
    unit = add(rand(graph, shape, seed=seed, stream=stream), 2.0**-25)
    return neg(log(neg(log(minimum(unit, 1 - 2.0**-24)))))  # rounding may reach 1


def randint(
    graph: Graph, low: int, high: int, size: Shape, *, seed: Seed = None, stream: int | None = None,
    dtype: Any = "i64",
) -> Tensor:  # fmt: skip
    """Integers low .. high - 1. high - low < 2^32; the bias is below (high - low) / 2^32.

    >>> draws = ops.randint(cx, 0, 6, (100,)).numpy()
    >>> draws.dtype, bool(((0 <= draws) & (draws < 6)).all())
    (dtype('int64'), True)
    """
    kind = dtype_of(dtype)
    if not 0 < high - low < 1 << 32:
        raise DTypeError(f"randint: {low} .. {high - 1} must have 1 .. 2^32 - 1 members")
    most = 2 ** (ml_dtypes.finfo(kind.numpy).nmant + 1) if kind.is_float else kind.highest
    if low < (-most if kind.is_float else kind.lowest) or high - 1 > most:
        raise InputError(f"randint: {low} .. {high - 1} do not all fit in {kind}")
    wide = random_bits(graph, size, seed=seed, stream=stream).cast(u64)
    scaled = bitwise_right_shift(mul(wide, full_like(wide, high - low)), full_like(wide, 32))
    return add(scaled.cast(i64), low).cast(kind)


def bernoulli(p: Tensor, *, seed: Seed = None, stream: int | None = None) -> Tensor:
    """1 with probability p, else 0.

    >>> ops.bernoulli(cx.constant([0.0, 1.0])).numpy()
    array([0., 1.], dtype=float32)
    """
    unit = rand(p.graph, p.shape, seed=seed, stream=stream, dtype=f64 if p.dtype is f64 else f32)
    return lt(unit, p.cast(unit.dtype)).cast(p.dtype)


def randperm(graph: Graph, n: int, *, seed: Seed = None, stream: int | None = None) -> Tensor:
    """A random order of 0 .. n - 1.

    >>> sorted(ops.randperm(cx, 4).numpy().tolist())
    [0, 1, 2, 3]
    """
    return argsort(random_bits(graph, (n,), seed=seed, stream=stream))


def multinomial(
    weights: Tensor, num_samples: int = 1, replacement: bool = False, *, seed: Seed = None,
    stream: int | None = None,
) -> Tensor:  # fmt: skip
    """Indices drawn for each row of weights (not negative, need not add up to 1): (..., samples),
    none twice unless with replacement. By the largest of log w + Gumbel noise.

    >>> ops.multinomial(cx.constant([[0.0, 0.0, 5.0]])).numpy()
    array([[2]])
    """
    shape = list(weights.shape)
    if replacement and num_samples != 1:
        shape.insert(-1, num_samples)
        noise = gumbel(weights.graph, shape, seed=seed, stream=stream)
        return argmax(add(log(weights).unsqueeze(-2), noise), -1)
    noise = gumbel(weights.graph, shape, seed=seed, stream=stream)
    return topk(add(log(weights), noise), num_samples, -1).indices
