"""Ensembles of decision trees: all trees of a row take a step at once, as deep as the deepest is.

A step looks the node's question up in tables of constants; a leaf is a node that leads to itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import ops
from ....errors import Unsupported, WeightsError
from ....graph.tensor import Tensor
from .base import ML, op

if TYPE_CHECKING:
    from ..record import Recorder

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")  # by the standard's numbers
ASKS = (ops.le, ops.lt, ops.ge, ops.gt, ops.eq, ops.ne)
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
NEARLY_ZERO = 1e-7  # SOFTMAX_ZERO leaves such scores out of the sum, as onnxruntime does


@dataclass(frozen=True)
class Forest:
    """For each node: the feature it asks for, how and against what, the nodes for yes and no, and
    whether a NaN is a yes. roots: of the trees. votes: [leaf, target, weight]."""

    features: np.ndarray
    modes: np.ndarray
    splits: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    missing: np.ndarray
    roots: np.ndarray
    votes: tuple[np.ndarray, np.ndarray, np.ndarray]
    members: np.ndarray | None = None  # (nodes, most members): what MEMBER asks for, else NaN

    @property
    def depth(self) -> int:
        """Steps after which every tree is at a leaf. Raises WeightsError for a circle."""
        inner = (self.yes != np.arange(len(self.yes))) | (self.no != np.arange(len(self.no)))
        level = np.unique(self.roots)
        for step in range(len(self.yes) + 1):
            level = level[inner[level]]
            if not len(level):
                return step
            level = np.unique([self.yes[level], self.no[level]])
        raise WeightsError("the nodes of a tree lead in a circle")


def leaves(at: Recorder, x: Tensor, forest: Forest) -> Tensor:
    """x: (rows, features). The leaf of each tree, (rows, trees)."""
    table = at.graph.constant
    place = table(forest.roots.astype(np.int32)).expand((x.shape[0], len(forest.roots)))
    ways = [table(way.astype(np.int32)) for way in (forest.yes, forest.no)]
    for _ in range(forest.depth):
        value = ops.gather(x, 1, ops.take(table(forest.features.astype(np.int32)), place))
        yes = _answers(at, value, place, forest)
        place = ops.where(yes, *(ops.take(way, place) for way in ways))
    return place


def _answers(at: Recorder, value: Tensor, place: Tensor, forest: Forest) -> Tensor:
    """What the nodes at `place` say to their features' values."""
    table = at.graph.constant
    split = ops.take(table(forest.splits), place).cast(value.dtype)

    def said(mode: int) -> Tensor:
        return ASKS[mode](value, split) if mode < len(ASKS) else _member(at, value, place, forest)

    first, *others = np.unique(forest.modes).tolist()
    yes = said(first)
    mode = ops.take(table(forest.modes.astype(np.int32)), place) if others else place
    for number in others:
        yes = ops.where(ops.eq(mode, number), said(number), yes)
    if forest.missing.any():
        lost = ops.take(table(forest.missing), place)
        yes = ops.logical_or(yes, ops.logical_and(lost, ops.isnan(value)))
    return yes


def _member(at: Recorder, value: Tensor, place: Tensor, forest: Forest) -> Tensor:
    assert forest.members is not None
    rows = ops.index_select(at.graph.constant(forest.members), 0, place.reshape(-1))
    rows = rows.reshape((*place.shape, forest.members.shape[1]))
    return ops.any(ops.eq(rows.cast(value.dtype), value.unsqueeze(-1)), -1)


def scores(at: Recorder, x: Tensor, forest: Forest, targets: int, aggregate: str) -> Tensor:
    """What the leaves' votes come to, (rows, targets). Nothing votes for a target: 0."""
    leaf, target, weight = forest.votes
    ufunc, start = {"MIN": (np.minimum, np.inf), "MAX": (np.maximum, -np.inf)}.get(
        aggregate, (np.add, 0)
    )
    votes = np.full((len(forest.yes), targets), start, weight.dtype)
    ufunc.at(votes, (leaf, target), weight)
    place = leaves(at, x, forest)
    found = ops.index_select(at.graph.constant(votes), 0, place.reshape(-1))
    found = found.reshape((*place.shape, targets))
    if aggregate in ("MIN", "MAX"):
        best = ops.amin(found, 1) if aggregate == "MIN" else ops.amax(found, 1)
        return ops.where(ops.isfinite(best), best, 0.0)
    total = ops.sum(found, 1)
    return ops.div(total, float(len(forest.roots))) if aggregate == "AVERAGE" else total


