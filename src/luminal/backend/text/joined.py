"""Several loop programs -> the text of one launch, whose groups run one after the other.

What one of them writes others see once all groups have met: a counter that each adds to, and whose
highest bit turns when all have come. The first group adds what is left to that bit, so that a sum
of all leaves the others as they were: nothing is reset, however many groups the next launch has.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...kernel.program import Instruction, Program
from ...lowering.verify import statements
from ..launch import Joined
from .dialect import Dialect
from .render import Place, Text, alone, head, in_workspace, kernel_name, shared_bytes

LONG, LENGTH = 3000, 12000  # statements of a part and of a text: compilers take them all at once
NAMED = 15  # parties of a group that can wait for their own, beside the group
_MEETING = """static __device__ inline void meet_all(buffer<u32> counter) {{
  {barrier}
  if ({thread} == 0) {{
    const u32 mine = {group} ? 1u : 0x80000000u - (u32)({groups} - 1);
    const u32 before = add_release(counter, mine);
    while (!((before ^ load_acquire(counter)) & 0x80000000u)) {{}}
  }}
  {barrier}
}}
"""


def meeting(dialect: Dialect) -> str:
    """The function by which all groups meet."""
    words = {"barrier": dialect.barrier, "thread": dialect.thread, "group": dialect.group}
    return dialect.atomics + _MEETING.format(**words, groups=dialect.groups)


def may_join(programs: Sequence[Program], dialect: Dialect) -> bool:
    """Groups of any number of threads can run them, one unit after the other: nothing is under way
    from one to the next. Long ones gain little."""
    bodies = [statements(program.body) for program in programs]
    short = max(map(len, bodies)) <= LONG and sum(map(len, bodies)) <= LENGTH
    staged = any(isinstance(s, Instruction) and s.op == "copy" for body in bodies for s in body)
    outside = any(in_workspace(program, dialect) for program in programs)
    return bool(dialect.atomics) and short and not outside and not staged


def parties(program: Program, threads: int, dialect: Dialect) -> int:
    """How many units a group of so many threads works on side by side; 0: it cannot."""
    own = program.threads or threads
    if threads % dialect.lanes or own > threads:
        return 0
    if own == threads:
        return 1
    if own == dialect.lanes:
        return threads // own
    return min(NAMED, threads // own) if dialect.party and own % dialect.lanes == 0 else 0


def joined_shared_bytes(parts: Sequence[Program], threads: int, dialect: Dialect) -> int:
    """What the threads of a group share: the most of any part."""
    return max(shared_bytes(p) * parties(p, threads, dialect) for p in parts)


def place_of(program: Program, threads: int, dialect: Dialect) -> Place:
    """Neighbours in a group take units that lie far apart, so that few of them reach all groups."""
    d, own = dialect, program.threads
    if own == threads:
        return alone(program, d)
    if own is None:
        wave = f"({d.thread} / {d.lanes} * (i64){d.groups} + {d.group}) * {d.lanes}"
        return Place(f"{wave} + {d.thread} % {d.lanes}", f"(i64){d.groups} * {threads}",
                     d.thread, d.barrier)  # fmt: skip
    count = parties(program, threads, d)
    barrier = d.wave if own == d.lanes else d.party.format(number="party + 1", threads=own)
    return Place(f"(i64)party * {d.groups} + {d.group}", f"(i64){d.groups} * {count}",
                 f"({d.thread} % {own})", barrier, count)  # fmt: skip


def render_joined(joined: Joined, dialect: Dialect) -> str:
    """The text. Its kernel takes the buffers of the parts, the counter, the sizes and a
    workspace."""
    threads = joined.group
    functions, helpers, made = dict[str, str](), dict[str, str](), list[str]()
    for number, part in enumerate(joined.parts):
        text = Text(part, dialect, place_of(part, threads, dialect))
        party = ["const int party"] if text.place.parties > 1 else []
        made.append(text.function(f"{dialect.function} void", f"part_{number}", party))
        functions |= text.functions
        helpers |= text.helpers
    begin = dialect.kernel.format(threads=f"{threads}, {joined.held}")
    parameters, lines = _calls(joined, dialect, threads)
    kernel = f"{begin} {kernel_name(joined)}({', '.join(parameters)}) {{"
    own = head(dialect, functions, helpers)
    return "\n".join((*own, meeting(dialect), *made, kernel, *lines, "}", ""))


def _calls(joined: Joined, d: Dialect, threads: int) -> tuple[list[str], list[str]]:
    """(parameters, statements) of the kernel."""
    parameters, lines = list[str](), list[str]()

    def pointer(name: str, kind: str) -> str:
        parameters.append(d.buffer.format(space=d.space, type=kind, name=name, number=0))
        return name

    for number, (part, meets) in enumerate(zip(joined.parts, joined.meets, strict=True)):
        typed = Text(part, d)
        own = [pointer(f"p{number}_{n}", typed.stored(b.dtype)) for n, b in enumerate(part.buffers)]
        sizes = [f"d{joined.sizes.index(name)}" for name in part.sizes]
        if number:
            lines.append("  meet_all(counter);" if meets else f"  {d.barrier}")
        count = parties(part, threads, d)
        party = [f"{d.thread} / {part.threads}"] if count > 1 else []
        call = f"part_{number}({', '.join([*own, *sizes, 'workspace', *party])});"
        few = party and part.threads and count * part.threads < threads
        lines.append(f"  if ({party[0]} < {count}) {call}" if few else f"  {call}")
    pointer("counter", "u32")
    parameters += [d.size.format(name=f"d{n}", number=0) for n in range(len(joined.sizes))]
    pointer("workspace", "u8")
    return parameters, lines
