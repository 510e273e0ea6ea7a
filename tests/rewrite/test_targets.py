"""The cost model takes its rates from the target, so that targets choose different kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan_nets import program, region_of

from luminal import Graph, nn, ops
from luminal.backend.cpu.instructions import DPBF16PS
from luminal.backend.cpu.target import named
from luminal.graph.dtype import bf16, f32, f64, i8, i32, u8
from luminal.graph.passes import program_of, run_passes
from luminal.kernel.target import Target
from luminal.models.llm.cache import ContiguousCache
from luminal.models.llm.config import DecoderConfig, Rope
from luminal.models.llm.decoder import Decoder
from luminal.models.llm.storage import Storage
from luminal.precision import default_passes
from luminal.rewrite.normalise import normalise
from luminal.rewrite.optimise import optimise
from luminal.rewrite.rates import CostModel
from luminal.rewrite.regions import regions

WIDE = Target("many", vector_bytes=4, registers=32, threads=4096)  # as a GPU


def of(name: str) -> CostModel:
    return CostModel.of(named(name, 2))


@pytest.mark.parametrize("net", ["rotated_scores", "bert_layer", "lstm_cell"])
def test_faster_targets_make_fewer_kernels(net):
    """What is stored for want of operations a second is computed again where there are more."""
    region = program(net, large=True).region
    models = (of("sse"), of("avx512"), CostModel.of(WIDE))
    sse, avx512, wide = (len(optimise(region, model).pieces) for model in models)
    assert sse >= avx512 >= wide and sse > wide


def test_speeds_of_products_are_those_of_instructions():
    fast = CostModel.of(replace(named("avx512", 2), instructions=(DPBF16PS,)))
    assert [of(n).speed(u8, i8, i32, False) for n in ("sse", "avx2", "vnni")] == [1.6, 1.6, 4.0]
    machines = of("avx2"), of("vnni"), fast
    assert [m.speed(bf16, bf16, f32, False) for m in machines] == [1.0, 1.0, 2.0]
    assert [of("vnni").speed(*3 * (t,), False) for t in (f32, f64)] == [1.0, 0.5]


@pytest.mark.parametrize(("narrow", "total", "gain"), [
    (("u8", "i8"), "i32", 2.0), (("f32", "f32"), "f32", 1.0),
])  # fmt: skip
def test_products_of_narrow_numbers_cost_less_where_an_instruction_has_them(narrow, total, gain):
    graph = Graph()
    x, y = (graph.tensor((1024, 1024), t).cast(total) for t in narrow)
    region = region_of(graph, [(x @ y).node]).region
    slow, fast = (optimise(region, of(name)).cost for name in ("avx512", "vnni"))
    assert gain <= slow / fast < 1.25 * gain


def test_registers_of_matrices_do_not_join():
    """A sum that a concatenation reads is walked at all places of the joined array."""
    graph = Graph()
    pairs = [[graph.tensor((6, 256, n), "bf16").cast(f32) for n in (256, 64)] for _ in range(2)]
    region = region_of(graph, [ops.cat([a @ b for a, b in pairs], 0).node]).region
    assert [len(optimise(region, of(name)).pieces) for name in ("avx512", "amx")] == [3, 3]


def rows_of_packed_weights(machine: str, usual: int) -> list[int]:
    """Kernels for a few rows by 4-bit weights, whose groups have a scale and a least value each."""
    graph = Graph()
    rows = graph.dim("rows", 1, 128, hint=usual)
    config = DecoderConfig(
        "llama", 512, 576, 1, 9, 3, 64, 1536, 2048, (None,), ("all",), {"all": Rope()}, tied=True
    )
    ids = graph.tensor((rows,), "i64")
    with nn.uninitialised():
        model = Decoder(graph, config, 1024, Storage("q4"))
        memory = ContiguousCache(graph, config, 1024, rows, 0)
        model.logits(model(ids, memory)).output()
    made = run_passes(program_of(graph), default_passes("quantised"))
    found = regions(normalise(graph.space, list(made.roots)))
    return [len(optimise(region, of(machine)).pieces) for region in found]


@pytest.mark.parametrize("usual", [8, 16])
def test_registers_of_matrices_do_not_unpack(usual):
    """Sums of groups are not stored so that an instruction might have products of theirs that it
    cannot take: its operands are numbers as they are, or rounded; its sums are whole."""
    amx, vnni = (rows_of_packed_weights(name, usual) for name in ("amx", "vnni"))
    assert amx == vnni


@pytest.mark.parametrize("machine", ["avx2", "avx512"])
def test_sums_over_groups_are_no_kernels_of_their_own(machine):
    """A tile of a product holds the sums of a group while they are scaled and added up, also where
    bytes take several instructions: they are not stored."""
    assert rows_of_packed_weights(machine, 16) == rows_of_packed_weights("vnni", 16)


def test_no_sums_are_made_of_rows_that_are_not_wanted():
    """A part of the rows lies inside of them in each run, which is checked: weights are read there
    without a condition, and are operands of the product."""
    graph = Graph()
    rows, wanted = graph.dim("rows", 1, 128, hint=128), graph.dim("wanted", 1, 128, hint=1)
    x, w = graph.tensor((rows, 1, 8, 32), "i8").cast("i32"), graph.parameter((512, 8, 32), "u8")
    groups = (x * w.cast("i32")).sum(-1).cast("f32") * graph.parameter((512, 8))
    part = groups.sum(-1).narrow(0, rows - wanted, wanted)
    plan = optimise(region_of(graph, [(part * part).node]).region, of("avx2"))
    assert len(plan.pieces) == 1 and "rows" not in plan.describe(), plan.describe()


@pytest.mark.parametrize(("channels", "kernels"), [(48, 1), (512, 2)])
def test_what_no_cache_holds_is_not_read_again_for_each_of_many_products(channels, kernels):
    """Weights of which each product multiplies another mixture: beyond the caches all mixtures are
    made at once, before."""
    graph = Graph()
    w, x = graph.tensor((channels, channels, 9)), graph.tensor((16, 64, channels))
    mixed = ops.matmul(graph.tensor((16, 9)), w.permute(2, 0, 1).reshape(9, channels * channels))
    y = ops.matmul(x, mixed.reshape(16, channels, channels))
    plan = optimise(region_of(graph, [y.node]).region, of("avx512"))
    assert len(plan.pieces) == kernels
