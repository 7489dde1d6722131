// Causal attention over pages: a warp takes a query head of a token, KEYS keys at a time.
//
// WARPS  warps of a block
// KEYS   keys whose scores are known before any of them counts
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
           const int *qo_indptr, const int *kv_indptr, const int *kv_indices, const int *kv_last_page_len,
           __nv_bfloat16 *output, float *lse, int q_tokens, int page_size) {
  const long long row = blockIdx.x * (long long)WARPS + threadIdx.x / 32;
  const int token = row / num_qo_heads, kv_head = row % num_qo_heads / GROUP, lane = threadIdx.x % 32;
  if (token >= q_tokens) return;
  int sequence = 0;
  while (qo_indptr[sequence + 1] <= token) sequence++;
  const int *pages = kv_indices + kv_indptr[sequence];
  const int length = (kv_indptr[sequence + 1] - kv_indptr[sequence] - 1) * page_size + kv_last_page_len[sequence];
  const int visible = length - (qo_indptr[sequence + 1] - 1 - token);
  const float scale = LOG2_E / sqrtf(head_dim);  // all exponentials are powers of 2

  float query[DIMS], sum[DIMS] = {}, total = 0, most = -CUDART_INF_F;
  load(query, q + row * head_dim + lane * DIMS);
  for (int first = 0; first < visible; first += KEYS) {
    float value[KEYS][DIMS], score[KEYS], before = most;
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
      const int at = min(first + k, visible - 1);
      const long long slot = (long long)pages[at / page_size] * page_size + at % page_size;
      const long long from = (slot * num_kv_heads + kv_head) * head_dim + lane * DIMS;
      float key[DIMS], dot = 0;
      load(key, k_cache + from);
      load(value[k], v_cache + from);
      for (int d = 0; d < DIMS; d++) dot += query[d] * key[d];
      for (int step = 16; step > 0; step /= 2) dot += __shfl_xor_sync(~0u, dot, step);
      score[k] = first + k < visible ? dot * scale : -CUDART_INF_F;
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
  Part part;
  for (int d = 0; d < DIMS; d++) part.at[d] = __float2bfloat16(sum[d] / total);
  *reinterpret_cast<Part *>(output + row * head_dim + lane * DIMS) = part;
  if (lane == 0) lse[row] = most + log2f(total);
}
