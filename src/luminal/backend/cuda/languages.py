"""`device="hip:sim"` and `"metal:sim"`: their text as C++, run by the simulator of CUDA's."""

from __future__ import annotations

from ...errors import DeviceError
from ..text import HIP, METAL
from ..text.only import hip_target, metal_target
from .simulator import Language, Simulator, compiler

_HIP = """
#define __shared__
#define __builtin_amdgcn_workitem_id_x() (threadIdx.x)
#define __builtin_amdgcn_workgroup_id_x() (blockIdx.x)
#define __builtin_amdgcn_workgroup_size_x() (blockDim.x)
#define __builtin_amdgcn_grid_size_x() (gridDim.x * blockDim.x)
#define __builtin_amdgcn_fence(...)
#define __builtin_amdgcn_s_barrier() __syncthreads()
#define __builtin_amdgcn_ds_bpermute(at, value) \
  simulator::exchanged((int)(value), (at) >> 2 & (simulator::LANES - 1))
#define __builtin_amdgcn_wave_barrier() __syncwarp()
"""
_ONE = "sqrt exp2 log2 sin cos floor ceil trunc rint fabs"
_FUNCTIONS = "".join(
    f"inline float {name}({', '.join(f'float {a}' for a in letters)})"
    f" {{ return __builtin_{name}f({', '.join(letters)}); }}\n"
    for letters, names in (("a", _ONE), ("ab", "fmod copysign"), ("abc", "fma"))
    for name in names.split()
)
_METAL = f"""
typedef unsigned uint;
typedef unsigned short ushort;
#define INFINITY __builtin_inff()
namespace metal {{
{_FUNCTIONS}
namespace precise {{
{_FUNCTIONS}
}}
struct uint2 {{ uint x, y; uint2(uint x = 0, uint y = 0) : x(x), y(y) {{}} }};
enum class mem_flags {{ mem_device = 1, mem_threadgroup = 2 }};
inline mem_flags operator|(mem_flags a, mem_flags b) {{ return mem_flags((int)a | (int)b); }}
template <class To, class Of> inline To as_type(Of a)
{{ To b; static_assert(sizeof a == sizeof b, ""); memcpy(&b, &a, sizeof b); return b; }}
template <class T> inline T simd_shuffle_xor(T value, ushort bit)
{{ static_assert(sizeof value <= 4, "wider ones are not exchanged"); return lane_xor(value, bit); }}
inline void threadgroup_barrier(mem_flags) {{ __syncthreads(); }}
}}
#define kernel extern "C"
#define device
#define constant const
#define threadgroup static
"""
LANGUAGES = {
    "hip:sim": Language(HIP, hip_target(64), _HIP, 64),
    "hip:sim32": Language(HIP, hip_target(32), _HIP),
    "metal:sim": Language(METAL, metal_target(), _METAL, places=5),
}


def simulated(name: str) -> Simulator:
    """Raises DeviceError."""
    if name not in LANGUAGES:
        raise DeviceError(f"there is no device {name!r}; there are {', '.join(LANGUAGES)}")
    compiler()
    return Simulator(language=LANGUAGES[name])
