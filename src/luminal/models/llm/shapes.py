"""The tensors that a config asks for, so that a checkpoint is refused before a program is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...errors import WeightsError
from ...nn.module import check_names
from .config import DecoderConfig

Shape = tuple[int, ...]
Named = Iterator[tuple[str, Shape]]


def check_shapes(config: DecoderConfig, given: Mapping[str, Shape], where: str) -> None:
    """Raises WeightsError where tensors are missing, left over or of another shape."""
    wanted = shapes(config)
    try:
        check_names(set(wanted), set(given))
    except WeightsError as error:
        raise WeightsError(f"{where}: {error}") from None
    for name, shape in wanted.items():
        if given[name] != shape:
            raise WeightsError(f"{where}: {name}: expected shape {shape}, got {given[name]}")


def shapes(config: DecoderConfig) -> dict[str, Shape]:
    """Of every parameter of `Decoder` under its name, before it is quantised."""
    table = (config.vocabulary, config.width)
    found: dict[str, Shape] = {"model.embed_tokens.weight": table}
    if config.learned_positions:
        found["model.embed_positions.weight"] = (config.context, config.width)
    if not config.tied:
        found["lm_head.weight"] = table
    found.update(_norm("model.norm", config, config.width))
    for layer in range(config.layers):
        found.update(_layer(f"model.layers.{layer}", config, layer))
    return found


def _layer(at: str, config: DecoderConfig, layer: int) -> Named:
    width, head = config.width, config.head_dim
    inner, kv = config.heads * head, config.kv_heads * head
    more = ("attention_output_norm", "mlp_output_norm") if config.sandwich else ()
    for name in ("input_layernorm", "post_attention_layernorm", *more):
        yield from _norm(f"{at}.{name}", config, width)
    for name, rows in (("q_proj", inner), ("k_proj", kv), ("v_proj", kv)):
        yield from _linear(f"{at}.self_attn.{name}", rows, width, config.attention_bias)
    yield from _linear(f"{at}.self_attn.o_proj", width, inner, config.output_bias)
    if config.qk_norm:
        for name in ("q_norm", "k_norm"):
            yield from _norm(f"{at}.self_attn.{name}", config, head)
    yield from _mlp(f"{at}.mlp", config, layer)


def _mlp(at: str, config: DecoderConfig, layer: int) -> Named:
    width, hidden, experts = config.width, config.hidden, config.experts
    if experts is not None and config.has_experts(layer):
        yield f"{at}.gate.weight", (experts.count, width)
        for name in ("gate_proj", "up_proj"):
            yield f"{at}.{name}.weight", (experts.count, experts.hidden, width)
        yield f"{at}.down_proj.weight", (experts.count, width, experts.hidden)
        return
    for name in ("gate_proj", "up_proj") if config.gated else ("up_proj",):
        yield from _linear(f"{at}.{name}", hidden, width, config.mlp_bias)
    yield from _linear(f"{at}.down_proj", width, hidden, config.mlp_bias)


def _linear(at: str, rows: int, columns: int, bias: bool) -> Named:
    yield f"{at}.weight", (rows, columns)
    if bias:
        yield f"{at}.bias", (rows,)


def _norm(at: str, config: DecoderConfig, width: int) -> Named:
    yield f"{at}.weight", (width,)
    if config.norm == "layer":
        yield f"{at}.bias", (width,)
