// silu(gate) * up, element by element.
//
// THREADS  threads of a block
// VEC      elements of one access
// UNROLL   accesses of a thread, a block's width apart
// FAST     1 takes the quick exponential and division, which are exact enough
// STREAM   1 keeps everything out of the caches, with VEC = 4 or 8
#include <cuda_bf16.h>

#include "problem.h"

struct alignas(2 * VEC) Halves {
  __nv_bfloat16 at[VEC];
};

// Reads what is not read again, and writes what is not read at all, without a place in the first cache.
__device__ Halves read(const __nv_bfloat16 *from) {
  Halves value;
#if STREAM && VEC == 8
  *reinterpret_cast<uint4 *>(&value) = __ldcs(reinterpret_cast<const uint4 *>(from));
#elif STREAM && VEC == 4
  *reinterpret_cast<uint2 *>(&value) = __ldcs(reinterpret_cast<const uint2 *>(from));
#else
  value = *reinterpret_cast<const Halves *>(from);
#endif
  return value;
}

__device__ void write(__nv_bfloat16 *to, const Halves &value) {
#if STREAM && VEC == 8
  __stcs(reinterpret_cast<uint4 *>(to), *reinterpret_cast<const uint4 *>(&value));
#elif STREAM && VEC == 4
  __stcs(reinterpret_cast<uint2 *>(to), *reinterpret_cast<const uint2 *>(&value));
#else
  *reinterpret_cast<Halves *>(to) = value;
#endif
}

__device__ float gated(float gate, float up) {
  return FAST ? __fdividef(gate, 1 + __expf(-gate)) * up : gate / (1 + expf(-gate)) * up;
}

extern "C" __global__ void __launch_bounds__(THREADS) swiglu(const __nv_bfloat16 *gate_up, __nv_bfloat16 *output) {
  const size_t token = blockIdx.y;
  const __nv_bfloat16 *gates = gate_up + token * 2 * intermediate, *ups = gates + intermediate;
  const int first = (blockIdx.x * UNROLL * THREADS + threadIdx.x) * VEC;
  Halves gate[UNROLL], up[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const int column = first + u * THREADS * VEC;
    if (column < intermediate) gate[u] = read(gates + column), up[u] = read(ups + column);
  }
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const int column = first + u * THREADS * VEC;
    if (column >= intermediate) return;
    Halves result;
#pragma unroll
    for (int v = 0; v < VEC; v++)
      result.at[v] = __float2bfloat16(gated(__bfloat162float(gate[u].at[v]), __bfloat162float(up[u].at[v])));
    write(output + token * intermediate + column, result);
  }
}
