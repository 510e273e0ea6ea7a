"""Recording: sources, sizes, hash-consing, dtypes, errors that name the user's line."""

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import luminal
from luminal.backend import reference
from luminal.errors import DimError, DTypeError, InputError, LuminalError, ShapeError
from luminal.graph.dtype import ALL, bf16, dtype, f32, promote
from luminal.graph.graph import Graph
from luminal.graph.index import Index


def test_equal_nodes_are_one():
    graph = Graph()
    x, y = graph.tensor((3,)), graph.tensor((3,))
    assert x is not y
    assert x._binary("add", y) is x._binary("add", y)
    assert x._binary("add", y) is not y._binary("add", x)
    assert x.cast("f64") is not x.cast("f16")
    assert x.pad([1, 1], 0.0) is not x.pad([1, 1], -0.0)
    assert x.pad([1, 1], float("nan")) is x.pad([1, 1], float("nan"))


def test_literals_are_told_apart():
    graph = Graph()
    ones = [graph.literal(1, d) for d in ("i64", "i32", "f32", "bool")]
    assert len(set(ones)) == 4
    assert graph.literal(0.0) is not graph.literal(-0.0)
    assert graph.literal(float("nan")) is graph.literal(float("nan"))
    assert [graph.literal(v).dtype.name for v in (True, 1, 1.0)] == ["bool", "i64", "f32"]
    assert graph.literal(0.1, "f32").node.attribute == float(np.float32(0.1))
    assert graph.literal(0.1, "f64").node.attribute == 0.1
    assert graph.literal(1e300, "f16").node.attribute == float("inf")
    for value, kind in ((300, "u8"), (-1, "u32"), (1.5, "i32"), (float("nan"), "i8")):
        with pytest.raises(DTypeError):
            graph.literal(value, kind)


def test_sources():
    graph = Graph()
    x = graph.tensor(("s", 4), name="x")
    p = graph.parameter((4,), "bf16", name="w")
    c = graph.constant([[1, 2], [3, 4]])
    assert (graph.inputs, graph.parameters, graph.constants) == ([x], [p], [c])
    assert (c.dtype.name, c.shape, p.dtype) == ("i64", (2, 2), bf16)
    assert graph.constant(1.5).dtype is f32 and graph.constant(np.float64(1.5)).dtype.name == "f64"
    graph.rename(p, "layer.weight")
    assert p.node.attribute.name == "layer.weight"
    with pytest.raises(InputError):
        graph.rename(x.sqrt(), "no")


def test_constants_are_copied():
    array = np.ones(3, np.float32)
    graph = Graph()
    c = graph.constant(array)
    array[0] = 5
    assert reference.evaluate(graph, [c.node])[c.node][0] == 1


def test_sizes_and_bounds():
    graph = Graph()
    s = graph.dim("s", 1, 4096)
    assert s is Index.of("s") and graph.space.bounds("s") == (1, 4096)
    x = graph.tensor(("s + 1", "2*t", 3))
    assert x.shape == (s + 1, Index.of("t") * 2, 3)
    assert graph.space.bounds("t") == (1, 2**31 - 1)
    graph.dim("t", 2, 8)
    graph.dim("s", 1, 512)
    for wrong in (("s", 0, 9), ("t", 1, 8), ("u", 5, 4), ("i0", 1, 2), ("a b", 1, 2)):
        with pytest.raises(DimError):
            graph.dim(*wrong)
    with pytest.raises(ShapeError):
        graph.tensor((3, -1))


def test_bounds_and_hints_are_whole_numbers_of_any_kind():
    graph = Graph()
    graph.dim("s", np.int32(1), np.array(8), hint=np.int64(4))
    graph.dim("t", 1, 8, hint=np.array([6, 2, 6]))
    assert graph.space.bounds("s") == (1, 8) and graph.usual == {"s": (4,), "t": (2, 6)}
    assert all(type(size) is int for sizes in graph.usual.values() for size in sizes)
    for wrong in (("u", "1", 3), ("u", 1.5, 3), ("u", 1, 3.0), (None,), (3,)):
        with pytest.raises(DimError):
            graph.dim(*wrong)
    for hint in (1.5, "2", [1, 1.5], [None]):
        with pytest.raises(DimError, match="neither a number nor several"):
            graph.dim("u", 1, 8, hint=hint)


