// Backward pass of silu(gate) * up, element by element.
//
// THREADS  threads of a block
// VEC      elements of one access
// FAST     1 takes the quick exponential and division, which are exact enough
#include "problem.h"

struct alignas(2 * VEC) Halves {
  __nv_bfloat16 at[VEC];
};

static_assert(intermediate % VEC == 0, "a half of a row is a whole number of accesses");

__device__ Halves read(const __nv_bfloat16 *from) { return *reinterpret_cast<const Halves *>(from); }

__device__ void write(__nv_bfloat16 *to, const Halves &value) { *reinterpret_cast<Halves *>(to) = value; }

__device__ float sigmoid(float x) { return FAST ? __fdividef(1, 1 + __expf(-x)) : 1 / (1 + expf(-x)); }

extern "C" __global__ void __launch_bounds__(THREADS)
    swiglu_backward(const __nv_bfloat16 *grad_output, const __nv_bfloat16 *gate_up, __nv_bfloat16 *grad_gate_up) {
  const size_t token = blockIdx.y;
  const int column = (blockIdx.x * THREADS + threadIdx.x) * VEC;
  if (column >= intermediate) return;
  const size_t at = token * 2 * intermediate + column;
  const Halves grads = read(grad_output + token * intermediate + column);
  const Halves gates = read(gate_up + at), ups = read(gate_up + at + intermediate);
  Halves grad_gates, grad_ups;
#pragma unroll
  for (int v = 0; v < VEC; v++) {
    const float grad = __bfloat162float(grads.at[v]), gate = __bfloat162float(gates.at[v]);
    const float share = sigmoid(gate);
    grad_gates.at[v] = __float2bfloat16(grad * __bfloat162float(ups.at[v]) * share * (1 + gate * (1 - share)));
    grad_ups.at[v] = __float2bfloat16(grad * gate * share);
  }
  write(grad_gate_up + at, grad_gates);
  write(grad_gate_up + at + intermediate, grad_ups);
}
