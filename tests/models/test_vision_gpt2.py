"""ResNet, ViT and GPT-2 with random weights against the same nets in PyTorch."""

import numpy as np
import pytest
import torch
import transformers

import luminal
from luminal import nn
from luminal.bench import twins
from luminal.bench.case import difference
from luminal.bench.model_cases import bert, gpt2, resnet, vit
from luminal.models.bert import BertConfig
from luminal.models.gpt2 import GPT2, GPT2Config
from luminal.models.vision import ResNet, VisionTransformer, ViTConfig

VIT = ViTConfig(image=32, patch=8, width=32, depth=2, heads=4, classes=10)
SMALL_GPT2 = GPT2Config(vocab_size=50, n_positions=32, n_embd=32, n_layer=2, n_head=4)
SMALL_BERT = BertConfig(50, 32, 2, 4, 64, max_position_embeddings=32)
CASES = [
    resnet("resnet", (2, 1), 10, 16, 32),
    vit("vit", VIT),
    gpt2("gpt2", SMALL_GPT2, 12),
    bert("bert", SMALL_BERT, 12),
]


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.split()[0])
def test_as_torch_computes_it(case, device):
    work = case.make()
    with torch.no_grad():
        want = work.module(*map(torch.from_numpy, work.inputs)).numpy()
    graph = luminal.Graph()
    inputs = [graph.tensor(array.shape, str(array.dtype)) for array in work.inputs]
    output = work.record(graph, inputs, work.state()).output()
    program = graph.compile(device=device, threads=2)
    for _ in range(3):
        for tensor, array in zip(inputs, work.inputs):
            program[tensor] = array
        program.run()
        assert difference(program[output], want) < 1e-5


def test_gpt2_takes_the_weights_of_hugging_face():
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=32, n_embd=32, n_layer=2, n_head=4,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = transformers.GPT2Model(config).eval()
    ids = np.random.default_rng(0).integers(0, 50, (2, 9))
    graph = luminal.Graph()
    tokens = graph.tensor((graph.dim("b", 1, 8), graph.dim("s", 1, 32)), "i64")
    with nn.uninitialised():
        model = GPT2(graph, SMALL_GPT2)
    model.load_state_dict({name: v.numpy() for name, v in theirs.state_dict().items()})
    hidden = model(tokens).output()
    program = graph.compile()
    program[tokens] = ids
    program.run()
    with torch.no_grad():
        want = theirs(torch.from_numpy(ids)).last_hidden_state.numpy()
    assert difference(program[hidden], want) < 1e-5


def names(module):
    graph = luminal.Graph()
    with nn.uninitialised():
        return {name for name, _ in module(graph)._named()}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda g: ResNet(g, width=8), lambda: twins.ResNet((3, 4, 6, 3), 1000, 8)),
        (lambda g: VisionTransformer(g, VIT), lambda: twins.VisionTransformer(VIT)),
    ],
)
def test_names_of_weights(ours, theirs):
    state = {name for name in theirs().state_dict() if not name.endswith("batches_tracked")}
    assert names(ours) == state


def test_resnet50_has_25_557_032_parameters():
    graph = luminal.Graph()
    with nn.uninitialised():
        model = ResNet(graph)
    assert sum(int(np.prod(p.shape)) for p in model.parameters()) == 25_557_032


def test_vit_b_16_has_86_567_656_parameters():
    graph = luminal.Graph()
    with nn.uninitialised():
        model = VisionTransformer(graph)
    assert sum(int(np.prod(p.shape)) for p in model.parameters()) == 86_567_656
