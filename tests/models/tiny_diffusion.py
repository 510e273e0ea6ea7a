"""Tiny pipelines of diffusers with random weights, in folders."""

import json
import logging

import torch

logging.disable(logging.WARNING)  # transformers tells that torchvision is missing

import diffusers  # noqa: E402
import transformers  # noqa: E402

WORDS = ["a", "r", "e", "d", "l", "i", "g", "h", "t"]
NOISE = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
SIZE = 16  # pixels of a side


def clip_tokenizer(folder):
    """vocab.json and merges.txt of a few letters."""
    folder.mkdir(parents=True)
    ends = ["<|startoftext|>", "<|endoftext|>"]
    words = [*WORDS, *(w + "</w>" for w in WORDS), "re", "red</w>", "li", *ends]
    (folder / "vocab.json").write_text(json.dumps({word: n for n, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\nr e\nre d</w>\nl i\n")
    return transformers.CLIPTokenizer.from_pretrained(folder, model_max_length=12)


def clip_text(width, projected=False, last=22):
    config = transformers.CLIPTextConfig(
        vocab_size=23, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=12, projection_dim=width, eos_token_id=last,
        bos_token_id=last - 1, hidden_act="gelu" if projected else "quick_gelu",
    )  # fmt: skip
    kind = transformers.CLIPTextModelWithProjection if projected else transformers.CLIPTextModel
    return lively(kind(config))


def lively(module):
    """Weights of unit gain, and biases: a fresh model hardly looks at its input."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, value in module.named_parameters():
            if value.ndim > 1:
                gain = (value[0].numel()) ** -0.5
                value.copy_(torch.randn(value.shape, generator=generator) * gain)
            elif name.endswith("bias"):
                value.copy_(torch.randn(value.shape, generator=generator) * 0.1)
    return module.eval()


def vae(channels=4, **more):
    return lively(diffusers.AutoencoderKL(
        block_out_channels=(8, 8), norm_num_groups=4, latent_channels=channels,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        sample_size=SIZE, **more,
    ))  # fmt: skip


def unet(context=16, **more):
    return lively(diffusers.UNet2DConditionModel(
        sample_size=SIZE // 2, block_out_channels=(8, 8), layers_per_block=1, norm_num_groups=4,
        cross_attention_dim=context, **{
            "attention_head_dim": 2, "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
            "up_block_types": ("UpBlock2D", "UpBlock2D"), **more,
        },
    ))  # fmt: skip


def stable_diffusion(folder):
    return diffusers.StableDiffusionPipeline(
        vae=vae(), text_encoder=clip_text(16), tokenizer=clip_tokenizer(folder / "words"),
        unet=unet(), safety_checker=None, feature_extractor=None, image_encoder=None,
        scheduler=diffusers.PNDMScheduler(skip_prk_steps=True, steps_offset=1, **NOISE),
        requires_safety_checker=False,
    )  # fmt: skip


def smallest(folder):
    """Stable Diffusion of one resolution."""
    one = {"block_out_channels": (8,), "norm_num_groups": 4, "layers_per_block": 1}
    return diffusers.StableDiffusionPipeline(
        vae=lively(diffusers.AutoencoderKL(**one)), text_encoder=clip_text(16),
        tokenizer=clip_tokenizer(folder / "words"), safety_checker=None, feature_extractor=None,
        image_encoder=None, scheduler=diffusers.DDIMScheduler(
            clip_sample=False, steps_offset=1, **NOISE
        ),
        requires_safety_checker=False, unet=lively(diffusers.UNet2DConditionModel(
            **one, sample_size=8, cross_attention_dim=16, attention_head_dim=2,
            down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",),
        )),
    )  # fmt: skip


def stable_diffusion_xl(folder):
    net = unet(
        context=32, addition_embed_type="text_time", addition_time_embed_dim=4,
        projection_class_embeddings_input_dim=16 + 6 * 4, use_linear_projection=True,
        transformer_layers_per_block=(1, 2), attention_head_dim=(2, 4),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    return diffusers.StableDiffusionXLPipeline(
        vae=vae(force_upcast=False), text_encoder=clip_text(16),
        text_encoder_2=clip_text(16, projected=True), unet=net,
        tokenizer=clip_tokenizer(folder / "words"), tokenizer_2=clip_tokenizer(folder / "words2"),
        scheduler=diffusers.EulerDiscreteScheduler(
            timestep_spacing="leading", steps_offset=1, **NOISE
        ),
    )  # fmt: skip


def t5_tokenizer(folder):
    """tokenizer.json of the same letters."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder.mkdir(parents=True)
    names = ["<pad>", "</s>", "<unk>", *WORDS]
    raw = Tokenizer(models.WordLevel({w: n for n, w in enumerate(names)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    raw.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


def t5(width=16):
    return lively(transformers.T5EncoderModel(transformers.T5Config(
        vocab_size=12, d_model=width, d_kv=8, d_ff=24, num_layers=2, num_heads=2,
        relative_attention_num_buckets=8, feed_forward_proj="gated-gelu",
    )))  # fmt: skip


def stable_diffusion_3(folder):
    net = lively(diffusers.SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8,
        num_attention_heads=2, joint_attention_dim=32, caption_projection_dim=16,
        pooled_projection_dim=32, out_channels=4, pos_embed_max_size=6, qk_norm="rms_norm",
        dual_attention_layers=(0,),
    ))  # fmt: skip
    return diffusers.StableDiffusion3Pipeline(
        transformer=net, scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=vae(shift_factor=0.1, use_quant_conv=False, use_post_quant_conv=False),
        text_encoder=clip_text(16, projected=True), text_encoder_2=clip_text(16, projected=True),
        tokenizer=clip_tokenizer(folder / "words"), tokenizer_2=clip_tokenizer(folder / "words2"),
        text_encoder_3=t5(32), tokenizer_3=t5_tokenizer(folder / "words3"),
    )  # fmt: skip


def flux(folder):
    net = lively(diffusers.FluxTransformer2DModel(
        patch_size=1, in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=8,
        num_attention_heads=2, joint_attention_dim=16, pooled_projection_dim=16,
        guidance_embeds=True, axes_dims_rope=(2, 2, 4),
    ))  # fmt: skip
    return diffusers.FluxPipeline(
        transformer=net, vae=vae(shift_factor=0.1, use_quant_conv=False, use_post_quant_conv=False),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        text_encoder=clip_text(16), tokenizer=clip_tokenizer(folder / "words"),
        text_encoder_2=t5(16), tokenizer_2=t5_tokenizer(folder / "words2"),
    )  # fmt: skip
