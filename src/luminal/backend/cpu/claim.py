"""How threads share out the units of a parallel loop."""

from __future__ import annotations

from collections.abc import Callable

from .emitter import Emitter, Operand

LINE = 64  # bytes: every counter has a cache line of its own
PLACE = """\
  ; see `contract.py`: whose units, of how many; alone: no other thread takes from them
  %own = alloca i64, align 8
  %alone = icmp slt i64 %of, 0
  %parts = sub i64 0, %of
  %nt = select i1 %alone, i64 %parts, i64 %of
  %tid = and i64 %at, 4294967295
  %far = lshr i64 %at, 32
  %worker = select i1 %alone, i64 %far, i64 %tid"""


def render_claim(
    e: Emitter,
    number: int,
    counters: Operand,
    count: Operand,
    var: Operand,
    body: Callable[[], None],
) -> None:
    """Units 0 .. count - 1 in contiguous ranges, one counter for each thread.

    A thread takes the units of its own range first, so that it meets the same data in every run,
    and then helps the others. The last thread to leave sets all counters back to zero. In a chain
    (`chain_text`) it takes those of its own range only, with a counter of its own.
    `number`: which claim of the program this is; each has counters of its own.
    """
    first = _counter(e, counters, number, "0")
    e.line("store i64 0, ptr %own, align 8")
    most = e.let("select i1 %alone, i64 1, i64 %nt", "i64")
    turn, head, unit, following, done = map(e.label, ("turn", "claim", "unit", "next", "done"))
    before, hop = e.block, Operand(f"%{turn}.hop", "i64")
    e.line(f"br label %{turn}")
    e.start(turn)
    mark = len(e.lines)
    low, high, counter = _range(e, first, count, hop)
    e.line(f"br label %{head}")
    e.start(head)
    taken = e.let(f"atomicrmw add ptr {counter.text}, i64 1 monotonic", "i64")
    e.line(f"{var.text} = add i64 {low.text}, {taken.text}")
    some = e.let(f"icmp slt i64 {var.text}, {high.text}", "i1")
    e.line(f"br i1 {some.text}, label %{unit}, label %{following}")
    e.start(unit)
    body()
    e.line(f"br label %{head}")
    e.start(following)
    hops = e.let(f"add i64 {hop.text}, 1", "i64")
    more = e.let(f"icmp slt i64 {hops.text}, {most.text}", "i1")
    e.line(f"br i1 {more.text}, label %{turn}, label %{done}")
    e.lines[mark:mark] = [f"  {hop.text} = phi i64 [0, %{before}], [{hops.text}, %{following}]"]
    e.start(done)
    _leave(e, first)


def _counter(e: Emitter, base: Operand, claim: int, thread: str) -> Operand:
    """The counter of a thread in a claim; each claim has one for every thread and one to leave."""
    position = e.let("add i64 %nt, 1", "i64")
    position = e.let(f"mul i64 {position.text}, {claim}", "i64")
    position = e.let(f"add i64 {position.text}, {thread}", "i64")
    offset = e.let(f"mul i64 {position.text}, {LINE}", "i64")
    return e.let(f"getelementptr i8, ptr {base.text}, {offset.typed}", "ptr")


def _range(
    e: Emitter, first: Operand, count: Operand, hop: Operand
) -> tuple[Operand, Operand, Operand]:
    """First unit, end and counter of the thread that is `hop` places after this one."""
    victim = e.let(f"add i64 %tid, {hop.text}", "i64")
    victim = e.let(f"urem i64 {victim.text}, %nt", "i64")
    bounds = []
    for position in (victim, e.let(f"add i64 {victim.text}, 1", "i64")):
        bound = e.let(f"mul i64 {position.text}, {count.text}", "i64")
        bounds.append(e.let(f"udiv i64 {bound.text}, %nt", "i64"))
    offset = e.let(f"mul i64 {victim.text}, {LINE}", "i64")
    shared = e.let(f"getelementptr i8, ptr {first.text}, {offset.typed}", "ptr")
    counter = e.let(f"select i1 %alone, ptr %own, ptr {shared.text}", "ptr")
    return bounds[0], bounds[1], counter


def _leave(e: Emitter, first: Operand) -> None:
    leave, reset, each, out = map(e.label, ("leave", "reset", "each", "out"))
    e.line(f"br i1 %alone, label %{out}, label %{leave}")
    e.start(leave)
    size = e.let(f"mul i64 %nt, {LINE}", "i64")
    gate = e.let(f"getelementptr i8, ptr {first.text}, {size.typed}", "ptr")
    order = e.let(f"atomicrmw add ptr {gate.text}, i64 1 acq_rel", "i64")
    order = e.let(f"add i64 {order.text}, 1", "i64")
    last = e.let(f"icmp eq i64 {order.text}, %nt", "i1")
    e.line(f"br i1 {last.text}, label %{reset}, label %{out}")
    e.start(reset)
    e.line(f"br label %{each}")
    e.start(each)
    mark, i = len(e.lines), Operand(f"%{each}.i", "i64")
    offset = e.let(f"mul i64 {i.text}, {LINE}", "i64")
    counter = e.let(f"getelementptr i8, ptr {first.text}, {offset.typed}", "ptr")
    e.line(f"store i64 0, ptr {counter.text}, align 8")
    following = e.let(f"add i64 {i.text}, 1", "i64")
    more = e.let(f"icmp sle i64 {following.text}, %nt", "i1")
    e.line(f"br i1 {more.text}, label %{each}, label %{out}")
    e.lines[mark:mark] = [f"  {i.text} = phi i64 [0, %{reset}], [{following.text}, %{each}]"]
    e.start(out)