def test_a_size_that_may_be_negative_is_required():
    graph = Graph()
    x = graph.tensor(("s - 2",))
    assert [str(r.index) for r in graph.requirements] == ["s - 2"]
    x.output()
    reference.run(graph, {x: np.zeros(0, np.float32)}, {"s": 2})
    with pytest.raises(DimError, match=r"s = 1 \(given to run\(\)\), but input 'input0' has 2"):
        reference.run(graph, {x: np.zeros(0, np.float32)}, {"s": 1})


def test_set_converts_without_loss_only():
    graph = Graph()
    x = graph.tensor((3, 1))
    assert x.set([1, 2, 3]) is x
    np.testing.assert_array_equal(graph.values[x.node], np.float32([[1], [2], [3]]))
    x.set(np.float16([[1], [2], [3]]))
    with pytest.raises(DTypeError, match="float64"):
        x.set(np.zeros((3, 1)))
    with pytest.raises(InputError, match=r"\(3, 1\).*\(2, 2\)"):
        x.set(np.zeros((2, 2), np.float32))
    with pytest.raises(InputError):
        x.set("text")
    with pytest.raises(InputError):
        x.set([[1], [2, 3]])
    u = graph.tensor((2,), "u8")
    u.set([0, 255])
    for wrong in ([0, 256], [0.5, 1.0], [-1, 0]):
        with pytest.raises(DTypeError):
            u.set(wrong)
    with pytest.raises(InputError):
        graph.constant([1.0]).set([2.0])


def test_outputs_and_states():
    graph = Graph()
    x, cache = graph.tensor((2,)), graph.tensor((2,))
    y = x._binary("add", cache)
    assert y.output("y") is y and y.output() is y
    assert graph.outputs == [y] and graph.output_names[y.node] == "y"
    graph.donate(cache, y)
    result = reference.run(graph, {x: np.float32([1, 2]), cache: np.float32([3, 4])})
    np.testing.assert_array_equal(result[y.node], [4, 6])
    with pytest.raises(InputError):
        graph.donate(cache, y)
    with pytest.raises(InputError):
        graph.donate(y, x)
    with pytest.raises(ShapeError):
        graph.donate(x, y[:1])


