// Gate, causal convolution over time, gate: a thread per output, neighbours on neighbouring channels.
//
// THREADS    threads of a block
// POSITIONS  consecutive positions of a thread; the gated values of the last taps stay in registers
#include "problem.h"

extern "C" __global__ void __launch_bounds__(THREADS)
    convolve(const __nv_bfloat16 *projection, const __nv_bfloat16 *weight, __nv_bfloat16 *y, int seq) {
  const int channel = blockIdx.x * THREADS + threadIdx.x, first = blockIdx.y * POSITIONS;
  if (channel >= hidden) return;
  projection += blockIdx.z * (size_t)seq * projected + channel;
  y += blockIdx.z * (size_t)seq * hidden + channel;
  float filter[taps], gated[taps] = {};  // the oldest first
  for (int tap = 0; tap < taps; tap++) filter[tap] = __bfloat162float(weight[channel * taps + tap]);
  for (int t = first - (int)taps + 1; t < first + POSITIONS && t < seq; t++) {
    for (int tap = 1; tap < taps; tap++) gated[tap - 1] = gated[tap];
    const __nv_bfloat16 *at = projection + (ptrdiff_t)t * projected;
    gated[taps - 1] = t < 0 ? 0.0f : __bfloat162float(at[0]) * __bfloat162float(at[2 * hidden]);
    if (t < first) continue;
    float sum = 0;
    for (int tap = 0; tap < taps; tap++) sum += filter[tap] * gated[tap];
    y[(size_t)t * hidden] = __float2bfloat16(sum * __bfloat162float(at[hidden]));
  }
}
