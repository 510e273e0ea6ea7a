"""Tiny models that see, written as llama.cpp's converters do: a decoder's file and its mmproj."""

import gguf
import numpy as np
import torch
from tests.llm.gguf_files import add_fields, finish

WORDS = ["Ġwhat", "Ġis", "Ġthis", "user", "Ġ", "Ċ", *"abcdef"]
ARCHITECTURES = {"llava": "LLAMA", "idefics3": "LLAMA", "smolvlm": "LLAMA", "internvl": "QWEN2",
                 "gemma3": "GEMMA3", "qwen2": "QWEN2VL", "qwen2.5": "QWEN2VL",
                 "qwen3": "QWEN3VL"}  # fmt: skip
PROJECTORS = {"llava": "mlp", "smolvlm": "idefics3", "qwen2": "qwen2vl_merger",
              "qwen2.5": "qwen2.5vl_merger", "qwen3": "qwen3vl_merger"}  # fmt: skip


def write(kind, model, folder, special, template, sizes):
    """model.gguf and mmproj-model.gguf. special: tokens behind the words;
    sizes: metadata of the eyes besides."""
    write_words(kind, model, folder / "model.gguf", special, template)
    write_eyes(kind, model, folder / "mmproj-model.gguf", sizes)


def write_words(kind, model, file, special, template):
    config, which = model.config.get_text_config(), gguf.MODEL_ARCH[ARCHITECTURES[kind]]
    name = gguf.MODEL_ARCH_NAMES[which]
    writer = gguf.GGUFWriter(file, name)
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    rope = config.rope_parameters
    sections = rope.get("mrope_section")
    rope = rope.get("full_attention", rope)
    add_fields(writer, {f"{name}.{field}": value for field, value in {
        "block_count": config.num_hidden_layers, "embedding_length": config.hidden_size,
        "attention.head_count": heads, "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": size, "context_length": config.max_position_embeddings,
        "feed_forward_length": config.intermediate_size,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": float(rope["rope_theta"]),
        "rope.dimension_sections": None if sections is None else [*sections, 0],
        "attention.sliding_window": config.sliding_window if kind == "gemma3" else None,
        "attention.sliding_window_pattern": [
            each == "sliding_attention" for each in config.layer_types
        ] if kind == "gemma3" else None,
        "n_deepstack_layers": 2 if kind == "qwen3" else None,
    }.items()})  # fmt: skip
    add_tokens(writer, special, template)
    known = gguf.get_tensor_name_map(which, config.num_hidden_layers)
    for own, value in model.state_dict().items():
        stem = own.replace("model.language_model.", "model.").replace("model.text_model.", "model.")
        new = known.get_name(stem, try_suffixes=(".weight", ".bias"))
        if new is None or "vision" in own or "visual" in own:
            continue
        plain = value.numpy() + np.float32(kind == "gemma3" and "norm" in own)
        if which == gguf.MODEL_ARCH.LLAMA and (".attn_q." in new or ".attn_k." in new):
            count = heads if "attn_q" in new else config.num_key_value_heads
            plain = plain.reshape(count, 2, -1, plain.shape[1]).swapaxes(1, 2).reshape(plain.shape)
        writer.add_tensor(new, np.ascontiguousarray(plain))
    finish(writer)


def add_tokens(writer, special, template):
    """A vocabulary of words and special tokens, cut at spaces."""
    pieces = [*WORDS, *special]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list([*pieces, *(f"unused{n}" for n in range(24 - len(pieces)))])
    writer.add_token_types([1] * len(WORDS) + [3] * (24 - len(WORDS)))
    writer.add_token_merges([])
    writer.add_eos_token_id(15)
    writer.add_chat_template(template)


