"""How models are used beside plain calls: weights that change, options, precisions, switches."""

import copy
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import luminal.torch
from luminal import ops
from luminal.errors import CompileError, Unsupported
from luminal.frontend.torch.table import RULES
from luminal.frontend.torch.weights import Known, Memory
from luminal.graph.graph import Graph
from luminal.runtime.executable import Executable
from luminal.torch import backend, report


def small():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def compiled(function, **options):
    return torch.compile(function, backend=backend, **options)


def close(got, expected, tolerance=1e-5):
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


def assigned(model):
    model[0].weight.data = torch.randn(16, 8)


def replaced(model):
    model[0].weight = nn.Parameter(torch.randn(16, 8))


CHANGES = {
    "loaded": lambda model: model.load_state_dict(small().state_dict()),
    "loaded by assignment": lambda model: model.load_state_dict(small().state_dict(), assign=True),
    "in place": lambda model: model[0].weight.mul_(1.5),
    "assigned": assigned,
    "replaced": replaced,
    "clipped through data": lambda model: [p.data.clamp_(-0.1, 0.1) for p in model.parameters()],
    "replaced, and another through data": lambda model: (
        replaced(model),
        model[3].bias.data.fill_(2.0),
    ),
    "averaged through data": lambda model: model[3].bias.data.mul_(0.9).add_(0.1),
}


def test_weights_that_change_between_calls():
    model, x = small(), torch.randn(3, 8)
    run = compiled(model)
    with torch.no_grad():
        for name, change in CHANGES.items():
            close(run(x), model(x))
            change(model)
            got, expected = run(x), model(x)
            assert torch.allclose(got, expected, atol=1e-5), name


def test_one_element_written_through_data_is_read_after_reset():
    model, x = nn.Linear(64, 64), torch.randn(3, 64)
    run = compiled(model)
    with torch.no_grad():
        run(x)
        model.weight.data[3, 5] = 7.0
        luminal.torch.reset()
        close(run(x), model(x), 1e-4)


def rows_written(model):
    model[0].weight.data[200:300] = 0


def rows_swapped(model):
    model[0].weight.data[5:9] = model[0].weight.data[5:9].flip(0)


@pytest.mark.parametrize("change", [rows_written, rows_swapped])
def test_a_few_elements_written_through_data(change):
    """At once where weights are read at each call, else late, with a warning."""
    model, x = nn.Sequential(nn.Linear(1000, 1000), nn.ReLU()), torch.randn(64, 1000)
    frozen, read = compiled(model), compiled(model, options={"freeze": False})
    with torch.no_grad():
        close(frozen(x), model(x), 1e-4)
        close(read(x), model(x), 1e-4)
        change(model)
        close(read(x), model(x), 1e-4)
        with pytest.warns(RuntimeWarning, match="past PyTorch's version counter") as told:
            for _ in range(100_000):
                frozen(x)
                if len(told):
                    break
        close(frozen(x), model(x), 1e-4)


def test_another_weight_where_one_lay_is_taken_in():
    memory, known = np.zeros(64, np.float32), Known(1)
    weight = torch.from_numpy(memory)
    assert known.changed([weight]) == [0] and not known.changed([weight])
    del weight
    memory[7] = 1.0
    assert known.changed([torch.from_numpy(memory)]) == [0]


def test_time_of_other_programs_is_not_that_of_looking(monkeypatch):
    seconds = iter(range(1000))
    clock = SimpleNamespace(perf_counter=lambda: float(next(seconds)))
    monkeypatch.setattr("luminal.frontend.torch.weights.time", clock)
    memory, weight = Memory(), torch.zeros(8)
    memory.take(0, weight)
    assert memory.look(1e-6) is None
    weight[3] = 1
    assert any(memory.look(1e-6) == 0 for _ in range(150))


