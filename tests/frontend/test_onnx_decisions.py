"""A program that is made for one branch, one shape or one step is not taken for another."""

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

import luminal.onnx

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '
ON_A_NUMBER = """(float[N] x, int64 i) => (float[M] y) { four = Constant<value = int64 {4}>()
  e = Less(i, four)
  y = If (e) <then_branch = t () => (float[A] a) { a = Add(x, x) },
              else_branch = f () => (float[B] b) { b = Neg(x) }> }"""
ON_A_SHAPE = """(float[N] x, float[B, S] mask) => (float[M] y) {
  four = Constant<value = int64 {4}>() one = Constant<value = int64 {1}>()
  s = Shape(mask) n = Gather(s, one) e = Less(n, four)
  y = If (e) <then_branch = t () => (float[A] a) { a = Add(x, x) },
              else_branch = f () => (float[B] b) { b = Neg(x) }> }"""
IN_STEPS = """(float[N] x, int64 n) => (float[N] y) { c = Constant<value = bool {1}>()
  two = Constant<value = int64 {2}>() zero = Constant<value = int64 {0}>()
  y = Loop (n, c, x) <body = b (int64 i, bool ci, float[N] s) => (bool co, float[N] so) {
    m = Mod(i, two) e = Equal(m, zero)
    so = If (e) <then_branch = t () => (float[A] a) { a = Add(s, x) },
                 else_branch = f () => (float[B] d) { d = Mul(s, x) }>
    co = Identity(ci) }> }"""
A_SHAPE = """(float[N] x, int64 i) => (float[P, Q] y) { four = Constant<value = int64 {4}>()
  row = Constant<value = int64[2] {1, -1}>() column = Constant<value = int64[2] {-1, 1}>()
  e = Less(i, four) shape = Where(e, row, column) y = Reshape(x, shape) }"""


@pytest.mark.parametrize("options", [{}, {"dynamic": True}])
@pytest.mark.parametrize(
    "text, runs",
    [(ON_A_NUMBER, (2, 3, 9, 0)), (ON_A_SHAPE, (2, 3, 5, 4)), (IN_STEPS, (5, 3, 7)),
     (A_SHAPE, (2, 3, 5))],
    ids=["number", "shape", "steps", "reshape"],
)  # fmt: skip
def test_what_a_run_decides_holds_for_that_run_alone(text, runs, options):
    model = onnx.parser.parse_model(HEAD + text)
    ours, theirs = luminal.onnx.load(model, threads=1, **options), ReferenceEvaluator(model)
    x, (_, other) = np.array([1, 2], np.float32), model.graph.input
    for n in runs:
        ranks = other.type.tensor_type.shape.dim
        feeds = {"x": x, other.name: np.ones((2, n), np.float32) if ranks else np.array(n)}
        (want,), (got,) = theirs.run(None, feeds), ours.run(feeds)
        assert np.shape(got) == want.shape
        np.testing.assert_array_equal(got, want)
