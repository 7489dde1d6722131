// The scan position by position: a block per head of a sequence, SPLIT threads per value, each with its part of the state in
// registers.
//
// SPLIT  threads that share a value's row of the state
// STEPS  positions whose b and c lie in shared memory at a time
#include "problem.h"

constexpr int PART = state_dim / SPLIT, THREADS = head_dim * SPLIT;

extern "C" __global__ void __launch_bounds__(THREADS)
    scan(const __nv_bfloat16 *x, const __nv_bfloat16 *dt, const float *a_log, const __nv_bfloat16 *b,
         const __nv_bfloat16 *c, const float *d, const float *dt_bias, __nv_bfloat16 *y, float *final_state, int seq,
         int heads) {
  __shared__ float of_b[STEPS][state_dim], of_c[STEPS][state_dim];
  const int head = blockIdx.x, batch = blockIdx.y;
  const int value = threadIdx.x / SPLIT, part = threadIdx.x % SPLIT;  // element part + i * SPLIT of the row is state[i]
  const float rate = expf(a_log[head]), bias = dt_bias[head], direct = d[head];
  float state[PART] = {};
  for (int first = 0; first < seq; first += STEPS) {
    const int steps = min(STEPS, seq - first);
    __syncthreads();
    for (int i = threadIdx.x; i < steps * state_dim; i += THREADS) {
      const size_t from = ((size_t)batch * seq + first) * state_dim + i;
      of_b[i / state_dim][i % state_dim] = __bfloat162float(b[from]);
      of_c[i / state_dim][i % state_dim] = __bfloat162float(c[from]);
    }
    __syncthreads();
    for (int t = 0; t < steps; t++) {
      const size_t position = ((size_t)batch * seq + first + t) * heads + head;
      const float raw = __bfloat162float(dt[position]) + bias;
      const float step = raw > 20 ? raw : log1pf(expf(raw));
      const float decay = expf(-step * rate);
      const float own = __bfloat162float(x[position * head_dim + value]), taken_in = step * own;
      float sum = 0;
#pragma unroll
      for (int i = 0; i < PART; i++) {
        state[i] = decay * state[i] + taken_in * of_b[t][part + i * SPLIT];
        sum += state[i] * of_c[t][part + i * SPLIT];
      }
      for (int lane = SPLIT / 2; lane > 0; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
      if (part == 0) y[position * head_dim + value] = __float2bfloat16(sum + direct * own);
    }
  }
  float *row = final_state + (((size_t)batch * heads + head) * head_dim + value) * state_dim;
  for (int i = 0; i < PART; i++) row[part + i * SPLIT] = state[i];
}
