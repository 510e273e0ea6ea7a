"""The native side of `loops.py`: LLVM IR for the steps of a loop in a plan.

Every thread has records and argument blocks of its own, so a step begins without any talk between
threads: each moves its own pointers. Only what is copied, before the first step and after the last,
is copied by thread 0; rows with barriers lie around.

    begin   counts from 0, places all pointers, copies what is carried; the rows to leave out
    turn    after a step: moves the pointers; the rows to go back, 0 where the loop is done

Words of a record: steps left; all steps; rows that `begin` leaves out without a step; rows that
`turn` goes back; where the pointer to the first condition is; where that to the next one is; how
many are carried; how many pointers. Then of each that is carried: where the pointer to its first
value is, where that is to which it is copied, its new pointer, where that to the result is, bytes.
Then the pointers: now, what it alternates with (exclusive or), where its start is, where the start
of the other is, bytes beyond, bytes a step, whose last value it goes on from, how many places have
it, those places.
"""

LEFT, COUNT, AHEAD, BACK, FIRST, NEXT, CARRIED, MOVED, HEAD = range(9)
CARRY_WORDS, POINTER_WORDS = 5, 8

TEXT = """
declare ptr @memcpy(ptr, ptr, i64)

define internal i64 @word(ptr %record, i64 %number) {
  %at = getelementptr i64, ptr %record, i64 %number
  %value = load i64, ptr %at, align 8
  ret i64 %value
}

define internal ptr @pointer(ptr %record, i64 %number) {
  %value = call i64 @word(ptr %record, i64 %number)
  %found = inttoptr i64 %value to ptr
  ret ptr %found
}

define internal i64 @behind(ptr %record, i64 %number) {
  %at = call ptr @pointer(ptr %record, i64 %number)
  %value = load i64, ptr %at, align 8
  ret i64 %value
}

define internal void @spread(ptr %pointer, i64 %now) {
entry:
  store i64 %now, ptr %pointer, align 8
  %count = call i64 @word(ptr %pointer, i64 7)
  br label %look
look:
  %i = phi i64 [0, %entry], [%next, %each]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %each, label %out
each:
  %number = add i64 %i, 8
  %target = call ptr @pointer(ptr %pointer, i64 %number)
  store i64 %now, ptr %target, align 8
  %next = add i64 %i, 1
  br label %look
out:
  ret void
}

define internal void @place(ptr %pointer) {
  %start = call i64 @behind(ptr %pointer, i64 2)
  %other = call i64 @behind(ptr %pointer, i64 3)
  %flip = xor i64 %start, %other
  %flip.at = getelementptr i64, ptr %pointer, i64 1
  store i64 %flip, ptr %flip.at, align 8
  %beyond = call i64 @word(ptr %pointer, i64 4)
  %now = add i64 %start, %beyond
  call void @spread(ptr %pointer, i64 %now)
  ret void
}

define internal void @advance(ptr %pointer) {
  %before = call i64 @behind(ptr %pointer, i64 6)
  %flip = call i64 @word(ptr %pointer, i64 1)
  %step = call i64 @word(ptr %pointer, i64 5)
  %turned = xor i64 %before, %flip
  %now = add i64 %turned, %step
  call void @spread(ptr %pointer, i64 %now)
  ret void
}

define internal void @copy(ptr %carry, i64 %which) {
entry:
  %behind = add i64 %which, 1
  %source = call i64 @behind(ptr %carry, i64 %which)
  %target = call i64 @behind(ptr %carry, i64 %behind)
  %there = icmp eq i64 %target, %source
  br i1 %there, label %out, label %needed
needed:
  %to = inttoptr i64 %target to ptr
  %from = inttoptr i64 %source to ptr
  %bytes = call i64 @word(ptr %carry, i64 4)
  %r = call ptr @memcpy(ptr %to, ptr %from, i64 %bytes)
  br label %out
out:
  ret void
}

define internal ptr @carries(ptr %record, i64 %which, i64 %mine) {
entry:
  %count = call i64 @word(ptr %record, i64 6)
  %first = getelementptr i64, ptr %record, i64 8
  br label %look
look:
  %i = phi i64 [0, %entry], [%next, %done]
  %carry = phi ptr [%first, %entry], [%following, %done]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %each, label %out
each:
  %acts = icmp ne i64 %mine, 0
  br i1 %acts, label %now, label %done
now:
  call void @copy(ptr %carry, i64 %which)
  br label %done
done:
  %next = add i64 %i, 1
  %following = getelementptr i64, ptr %carry, i64 5
  br label %look
out:
  ret ptr %carry
}

define internal void @pointers(ptr %record, ptr %act) {
entry:
  %first = call ptr @carries(ptr %record, i64 0, i64 0)
  %count = call i64 @word(ptr %record, i64 7)
  br label %look
look:
  %i = phi i64 [0, %entry], [%next, %each]
  %pointer = phi ptr [%first, %entry], [%following, %each]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %each, label %out
each:
  call void %act(ptr %pointer)
  %places = call i64 @word(ptr %pointer, i64 7)
  %words = add i64 %places, 8
  %following = getelementptr i64, ptr %pointer, i64 %words
  %next = add i64 %i, 1
  br label %look
out:
  ret void
}

define internal i1 @holds(ptr %record, i64 %number, i64 %left) {
entry:
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %look, label %out
look:
  %where = call i64 @word(ptr %record, i64 %number)
  %asked = icmp ne i64 %where, 0
  br i1 %asked, label %ask, label %out
ask:
  %address = call i64 @behind(ptr %record, i64 %number)
  %at = inttoptr i64 %address to ptr
  %byte = load i8, ptr %at, align 1
  %true = icmp ne i8 %byte, 0
  br label %out
out:
  %goes = phi i1 [false, %entry], [true, %look], [%true, %ask]
  ret i1 %goes
}

define i64 @begin(ptr %record, i64 %thread, i64 %threads) {
entry:
  call void @pointers(ptr %record, ptr @place)
  %first = icmp eq i64 %thread, 0
  %mine = zext i1 %first to i64
  %end = call ptr @carries(ptr %record, i64 0, i64 %mine)
  %count = call i64 @word(ptr %record, i64 1)
  %goes = call i1 @holds(ptr %record, i64 4, i64 %count)
  %left = select i1 %goes, i64 %count, i64 0
  store i64 %left, ptr %record, align 8
  %ahead = call i64 @word(ptr %record, i64 2)
  %jump = select i1 %goes, i64 0, i64 %ahead
  ret i64 %jump
}

define i64 @turn(ptr %record, i64 %thread, i64 %threads) {
entry:
  %before = call i64 @word(ptr %record, i64 0)
  %stepped = icmp sgt i64 %before, 0
  br i1 %stepped, label %count, label %out
count:
  %left = sub i64 %before, 1
  store i64 %left, ptr %record, align 8
  %goes = call i1 @holds(ptr %record, i64 5, i64 %left)
  br i1 %goes, label %again, label %last
again:
  call void @pointers(ptr %record, ptr @advance)
  %back = call i64 @word(ptr %record, i64 3)
  ret i64 %back
last:
  %first = icmp eq i64 %thread, 0
  %mine = zext i1 %first to i64
  %end = call ptr @carries(ptr %record, i64 2, i64 %mine)
  br label %out
out:
  ret i64 0
}

define internal i64 @row(ptr %row, i64 %thread, i64 %threads) {
entry:
  %function = call ptr @pointer(ptr %row, i64 0)
  %base = call i64 @word(ptr %row, i64 1)
  %flags = call i64 @word(ptr %row, i64 2)
  %apart = call i64 @word(ptr %row, i64 3)
  %mine = mul i64 %apart, %thread
  %address = add i64 %base, %mine
  %arguments = inttoptr i64 %address to ptr
  %loops = icmp ugt i64 %flags, 1
  br i1 %loops, label %loop, label %kernel
loop:
  %jump = call i64 %function(ptr %arguments, i64 %thread, i64 %threads)
  ret i64 %jump
kernel:
  call void %function(ptr %arguments, i64 %thread, i64 %threads)
  ret i64 0
}
"""
