"""What differs between the C-like languages: a row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LONG = {
    "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long",
    "u8": "unsigned char", "u16": "unsigned short", "u32": "unsigned int",
    "u64": "unsigned long long", "f32": "float", "f64": "double",
}  # fmt: skip
SHORT = LONG | {"i64": "long", "u64": "unsigned long"}  # where a long has 64 bits everywhere
SUFFIXED = {
    name: {"f32": f"{call}f", "f64": call}
    for name, call in (
        ("sqrt", "sqrt"), ("exp2", "exp2"), ("log2", "log2"), ("sin", "sin"), ("cos", "cos"),
        ("floor", "floor"), ("ceil", "ceil"), ("trunc", "trunc"), ("round", "rint"),
        ("fma", "fma"), ("fmod", "fmod"), ("copysign", "copysign"), ("fabs", "fabs"),
    )
}  # fmt: skip
OVERLOADED = {name: dict.fromkeys(("f32", "f64"), row["f64"]) for name, row in SUFFIXED.items()}


@dataclass(frozen=True)
class Dialect:
    """One language.

    header: what stands before everything: bits_f32(x), bits_f64(x), f32_of(bits), f64_of(bits) are
    functions or macros there. types: the language's name of each dtype's. function, kernel: how
    definitions begin, a kernel's formatted with the most `threads` of a group. space: of memory
    that all workers see. size: a parameter, formatted with its `name` and `number` (as buffers
    are). own, part, shared: definitions of a tile that a worker holds itself, has in the workspace,
    or that the threads of a group share, formatted with `type`, `name`, `count` of elements and, in
    bytes, `at`. parameters: further ones. worker, workers: the number of the worker, and of all.
    calls: functions, by operation and dtype. private: bytes of tiles that a worker may have in
    registers or on its stack. infinity: of f32. lacks: dtypes. group, groups, thread: the number of
    the group, of all groups, of the thread in its group. barrier: where the threads of a group
    meet; "" where there are none. exchange: of a `value` between two threads that differ in one
    `bit`. registers: of a multiprocessor, where a kernel may say how many groups shall fit.
    staging: how staged operands are brought and waited for, by operation, and the text of functions
    that this calls. natives: what the machine has instructions for: where it does,
    in words of the preprocessor, and by the name of a helper its body.
    """

    name: str
    header: str
    types: Mapping[str, str]
    function: str
    kernel: str
    worker: str
    workers: str
    space: str = ""
    buffer: str = "{space}{type}* {name}"
    size: str = "const i64 {name}"
    own: str = "{type} {name}[{count}];"
    part: str = "{space}{type}* {name} = ({space}{type}*)(workspace + {at});"
    parameters: tuple[str, ...] = ()
    calls: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: SUFFIXED)
    infinity: str = "INFINITY"
    private: int = 4096
    lacks: tuple[str, ...] = ()
    group: str = ""
    groups: str = ""
    thread: str = ""
    barrier: str = ""
    exchange: str = ""
    shared: str = ""
    matrices: Mapping[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)
    staging: Mapping[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)
    words: tuple[str, str] = ("", "")
    registers: int = 0
    atomics: str = ""
    lanes: int = 32
    wave: str = ""
    party: str = ""
    shared_of: str = ""
    natives: tuple[str, Mapping[str, str]] = ("0", {})
    casts: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def native(self, name: str, text: str) -> str:
        """A helper, by the machine's own instructions where it has them."""
        where, bodies = self.natives
        if name not in bodies:
            return text
        begin, ours = text.rstrip("}").split("{", 1)
        return f"{begin}{{\n#if {where}\n  {bodies[name]}\n#else\n {ours}\n#endif\n}}"


C = Dialect(
    "c",
    "#include <math.h>\n#include <stdbool.h>\n" + "".join(
        f"#define {name}(a) ((union {{ {of} x; {to} y; }}){{ a }}.y)\n"
        for name, to, of in (("bits_f32", "u32", "f32"), ("bits_f64", "u64", "f64"),
                             ("f32_of", "f32", "u32"), ("f64_of", "f64", "u64"))
    ),
    LONG, "static inline", "void", "worker", "workers",
    parameters=("const i64 worker", "const i64 workers"),
)  # fmt: skip
OPENCL = Dialect(
    "opencl",
    "#pragma OPENCL FP_CONTRACT OFF\n"
    "#define bits_f32 as_uint\n#define bits_f64 as_ulong\n"
    "#define f32_of as_float\n#define f64_of as_double\n",
    SHORT, "static", "__kernel void", "get_global_id(0)", "get_global_size(0)",
    space="__global ", calls=OVERLOADED,
    group="get_group_id(0)", groups="get_num_groups(0)", thread="get_local_id(0)",
    barrier="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    shared="__local {type} {name}[{count}];",
)  # fmt: skip
_POINTERS = """#ifndef LUMINAL_SIMULATED
template <class T> using buffer = T*;
template <class T, int N> using local = T[N];
template <class T> __device__ inline T* part_of(unsigned char* all, long long at, long long)
{ return (T*)(all + at); }
template <int N, class R> struct __align__(4 * N) words { R all[N]; };
template <int N, class R, class T> __device__ inline void load_words(R (&to)[N], const T* from)
{ const words<N, R> w = *(const words<N, R>*)from; for (int n = 0; n < N; n++) to[n] = w.all[n]; }
template <int N, class R, class T> __device__ inline void store_words(T* to, const R (&from)[N])
{ words<N, R> w; for (int n = 0; n < N; n++) w.all[n] = from[n]; *(words<N, R>*)to = w; }
"""  # the simulator has its own, which know how far memory reaches
_MEMORY = _POINTERS + """
template <class T> __device__ inline T* shared_part(long long at, long long)
{ extern __shared__ __align__(1024) unsigned char shared_bytes[]; return (T*)(shared_bytes + at); }
#endif
"""
_WORDS = ("load_words<{count}>({name}, {memory} + ({place}));",
          "store_words<{count}>({memory} + ({place}), {name});")  # fmt: skip
