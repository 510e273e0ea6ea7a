"""Programs in files: loaded, compiled anew, compared with what they mean."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from .artifact import file
from .artifact.codec import encode
from .artifact.executables import engine_of, executable_of
from .artifact.recording import replay
from .backend import devices
from .compiler import kept_program
from .graph.graph import Graph
from .options import backend_of, checked_threads
from .runtime.executable import Executable
from .runtime.report import Report
from .search.compare import Difference, compare_outputs
from .search.tune import Tuning
from .store import Store


def load(path: str | Path, threads: int | None = None, trust: bool = True) -> Executable:
    """A program that `Executable.save` has written, with its parameters, which stay in the file.

    Inputs and outputs go by name. threads: as many as it was compiled for if None. trust: run the
    machine code in the file, which can do whatever this process can, as a shared library's; False:
    compile the graph in the file anew, on whatever machine this is (parameters that were given by
    `set_parameters` must then be set again), as is done with a file of another version of luminal.
    Raises ArtifactError for a file that is damaged or not for this machine, OSError.

    >>> y = (cx.tensor(2, name="x") * 2.0).output("y")
    >>> cx.compile().save("double.luminal")
    >>> luminal.load("double.luminal")(np.float32([1, 2]))
    array([2., 4.], dtype=float32)
    """
    path = Path(path)
    try:
        saved = file.read(path) if trust else None
    except file.OtherVersion:
        saved = None
    if saved is None:
        return _recompiled(path, threads)
    backend = backend_of(saved.report.device)
    assert backend is not None
    threads = checked_threads(threads) or saved.report.threads
    return executable_of(saved, backend, threads, lambda: replay(*file.read_recording(path))[0])


def check_saved(path: Path, threads: int | None = None) -> list[Difference]:
    """What a saved program computes otherwise than it means: the kernels that are wrong, or else
    the outputs that differ from the graph in the file. Raises as `load`."""
    saved = file.read(path)
    backend = backend_of(saved.report.device)
    assert backend is not None
    engine = engine_of(saved, backend, checked_threads(threads) or saved.report.threads)
    recording, arrays = file.read_recording(path)
    program, interface = replay(recording, arrays)
    flushes = recording.flushes
    return engine.check() or compare_outputs(program, interface, engine, arrays, flushes)


def recorded(path: str | Path) -> Graph:
    """The graph in a file, with its outputs, states and the values of its parameters. Raises
    ArtifactError, OSError."""
    recording, arrays = file.read_recording(Path(path))
    program, _ = replay(recording, arrays)
    graph = program.graph
    for node in dict.fromkeys(program.outputs):
        graph.wrap(node).output(graph.output_names[node])
    for number, tensor in enumerate(graph.sources):
        if number in arrays and tensor.node.attribute.kind == "parameter":
            tensor.set(arrays[number])
    return graph


def _recompiled(path: Path, threads: int | None) -> Executable:
    recording, arrays = file.read_recording(path)
    program, interface = replay(recording, arrays)
    name = devices.resolved("auto")
    backend = devices.find(name)
    report = Report(name, checked_threads(threads) or recording.threads)
    tuning = Tuning(backend, recording.allowed(backend.target(report.threads)))
    saved = kept_program(program, tuning, None, report, Store.of(None), None)
    whole = replace(saved, interface=interface, arrays=arrays, recording=encode(recording))
    return executable_of(whole, backend, report.threads)
