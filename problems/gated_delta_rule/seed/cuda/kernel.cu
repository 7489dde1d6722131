// The rule position by position: a block per value head of a sequence, SPLIT threads per column of the state, each with its
// part of the column in registers. What a column recalls and reads needs no other column.
//
// SPLIT  threads that share a column of the state
// STEPS  positions whose queries and keys lie in shared memory at a time
#include "problem.h"

constexpr int PART = key_dim / SPLIT, THREADS = value_dim * SPLIT;

__device__ float over_warp(float own, int lanes) {
  for (int lane = lanes / 2; lane > 0; lane /= 2) own += __shfl_xor_sync(~0u, own, lane);
  return own;
}

// Reads a query or a key and gives it length 1, a warp for each.
__device__ void read_unit(const __nv_bfloat16 *from, float *to) {
  const int lane = threadIdx.x % 32;
  float squares = 0;
  for (int i = lane; i < key_dim; i += 32) {
    to[i] = __bfloat162float(from[i]);
    squares += to[i] * to[i];
  }
  const float scale = rsqrtf(over_warp(squares, 32) + 1e-6f);
  for (int i = lane; i < key_dim; i += 32) to[i] *= scale;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    scan(const __nv_bfloat16 *q, const __nv_bfloat16 *k, const __nv_bfloat16 *v, const float *g, const __nv_bfloat16 *beta,
         __nv_bfloat16 *o, float *final_state, int seq, int key_heads, int value_heads) {
  __shared__ float queries[STEPS][key_dim], keys[STEPS][key_dim];
  const int head = blockIdx.x, batch = blockIdx.y, key_head = head / (value_heads / key_heads);
  const int column = threadIdx.x / SPLIT, part = threadIdx.x % SPLIT;  // element part + i * SPLIT of it is state[i]
  float state[PART] = {};
  for (int first = 0; first < seq; first += STEPS) {
    const int steps = min(STEPS, seq - first);
    __syncthreads();
    for (int t = threadIdx.x / 32; t < steps; t += THREADS / 32) {
      const size_t from = (((size_t)batch * seq + first + t) * key_heads + key_head) * key_dim;
      read_unit(q + from, queries[t]);
      read_unit(k + from, keys[t]);
    }
    __syncthreads();
    for (int t = 0; t < steps; t++) {
      const size_t position = ((size_t)batch * seq + first + t) * value_heads + head;
      const float decay = expf(g[position]);
      float recalled = 0, read = 0;
#pragma unroll
      for (int i = 0; i < PART; i++) {
        state[i] *= decay;
        recalled += state[i] * keys[t][part + i * SPLIT];
      }
      recalled = over_warp(recalled, SPLIT);
      const float error = __bfloat162float(v[position * value_dim + column]) - recalled;
      const float change = __bfloat162float(beta[position]) * error;
#pragma unroll
      for (int i = 0; i < PART; i++) {
        state[i] += keys[t][part + i * SPLIT] * change;
        read += state[i] * queries[t][part + i * SPLIT];
      }
      read = over_warp(read, SPLIT);
      if (part == 0) o[position * value_dim + column] = __float2bfloat16(read * rsqrtf(key_dim));
    }
  }
  float *to = final_state + ((size_t)batch * value_heads + head) * key_dim * value_dim + column;
  for (int i = 0; i < PART; i++) to[(part + i * SPLIT) * value_dim] = state[i];
}