def write_eyes(kind, model, file, sizes):
    eye = model.config.vision_config
    layers = getattr(eye, "depth", None) or eye.num_hidden_layers
    writer = gguf.GGUFWriter(file, "clip")
    width = getattr(eye, "embed_dim", None) or eye.hidden_size
    side = lambda size: size[0] if isinstance(size, (list, tuple)) else size  # noqa: E731
    used = layers - 1 if kind == "llava" else layers  # its converter leaves the last one out
    add_fields(writer, {
        "clip.has_vision_encoder": True, "clip.projector_type": PROJECTORS.get(kind, kind),
        "clip.use_gelu": None if kind in ("llava", "qwen2", "qwen2.5") else True,
        "clip.use_silu": True if kind == "qwen2.5" else None,
        **{f"clip.vision.{field}": value for field, value in {
            "block_count": used, "embedding_length": width,
            "feed_forward_length": getattr(eye, "intermediate_size", 0),
            "attention.head_count": getattr(eye, "num_heads", 0) or eye.num_attention_heads,
            "attention.layer_norm_epsilon": getattr(eye, "layer_norm_eps", 1e-6),
            "patch_size": side(eye.patch_size), "image_size": side(getattr(eye, "image_size", 560)),
            "image_mean": sizes.pop("mean"), "image_std": sizes.pop("std"), **sizes,
        }.items()}})  # fmt: skip
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, max(layers, 4))
    deep = getattr(eye, "deepstack_visual_indexes", ())
    for own, value in model.state_dict().items():
        for new, part in eyes_of(kind, own, value, known, used, deep):
            writer.add_tensor(new, np.ascontiguousarray(part.numpy()))
    finish(writer)


def eyes_of(kind, own, value, known, used, deep):
    """(name, value) of a tensor in the file."""
    name = own.removeprefix("model.")
    if any(part in own for part in ("language_model", "text_model", "lm_head", ".head.")):
        return
    if kind.startswith("qwen"):
        yield from qwen_of(kind, name, value, known, deep)
        return
    if kind == "internvl":
        found = intern_of(own)
        if found:
            yield found, value
            return
        name = "model." + name
    elif kind in ("idefics3", "smolvlm"):
        name = own
    elif name.startswith("vision_tower.") and ".vision_model." not in name:
        name = name.replace("vision_tower.", "vision_tower.vision_model.", 1)
    name = name.replace("_weight", ".weight") if kind == "gemma3" else name
    new = known.get_name(name, try_suffixes=(".weight", ".bias"))
    if new is None and kind == "llava" and name.startswith("multi_modal_projector"):
        new = name.replace("multi_modal_projector.linear_", "mm.")
    if kind == "llava" and new is not None:
        new = new.replace("mm.1.", "mm.0.").replace("v.class_embd.weight", "v.class_embd")
        if f".blk.{used}." in new or "post_ln" in new:
            return
        if ".ffn_" in new:  # as its converter called them
            new = new.replace("ffn_up", "x").replace("ffn_down", "ffn_up").replace("x", "ffn_down")
    assert new is not None, own
    yield new, value + 1 if "soft_emb_norm" in new else value


def intern_of(own):
    ours = {"linear_1": "1", "linear_2": "3", "layer_norm": "0"}
    for theirs, number in ours.items():
        if f"multi_modal_projector.{theirs}." in own:
            return f"mm.model.mlp.{number}.{own.rsplit('.', 1)[1]}"
    if own.endswith("cls_token"):
        return "v.class_embd"
    if ".layernorm." in own:
        return f"v.post_ln.{own.rsplit('.', 1)[1]}"
    for part in "qk":
        if f".attention.{part}_norm." in own:
            return f"v.blk.{own.split('layer.')[1].split('.')[0]}.attn_{part}_norm.weight"
    if ".lambda_" in own:
        layer, number = own.split("layer.")[1].split(".")[0], own[-1]
        return f"v.blk.{layer}.ls{number}.weight"
    return "v.position_embd.weight" if own.endswith("position_embeddings") else None


def qwen_of(kind, name, value, known, deep):
    if name.endswith("patch_embed.proj.weight"):
        yield "v.patch_embd.weight", value[:, :, 0]
        yield "v.patch_embd.weight.1", value[:, :, 1]
    elif ".qkv." in name and kind != "qwen3":
        for letter, part in zip("qkv", torch.chunk(value, 3)):
            new = known.get_name(name.replace("qkv", letter), try_suffixes=(".weight", ".bias"))
            yield new, part
    elif "deepstack_merger_list." in name:
        _, _, number, part, ending = name.split(".")
        number = deep[int(number)]
        yield f"v.deepstack.{number}.{part.replace('linear_', '')}.{ending}", value
    elif "visual.merger." in name and kind == "qwen3":
        old = {"norm": "v.post_ln", "linear_fc1": "mm.0", "linear_fc2": "mm.2"}
        yield name.replace("visual.merger.", "").replace(*next(
            pair for pair in old.items() if f".{pair[0]}." in name)), value  # fmt: skip
    else:
        new = known.get_name(name, try_suffixes=(".weight", ".bias"))
        assert new is not None, name
        yield new, value
