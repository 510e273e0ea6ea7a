"""The native side of `workers.py`: LLVM IR that executes a plan table on all threads of a crew.

A row of a table is 32 bytes: function, arguments, flags (1: a barrier follows, unless the row
jumps; 2: of a loop, see `loop_text`), bytes between the arguments of two threads. The control block
holds, on cache lines of their own: the generation (a new number starts a run; sleepers wait on it),
how many arrivals at barriers there have been ever, the plan posted last.

    alone   executes a plan on the calling thread; needs no control block
    post    publishes a plan: the barrier count at its start, then a new generation
    step    executes the posted plan as one thread, and reports its arrival
    finish  executes it as thread 0 and waits for all
    lead    post, wake sleepers, finish           (Linux)
    work    waits, by spinning and then asleep, executes, until a plan of negative length  (Linux)
    timed   executes a row, and writes behind it when each thread began and ended  (Linux)
"""

from __future__ import annotations

from . import chain_text, loop_text
from .target import Machine

CONTROL = {  # byte offsets
    "GENERATION": 0, "ARRIVED": 64, "TABLE": 128, "COUNT": 136, "BASE": 144, "THREADS": 152,
    "SPINS": 160, "PATIENCE": 168, "SLEEPERS": 192, "RESTING": 256, "HOME": 320, "TAKEN": 448,
}  # fmt: skip
CONTROL_BYTES = CONTROL["TAKEN"] + 1024
CPUS = 1024  # HOME: a set of CPUs as bits, TAKEN: a byte for each CPU that has a worker

FUTEX = {"x86_64": 202, "aarch64": 98}


