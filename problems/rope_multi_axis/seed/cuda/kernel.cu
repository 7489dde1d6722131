// Rotary embedding by three positions: a thread turns one pair of HEADS heads, queries first, then keys.
//
// THREADS  threads of a block
// HEADS    heads of a thread, which share their sine and cosine
#include "problem.h"

constexpr int PAIRS = half_dim, GROUPS = (query_heads + key_heads) / HEADS;
static_assert(query_heads % HEADS == 0 && key_heads % HEADS == 0, "no thread has queries and keys");
static_assert(time_pairs + height_pairs + width_pairs == half_dim, "each pair has one position");

extern "C" __global__ void __launch_bounds__(THREADS)
    rope_multi_axis(const __nv_bfloat16 *query, const __nv_bfloat16 *key, const float *cosines, const float *sines,
                    __nv_bfloat16 *rotated_query, __nv_bfloat16 *rotated_key, int tokens) {
  const long long item = blockIdx.x * (long long)THREADS + threadIdx.x;
  const long long token = item / (GROUPS * PAIRS);
  if (token >= tokens) return;
  const int pair = item % PAIRS, head0 = item / PAIRS % GROUPS * HEADS;
  const int axis = pair < time_pairs ? 0 : pair < time_pairs + height_pairs ? 1 : 2;
  const float cosine = cosines[(axis * (long long)tokens + token) * PAIRS + pair];
  const float sine = sines[(axis * (long long)tokens + token) * PAIRS + pair];
  const bool is_query = head0 < query_heads;
  const long long begin = is_query ? (token * query_heads + head0) * head_dim + pair
                                   : (token * key_heads + head0 - query_heads) * head_dim + pair;
  const __nv_bfloat16 *from = (is_query ? query : key) + begin;
  __nv_bfloat16 *to = (is_query ? rotated_query : rotated_key) + begin;
#pragma unroll
  for (int head = 0; head < HEADS; head++) {
    const float first = __bfloat162float(from[head * head_dim]);
    const float second = __bfloat162float(from[head * head_dim + PAIRS]);
    to[head * head_dim] = __float2bfloat16(first * cosine - second * sine);
    to[head * head_dim + PAIRS] = __float2bfloat16(second * cosine + first * sine);
  }
}