def test_equal_sizes_that_are_said_otherwise_are_equal():
    graph = Graph()
    graph.dim("t", 1, 64)
    x = graph.tensor(("t",))
    t = x.shape[0]
    part = x.narrow(0, t * 2 // 8, t * 3 // 6 - t * 2 // 8)
    for same in (part[:], part.reshape(1, -1)[0], part[::-1]):
        assert (part + same).shape == (t // 2 - t // 4,)


@pytest.mark.parametrize(
    "wrong, kind, words",
    [
        (lambda x, i: x._binary("add", x.T), ShapeError, ["add", "f32(2, 3)", "f32(3, 2)"]),
        (lambda x, i: x._binary("add", x.cast("f64")), DTypeError, ["add", "f32", "f64"]),
        (lambda x, i: i.graph.apply("sqrt", [i]), DTypeError, ["sqrt", "float"]),
        (lambda x, i: x._binary("and", x), DTypeError, ["and", "integer"]),
        (lambda x, i: x.graph.apply("select", [x, x, x]), DTypeError, ["bool"]),
        (lambda x, i: x.graph.apply("add", [x]), ShapeError, ["2 operands"]),
        (lambda x, i: x._reduce("sum", [2]), ShapeError, ["dimension 2"]),
        (lambda x, i: x._gather(x, 0), DTypeError, ["indices"]),
        (lambda x, i: x._gather(i[:, :2], 0), ShapeError, ["gather"]),
        (lambda x, i: x._scatter(i, i, 0), DTypeError, ["values"]),
        (lambda x, i: x._scatter(i, x, 0, "mean"), ShapeError, ["mode"]),
        (lambda x, i: x.graph.apply("cube", [x]), ShapeError, ["cube"]),
        (lambda x, i: x.cast("f128"), DTypeError, ["f128"]),
        (lambda x, i: Graph().tensor((2, 3))._binary("add", x), InputError, ["graphs"]),
    ],
)
def test_errors_say_what_and_where(wrong, kind, words):
    graph = Graph()
    x, i = graph.tensor((2, 3)), graph.tensor((2, 3), "i32")
    with pytest.raises(kind) as caught:
        wrong(x, i)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert isinstance(caught.value, LuminalError)


def test_locations_and_display():
    graph = Graph()
    x = graph.tensor(("s", 64), name="x")
    line = inspect.currentframe().f_lineno + 1
    y = x._binary("add", x.flip(1))
    y._reduce("sum", [1]).output("total")
    assert graph.locations[y.node] == (__file__, line)
    lines = graph.display().splitlines()
    assert lines[0].startswith("%0 = input(input, 'x') : f32[s, 64]")
    assert "view(%0, [i0, -i1 + 63]) : f32[s, 64]" in lines[1]
    assert "add(%0, %1)" in lines[2] and lines[2].endswith(f"# test_graph.py:{line}")
    assert "sum(%2, dims=(1,)) : f32[s] -> total" in lines[3]


def test_tensors_are_keys_and_have_no_truth():
    graph = Graph()
    x, y = graph.tensor(()), graph.tensor(())
    assert {x: 1, y: 2}[y] == 2
    with pytest.raises(TypeError, match="where"):
        bool(x)
    assert len(graph.tensor((3, 2))) == 3 and len(list(graph.tensor((3, 2)))) == 3
    with pytest.raises(DimError):
        len(graph.tensor(("s",)))


def test_iota_takes_views_in():
    graph = Graph()
    i = graph.iota((4,), "2*i0 + 1")
    j = i.unsqueeze(0).expand(3, 4)
    assert j.node.op == "iota" and j is graph.iota((3, 4), "2*i1 + 1")
    np.testing.assert_array_equal(reference.evaluate(graph, [j.node])[j.node], [[1, 3, 5, 7]] * 3)
    with pytest.raises(DimError):
        graph.iota((4,), "i1")


@given(st.sampled_from(ALL), st.sampled_from(ALL))
def test_promotion_is_torch_s(a, b):
    torch = pytest.importorskip("torch")
    names = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16",
             "bool": "bool"}  # fmt: skip
    kinds = [
        getattr(torch, names.get(d.name, d.name.replace("u", "uint").replace("i", "int")
                                 if d.name[0] == "i" else d.name.replace("u", "uint")))
        for d in (a, b)
    ]  # fmt: skip
    if any(d.kind == "uint" and d.bytes > 1 for d in (a, b)):
        assert promote(a, b) is promote(b, a)  # torch has no promotion for these
    else:
        assert dtype(str(torch.promote_types(*kinds)).split(".")[1]) is promote(a, b)


def test_an_array_beside_a_tensor_is_a_constant() -> None:
    cx = luminal.Graph()
    x = cx.tensor((2,), dtype="i32").set([1, 2])
    array = np.array([3, 4], np.int32)
    results = [(array * x).output(), (x - array).output(), (np.int64(2) + x).output()]
    rt = cx.compile(device="reference")
    rt.run()
    for result, expected in zip(results, ([3, 8], [-2, -2], [3, 4])):
        assert str(result.dtype) == "i32" and rt[result].tolist() == expected


def test_what_is_no_operand_is_refused() -> None:
    x = luminal.Graph().tensor((2,))
    with pytest.raises(InputError, match="or an array"):
        x + [1.0, 2.0]
    with pytest.raises(TypeError, match="has no value while the graph is recorded"):
        np.asarray(x)


def test_a_declared_size_is_asked_for_by_its_name() -> None:
    cx = luminal.Graph()
    s = cx.dim("s", 2, 8)
    assert cx.dim("s") is s and cx.space.sizes["s"] == (2, 8)
    assert cx.dim("s", high=4) is s and cx.space.sizes["s"] == (2, 4)


def test_a_name_of_two_inputs_is_refused() -> None:
    cx = luminal.Graph()
    a, b = cx.tensor((2,), name="x"), cx.tensor((2,), name="x")
    difference = (a - b).output()
    rt = cx.compile(device="reference")
    with pytest.raises(InputError, match="several inputs are called 'x'"):
        rt["x"] = np.ones(2, np.float32)
    rt[a], rt[b] = np.ones(2, np.float32), np.zeros(2, np.float32)
    rt.run()
    assert rt[difference].tolist() == [1.0, 1.0]