def crew_text(machine: Machine) -> str:
    """The module for this machine; `work` and `lead` only where threads can sleep on a futex."""
    sleeps = can_sleep(machine)
    text = loop_text.TEXT + chain_text.TEXT + _COMMON + (_FUTEX if sleeps else _NO_FUTEX)
    pause = "pause" if machine.is_x86 else "yield"
    names = {
        **{f"{name}/8": at // 8 for name, at in CONTROL.items()},  # numbers of words
        "PAUSE": f'call void asm sideeffect "{pause}", "~{{memory}}"()',
        "FUTEX": FUTEX.get(machine.triple.split("-")[0], 0),
        **CONTROL,
    }
    for name, value in names.items():
        text = text.replace(f"${name}$", str(value))
    return text


def can_sleep(machine: Machine) -> bool:
    """Linux on a processor whose system call numbers are known."""
    return "linux" in machine.triple and machine.triple.split("-")[0] in FUTEX


_COMMON = """
define void @pauses(i64 %count) {
entry:
  br label %look
look:
  %turn = phi i64 [0, %entry], [%next, %look]
  $PAUSE$
  %next = add i64 %turn, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %look, label %out
out:
  ret void
}

define internal void @arrive(ptr %control) {
  %arrived = getelementptr i8, ptr %control, i64 $ARRIVED$
  %resting = getelementptr i8, ptr %control, i64 $RESTING$
  %mine = atomicrmw add ptr %arrived, i64 1 seq_cst
  call void @rouse(ptr %resting, ptr %arrived)
  ret void
}

define internal i64 @barrier(ptr %control, i64 %before, i64 %threads) {
entry:
  %arrived = getelementptr i8, ptr %control, i64 $ARRIVED$
  %resting = getelementptr i8, ptr %control, i64 $RESTING$
  %patience = call i64 @word(ptr %control, i64 $PATIENCE/8$)
  %all = add i64 %before, %threads
  call void @arrive(ptr %control)
  br label %look
look:
  %turn = phi i64 [0, %entry], [%next, %wait], [0, %rest]
  %now = load atomic i64, ptr %arrived acquire, align 8
  %done = icmp sge i64 %now, %all
  br i1 %done, label %out, label %longer
longer:
  %next = add i64 %turn, 1
  %patient = icmp slt i64 %next, %patience
  br i1 %patient, label %wait, label %rest
wait:
  $PAUSE$
  br label %look
rest:
  %seen = trunc i64 %now to i32
  call void @doze(ptr %resting, ptr %arrived, i32 %seen)
  br label %look
out:
  ret i64 %all
}

define internal i64 @rows(
    ptr %control, ptr %table, i64 %count, i64 %base, i64 %thread, i64 %threads) {
entry:
  %several = icmp ugt i64 %threads, 1
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %entries, label %out
entries:
  %i = phi i64 [0, %entry], [%next, %following]
  %before = phi i64 [%base, %entry], [%after, %following]
  %offset = mul i64 %i, 32
  %row = getelementptr i8, ptr %table, i64 %offset
  %flags = call i64 @word(ptr %row, i64 2)
  %jump = call i64 @row(ptr %row, i64 %thread, i64 %threads)
  %following.row = add i64 %i, 1
  %next = add i64 %following.row, %jump
  %more = icmp slt i64 %next, %count
  %barrier = and i64 %flags, 1
  %wanted = icmp ne i64 %barrier, 0
  %straight = icmp eq i64 %jump, 0
  %waits = and i1 %wanted, %straight
  %ready = and i1 %more, %several
  %meet = and i1 %ready, %waits
  br i1 %meet, label %meeting, label %following
meeting:
  %met = call i64 @barrier(ptr %control, i64 %before, i64 %threads)
  br label %following
following:
  %after = phi i64 [%before, %entries], [%met, %meeting]
  br i1 %more, label %entries, label %out
out:
  %end = phi i64 [%base, %entry], [%after, %following]
  ret i64 %end
}

define internal i64 @execute(ptr %control, i64 %thread) {
  %table = call ptr @pointer(ptr %control, i64 $TABLE/8$)
  %count = call i64 @word(ptr %control, i64 $COUNT/8$)
  %base = call i64 @word(ptr %control, i64 $BASE/8$)
  %threads = call i64 @word(ptr %control, i64 $THREADS/8$)
  %end = call i64 @rows(
    ptr %control, ptr %table, i64 %count, i64 %base, i64 %thread, i64 %threads)
  ret i64 %end
}

define void @post(ptr %control, ptr %table, i64 %count) {
  %table.at = getelementptr i8, ptr %control, i64 $TABLE$
  store ptr %table, ptr %table.at, align 8
  %count.at = getelementptr i8, ptr %control, i64 $COUNT$
  store i64 %count, ptr %count.at, align 8
  %arrived.at = getelementptr i8, ptr %control, i64 $ARRIVED$
  %arrived = load atomic i64, ptr %arrived.at acquire, align 8
  %base.at = getelementptr i8, ptr %control, i64 $BASE$
  store i64 %arrived, ptr %base.at, align 8
  %generation = atomicrmw add ptr %control, i32 1 seq_cst
  ret void
}

define void @alone(ptr %table, i64 %count) {
  %end = call i64 @rows(ptr null, ptr %table, i64 %count, i64 0, i64 0, i64 1)
  ret void
}

define void @step(ptr %control, i64 %thread) {
  %end = call i64 @execute(ptr %control, i64 %thread)
  call void @arrive(ptr %control)
  ret void
}

define void @finish(ptr %control) {
  %end = call i64 @execute(ptr %control, i64 0)
  %threads = call i64 @word(ptr %control, i64 $THREADS/8$)
  %all = call i64 @barrier(ptr %control, i64 %end, i64 %threads)
  ret void
}
"""

_NO_FUTEX = """
define internal void @rouse(ptr %sleepers, ptr %word) {
  ret void
}
define internal void @doze(ptr %sleepers, ptr %word, i32 %seen) {
  ret void
}
"""

_FUTEX = """
declare i64 @syscall(i64, ...)
declare i32 @clock_gettime(i32, ptr)
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)

define internal void @doze(ptr %sleepers, ptr %word, i32 %seen) {
  %more = atomicrmw add ptr %sleepers, i32 1 seq_cst
  %r = call i64 (i64, ...)
    @syscall(i64 $FUTEX$, ptr %word, i32 128, i32 %seen, ptr null, ptr null, i32 0)
  %fewer = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  ret void
}

define internal void @rouse(ptr %sleepers, ptr %word) {
entry:
  %count = load atomic i32, ptr %sleepers seq_cst, align 4
  %some = icmp ne i32 %count, 0
  br i1 %some, label %call, label %out
call:
  %r = call i64 (i64, ...)
    @syscall(i64 $FUTEX$, ptr %word, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  br label %out
out:
  ret void
}

define void @work(ptr %control, i64 %thread) {
entry:
  %sleepers = getelementptr i8, ptr %control, i64 $SLEEPERS$
  %spins = call i64 @word(ptr %control, i64 $SPINS/8$)
  br label %idle
idle:
  %last = phi i32 [0, %entry], [%generation, %run]
  br label %look
look:
  %turn = phi i64 [0, %idle], [%next, %wait]
  %seen = load atomic i32, ptr %control acquire, align 4
  %started = icmp ne i32 %seen, %last
  br i1 %started, label %go, label %wait
wait:
  $PAUSE$
  %next = add i64 %turn, 1
  %patient = icmp slt i64 %next, %spins
  br i1 %patient, label %look, label %sleep
sleep:
  call void @doze(ptr %sleepers, ptr %control, i32 %last)
  %woken = load atomic i32, ptr %control seq_cst, align 4
  %really = icmp ne i32 %woken, %last
  br i1 %really, label %go, label %sleep
go:
  %generation = phi i32 [%seen, %look], [%woken, %sleep]
  %count = call i64 @word(ptr %control, i64 $COUNT/8$)
  %stop = icmp slt i64 %count, 0
  br i1 %stop, label %out, label %run
run:
  call void @step(ptr %control, i64 %thread)
  br label %idle
out:
  ret void
}

define void @lead(ptr %control, ptr %table, i64 %count) {
entry:
  %cpu = call i32 @sched_getcpu()
  %known = icmp ult i32 %cpu, 1024
  br i1 %known, label %where, label %start
where:
  %taken.at = getelementptr i8, ptr %control, i64 $TAKEN$
  %mine.at = getelementptr i8, ptr %taken.at, i32 %cpu
  %mine = load i8, ptr %mine.at, align 1
  %taken = icmp ne i8 %mine, 0
  br i1 %taken, label %move, label %start
move:
  call void @move(ptr %control)
  br label %start
start:
  call void @post(ptr %control, ptr %table, i64 %count)
  call void @wake(ptr %control)
  call void @finish(ptr %control)
  ret void
}

define internal void @move(ptr %control) {
entry:
  %allowed = alloca [128 x i8], align 8
  %found = call i32 @sched_getaffinity(i32 0, i64 128, ptr %allowed)
  %fine = icmp sge i32 %found, 0
  br i1 %fine, label %there, label %out
there:
  %home = getelementptr i8, ptr %control, i64 $HOME$
  %moved = call i32 @sched_setaffinity(i32 0, i64 128, ptr %home)
  %back = call i32 @sched_setaffinity(i32 0, i64 128, ptr %allowed)
  br label %out
out:
  ret void
}

define void @wake(ptr %control) {
  %sleepers = getelementptr i8, ptr %control, i64 $SLEEPERS$
  call void @rouse(ptr %sleepers, ptr %control)
  ret void
}

define internal i64 @nanoseconds() {
  %time = alloca [2 x i64], align 8
  %r = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest.at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.at, align 8
  %whole = mul i64 %seconds, 1000000000
  %all = add i64 %whole, %rest
  ret i64 %all
}

define void @timed(ptr %record, i64 %thread, i64 %threads) {
  %words = mul i64 %thread, 2
  %behind = add i64 %words, 4
  %log = getelementptr i64, ptr %record, i64 %behind
  %began = call i64 @nanoseconds()
  %jump = call i64 @row(ptr %record, i64 %thread, i64 %threads)
  %ended = call i64 @nanoseconds()
  store i64 %began, ptr %log, align 8
  %second = getelementptr i8, ptr %log, i64 8
  store i64 %ended, ptr %second, align 8
  ret void
}
"""
