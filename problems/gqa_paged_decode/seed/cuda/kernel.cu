// One token's attention over pages: a block takes a query head of a sequence, each of its warps a part of the keys.
//
// WARPS  warps of a block, which go through the keys in turns and add up what they found
// KEYS   keys of a warp's turn
#include <cuda_bf16.h>
#include <math_constants.h>

#include "problem.h"

constexpr int GROUP = num_qo_heads / num_kv_heads, DIMS = head_dim / 32;
constexpr float LOG2_E = 1.4426950408889634f;

struct alignas(2 * DIMS) Part {
  __nv_bfloat16 at[DIMS];
};

__device__ void load(float *to, const __nv_bfloat16 *from) {
  const Part part = *reinterpret_cast<const Part *>(from);
  for (int d = 0; d < DIMS; d++) to[d] = __bfloat162float(part.at[d]);
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    attend(const __nv_bfloat16 *q, const __nv_bfloat16 *k_cache, const __nv_bfloat16 *v_cache,
           const int *kv_indptr, const int *kv_indices, const int *kv_last_page_len, __nv_bfloat16 *output,
           float *lse, int page_size) {
  const long long row = blockIdx.x;
  const int sequence = row / num_qo_heads, kv_head = row % num_qo_heads / GROUP;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int *pages = kv_indices + kv_indptr[sequence];
  const int length = (kv_indptr[sequence + 1] - kv_indptr[sequence] - 1) * page_size + kv_last_page_len[sequence];
  const float scale = LOG2_E / sqrtf(head_dim);  // all exponentials are powers of 2

  float query[DIMS], sum[DIMS] = {}, total = 0, most = -CUDART_INF_F;
  load(query, q + row * head_dim + lane * DIMS);
  for (int first = warp * KEYS; first < length; first += WARPS * KEYS) {
    float value[KEYS][DIMS], score[KEYS], before = most;
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
      const int at = min(first + k, length - 1);
      const long long slot = (long long)pages[at / page_size] * page_size + at % page_size;
      const long long from = (slot * num_kv_heads + kv_head) * head_dim + lane * DIMS;
      float key[DIMS], dot = 0;
      load(key, k_cache + from);
      load(value[k], v_cache + from);
      for (int d = 0; d < DIMS; d++) dot += query[d] * key[d];
      for (int step = 16; step > 0; step /= 2) dot += __shfl_xor_sync(~0u, dot, step);
      score[k] = first + k < length ? dot * scale : -CUDART_INF_F;
      most = fmaxf(most, score[k]);
    }
    const float kept = exp2f(before - most);
    total *= kept;
    for (int d = 0; d < DIMS; d++) sum[d] *= kept;
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
      const float weight = exp2f(score[k] - most);
      total += weight;
      for (int d = 0; d < DIMS; d++) sum[d] += weight * value[k][d];
    }
  }

  __shared__ float sums[WARPS][head_dim], totals[WARPS], maxima[WARPS];
  for (int d = 0; d < DIMS; d++) sums[warp][lane * DIMS + d] = sum[d];
  if (lane == 0) totals[warp] = total, maxima[warp] = most;
  __syncthreads();
  for (int d = threadIdx.x; d < head_dim; d += WARPS * 32) {
    float all = 0, value = 0;
    most = -CUDART_INF_F;
    for (int w = 0; w < WARPS; w++) most = fmaxf(most, maxima[w]);
    for (int w = 0; w < WARPS; w++) {
      const float kept = exp2f(maxima[w] - most);  // 0 of a warp that had no keys
      all += kept * totals[w];
      value += kept * sums[w][d];
    }
    output[row * head_dim + d] = __float2bfloat16(value / all);
    if (d == 0) lse[row] = most + log2f(all);
  }
}
