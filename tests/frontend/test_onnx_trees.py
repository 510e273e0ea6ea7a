"""Ensembles of decision trees beside onnxruntime's."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import agree, info, load, numbers

from luminal.errors import WeightsError

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
ML = "ai.onnx.ml"


def made(operator, outputs, version, kind=TensorProto.FLOAT, **attributes):
    node = helper.make_node(operator, ["x"], [o.name for o in outputs], domain=ML, **attributes)
    graph = helper.make_graph([node], "trees", [info("x", ("n", 4), kind)], outputs)
    versions = [helper.make_opsetid("", 21), helper.make_opsetid(ML, version)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def grown(seed, trees=3, depth=3, modes=MODES[:1], votes="target", classes=(0, 1), low=-2.0):
    """Random trees whose leaves stand among the nodes."""
    g = np.random.default_rng(seed)
    names = "treeids nodeids featureids values modes truenodeids falsenodeids".split()
    rows, cast = [], []

    def node(tree, count, level):
        number = count[0]
        count[0] += 1
        at = len(rows)
        rows.append(None)
        if level == depth or (level and g.random() < 0.2):
            rows[at] = (tree, number, 0, 0.0, "LEAF", 0, 0)
            cast.extend((tree, number, int(c), float(g.uniform(low, 2))) for c in classes)
            return number
        yes, no = node(tree, count, level + 1), node(tree, count, level + 1)
        split, mode = float(g.integers(-2, 3)), str(g.choice(modes))
        rows[at] = (tree, number, int(g.integers(4)), split, mode, yes, no)
        return number

    for tree in range(trees):
        node(tree, [0], 0)
    fields = {f"nodes_{name}": list(column) for name, column in zip(names, zip(*rows))}
    for name, column in zip("treeids nodeids ids weights".split(), zip(*cast)):
        fields[f"{votes}_{name}"] = list(column)
    fields["nodes_missing_value_tracks_true"] = [int(g.integers(2)) for _ in rows]
    return fields


def features(rows=40):
    x = np.round(numbers(rows, 4, low=-3, high=3))  # some are thresholds
    x[3, 1] = x[4, 2] = np.nan
    return x


@pytest.mark.parametrize("aggregate, transform", [
    ("SUM", "NONE"), ("AVERAGE", "SOFTMAX"), ("MIN", "LOGISTIC"), ("MAX", "SOFTMAX_ZERO"),
])  # fmt: skip
def test_regressor(aggregate, transform):
    fields = grown(1, modes=MODES if aggregate == "SUM" else MODES[:1])
    proto = made("TreeEnsembleRegressor", [info("y", ("n", 3))], 3, n_targets=3,
                 base_values=[0.5, 0.25, 0.0], aggregate_function=aggregate,
                 post_transform=transform, **fields)  # fmt: skip
    agree(proto, {"x": features()})


def test_regressor_of_doubles():
    fields = grown(2, classes=(0,))
    for name in ("nodes_values", "target_weights"):
        held = np.array(fields.pop(name)) + 1e-12
        fields[f"{name}_as_tensor"] = onnx.numpy_helper.from_array(held, name)
    proto = made("TreeEnsembleRegressor", [info("y", ("n", 1))], 3, TensorProto.DOUBLE,
                 n_targets=1, **fields)  # fmt: skip
    agree(proto, {"x": features().astype(np.float64)})


@pytest.mark.parametrize("classes, labels, low, transform", [
    ((0, 1, 2), [5, 7, 9], -2.0, "SOFTMAX"),
    ((0, 1, 2), [5, 7, 9], -2.0, "NONE"),
    ((0,), [3, 8], 0.0, "NONE"),
    ((0,), [3, 8], -2.0, "LOGISTIC"),
    ((0,), [3, 8], -2.0, "NONE"),
])  # fmt: skip
def test_classifier(classes, labels, low, transform):
    fields = grown(3, votes="class", classes=classes, low=low)
    outs = [info("label", ("n",), TensorProto.INT64), info("y", ("n", len(labels)))]
    proto = made("TreeEnsembleClassifier", outs, 3, classlabels_int64s=labels,
                 post_transform=transform, **fields)  # fmt: skip
    agree(proto, {"x": features()})


def ensemble(**changed):
    def held(values, kind=TensorProto.FLOAT):
        return helper.make_tensor("t", kind, (len(values),), values)

    fields = dict(
        n_targets=2, aggregate_function=1, post_transform=0, tree_roots=[0, 3],
        nodes_modes=held([0, 4, 6, 6], TensorProto.UINT8), nodes_featureids=[0, 1, 2, 0],
        nodes_splits=held([1.0, 2.0, 0.0, 0.0]), membership_values=held([1, 2, np.nan, -3, np.nan]),
        nodes_truenodeids=[1, 0, 2, 5], nodes_trueleafs=[0, 1, 1, 1],
        nodes_falsenodeids=[2, 1, 3, 4], nodes_falseleafs=[0, 1, 1, 1],
        leaf_targetids=[0, 1, 0, 1, 0, 1], leaf_weights=held([1.5, 2.5, -4, 8, 16, 32]),
    )  # fmt: skip
    return made("TreeEnsemble", [info("y", ("n", 2))], 5, **(fields | changed))


def test_sets_and_leaves_apart():
    x = features()
    got = load(ensemble()).run({"x": x})[0]
    for (a, b, c, _), row in zip(x, got):
        first = 1 if a <= 1 else 2
        leaf = (0 if b == 2 else 1) if first == 1 else (2 if c in (1, 2) else 3)
        expected = np.zeros(2, np.float32)
        for each in (leaf, 5 if a == -3 else 4):
            expected[each % 2] += (1.5, 2.5, -4, 8, 16, 32)[each]
        np.testing.assert_array_equal(row, expected)


def test_damaged_trees_are_refused():
    x = {"x": features()}
    with pytest.raises(WeightsError, match="circle"):
        load(ensemble(nodes_truenodeids=[0, 0, 2, 5])).run(x)
    with pytest.raises(WeightsError, match="outside"):
        load(ensemble(nodes_truenodeids=[1, 0, 9, 5])).run(x)
