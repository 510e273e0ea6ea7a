"""LLVM IR text -> verified module -> object file -> functions in this process.

No IR passes: the text is final, so that code generation is all that is left to LLVM.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ... import forks
from ...errors import CompileError, DeviceError
from ...kernel.target import Target
from ...progress import tracked
from ...sources import llvm_build
from ...store import Store
from . import blas, elf
from .llvm import llvm
from .target import Machine, machine

_LOCK = threading.RLock()
forks.guard(sys.modules[__name__], "_LOCK", forks.INNER)


@dataclass
class Object:
    """Machine code of one text: it can be called as long as this object lives. `seconds`: what
    parsing, code generation and loading took."""

    code: bytes
    machine: Machine
    text: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    _find: Callable[[str], int | None] | None = None
    _memory: Any = None  # what has the code in it

    def address(self, name: str) -> int:
        """The address of a function; the object is loaded on the first call."""
        with _LOCK:
            if self._find is None:
                self._find = self._load()
            found = self._find(name)
        if not found:
            raise CompileError(f"the compiled object has no function {name!r}")
        return found

    def _load(self) -> Callable[[str], int | None]:
        """Functions by name. LLVM loads what our own loader does not know."""
        if not self.machine.is_host:
            raise DeviceError(f"code for {self.machine.triple} cannot run on this machine")
        start = time.perf_counter()
        try:
            functions, self._memory = elf.load(self.code, _outside)
            return functions.get
        except elf.Unknown:
            return self._load_by_llvm()
        finally:
            self.seconds["load"] = time.perf_counter() - start

    def _load_by_llvm(self) -> Callable[[str], int | None]:
        if blas.SYMBOL.encode() in self.code:
            llvm().add_symbol(blas.SYMBOL, blas.address())
        module = llvm().parse_assembly("")
        module.triple = self.machine.triple
        engine = llvm().create_mcjit_compiler(module, _generator(self.machine, fresh=True))
        engine.add_object_file(llvm().ObjectFileRef.from_data(self.code))
        engine.finalize_object()
        self._memory = engine
        found: Callable[[str], int] = engine.get_function_address
        return found

    def assembly(self) -> str:
        """The assembly, generated again from the text."""
        if self.text is None:
            raise CompileError("only an object that was built here has assembly to show")
        return str(_generator(self.machine).emit_assembly(_parse(self.text, self.machine)))


def build(texts: Sequence[str], target: Target) -> list[Object]:
    """Compile each text to an object of its own."""
    wanted = machine(target)
    return [compiled(text, wanted) for text in tracked("building kernel", texts)]


def load(code: bytes, target: Target) -> Object:
    """An object from the bytes that an earlier one kept."""
    return Object(code, machine(target))


def remembered(text: str, target: Target) -> Object:
    """As `build` of one text that every process needs: compiled once, then found on disk."""
    wanted = machine(target)
    facts = f"{llvm_build()} {wanted.triple} {wanted.level} {wanted.features} {text}"
    key = hashlib.sha256(facts.encode()).hexdigest()
    code = Store.of_machine().remembered(key, lambda: compiled(text, wanted).code)
    return Object(code, wanted, text)


def _outside(name: str) -> int:
    """The address of a function of a library. Raises elf.Unknown."""
    if name == blas.SYMBOL:
        return blas.address()
    found = getattr(ctypes.CDLL(None), name, None)
    address = None if found is None else ctypes.cast(found, ctypes.c_void_p).value
    if address is None:
        raise elf.Unknown(f"no function {name!r}")
    return address


def compiled(text: str, machine: Machine) -> Object:
    """A text as an object. Raises CompileError."""
    start = time.perf_counter()
    module = _parse(text, machine)
    parsed = time.perf_counter()
    code = _generator(machine).emit_object(module)
    done = time.perf_counter()
    return Object(code, machine, text, {"parse": parsed - start, "code": done - parsed})


def _parse(text: str, machine: Machine) -> Any:
    """Parsing alone accepts values that are used where they are not defined; verify does not."""
    try:
        module = llvm().parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"LLVM refused the text of a kernel: {error}") from error
    module.triple = machine.triple
    module.data_layout = str(_generator(machine).target_data)
    return module


def _generator(machine: Machine, fresh: bool = False) -> Any:
    """LLVM's target machine. An engine takes ownership of the one it gets."""
    return _new_generator(machine) if fresh else _shared_generator(machine)


@functools.cache
def _shared_generator(machine: Machine) -> Any:
    return _new_generator(machine)


def _new_generator(machine: Machine) -> Any:
    target = llvm().Target.from_triple(machine.triple)
    return target.create_target_machine(
        cpu=machine.level, features=machine.features, opt=3, reloc="pic", codemodel="small"
    )
