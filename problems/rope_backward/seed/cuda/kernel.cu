// Backward pass of the rotary embedding: a thread turns one pair of HEADS heads back, queries first, then keys.
//
// THREADS  threads of a block
// HEADS    heads of a thread, which share their sine and cosine
#include "problem.h"

constexpr int PAIRS = half_dim, GROUPS = (query_heads + key_heads) / HEADS;
static_assert(query_heads % HEADS == 0 && key_heads % HEADS == 0, "no thread has queries and keys");

extern "C" __global__ void __launch_bounds__(THREADS)
    rope_backward(const __nv_bfloat16 *of_query, const __nv_bfloat16 *of_key, const float *cosines, const float *sines,
                  __nv_bfloat16 *grad_query, __nv_bfloat16 *grad_key, int tokens, int positions) {
  const long long item = blockIdx.x * (long long)THREADS + threadIdx.x;
  const long long token = item / (GROUPS * PAIRS);
  if (token >= tokens) return;
  const int pair = item % PAIRS, head0 = item / PAIRS % GROUPS * HEADS;
  const long long angle = token % positions * PAIRS + pair;
  const float cosine = cosines[angle], sine = sines[angle];
  const bool is_query = head0 < query_heads;
  const long long begin = is_query ? (token * query_heads + head0) * head_dim + pair
                                   : (token * key_heads + head0 - query_heads) * head_dim + pair;
  const __nv_bfloat16 *from = (is_query ? of_query : of_key) + begin;
  __nv_bfloat16 *to = (is_query ? grad_query : grad_key) + begin;
#pragma unroll
  for (int head = 0; head < HEADS; head++) {
    const float first = __bfloat162float(from[head * head_dim]);
    const float second = __bfloat162float(from[head * head_dim + PAIRS]);
    to[head * head_dim] = __float2bfloat16(first * cosine + second * sine);
    to[head * head_dim + PAIRS] = __float2bfloat16(second * cosine - first * sine);
  }
}
