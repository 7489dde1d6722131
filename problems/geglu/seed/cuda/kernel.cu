// gelu(gate) * up, element by element.
//
// THREADS  threads of a block
// VEC      elements of one access
// FAST     1 takes the quick exponential and division for tanh, which are exact enough
#include "problem.h"

struct alignas(2 * VEC) Halves {
  __nv_bfloat16 at[VEC];
};

static_assert(intermediate % VEC == 0, "a half of a row is a whole number of accesses");

// With tanh's approximation, x * (1 + tanh(inner)) / 2 is x / (1 + exp(-2 * inner)).
__device__ float gelu(float x) {
  const float inner = 0.7978845608f * (x + 0.044715f * x * x * x);  // sqrt(2 / pi)
  return FAST ? __fdividef(x, 1 + __expf(-2 * inner)) : x / (1 + expf(-2 * inner));
}

extern "C" __global__ void __launch_bounds__(THREADS) geglu(const __nv_bfloat16 *gate_up, __nv_bfloat16 *output) {
  const size_t token = blockIdx.y;
  const int column = (blockIdx.x * THREADS + threadIdx.x) * VEC;
  if (column >= intermediate) return;
  const __nv_bfloat16 *from = gate_up + token * 2 * intermediate + column;
  const Halves gate = *reinterpret_cast<const Halves *>(from);
  const Halves up = *reinterpret_cast<const Halves *>(from + intermediate);
  Halves result;
#pragma unroll
  for (int v = 0; v < VEC; v++)
    result.at[v] = __float2bfloat16(gelu(__bfloat162float(gate.at[v])) * __bfloat162float(up.at[v]));
  *reinterpret_cast<Halves *>(output + token * intermediate + column) = result;
}
