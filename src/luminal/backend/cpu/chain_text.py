"""The native side of chains (see `..table.Chain`): LLVM IR that runs rows unit by unit.

    chain   a row's function: takes units, and executes for each of them the rows of a record

Words of its record: rows, their number, units, patches, their number, blocks, bytes between
the blocks of two threads; at bytes 64 and 128 the next unit and how many threads are done. A row:
function, arguments, their bytes, where they are in a thread's block. A patch: where a pointer is in
the block, bytes from a thread's memory to the next one's, bytes of a unit's part.
"""

TEXT = """
define internal void @shift(ptr %block, ptr %patches, i64 %count, i64 %which, i64 %times) {
entry:
  br label %look
look:
  %i = phi i64 [0, %entry], [%next, %each]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %each, label %out
each:
  %offset = mul i64 %i, 24
  %patch = getelementptr i8, ptr %patches, i64 %offset
  %position = call i64 @word(ptr %patch, i64 0)
  %step = call i64 @word(ptr %patch, i64 %which)
  %slot = getelementptr i8, ptr %block, i64 %position
  %before = load i64, ptr %slot, align 8
  %way = mul i64 %step, %times
  %now = add i64 %before, %way
  store i64 %now, ptr %slot, align 8
  %next = add i64 %i, 1
  br label %look
out:
  ret void
}

define void @chain(ptr %record, i64 %thread, i64 %threads) {
entry:
  %rows = call ptr @pointer(ptr %record, i64 0)
  %count = call i64 @word(ptr %record, i64 1)
  %units = call i64 @word(ptr %record, i64 2)
  %patches = call ptr @pointer(ptr %record, i64 3)
  %patched = call i64 @word(ptr %record, i64 4)
  %blocks = call ptr @pointer(ptr %record, i64 5)
  %apart = call i64 @word(ptr %record, i64 6)
  %own = mul i64 %apart, %thread
  %block = getelementptr i8, ptr %blocks, i64 %own
  %next.at = getelementptr i8, ptr %record, i64 64
  %left.at = getelementptr i8, ptr %record, i64 128
  %high = shl i64 %thread, 32
  %alone = sub i64 0, %units
  br label %copy
copy:
  %k = phi i64 [0, %entry], [%k.next, %copy]
  %k.offset = mul i64 %k, 32
  %k.row = getelementptr i8, ptr %rows, i64 %k.offset
  %from = call ptr @pointer(ptr %k.row, i64 1)
  %bytes = call i64 @word(ptr %k.row, i64 2)
  %beyond = call i64 @word(ptr %k.row, i64 3)
  %to = getelementptr i8, ptr %block, i64 %beyond
  %copied = call ptr @memcpy(ptr %to, ptr %from, i64 %bytes)
  %k.next = add i64 %k, 1
  %k.more = icmp slt i64 %k.next, %count
  br i1 %k.more, label %copy, label %owned
owned:
  call void @shift(ptr %block, ptr %patches, i64 %patched, i64 1, i64 %thread)
  br label %claim
claim:
  %stood = phi i64 [0, %owned], [%unit, %each]
  %unit = atomicrmw add ptr %next.at, i64 1 monotonic
  %some = icmp slt i64 %unit, %units
  br i1 %some, label %first, label %leave
first:
  %place = or i64 %high, %unit
  %moved = sub i64 %stood, %unit
  call void @shift(ptr %block, ptr %patches, i64 %patched, i64 2, i64 %moved)
  br label %each
each:
  %i = phi i64 [0, %first], [%following, %each]
  %offset = mul i64 %i, 32
  %row = getelementptr i8, ptr %rows, i64 %offset
  %function = call ptr @pointer(ptr %row, i64 0)
  %behind = call i64 @word(ptr %row, i64 3)
  %arguments = getelementptr i8, ptr %block, i64 %behind
  call void %function(ptr %arguments, i64 %place, i64 %alone)
  %following = add i64 %i, 1
  %more = icmp slt i64 %following, %count
  br i1 %more, label %each, label %claim
leave:
  %before = atomicrmw add ptr %left.at, i64 1 acq_rel
  %gone = add i64 %before, 1
  %last = icmp eq i64 %gone, %threads
  br i1 %last, label %reset, label %out
reset:
  store atomic i64 0, ptr %next.at release, align 8
  store atomic i64 0, ptr %left.at release, align 8
  br label %out
out:
  ret void
}
"""
