"""The nodes of a graph: immutable, hash-consed, with static shape and dtype.

Node kinds (`op`, its inputs, its `attribute`):

    input        ()                  Source         values given by the user (see Source.kind)
    literal      ()                  number         one value, shape ()
    iota         ()                  Index          an index expression over i0, i1, ... and sizes
    view         (source)            View           movement: an index map, no computation
    <scalar>     operands            None           a row of `scalars.SCALARS`; equal shapes
    sum max min prod  (source)       dims           reduction over a tuple of dimensions (dropped)
    scan         (source)            Scan           running reduction along one dimension
    gather       (source, index)     dim            out[.., i, ..] = source[.., index[..i..], ..]
    scatter      (base, index, values)  Scatter     base with values written at index along one dim
    loop         see Loop            Loop           steps of a body; what it gives are its results
    variable     ()                  Variable       what a step of the body of a loop is given
    result       (loop)              number         of a loop: the last carried values, then stacks

Of these input, literal, iota, gather, scatter (mode "set"), sum, max, log2, exp2, sin, sqrt, recip,
add, mul, mod, less and cast are primitive; the others are composites that backends take whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from .dtype import DType
from .index import Index

Number: TypeAlias = int | float | bool
Shape: TypeAlias = tuple[Index, ...]

REDUCE_OPS = ("sum", "max", "min", "prod")


def number_key(value: Number | None) -> tuple[str, str]:
    """Tells numbers apart that compare equal: 1, 1.0, True; 0.0 and -0.0. Equal for NaNs."""
    return type(value).__name__, repr(value)


def position(dim: int) -> str:
    """The variable that stands for the position along a dimension of the result of a view."""
    return f"i{dim}"


@dataclass(frozen=True, eq=False)
class Source:
    """Values from outside. `kind`: "input" (each run), "parameter" (seldom), "constant" (never)."""

    name: str
    kind: str
    value: np.ndarray | None = None  # constants only


@dataclass(frozen=True)
class View:
    """out[i0, i1, ...] = source[index] where every condition is >= 0, else `fill`.

    `index`: one Index for each dimension of the source, over i0, i1, ... and sizes. It lies inside
    the source wherever the conditions hold. Without conditions `fill` is None.
    """

    shape: Shape
    index: tuple[Index, ...]
    conditions: tuple[Index, ...] = ()
    fill: Number | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for equal views only: fills are told apart by type and text."""
        return self.shape, self.index, self.conditions, number_key(self.fill)


@dataclass(frozen=True)
class Scan:
    """A running reduction: out[.., i, ..] = op of source[.., 0 .. i, ..]."""

    op: str  # "sum" | "max" | "min" | "prod"
    dim: int


@dataclass(frozen=True)
class Scatter:
    """base with values combined in at index, along `dim`; index and values have one shape.

    mode "set": the last one in row-major order wins; "sum", "max", "min", "prod": combined with
    what stands there. An index outside 0 .. n - 1 writes nothing. (A gather clamps instead.)
    """

    dim: int
    mode: str


@dataclass(frozen=True)
class Variable:
    """Stands in the body of one loop for a value that differs from step to step."""

    number: int
    shape: Shape
    dtype: DType


@dataclass(frozen=True)
class Loop:
    """(carried, slices) -> (new carried, rows), once a step. The inputs of a loop, in order:

    initial    what is carried, before the first step
    stacks     a slice of each along its first dimension is given to each step
    variables  the names that the body has for what is carried, and for the slices
    new        what is carried on; of the shape and dtype of `initial`
    rows       of each step, stacked along a new first dimension

    The body is what lies between the variables and `new` and `rows`: all other nodes that these
    need have one value for all steps. length: the number of steps; None: as many as the condition
    allows. conditional: the first carried value is a bool, and a step is made only while it holds.
    reverse: the last slice comes first, and the last row is made first.
    """

    length: Index | None
    carried: int
    sliced: int
    rows: int
    reverse: bool = False
    conditional: bool = False


@dataclass(frozen=True)
class Composite:
    """What a node is besides its own operation: the result of a function of these nodes. Says
    nothing new about its value; derivatives may take it whole."""

    name: str
    inputs: tuple[Node, ...]
    options: tuple[Any, ...] = ()


@dataclass(eq=False, repr=False, slots=True)
class Node:
    """One operation of a graph. Compared by identity: a graph makes equal nodes only once."""

    op: str
    inputs: tuple[Node, ...]
    attribute: Any
    shape: Shape
    dtype: DType
    number: int  # position in the graph: inputs come first

    def __repr__(self) -> str:
        dims = ", ".join(map(str, self.shape))
        return f"%{self.number} = {self.op} ({dims}) {self.dtype}"
