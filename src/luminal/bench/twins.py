"""The suite's models once more in plain PyTorch, under the same names: what peers run, and what
results are checked against. Imported only where PyTorch is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models.bert import BertConfig
from ..models.gpt2 import GPT2Config
from ..models.vision import ViTConfig


class Function(nn.Module):
    """A function of torch.nn.functional, the inputs, and fixed weights."""

    def __init__(self, function: Callable[..., Tensor], weights: Sequence[Tensor]) -> None:
        super().__init__()
        self.function, self.names = function, [f"w{i}" for i in range(len(weights))]
        for name, weight in zip(self.names, weights):
            self.register_buffer(name, weight)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(F, *inputs, *(getattr(self, name) for name in self.names))


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    """A model with the same random weights each time, ready for inference. Running statistics and
    biases are random too: as they are made they would hide faults."""
    torch.manual_seed(0)
    model = make().eval().requires_grad_(False)
    for name, value in (*model.named_buffers(), *model.named_parameters()):
        if name.endswith("running_var"):
            value.uniform_(0.5, 1.5)
        elif name.endswith(("running_mean", ".bias")):
            value.normal_(0, 0.1)
    return model


# ---- ResNet


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = None
        if stride != 1 or channels != 4 * width:
            projection = nn.Conv2d(channels, 4 * width, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(4 * width))

    def forward(self, x: Tensor) -> Tensor:
        residual = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return F.relu(self.bn3(self.conv3(x)) + residual)


class ResNet(nn.Module):
    def __init__(self, blocks: Sequence[int], classes: int, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        channels = width
        for stage, count in enumerate(blocks):
            layers = []
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(Bottleneck(channels, width << stage, stride))
                channels = 4 * (width << stage)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.stages = len(blocks)
        self.fc = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(images))), 3, 2, 1)
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean([2, 3]))


# ---- transformers


def heads_apart(x: Tensor, heads: int) -> Tensor:
    """(batch, tokens, width) to (batch, heads, tokens, depth)."""
    return x.unflatten(-1, (heads, x.shape[-1] // heads)).transpose(1, 2)


def heads_together(x: Tensor) -> Tensor:
    """The way back."""
    return x.transpose(1, 2).flatten(2)


class PackedAttention(nn.Module):
    """Attention whose three projections are one matrix, under the names given."""

    def __init__(
        self, make: Callable[[int, int], nn.Module], width: int, heads: int,
        names: tuple[str, str], causal: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads, self.names, self.causal = heads, names, causal
        setattr(self, names[0], make(width, 3 * width))
        setattr(self, names[1], make(width, width))

    def forward(self, x: Tensor) -> Tensor:
        parts = getattr(self, self.names[0])(x).chunk(3, -1)
        query, key, value = (heads_apart(part, self.heads) for part in parts)
        out = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return getattr(self, self.names[1])(heads_together(out))


class ViTMlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class ViTBlock(nn.Module):
    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        width, heads = config.width, config.heads
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-6), nn.LayerNorm(width, 1e-6)
        self.attn = PackedAttention(nn.Linear, width, heads, ("qkv", "proj"), False)
        self.mlp = ViTMlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        width = config.width
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, config.tokens, width))
        patches = nn.Conv2d(3, width, config.patch, config.patch)
        self.patch_embed = nn.ModuleDict({"proj": patches})
        self.blocks = nn.Sequential(*(ViTBlock(config) for _ in range(config.depth)))
        self.norm, self.head = nn.LayerNorm(width, 1e-6), nn.Linear(width, config.classes)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patch_embed["proj"](images).flatten(2).transpose(1, 2)
        token = self.cls_token.expand(patches.shape[0], -1, -1)
        x = torch.cat([token, patches], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


class Conv1D(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class GPT2Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(width, 4 * width), Conv1D(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class GPT2Block(nn.Module):
    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        width, eps = config.n_embd, config.layer_norm_epsilon
        self.ln_1, self.ln_2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.attn = PackedAttention(Conv1D, width, config.n_head, ("c_attn", "c_proj"), True)
        self.mlp = GPT2Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """Scores of the token after the last one."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        width = config.n_embd
        self.wte = nn.Embedding(config.vocab_size, width)
        self.wpe = nn.Embedding(config.n_positions, width)
        self.h = nn.ModuleList(GPT2Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(width, config.layer_norm_epsilon)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x)[:, -1], self.wte.weight)


class BertLayer(nn.Module):
    attention: Any
    intermediate: Any
    output: Any

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width, inner, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        self.heads = config.num_attention_heads
        names = ("query", "key", "value")
        projections = nn.ModuleDict({name: nn.Linear(width, width) for name in names})
        self.attention = nn.ModuleDict({"self": projections, "output": _output(width, width, eps)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner)})
        self.output = _output(inner, width, eps)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        project, output = self.attention["self"], self.attention["output"]
        names = ("query", "key", "value")
        query, key, value = (heads_apart(project[name](x), self.heads) for name in names)
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = output["LayerNorm"](output["dense"](heads_together(seen)) + x)
        hidden = F.gelu(self.intermediate["dense"](x))
        return self.output["LayerNorm"](self.output["dense"](hidden) + x)


def _output(inputs: int, width: int, eps: float) -> nn.ModuleDict:
    return nn.ModuleDict({"dense": nn.Linear(inputs, width), "LayerNorm": nn.LayerNorm(width, eps)})


class Bert(nn.Module):
    embeddings: Any
    encoder: Any

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        sizes = {
            "word_embeddings": config.vocab_size,
            "position_embeddings": config.max_position_embeddings,
            "token_type_embeddings": config.type_vocab_size,
        }
        self.embeddings = nn.ModuleDict({n: nn.Embedding(s, width) for n, s in sizes.items()})
        self.embeddings["LayerNorm"] = nn.LayerNorm(width, config.layer_norm_eps)
        layers = nn.ModuleList(BertLayer(config) for _ in range(config.num_hidden_layers))
        self.encoder = nn.ModuleDict({"layer": layers})

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        tables = self.embeddings
        positions = tables["position_embeddings"].weight[: ids.shape[1]]
        kind = tables["token_type_embeddings"].weight[0]
        x = tables["LayerNorm"](tables["word_embeddings"](ids) + kind + positions)
        for layer in self.encoder["layer"]:
            x = layer(x, mask[:, None, None])
        return x