def transformed(x: Tensor, way: str) -> Tensor:
    """The standard's post_transform."""
    if way == "NONE":
        return x
    if way == "LOGISTIC":
        return ops.sigmoid(x)
    if way == "SOFTMAX":
        return ops.softmax(x, -1)
    if way == "PROBIT":
        return ops.mul(ops.erfinv(ops.sub(ops.mul(x, 2.0), 1.0)), 2**0.5)
    largest = ops.amax(x, -1, True)
    counts = ops.abs(x) > NEARLY_ZERO
    e = ops.where(counts, ops.exp(ops.sub(x, largest)), ops.mul(x, ops.exp(ops.neg(largest))))
    total = ops.sum(ops.where(counts, e, 0.0), -1, True)
    return ops.where(ops.eq(total, 0.0), e, ops.div(e, total))


# ---- TreeEnsemble: leaves apart from inner nodes


@op("TreeEnsemble", domain=ML)
def tree_ensemble(
    at: Recorder, x: Tensor, aggregate_function: int = 1, post_transform: int = 0,
    n_targets: int = 1, **fields: Any,
) -> Tensor:  # fmt: skip
    forest = _with_leaves(fields)
    found = scores(at, x, forest, n_targets, AGGREGATES[aggregate_function])
    return transformed(found.cast(x.dtype), TRANSFORMS[post_transform])


def _with_leaves(fields: dict[str, Any]) -> Forest:
    weights = np.asarray(fields["leaf_weights"])
    modes = np.asarray(fields["nodes_modes"]).astype(np.int64)
    nodes, ends = len(modes), len(weights)

    def way(side: str) -> np.ndarray:
        to, leaf = (np.array(fields[f"nodes_{side}{what}"], int) for what in ("nodeids", "leafs"))
        if ((to < 0) | (to >= np.where(leaf, ends, nodes))).any():
            raise WeightsError(f"TreeEnsemble: nodes_{side}nodeids lead outside of its tables")
        return np.append(np.where(leaf, to + nodes, to), nodes + np.arange(ends))

    def padded(values: Any, dtype: Any = np.int64) -> np.ndarray:
        return np.append(np.asarray(values).astype(dtype), np.zeros(ends, dtype))

    splits = np.asarray(fields["nodes_splits"])
    missing = fields.get("nodes_missing_value_tracks_true")
    sets = fields.get("membership_values")
    return Forest(
        padded(fields["nodes_featureids"]), np.append(modes, np.full(ends, modes[0])),
        padded(splits, splits.dtype), way("true"), way("false"),
        padded(np.zeros(nodes) if missing is None else missing, bool),
        np.array(fields["tree_roots"], int),
        (nodes + np.arange(ends), np.array(fields["leaf_targetids"], int), weights),
        None if sets is None else _members(modes, np.asarray(sets), nodes + ends),
    )  # fmt: skip


def _members(modes: np.ndarray, values: np.ndarray, nodes: int) -> np.ndarray:
    """The sets, which NaNs end, in the order of the nodes that ask for them."""
    ends = np.flatnonzero(np.isnan(values))
    sets = np.split(values, ends + 1)
    asking = np.flatnonzero(modes == MODES.index("MEMBER"))
    table = np.full((nodes, max(1, *(len(s) for s in sets))), np.nan, values.dtype)
    for node, members in zip(asking, sets):
        table[node, : len(members)] = members
    return table


# ---- TreeEnsembleRegressor, TreeEnsembleClassifier: leaves among the nodes, numbered in each tree


@op("TreeEnsembleRegressor", domain=ML)
def tree_regressor(
    at: Recorder, x: Tensor, aggregate_function: str = "SUM", post_transform: str = "NONE",
    n_targets: int = 1, **fields: Any,
) -> Tensor:  # fmt: skip
    forest = _numbered(fields, "target")
    found = scores(at, _compared(x, forest), forest, n_targets, aggregate_function)
    base = _field(fields, "base_values")
    found = found if base is None else ops.add(found, at.graph.constant(base))
    return transformed(found.cast("f32"), post_transform)


