"""Training, outside the compiler: derivatives and updates are recorded like anything else.

Reverse mode (`backward`, `vjp`), forward mode (`jvp`), both of results of themselves.
"""

from .autograd import backward, jvp, stop_gradient, vjp

__all__ = ["backward", "jvp", "stop_gradient", "vjp"]