@pytest.mark.parametrize(
    "options",
    [{"precision": "f4"}, {"device": "tpu"}, {"threads": "two"}, {"threads": 0},
     {"search": "long"}],
    ids=str,
)  # fmt: skip
def test_values_of_options_are_checked(options):
    with pytest.raises(Exception, match=str(next(iter(options.values())))):
        compiled(lambda x: x + 1, options=options)(torch.ones(3))


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
def test_on_another_device():
    model = small().eval()
    other = compiled(model, options={"device": "cuda:sim", "strict": True})
    with torch.no_grad():
        for rows in (3, 5, 3):
            x = torch.randn(rows, 8)
            close(other(x), model(x))


def test_what_runs_in_pytorch_is_told_once_or_refused(monkeypatch):
    def inverse(x):
        return torch.linalg.inv(x) + torch.linalg.pinv(x)

    x = torch.eye(3)
    with pytest.warns(RuntimeWarning, match="runs in PyTorch: no rule for it") as told:
        close(compiled(inverse)(x), inverse(x))
    assert len([w for w in told if "luminal.torch.report()" in str(w.message)]) == 1
    torch._dynamo.reset()
    with pytest.raises(Exception, match="no rule for it"):
        compiled(inverse, options={"strict": True})(x)
    assert compiled(torch.rand, options={"strict": True})(3).shape == (3,)

    def fail(*arguments, **options):
        raise KeyError("on purpose")

    monkeypatch.setattr(Graph, "compile", fail)
    with pytest.raises(Exception, match="on purpose"):
        compiled(lambda x: x + 2, options={"strict": True})(x)
    with pytest.warns(RuntimeWarning, match="by a fault of luminal's.*\n*.*on purpose"):
        close(compiled(lambda x: x + 2)(x), x + 2)


def test_a_fault_at_a_run_is_refused_where_that_is_asked_for(monkeypatch):
    def fail(*arguments, **sizes):
        raise KeyError("on purpose")

    monkeypatch.setattr(Executable, "launch", fail)
    with pytest.raises(KeyError, match="on purpose"):
        compiled(lambda x: x + 1, options={"strict": True})(torch.ones(3))


def test_results_are_compared_with_those_of_pytorch(monkeypatch):
    model, x = small(), torch.randn(3, 8)
    run = compiled(model, options={"check": True}, dynamic=True)
    with torch.no_grad():
        for rows in (3, 5, 3):
            close(run(x[:1].expand(rows, 8)), model(x[:1].expand(rows, 8)))
    loss = compiled(lambda x: F.dropout(model(x), 0.5).square().sum(), options={"check": True})
    loss(x).backward()
    monkeypatch.setattr("luminal.frontend.torch.record.RULES", RULES | {"sin.default": ops.cos})
    x = torch.tensor([0.0, torch.pi / 4, 1.0])
    assert compiled(torch.sin)(x)[0] == 1
    with pytest.raises(CompileError, match=r"aten.sin.default computes 1.0 at \[0\], where PyTorch "
                       r"has 0.0; 2 of 3"):  # fmt: skip
        compiled(lambda x: x.sin(), options={"check": True})(x)


def test_what_never_reaches_the_backend_is_reported():
    model, x = nn.LSTM(3, 4), torch.randn(5, 2, 3)
    with torch.no_grad():
        close(compiled(model)(x)[0], model(x)[0])
    assert report().graphs == 0 and "allow_rnn" in str(report()) and "LSTM(3, 4)" in str(report())
    luminal.torch.reset()
    assert not report().breaks


def test_where_a_function_is_cut_is_reported():
    def cut(x):
        x = x * 2
        torch._dynamo.graph_break()
        print(end="")
        return x + 1

    close(compiled(cut)(torch.ones(3)), torch.full((3,), 3.0))
    text = str(report())
    assert report().graphs == 2 and sum(report().breaks.values()) == 2
    assert "graph_break()" in text and "builtin operator `print`" in text
    luminal.torch.reset()
    assert not report().breaks


