"""What a user would pick instead. Each peer turns a PyTorch module into something that runs.

Every peer gets what makes it fast for a fixed model: weights that may be packed ahead, inputs and
outputs in place, all its graph optimisations. None is imported before it is asked for.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Unsupported
from .case import Work


@dataclass(frozen=True)
class Side:
    """run: once, on inputs given before. result: the output of the last run."""

    run: Callable[[], object]
    result: Callable[[], np.ndarray]


Load = Callable[[Work, int, str], Side]  # (work, threads, precision)


@dataclass(frozen=True)
class Peer:
    """module: what must be installed."""

    name: str
    module: str
    load: Load

    def missing(self) -> str | None:
        """Why it cannot take part, if so."""
        if importlib.util.find_spec(self.module) is None:
            return f"{self.module} is not installed"
        if self.name == "inductor" and not any(map(shutil.which, ("g++", "clang++", "c++"))):
            return "no C++ compiler"
        return None


def eager(work: Work, threads: int, precision: str) -> Side:
    """PyTorch as it is."""
    module, tensors = _torch_parts(work, threads, precision)
    return _torch_side(module, tensors)


def inductor(work: Work, threads: int, precision: str) -> Side:
    """torch.compile, with weights frozen into the program: they are packed ahead."""
    return compiled(work, threads, precision, options={"freezing": True})


def compiled(work: Work, threads: int, precision: str = "f32", **options: Any) -> Side:
    """What `torch.compile` makes of the module with these options."""
    import torch

    module, tensors = _torch_parts(work, threads, precision)
    torch._dynamo.reset()
    return _torch_side(torch.compile(module, **options), tensors)


def _torch_parts(work: Work, threads: int, precision: str) -> tuple[Any, list[Any]]:
    """The module and its inputs in the precision. The work's own module stays as it is."""
    import copy

    import torch

    torch.set_num_threads(threads)
    tensors = [torch.from_numpy(array) for array in work.inputs]
    if precision == "f32":
        return work.module, tensors
    tensors = [t.bfloat16() if t.is_floating_point() else t for t in tensors]
    return copy.deepcopy(work.module).bfloat16(), tensors


def _torch_side(module: Any, tensors: list[Any]) -> Side:
    import torch

    last: list[Any] = [None]

    @torch.no_grad()  # where no gradient can be wanted, inductor freezes weights
    def run() -> None:
        last[0] = module(*tensors)

    return Side(run, lambda: last[0].float().numpy())


def onnxruntime(work: Work, threads: int, precision: str) -> Side:
    """ONNX Runtime with all graph optimisations, inputs and outputs bound in place."""
    import onnxruntime as ort

    if precision != "f32":
        raise Unsupported("its CPU provider computes in f32")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        names = [f"input{number}" for number in range(len(work.inputs))]
        _export(work, file, names)
        session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in zip(names, work.inputs):
        if name in {given.name for given in session.get_inputs()}:
            binding.bind_cpu_input(name, array)
    binding.bind_output("output")
    return Side(
        lambda: session.run_with_iobinding(binding),
        lambda: binding.copy_outputs_to_cpu()[0],
    )


def _export(work: Work, file: Path, names: list[str]) -> None:
    """The TorchScript exporter: its patterns are those that ONNX Runtime fuses."""
    import torch

    tensors = tuple(torch.from_numpy(array) for array in work.inputs)
    with _quietly(), torch.no_grad():
        torch.onnx.export(
            work.module, tensors, file, input_names=names, output_names=["output"],
            dynamo=False, opset_version=17,
        )  # fmt: skip


def openvino(work: Work, threads: int, precision: str) -> Side:
    """OpenVINO for latency. Its own default would be bf16 where the processor has it."""
    # its telemetry forks this process for each conversion and reports to a server
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino as ov
    import torch

    tensors = [torch.from_numpy(array) for array in work.inputs]
    with _quietly(), torch.no_grad():
        model = ov.convert_model(work.module, example_input=tuple(tensors))
        model.reshape({i: list(a.shape) for i, a in enumerate(work.inputs)})
    options = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
    }
    request = ov.compile_model(model, "CPU", options).create_infer_request()
    for number, array in enumerate(work.inputs):
        request.set_input_tensor(number, ov.Tensor(array, shared_memory=True))
    return Side(request.infer, lambda: np.array(request.get_output_tensor(0).data))


@contextmanager
def _quietly() -> Any:
    """Without the warnings of tracers: what they trace is checked afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


PEERS = {
    peer.name: peer
    for peer in (
        Peer("torch", "torch", eager),
        Peer("inductor", "torch", inductor),
        Peer("onnxruntime", "onnxruntime", onnxruntime),
        Peer("openvino", "openvino", openvino),
    )
}
