"""Where the methods of `luminal.ops` are declared to type checkers; see the stub beside it."""


class Methods:
    """Of tensors; `register_method` adds them to `Tensor`."""

    __slots__ = ()