_PART = "buffer<{type}> {name} = part_of<{type}>(workspace, {at}, {count});"
_ROUND = 'u16 r; asm("cvt.rn.{0}.f32 %0, %1;" : "=h"(r) : "f"(a)); return r;'
_EXTREME = 'f32 r; asm("{}.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r;'
_CUDA_NATIVES = {  # PTX ISA, "cvt": to nearest, ties to even; NaN is one of them
    "max_f32": _EXTREME.format("max"), "min_f32": _EXTREME.format("min"),
    "f32_of_f16": 'f32 r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(a)); return r;',
    "f16_of_f32": _ROUND.format("f16"), "bf16_of_f32": _ROUND.format("bf16"),
}
_CUDA_CASTS = {  # the last bits of 2^23 and more are ones; a conversion takes eight times as long
    ("u8", "f32"): "(f32_of(0x4b000000u | (u32)({a})) - 8388608.0f)",
    ("i8", "f32"): "(f32_of(0x4b000080u ^ (u32)(u8)({a})) - 8388736.0f)",
}
_ATOMICS = """#ifndef LUMINAL_SIMULATED
static __device__ inline u32 add_release(u32* at, u32 n)
{ u32 old; asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;"
    : "=r"(old) : "l"(at), "r"(n) : "memory"); return old; }
static __device__ inline u32 load_acquire(u32* at)
{ u32 now; asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(at) : "memory");
  return now; }
static __device__ inline void party_meets(int number, int threads)
{ asm volatile("bar.sync %0, %1;" :: "r"(number), "r"(threads) : "memory"); }
#endif
"""  # PTX ISA, "Memory consistency model": a release after bar.sync covers what the block did
CUDA = Dialect(
    "cuda",
    "#define INFINITY __int_as_float(0x7f800000)\n"
    "#define bits_f32 __float_as_uint\n#define bits_f64(x) ((u64)__double_as_longlong(x))\n"
    "#define f32_of __uint_as_float\n#define f64_of(x) __longlong_as_double((i64)(x))\n" + _MEMORY,
    LONG, "static __device__ inline", 'extern "C" __launch_bounds__({threads}) __global__ void',
    "(i64)blockIdx.x * blockDim.x + threadIdx.x", "(i64)gridDim.x * blockDim.x",
    buffer="buffer<{type}> {name}", own="local<{type}, {count}> {name};",
    part=_PART,
    shared="buffer<{type}> {name} = shared_part<{type}>({at}, {count});",
    calls={**SUFFIXED, "mul": {"f32": "__fmul_rn", "f64": "__dmul_rn"}},  # of no fused operation
    group="blockIdx.x", groups="gridDim.x", thread="threadIdx.x", barrier="__syncthreads();",
    exchange="lane_xor({value}, {bit})",
    words=_WORDS, registers=1 << 16,
    atomics=_ATOMICS, wave="__syncwarp();", party="party_meets({number}, {threads});",
    shared_of="buffer<{type}> {name} = shared_part<{type}>({at} + party * {step}, {count});",
    natives=("__CUDA_ARCH__ >= 800", _CUDA_NATIVES), casts=_CUDA_CASTS,
)  # fmt: skip
_AMD = """#ifndef __global__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(n, ...) __attribute__((amdgpu_flat_work_group_size(1, n)))
#define __align__(n) __attribute__((aligned(n)))
#endif
""" + _POINTERS + """
#define SHARED(T, name, count, at) static __shared__ __align__(16) T name[count]
#else
#define SHARED(T, name, count, at) buffer<T> name = shared_part<T>(at, count)
#endif
#define INFINITY __builtin_inff()
template <class To, class Of> static __device__ inline To same_bits(Of a)
{ To b; __builtin_memcpy(&b, &a, sizeof b); return b; }
#define bits_f32 same_bits<u32, f32>
#define bits_f64 same_bits<u64, f64>
#define f32_of same_bits<f32, u32>
#define f64_of same_bits<f64, u64>
static __device__ inline f32 of_turn(f32 a)  /* near 0, as the hardware's functions want it */
{ f32 n = __builtin_rintf(a * 0.15915494f); return __builtin_fmaf(n, 1.7484555e-7f,
  __builtin_fmaf(n, -6.2831855f, a)); }
static __device__ inline f32 sin_of(f32 a) { return __builtin_sinf(of_turn(a)); }
static __device__ inline f32 cos_of(f32 a) { return __builtin_cosf(of_turn(a)); }
static __device__ inline void wave_meets()
{ __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront"); __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront"); }
static __device__ inline void meet()
{ __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"); }
template <class T> static __device__ inline T partner(T value, int bit)  /* a group is a wave */
{ int w[(sizeof(T) + 3) / 4] = {}; __builtin_memcpy(w, &value, sizeof value);
  for (int& one : w)
    one = __builtin_amdgcn_ds_bpermute((__builtin_amdgcn_workitem_id_x() ^ bit) << 2, one);
  __builtin_memcpy(&value, w, sizeof value); return value; }
"""
_AMD_CALLS = {
    name: {kind: f"__builtin_{call}" for kind, call in row.items()}
    for name, row in SUFFIXED.items()
}
_ITEM, _GROUP = "__builtin_amdgcn_workitem_id_x()", "__builtin_amdgcn_workgroup_id_x()"
_SIZE, _ALL = "__builtin_amdgcn_workgroup_size_x()", "__builtin_amdgcn_grid_size_x()"
_AMD_ATOMICS = """#ifndef LUMINAL_SIMULATED
static __device__ inline u32 add_release(u32* at, u32 n)
{ __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
  return __atomic_fetch_add(at, n, __ATOMIC_RELAXED); }
static __device__ inline u32 load_acquire(u32* at)
{ const u32 now = __atomic_load_n(at, __ATOMIC_RELAXED);
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent"); return now; }
#endif
"""
HIP = Dialect(  # the compiler's own functions: neither headers nor libraries are needed
    "hip", "#pragma clang fp contract(off)\n" + _AMD, LONG, "static __device__ inline",
    'extern "C" __launch_bounds__({threads}) __global__ void',
    f"(i64){_GROUP} * {_SIZE} + {_ITEM}", f"(i64){_ALL}",
    buffer="buffer<{type}> {name}", own="local<{type}, {count}> {name};", part=_PART,
    shared="SHARED({type}, {name}, {count}, {at});", words=_WORDS,
    calls={**_AMD_CALLS, "sin": {"f32": "sin_of"}, "cos": {"f32": "cos_of"}},
    group=_GROUP, groups=f"({_ALL} / {_SIZE})", thread=_ITEM, barrier="meet();",
    exchange="partner({value}, {bit})", atomics=_AMD_ATOMICS, lanes=64, wave="wave_meets();",
    shared_of="SHARED({type}, {name}_all, {parties} * {step} / sizeof({type}), {at}); "
              "buffer<{type}> {name} = {name}_all + party * ({step} / sizeof({type}));",
    natives=("!defined(LUMINAL_SIMULATED)", {
        "f32_of_f16": "return same_bits<_Float16>(a);",
        "f16_of_f32": "return same_bits<u16>((_Float16)a);",
    }),
)  # fmt: skip
METAL = Dialect(
    "metal",
    """#ifndef LUMINAL_SIMULATED
#include <metal_stdlib>
#endif
using namespace metal;
#define bits_f32 as_type<u32>
#define f32_of as_type<f32>
template <class T> inline T partner(T value, ushort bit) { return simd_shuffle_xor(value, bit); }
template <> inline bool partner(bool value, ushort bit) { return partner((u32)value, bit) != 0; }
template <class T> inline T halves(T value, ushort bit)
{ uint2 w = as_type<uint2>(value); return as_type<T>(uint2(partner(w.x, bit), partner(w.y, bit))); }
template <> inline i64 partner(i64 value, ushort bit) { return halves(value, bit); }
template <> inline u64 partner(u64 value, ushort bit) { return halves(value, bit); }
""",
    {name: text for name, text in SHORT.items() if name != "f64"},
    "static inline", "kernel void", "grid_number", "grid_size",
    space="device ", buffer="{space}{type}* {name} [[buffer({number})]]",
    size="constant i64& {name} [[buffer({number})]]",
    parameters=("uint grid_number [[thread_position_in_grid]]",
                "uint grid_size [[threads_per_grid]]",
                "uint group_number [[threadgroup_position_in_grid]]",
                "uint group_count [[threadgroups_per_grid]]",
                "uint thread_number [[thread_position_in_threadgroup]]"),
    calls={name: {"f32": f"precise::{row['f64']}" if name in ("exp2", "log2", "sin", "cos")
                  else row["f64"]} for name, row in SUFFIXED.items()},
    lacks=("f64",), group="group_number", groups="group_count", thread="thread_number",
    barrier="threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);",
    exchange="partner({value}, {bit})",
    shared="threadgroup {type} {name}[{count}];",
)  # fmt: skip
