"""Mixtures of experts of com.microsoft against onnxruntime, and against what the operators say."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from onnx import helper
from onnx_models import agree, info, load, model, numbers, reference

import luminal

TOKENS, WIDTH, HIDDEN, EXPERTS = 7, 32, 48, 4
SCORES = numbers(TOKENS, EXPERTS, seed=1)
CLAMPED = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 3.0}


def experts(operator, inputs, held, **attributes):
    made = helper.make_node(operator, inputs.split(" "), ["y"], domain="com.microsoft",
                            **{"k": 2} | attributes)  # fmt: skip
    infos = [info("x", ["tokens", WIDTH]), info("r", ["tokens", EXPERTS])]
    return model([made], infos, ["y"], held, domains=["com.microsoft"])


def weights(both=1):
    rows = {"w1": (both * HIDDEN, WIDTH), "w2": (WIDTH, HIDDEN), "w3": (HIDDEN, WIDTH)}
    held = {name: numbers(EXPERTS, *shape, seed=n) for n, (name, shape) in enumerate(rows.items())}
    return held | {f"b{name[1]}": numbers(EXPERTS, w[0], seed=9) for name, w in rows.items()}


FEEDS = {"x": numbers(TOKENS, WIDTH), "r": SCORES}


@pytest.mark.parametrize("attributes", [
    {"activation_type": "relu", "k": 1}, {"activation_type": "gelu"},
    {"activation_type": "silu", "normalize_routing_weights": 1},
    {"activation_type": "swiglu", "swiglu_fusion": 1, **CLAMPED},
], ids=lambda given: given["activation_type"])  # fmt: skip
def test_the_chosen_experts_are_mixed(attributes):
    held = weights(2 if "swiglu_fusion" in attributes else 1)
    held = {name: value for name, value in held.items() if name[1] != "3"}
    agree(experts("MoE", "x r w1 b1 w2 b2", held, **attributes), FEEDS, 1e-4)


@pytest.mark.parametrize("attributes", [
    {"activation_type": "silu"}, {"activation_type": "swiglu", **CLAMPED},
    {"activation_type": "swiglu", "swiglu_fusion": 2},
    {"activation_type": "geglu", "swiglu_fusion": 1},
], ids=lambda given: f"{given['activation_type']} {given.get('swiglu_fusion', 0)}")  # fmt: skip
def test_gates_that_onnxruntime_has_for_gpus_only(attributes):
    fusion = attributes.get("swiglu_fusion", 0)
    held = {k: torch.from_numpy(v) for k, v in weights(2 if fusion else 1).items()}
    x, shares = torch.from_numpy(FEEDS["x"]), torch.softmax(torch.from_numpy(SCORES), -1)
    first = torch.einsum("tw,ehw->teh", x, held["w1"]) + held["b1"]
    gate, up = first[..., ::2], first[..., 1::2]
    if fusion == 0:
        gate, up = first, torch.einsum("tw,ehw->teh", x, held["w3"]) + held["b3"]
    if fusion == 2:
        gate, up = first.chunk(2, -1)
    hidden = F.gelu(gate, approximate="tanh") * up
    if attributes["activation_type"] != "geglu":
        limit = attributes.get("swiglu_limit", float("inf"))
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        opened = torch.sigmoid(gate * attributes.get("activation_alpha", 1.0))
        hidden = gate * opened * (up + attributes.get("activation_beta", 0.0))
    each = torch.einsum("teh,ewh->tew", hidden, held["w2"]) + held["b2"]
    kept = torch.zeros_like(shares).scatter(1, shares.topk(2)[1], 1)
    wanted = ((kept * shares).unsqueeze(-1) * each).sum(1).numpy()
    inputs = "x r w1 b1 w2 b2" + ("" if fusion else " w3 b3")
    named = {name: held[name].numpy() for name in inputs.split()[2:]}
    (found,) = load(experts("MoE", inputs, named, **attributes)).run(FEEDS)
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-3)


def packed(bits, block, zero):
    rng = np.random.default_rng(bits + block)
    held = {"b1": numbers(EXPERTS, 2 * HIDDEN), "b2": numbers(EXPERTS, WIDTH)}
    for n, (rows, width) in {1: (2 * HIDDEN, WIDTH), 2: (WIDTH, HIDDEN)}.items():
        blocks = [width // block] if block else []
        last = (rows, -(-blocks[0] * bits // 8)) if block else (-(-rows * bits // 8),)
        held[f"w{n}"] = rng.integers(0, 256, (EXPERTS, rows, width * bits // 8), np.uint8)
        held[f"s{n}"] = numbers(EXPERTS, rows, *blocks, seed=n, low=0.01, high=0.05)
        if zero:
            held[f"z{n}"] = rng.integers(0, 256, (EXPERTS, *last), np.uint8)
    return held


@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_of_few_bits(bits, block):
    """Of blocks of 8 bits, ONNX Runtime rounds the tokens to 8 bits, too; ours are not rounded."""
    given = {"activation_type": "swiglu", "swiglu_fusion": 1, "expert_weight_bits": bits, **CLAMPED}
    given |= {"block_size": block} if block else {}
    for zero in (False, True):
        inputs = "x r w1 s1 b1 w2 s2 b2" + ("    z1 z2" if zero else "")
        proto = experts("QMoE", inputs, packed(bits, block, zero), **given)
        (found,), (wanted,) = load(proto).run(FEEDS), reference(proto, FEEDS)
        most = np.abs(wanted).max() * (3e-2 if bits == 8 and block else 1e-6)
        np.testing.assert_allclose(found, wanted, 0, most)


def test_shares_that_are_given_apart():
    held = packed(4, 0, False) | {"apart": numbers(TOKENS, EXPERTS, seed=5, low=0, high=1)}
    proto = experts("QMoE", "x r w1 s1 b1 w2 s2 b2       apart", held, activation_type="swiglu",
                    swiglu_fusion=1)  # fmt: skip
    agree(proto, FEEDS, 1e-4)


def test_a_router_of_groups():
    made = helper.make_node("MoEGroupRouter", ["r", "c"], ["y"], domain="com.microsoft", top_k=3,
                            n_group=4, topk_group=2, group_topk=2)  # fmt: skip
    proto = model([made], [info("r", [TOKENS, 16])], ["y"], {"c": numbers(16, low=-0.2, high=0.2)},
                  domains=["com.microsoft"])  # fmt: skip
    agree(proto, {"r": numbers(TOKENS, 16, seed=1)}, 1e-4)


def test_weights_packed_for_a_device_are_refused():
    proto = experts("QMoE", "x r w1 s1 b1 w2 s2 b2", packed(4, 0, False), weights_prepacked=1)
    with pytest.raises(luminal.Unsupported, match="export it with quant_type='int'"):
        load(proto).run(FEEDS)