def test_a_name_that_looks_like_a_layer():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.slstm = nn.Linear(3, 3)

        def forward(self, lstm_state):
            return self.slstm(lstm_state)

    layer, x = Layer(), torch.randn(2, 3)
    with torch.no_grad():
        close(compiled(layer)(x), layer(x))


def test_the_frontend_is_there_without_an_import_of_its_own():
    code = "import luminal; assert not luminal.torch.report().graphs; luminal.torch.export"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_modes_are_those_that_inductor_has():
    assert compiled(lambda x: x + 1, mode="max-autotune")(torch.ones(1)).tolist() == [2.0]
    with pytest.raises(Exception, match="fastest"):
        compiled(lambda x: x + 1, mode="fastest")(torch.ones(3))


def test_an_operation_of_several_results_that_our_compiler_refuses(monkeypatch):
    def refuse(*args, **kwargs):
        raise Unsupported("on purpose")

    monkeypatch.setattr(Graph, "compile", refuse)
    x = torch.randn(3, 4)
    got = compiled(lambda x: torch.var_mean(x, 1))(x)
    for mine, theirs in zip(got, torch.var_mean(x, 1)):
        close(mine, theirs)
    assert report().failures


def test_autocast_gives_eager_dtypes():
    model, x = small(), torch.randn(3, 8)
    other = copy.deepcopy(model)
    with torch.autocast("cpu", torch.bfloat16):
        expected, got = model(x), compiled(other)(x)
    assert got.dtype is expected.dtype is torch.bfloat16
    close(got.float(), expected.float(), 3e-2)
    expected.float().sum().backward()
    got.float().sum().backward()
    for mine, theirs in zip(other.parameters(), model.parameters()):
        assert mine.grad.dtype is theirs.grad.dtype
        close(mine.grad, theirs.grad, 5e-2)


def test_training_and_evaluation_take_turns():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))
    other, x = copy.deepcopy(model), torch.randn(2, 3, 6, 6)
    run = compiled(other)
    for _ in range(2):
        model.train(), other.train()
        model(x)
        assert (run(x) == 0).any()
        model.eval(), other.eval()
        with torch.no_grad():
            close(run(x), model(x))


def test_checkpointed_layers_have_eager_gradients():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = small(), nn.Linear(4, 8)

        def forward(self, x):
            again = torch.utils.checkpoint.checkpoint
            return again(self.first, self.second(again(self.first, x, use_reentrant=False)),
                         use_reentrant=False)  # fmt: skip

    model, x = Model(), torch.randn(3, 8)
    other = copy.deepcopy(model)
    F.mse_loss(model(x), x[:, :4]).backward()
    F.mse_loss(compiled(other)(x), x[:, :4]).backward()
    for mine, theirs in zip(other.parameters(), model.parameters()):
        close(mine.grad, theirs.grad, 1e-4)
    assert not report().fallbacks


def test_results_are_tensors_over_the_same_memory():
    for kind in ("f32", "bf16", "i64", "bool"):
        cx = Graph()
        x = cx.tensor((3, 2), dtype=kind)
        y = x.transpose(0, 1).output()
        rt = cx.compile(threads=1, cache=False)
        rt[x] = given = torch.tensor([[0, 1], [1, 0], [1, 1]]).to(luminal.torch.from_array(
            np.zeros(1, x.dtype.numpy)).dtype)  # fmt: skip
        rt.run()
        made = luminal.torch.from_array(rt[y])
        assert torch.equal(made, given.T) and made.data_ptr() == rt[y].ctypes.data
        if kind != "bf16":
            assert torch.from_dlpack(rt[y]).data_ptr() == np.asarray(rt[y]).ctypes.data


def test_a_profiler_sees_kernels_by_their_names():
    model, x = small(), torch.randn(5, 8)
    run = compiled(model)
    seen = {}
    with torch.no_grad():
        for _ in range(2):  # a kernel packs weights, once
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
                close(run(x), model(x))
            seen = {event.key for event in found.key_averages()}
    assert any(re.match(r"k\d+_\w*sum", name) for name in seen), seen