@op("TreeEnsembleClassifier", domain=ML)
def tree_classifier(
    at: Recorder, x: Tensor, post_transform: str = "NONE", classlabels_int64s: Any = (),
    classlabels_strings: Any = (), **fields: Any,
) -> Any:  # fmt: skip
    """The likeliest class and the scores of all."""
    if len(classlabels_strings):
        raise Unsupported("TreeEnsembleClassifier: labels that are text")
    forest = _numbered(fields, "class")
    labels = np.array(classlabels_int64s, np.int64)
    found = scores(at, _compared(x, forest), forest, len(labels), "SUM")
    base = _field(fields, "base_values")
    used = np.unique(forest.votes[1])
    if len(labels) != 2 or len(used) != 1:
        found = found if base is None else ops.add(found, at.graph.constant(base))
        best = ops.argmax(found, -1)
    else:
        found, best = _two(at, found.select(-1, int(used[0])), base, forest, post_transform)
        post_transform = "NONE" if post_transform == "LOGISTIC" else post_transform
    chosen = ops.take(at.graph.constant(labels), best)
    return chosen, transformed(found.cast("f32"), post_transform)


def _two(
    at: Recorder, score: Tensor, base: np.ndarray | None, forest: Forest, way: str
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Both classes' scores where one is voted for: its chance, or a sum that is above 0 for it."""
    if base is not None:
        score = ops.add(score, float(base[-1]))
    chance = bool((forest.votes[2] >= 0).all())
    best = (score > (0.5 if chance else 0.0)).cast("i64")
    other = ops.sub(1.0, score) if chance else ops.neg(score)
    both = ops.stack([other, score], -1)
    if way == "LOGISTIC":
        both = ops.sigmoid(both)
    return both, best


def _compared(x: Tensor, forest: Forest) -> Tensor:
    """x as its values are compared: whole numbers are thresholds' kind of numbers then."""
    return x if x.dtype.is_float else x.cast("f64" if forest.splits.dtype == np.float64 else "f32")


def _field(fields: dict[str, Any], name: str) -> np.ndarray | None:
    """Floats, or doubles as a tensor; None where there are none."""
    wide = fields.get(f"{name}_as_tensor")
    if wide is not None:
        return np.asarray(wide)
    narrow = fields.get(name)
    return None if narrow is None or not len(narrow) else np.array(narrow, np.float32)


def _numbered(fields: dict[str, Any], votes: str) -> Forest:
    """votes: what the fields of the leaves' votes begin with."""
    trees, ids = (np.array(fields[f"nodes_{n}"], int) for n in ("treeids", "nodeids"))
    place = {key: n for n, key in enumerate(zip(trees.tolist(), ids.tolist()))}
    modes = [m.decode() if isinstance(m, bytes) else m for m in fields["nodes_modes"]]
    leaf = np.array([m == "LEAF" for m in modes])
    number = [0 if m == "LEAF" else MODES.index(m.removeprefix("BRANCH_")) for m in modes]
    inner = [n for n, end in zip(number, leaf) if not end] or [0]

    def places(trees: Any, ids: Any) -> np.ndarray:
        try:
            return np.array([place[key] for key in zip(map(int, trees), map(int, ids))], int)
        except KeyError as error:
            raise WeightsError(f"tree {error.args[0][0]} has no node {error.args[0][1]}") from None

    def way(side: str) -> np.ndarray:
        to = np.where(leaf, ids, np.array(fields[f"nodes_{side}nodeids"], int))
        return places(trees, to)

    missing = fields.get("nodes_missing_value_tracks_true")
    splits = _field(fields, "nodes_values")
    weights = _field(fields, f"{votes}_weights")
    if splits is None or weights is None:
        raise WeightsError("a tree without thresholds or votes")
    return Forest(
        np.where(leaf, 0, np.array(fields["nodes_featureids"], int)),
        np.where(leaf, inner[0], number), splits, way("true"), way("false"),
        np.zeros(len(leaf), bool) if missing is None or not len(missing)
        else np.array(missing, bool), places(*_first_nodes(trees, ids)),
        (places(fields[f"{votes}_treeids"], fields[f"{votes}_nodeids"]),
         np.array(fields[f"{votes}_ids"], int), weights),
    )  # fmt: skip


def _first_nodes(trees: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each tree's root: the node that the file names first."""
    numbers, first = np.unique(trees, return_index=True)
    return numbers, ids[first]
