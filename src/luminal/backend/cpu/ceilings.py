"""What this machine can do at best: multiply-adds from registers, and reading memory.

    python -m luminal.backend.cpu.ceilings

A share of a ceiling counts only beside a ceiling that was measured in the same minutes.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Callable, Iterable

import numpy as np

from ...cores import count
from ...graph.dtype import f32
from ...kernel.target import Target
from ..table import Entry
from . import jit, memory, tiles
from .emitter import ELEMENTS, Emitter, Operand
from .instructions import Emission, emissions
from .render import attributes
from .target import host, host_machine
from .workers import crew, table

ROUNDS = 200_000  # 0.4 ms: the call and its barrier take some microseconds
CHAINS = 12  # independent accumulators: enough for two ports of latency 4, in 16 registers
STREAM = 64 << 20  # bytes read by all threads together
TILES = 4  # accumulators that are matrices
CACHED = 128 << 10  # bytes that a thread reads again and again
AGAIN = 20
STREAMS = 8  # that a thread reads side by side: the fetchers of the hardware follow several
LINE = 64  # bytes


def measure(threads: int | None = None, seconds: float = 0.2) -> dict[str, float]:
    """Giga-operations a second (a multiply-add counts two) of each multiplying instruction, and
    GB/s: "read" from memory, "cache" from the second cache. The best of as many runs as fit into
    the seconds, for each entry: what else runs on the machine can only lower it."""
    threads, found = threads or count(), dict[str, float]()
    for name in ["fma", *(i.name for i in host(threads).instructions)]:
        run, operations = multiplier(name, threads)
        found[name] = operations / _seconds(run, seconds)
    found["read"] = STREAM / _seconds(reader(STREAM, threads), seconds)
    cached = CACHED * threads
    found["cache"] = AGAIN * cached / _seconds(reader(cached, threads, AGAIN), seconds)
    return {name: value / 1e9 for name, value in found.items()}


def multiplier(name: str, threads: int) -> tuple[Callable[[], None], int]:
    """(run, operations of a run) of a multiplying instruction on registers, on all threads."""
    target = host(threads)
    if name in tiles.PRODUCTS:
        chains, text = TILES, tiles.peak_text(name, ROUNDS, TILES)
    else:
        chains, text = CHAINS, _peak_text(target, name)
    run = _runner(text, memory.zeros((4096,), np.uint8), threads)
    return run, ROUNDS * chains * _operations(target, name) * threads


def reader(size: int, threads: int, again: int = 1, streams: int = STREAMS) -> Callable[[], None]:
    """A read of `size` bytes, shared by the threads, so many times: nothing reads faster. With one
    stream a thread it is a plain read, from the first byte to the last."""
    return _runner(_read_text(size, threads, streams), _written(size), threads, again)


def copier(size: int, threads: int) -> Callable[[], None]:
    """A plain copy of `size` bytes, shared by the threads."""
    return _runner(_read_text(size, threads, STREAMS, copy=True), _written(2 * size), threads)


def _written(size: int) -> np.ndarray:
    """Memory with pages of its own: those that nobody wrote are one page of zeros."""
    data = memory.empty((size,), np.uint8)
    data[...] = 1
    return data


def _operations(target: Target, name: str) -> int:
    made = next((i for i in target.instructions if i.name == name), None)
    if made is not None and made.registers:
        return 2 * made.rows * made.columns * made.collapse
    return 2 * target.lanes(f32) * (made.collapse if made else 1)


def _runner(text: str, data: np.ndarray, threads: int, again: int = 1) -> Callable[[], None]:
    code = jit.build([text], host(threads))[0]
    arguments = (ctypes.c_uint64 * 1)(data.ctypes.data)
    entry = Entry(code.address("work"), ctypes.addressof(arguments), barrier=False)
    rows = table([entry] * again)  # each thread reads its own part: none waits for another
    workers, kept = crew(threads), (code, arguments, data)

    def run() -> None:
        assert kept  # the code and its memory live as long as this function
        workers.run(rows)

    return run


def _seconds(run: Callable[[], None], seconds: float) -> float:
    """The least time of as many runs as fit into the seconds."""
    samples = list[float]()
    run()
    end = time.perf_counter() + seconds
    while not samples or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        samples.append(time.perf_counter() - start)
    return min(samples)


def _function(e: Emitter) -> str:
    head = "define void @work(ptr %args, i64 %tid, i64 %nt) #0 {\nentry:"
    return "\n".join(
        [*e.declared.values(), head, *e.lines, "  ret void", "}", attributes(e.machine), ""]
    )


def _peak_text(target: Target, name: str) -> str:
    """Chains of one instruction, all stored at the end. An fma has three operands, so that none
    lies on the stack, where it may straddle two lines; what multiplies apart from adding has a pair
    of its own for each chain, lest products be shared."""
    e, width = Emitter(host_machine()), target.lanes(f32)
    emission = emissions(e.machine.flags).get(name)
    acc = Operand("", ELEMENTS[emission.instruction.accumulator.name] if emission else "float",
                  width)  # fmt: skip
    base = e.let("load ptr, ptr %args, align 8", "ptr")
    e.line("br label %loop")
    e.start("loop")
    mark = len(e.lines)
    phis = [Operand(f"%chain{i}", acc.element, width) for i in range(CHAINS)]
    firsts, seconds = (
        [_operand(e, emission, base, width, 64 * n) for n in numbers]
        for numbers in ((range(4), range(4, 7)) if emission else (range(1), range(4, 6)))
    )
    pairs = itertools.cycle(itertools.product(firsts, seconds))
    results = [
        emission.emit(e, phi, a, b) if emission else e.fma(a, b, phi)
        for phi, (a, b) in zip(phis, pairs)
    ]
    _closed(e, mark, 1, ROUNDS, zip(phis, results))
    for result in results:
        e.line(f"store {result.typed}, ptr {base.text}, align 4")
    return _function(e)


def _closed(
    e: Emitter, mark: int, step: int, end: int, sums: Iterable[tuple[Operand, Operand]]
) -> None:
    """Closes the loop that began at a line: its counter goes to `end`, each (phi, next) is carried
    from zero on."""
    following = e.let(f"add i64 %i, {step}", "i64")
    more = e.let(f"icmp slt i64 {following.text}, {end}", "i1")
    e.line(f"br i1 {more.text}, label %loop, label %out")
    e.start("out")
    lines = [f"  %i = phi i64 [0, %entry], [{following.text}, %loop]"]
    for phi, result in sums:
        first = "[zeroinitializer, %entry]"
        lines.append(f"  {phi.text} = phi {phi.type} {first}, [{result.text}, %loop]")
    e.lines[mark:mark] = lines


def _operand(
    e: Emitter, emission: Emission | None, base: Operand, width: int, offset: int
) -> Operand:
    """A vector of what an instruction multiplies, from memory: zeros."""
    dtype = emission.instruction.first if emission else f32
    like = Operand("", ELEMENTS[dtype.name], width * 4 // dtype.bytes)
    where = e.at(base, 512 + offset)
    return e.let(f"load {like.type}, ptr {where.text}, align 4", like.element, like.width)


def _read_text(size: int, threads: int, streams: int, copy: bool = False) -> str:
    """Each thread reads its part in streams side by side, in a turn so many lines of each that they
    are `STREAMS` together. copy: every line is stored `size` bytes further on."""
    lines_each = STREAMS // streams
    turn = lines_each * LINE
    e, length = Emitter(host_machine()), size // threads // streams // turn * turn
    base = e.let("load ptr, ptr %args, align 8", "ptr")
    start = e.let(f"mul i64 %tid, {length * streams}", "i64")
    part = e.let(f"getelementptr i8, ptr {base.text}, {start.typed}", "ptr")
    e.line("br label %loop")
    e.start("loop")
    mark = len(e.lines)
    here = e.let(f"getelementptr i8, ptr {part.text}, i64 %i", "ptr")
    phis = [Operand(f"%sum{i}", "i64", 8) for i in range(STREAMS)]
    sums = []
    for number, phi in enumerate(phis):
        place = e.at(here, length * (number // lines_each) + LINE * (number % lines_each))
        line = e.let(f"load {phi.type}, ptr {place.text}, align 64", "i64", 8)
        if copy:
            e.line(f"store {line.typed}, ptr {e.at(place, size).text}, align 64")
        sums.append(phi if copy else e.binary("xor", phi, line))
    _closed(e, mark, turn, length, zip(phis, sums))
    total = sums[0]
    for result in sums[1:]:
        total = e.binary("xor", total, result)
    e.line(f"store {total.typed}, ptr {part.text}, align 64")
    return _function(e)


def main() -> None:
    """Print the ceilings of one thread and of all."""
    for threads in dict.fromkeys((1, count())):
        for name, value in measure(threads).items():
            unit = "GB/s" if name in ("read", "cache") else "Gop/s"
            print(f"{threads} threads  {name:10} {value:8.1f} {unit}")


if __name__ == "__main__":
    main()
