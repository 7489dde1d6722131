// Latent attention over pages: a block takes a head of a sequence, each of its warps a part of the tokens.
//
// WARPS  warps of a block, which go through the tokens in turns and add up what they found
// KEYS   tokens of a warp's turn
#include <cuda_bf16.h>
#include <math_constants.h>

#include "problem.h"

constexpr int LATENT = latent_dim / 32, ROTATED = rope_dim / 32;  // of a lane
constexpr float LOG2_E = 1.4426950408889634f;

template <int COUNT> __device__ void load(float *to, const __nv_bfloat16 *from) {
  for (int d = 0; d < COUNT; d += 2) {
    const __nv_bfloat162 two = *reinterpret_cast<const __nv_bfloat162 *>(from + d);
    to[d] = __bfloat162float(two.x), to[d + 1] = __bfloat162float(two.y);
  }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    attend(const __nv_bfloat16 *q_nope, const __nv_bfloat16 *q_pe, const __nv_bfloat16 *ckv_cache,
           const __nv_bfloat16 *kpe_cache, const int *kv_indptr, const int *kv_indices,
           const int *kv_last_page_len, __nv_bfloat16 *output, float *lse, int page_size) {
  const long long row = blockIdx.x;
  const int sequence = row / num_heads, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int *pages = kv_indices + kv_indptr[sequence];
  const int length = (kv_indptr[sequence + 1] - kv_indptr[sequence] - 1) * page_size + kv_last_page_len[sequence];
  const float scale = LOG2_E / sqrtf(head_dim);  // all exponentials are powers of 2

  float query[LATENT + ROTATED], sum[LATENT] = {}, total = 0, most = -CUDART_INF_F;
  load<LATENT>(query, q_nope + row * latent_dim + lane * LATENT);
  load<ROTATED>(query + LATENT, q_pe + row * rope_dim + lane * ROTATED);
  for (int first = warp * KEYS; first < length; first += WARPS * KEYS) {
    float key[KEYS][LATENT + ROTATED], score[KEYS], before = most;
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
      const int at = min(first + k, length - 1);
      const long long slot = (long long)pages[at / page_size] * page_size + at % page_size;
      load<LATENT>(key[k], ckv_cache + slot * latent_dim + lane * LATENT);
      load<ROTATED>(key[k] + LATENT, kpe_cache + slot * rope_dim + lane * ROTATED);
      float dot = 0;
      for (int d = 0; d < LATENT + ROTATED; d++) dot += query[d] * key[k][d];
      for (int step = 16; step > 0; step /= 2) dot += __shfl_xor_sync(~0u, dot, step);
      score[k] = first + k < length ? dot * scale : -CUDART_INF_F;
      most = fmaxf(most, score[k]);
    }
    const float kept = exp2f(before - most);
    total *= kept;
    for (int d = 0; d < LATENT; d++) sum[d] *= kept;
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
      const float weight = exp2f(score[k] - most);
      total += weight;
      for (int d = 0; d < LATENT; d++) sum[d] += weight * key[k][d];
    }
  }

  __shared__ float sums[WARPS][latent_dim], totals[WARPS], maxima[WARPS];
  for (int d = 0; d < LATENT; d++) sums[warp][lane * LATENT + d] = sum[d];
  if (lane == 0) totals[warp] = total, maxima[warp] = most;
  __syncthreads();
  for (int d = threadIdx.x; d < latent_dim; d += WARPS * 32) {
    float all = 0, value = 0;
    most = -CUDART_INF_F;
    for (int w = 0; w < WARPS; w++) most = fmaxf(most, maxima[w]);
    for (int w = 0; w < WARPS; w++) {
      const float kept = exp2f(maxima[w] - most);  // 0 of a warp that had no tokens
      all += kept * totals[w];
      value += kept * sums[w][d];
    }
    output[row * latent_dim + d] = __float2bfloat16(value / all);
    if (d == 0) lse[row] = most + log2f(all);
  }
}
