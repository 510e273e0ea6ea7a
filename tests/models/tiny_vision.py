"""Tiny models of pictures with random weights, as transformers writes them, in folders."""

import json

import numpy as np
import torch
import transformers
from PIL import Image

from .tiny_diffusion import lively


def saved(model, folder, **processor):
    """The model with lively weights and statistics, written to a folder."""
    generator = torch.Generator().manual_seed(2)
    lively(model)
    with torch.no_grad():
        for name, value in [*model.named_buffers(), *model.named_parameters()]:
            if name.endswith("running_mean"):
                value.copy_(torch.randn(value.shape, generator=generator) * 0.1)
            elif name.endswith("running_var"):
                value.copy_(torch.rand(value.shape, generator=generator) * 0.1 + 0.05)
            elif "layer_scale" in name or "lambda" in name:
                value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
    model.save_pretrained(folder)
    if processor:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return model


def picture(size=(50, 37), seed=0):
    """A smooth one, so that resizing leaves something to see."""
    small = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


def detr():
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[16, 16, 24, 32], depths=[1, 1, 2, 1],
        layer_type="bottleneck", out_features=["stage4"],
    )  # fmt: skip
    return transformers.DetrForObjectDetection(transformers.DetrConfig(
        backbone_config=backbone, use_timm_backbone=False, d_model=16, encoder_layers=1,
        decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=4,
        encoder_ffn_dim=24, decoder_ffn_dim=20, num_queries=7, num_labels=3,
    ))  # fmt: skip


def rt_detr(version="", layer="basic", **more):
    backbone = transformers.RTDetrResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1], layer_type=layer,
        out_indices=[2, 3, 4],
    )  # fmt: skip
    config = getattr(transformers, f"RTDetr{version}Config")(
        backbone_config=backbone, encoder_hidden_dim=16, encoder_in_channels=[16, 24, 32],
        encoder_ffn_dim=24, encoder_attention_heads=2, d_model=16, num_queries=6,
        decoder_in_channels=[16] * 3, decoder_ffn_dim=24, decoder_layers=2,
        decoder_attention_heads=2, num_labels=3, **more,
    )  # fmt: skip
    return getattr(transformers, f"RTDetr{version}ForObjectDetection")(config)


def sam():
    vision = transformers.SamVisionConfig(
        hidden_size=16, output_channels=16, num_hidden_layers=2, num_attention_heads=2,
        image_size=64, patch_size=8, window_size=3, global_attn_indexes=[1], mlp_dim=24,
        num_pos_feats=8,
    )  # fmt: skip
    prompts = transformers.SamPromptEncoderConfig(hidden_size=16, image_size=64, patch_size=8)
    decoder = transformers.SamMaskDecoderConfig(
        hidden_size=16, mlp_dim=24, num_attention_heads=2, iou_head_hidden_dim=20
    )
    return transformers.SamModel(transformers.SamConfig(
        vision_config=vision.to_dict(), prompt_encoder_config=prompts.to_dict(),
        mask_decoder_config=decoder.to_dict(),
    ))  # fmt: skip


def sam2():
    backbone = transformers.Sam2HieraDetConfig(
        hidden_size=8, num_attention_heads=1, image_size=[64, 64], blocks_per_stage=[1, 2, 2, 1],
        window_positional_embedding_background_size=[3, 3], embed_dim_per_stage=[8, 16, 24, 32],
        num_attention_heads_per_stage=[1, 2, 2, 4], window_size_per_stage=[4, 2, 3, 2],
        global_attention_blocks=[4],
    )  # fmt: skip
    vision = transformers.Sam2VisionConfig(
        backbone_config=backbone, backbone_channel_list=[32, 24, 16, 8], fpn_hidden_size=16,
        backbone_feature_sizes=[[16, 16], [8, 8], [4, 4]],
    )  # fmt: skip
    prompts = transformers.Sam2PromptEncoderConfig(hidden_size=16, image_size=64, patch_size=16)
    decoder = transformers.Sam2MaskDecoderConfig(
        hidden_size=16, mlp_dim=24, num_attention_heads=2, iou_head_hidden_dim=20
    )
    return transformers.Sam2Model(transformers.Sam2Config(
        vision_config=vision, prompt_encoder_config=prompts, mask_decoder_config=decoder
    ))  # fmt: skip


def swin(version="", **more):
    config = getattr(transformers, f"Swin{version}Config")(**{
        "image_size": 36, "patch_size": 3, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4],
        "window_size": 5, "num_labels": 5, **more,
    })  # fmt: skip
    return getattr(transformers, f"Swin{version}ForImageClassification")(config)


def efficientnet():
    return transformers.EfficientNetForImageClassification(transformers.EfficientNetConfig(
        image_size=33, width_coefficient=0.3, depth_coefficient=0.4, hidden_dim=384, num_labels=5,
        depthwise_padding=[2],
    ))  # fmt: skip


def dinov3(**more):
    return transformers.DINOv3ViTModel(transformers.DINOv3ViTConfig(
        hidden_size=48, intermediate_size=24, num_hidden_layers=2, num_attention_heads=6,
        image_size=32, patch_size=8, num_register_tokens=2, **more,
    ))  # fmt: skip


def depth_anything(**more):
    eye = transformers.Dinov2Config(
        hidden_size=16, num_hidden_layers=4, num_attention_heads=2, image_size=28, patch_size=7,
        mlp_ratio=2, out_indices=[1, 2, 3, 4], apply_layernorm=True, reshape_hidden_states=False,
    )  # fmt: skip
    return transformers.DepthAnythingForDepthEstimation(transformers.DepthAnythingConfig(
        backbone_config=eye, patch_size=7, reassemble_hidden_size=16, fusion_hidden_size=8,
        neck_hidden_sizes=[8, 8, 12, 16], head_hidden_size=4, **more,
    ))  # fmt: skip


def segformer():
    return transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig(
        depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 16, 16], num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=16, num_labels=5,
    ))  # fmt: skip
