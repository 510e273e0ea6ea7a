"""The eyes of Pixtral (Agrawal et al. 2024, https://arxiv.org/abs/2410.07073) and, with patches
joined, of Mistral Small 3.1 and Ministral 3: pictures in their proportions, patches that turn with
their rows and columns. One program serves all sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import ops
from ...errors import Unsupported
from ...graph import Graph, Tensor
from ...nn.activation import BY_NAME, activation_of
from ..llm.pictures import Pictures
from .images import normal, pillow
from .layers import renamed
from .named import Named
from .sight import CLIP_MEAN, CLIP_STD, Eyes, Sight

RENAMES = ((r"^(model\.)?(vision_tower|multi_modal_projector)\.", ""),)
EPS = 1e-5
LONGEST = 1024  # pixels of a side, where none is given


class PixtralSight(Sight):
    """merge: patches of a side in a token."""

    mean, std, place = CLIP_MEAN, CLIP_STD, "[IMG]"
    row, around = place, ("", "")

    def __init__(self, eyes: Eyes, pictures: Pictures) -> None:
        super().__init__(eyes, pictures)
        own = self.given.fields("vision_config")
        self.patch, self.heads = own.count("patch_size", 16), own.count("num_attention_heads", 16)
        usual_merge = 2 if self.given.text("model_type", "") == "mistral3" else 1
        self.merge = self.given.count("spatial_merge_size", usual_merge)
        self.head_dim = own.count("head_dim", own.count("hidden_size", 1024) // self.heads)
        usual = own.number("rope_theta", 10000.0, low=1)
        self.theta = own.fields("rope_parameters").number("rope_theta", usual, low=1)
        self.act = activation_of(own.text("hidden_act", "gelu", among=BY_NAME))
        self.layer = int(self.given.number("vision_feature_layer", -1))
        if self.given.text("vision_feature_select_strategy", "full") != "full":
            raise Unsupported(f"{self.given.where}: a tower of Pixtral without its first patch")
        self.longest = self.processor.fields("size").count("longest_edge", LONGEST)
        self._program: Any = None

    def grid(self, image: Any) -> tuple[int, int]:
        """(rows, columns) of tokens: no side is longer than the model wants."""
        width, height = image.size
        ratio, step = max(height, width) / self.longest, self.patch * self.merge
        if ratio > 1:
            width, height = math.floor(width / ratio), math.floor(height / ratio)
        return max(1, math.ceil(height / step)), max(1, math.ceil(width / step))

    def patches(self, image: Any) -> np.ndarray:
        """(1, patches, numbers of each) f32, those of a token side by side."""
        (rows, columns), merge, patch = self.grid(image), self.merge, self.patch
        size = columns * merge * patch, rows * merge * patch
        pixels = normal(image.resize(size, pillow().Resampling.BICUBIC), self.mean, self.std)
        pixels = pixels.reshape(3, rows, merge, patch, columns, merge, patch)
        return pixels.transpose(1, 4, 2, 5, 0, 3, 6).reshape(1, -1, 3 * patch * patch)

    def angles(self, rows: int, columns: int) -> np.ndarray:
        """(patches, head_dim) in the same order: speeds in turns of the row and of the column."""
        merge, speeds = self.merge, self.theta ** -(np.arange(0, self.head_dim, 2) / self.head_dim)
        places = np.indices((rows, merge, columns, merge)).transpose(1, 3, 2, 4, 0)
        y, x = (places[..., n] * merge + places[..., n + 1] for n in (0, 2))
        turned = [y.reshape(-1, 1) * speeds[0::2], x.reshape(-1, 1) * speeds[1::2]]
        return np.concatenate(turned * 2, 1).astype(np.float32)

    def rows(self, image: Any) -> tuple[np.ndarray, None]:
        if self._program is None:
            self._program = self._compiled()
        program, given, out = self._program
        angles = self.angles(*self.grid(image))
        for tensor, array in zip(given, (self.patches(image), np.cos(angles), np.sin(angles))):
            program[tensor] = array
        program.run()
        return np.array(program[out])[0], None

    def _compiled(self) -> tuple[Any, list[Tensor], Tensor]:
        graph = Graph()
        w = Named(graph, renamed(self.tensors(), RENAMES))
        most = math.ceil(self.longest / self.patch / self.merge) ** 2
        tokens = graph.dim("tokens", 1, most, hint=min(256, most))
        count = tokens * self.merge**2
        patches = graph.tensor((1, count, 3 * self.patch**2), name="patches")
        cos, sin = (graph.tensor((count, self.head_dim), name=name) for name in ("cos", "sin"))
        out = self._projected(w, self._seen(w, patches, cos, sin)).output("rows")
        return graph.compile(), [patches, cos, sin], out

    def _seen(self, w: Named, patches: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The states of a layer (1, patches, width)."""

        def turned(x: Tensor) -> Tensor:
            return x * cos + ops.rotate_half(x) * sin

        x = ops.linear(patches, w["patch_conv"].tensor().flatten(1, 3))
        states = [w["ln_pre"].norm(x, EPS)]
        for block in w["transformer"]["layers"].each():
            x, normed = states[-1], block["attention_norm"].norm(states[-1], EPS)
            x = x + block["attention"].attention(self.heads, normed, out="o_proj", rotary=turned)
            inner, normed = block["feed_forward"], block["ffn_norm"].norm(x, EPS)
            wide = self.act(inner["gate_proj"].linear(normed)) * inner["up_proj"].linear(normed)
            states.append(x + inner["down_proj"].linear(wide))
        return states[self.layer]

    def _projected(self, w: Named, x: Tensor) -> Tensor:
        """(1, tokens, width of the decoder)."""
        if w.has("patch_merger"):
            eps = self.given.fields("text_config").number("rms_norm_eps", EPS, low=0, high=1)
            x = w["norm"].norm(x, eps).unflatten(1, (-1, self.merge**2))
            x = w["patch_merger"]["merging_layer"].linear(x.transpose(2, 3).flatten(2, 3))
        act = activation_of(self.given.text("projector_hidden_act", "gelu", among=BY_NAME))
        return w.mlp(x, act, "linear_1", "linear_2")

    def places(self, image: Any) -> str:
        rows, columns = self.grid(image)
        return (self.place * columns + "[IMG_BREAK]") * (rows - 1) + (
            self.place * columns + "[IMG_END]"
        )
