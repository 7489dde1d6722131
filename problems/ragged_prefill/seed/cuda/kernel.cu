// Causal attention of prompts of several lengths: a warp takes a query head of a token, KEYS keys at a time.
//
// WARPS  warps of a block
// KEYS   keys whose scores are known before any of them counts
#include <cuda_bf16.h>
#include <math_constants.h>

#include "problem.h"

constexpr int GROUP = query_heads / kv_heads, DIMS = head_dim / 32;
constexpr float LOG2_E = 1.4426950408889634f;

struct alignas(2 * DIMS) Part {
  __nv_bfloat16 at[DIMS];
};

__device__ void load(float *to, const __nv_bfloat16 *from) {
  const Part part = *reinterpret_cast<const Part *>(from);
  for (int d = 0; d < DIMS; d++) to[d] = __bfloat162float(part.at[d]);
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    attend(const __nv_bfloat16 *query, const __nv_bfloat16 *key, const __nv_bfloat16 *value,
           const int *cu_seqlens, __nv_bfloat16 *output, int tokens) {
  const long long row = blockIdx.x * (long long)WARPS + threadIdx.x / 32;
  const int token = row / query_heads, kv_head = row % query_heads / GROUP, lane = threadIdx.x % 32;
  if (token >= tokens) return;
  int begin = 0;
  for (int n = 1; cu_seqlens[n] <= token; n++) begin = cu_seqlens[n];
  const float scale = LOG2_E / sqrtf(head_dim);  // all exponentials are powers of 2

  float own[DIMS], sum[DIMS] = {}, total = 0, most = -CUDART_INF_F;
  load(own, query + row * head_dim + lane * DIMS);
  for (int first = begin; first <= token; first += KEYS) {
    float held[KEYS][DIMS], score[KEYS], before = most;
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
      const long long from = ((long long)min(first + k, token) * kv_heads + kv_head) * head_dim + lane * DIMS;
      float other[DIMS], dot = 0;
      load(other, key + from);
      load(held[k], value + from);
      for (int d = 0; d < DIMS; d++) dot += own[d] * other[d];
      for (int step = 16; step > 0; step /= 2) dot += __shfl_xor_sync(~0u, dot, step);
      score[k] = first + k <= token ? dot * scale : -CUDART_INF_F;
      most = fmaxf(most, score[k]);
    }
    const float kept = exp2f(before - most);
    total *= kept;
    for (int d = 0; d < DIMS; d++) sum[d] *= kept;
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
      const float weight = exp2f(score[k] - most);
      total += weight;
      for (int d = 0; d < DIMS; d++) sum[d] += weight * held[k][d];
    }
  }
  Part part;
  for (int d = 0; d < DIMS; d++) part.at[d] = __float2bfloat16(sum[d] / total);
  *reinterpret_cast<Part *>(output + row * head_dim + lane * DIMS) = part;
}
