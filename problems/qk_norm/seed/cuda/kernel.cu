// RMSNorm of each head: a warp holds one head of one token in registers; all heads of all queries come before the keys.
//
// THREADS  threads of a block
// VEC      elements of one access
#include "problem.h"

struct alignas(2 * VEC) Halves {
  __nv_bfloat16 at[VEC];
};

constexpr int STEPS = head_dim / (32 * VEC);
static_assert(head_dim % (32 * VEC) == 0, "a head is a whole number of steps");

extern "C" __global__ void __launch_bounds__(THREADS)
    qk_norm(const __nv_bfloat16 *query, const __nv_bfloat16 *key, const __nv_bfloat16 *query_weight,
            const __nv_bfloat16 *key_weight, __nv_bfloat16 *normed_query, __nv_bfloat16 *normed_key, int tokens) {
  const size_t queries = (size_t)tokens * query_heads, keys = (size_t)tokens * key_heads;
  const size_t head = (size_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  if (head >= queries + keys) return;
  const bool is_query = head < queries;
  const size_t begin = (is_query ? head : head - queries) * head_dim;
  const __nv_bfloat16 *x = (is_query ? query : key) + begin, *weight = is_query ? query_weight : key_weight;
  __nv_bfloat16 *y = (is_query ? normed_query : normed_key) + begin;

  Halves held[STEPS];
  float squares = 0;
#pragma unroll
  for (int step = 0; step < STEPS; step++) {
    held[step] = *reinterpret_cast<const Halves *>(x + (step * 32 + threadIdx.x % 32) * VEC);
#pragma unroll
    for (int v = 0; v < VEC; v++) {
      const float value = __bfloat162float(held[step].at[v]);
      squares += value * value;
    }
  }
  for (int step = 16; step > 0; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
  const float scale = rsqrtf(squares / head_dim + 1e-6f);

#pragma unroll
  for (int step = 0; step < STEPS; step++) {
    const int column = (step * 32 + threadIdx.x % 32) * VEC;
    const Halves gain = *reinterpret_cast<const Halves *>(weight + column);
    Halves result;
#pragma unroll
    for (int v = 0; v < VEC; v++)
      result.at[v] = __float2bfloat16(__bfloat162float(held[step].at[v]) * scale * __bfloat162float(gain.at[v]));
    *reinterpret_cast<Halves *>(y + column) = result;
  }
}
