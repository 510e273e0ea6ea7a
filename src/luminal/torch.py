"""`torch.compile(model, backend="luminal")`: what it did, and how to start afresh.

    luminal.torch.report()   which operations PyTorch still computed itself, where, and why
    luminal.torch.export(model, inputs, path)   a program that `luminal.load` runs without PyTorch
    luminal.torch.from_array(rt[y])   the tensor over a result's memory, bf16 as well (which NumPy
                             does not hand on by DLPack; all else `torch.from_dlpack` takes)
    luminal.torch.reset()    forget all compiled programs and the report

In inference, weights are packed once and again when PyTorch's version counter says that they have
changed. It does not count writes through `.data`, which are seen at once where they change most of
a weight, else after some calls, with a warning: call `reset()` after such a write, or compile with
`options={"freeze": False}`, which reads weights at each call.

`torch.set_flush_denormal(True)` holds for the thread that calls, as for operations of PyTorch: what
other threads compute of a program keeps subnormal floats.

Needs PyTorch, which luminal itself does not.
"""

from .frontend.torch import Options, Report, backend, export, from_array, report, reset

__all__ = ["Options", "Report", "backend", "export", "from_array", "report", "reset"]
