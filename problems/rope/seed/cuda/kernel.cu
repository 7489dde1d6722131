// Rotary embedding: a thread turns VEC pairs of HEADS heads, queries first, then keys.
//
// THREADS  threads of a block
// VEC      pairs of one access
// HEADS    heads of a thread, which share their sines and cosines
// STREAM   1 keeps queries and keys out of the caches, with VEC = 4 or 8
#include <cuda_bf16.h>

#include "problem.h"

struct alignas(2 * VEC) Halves {
  __nv_bfloat16 at[VEC];
};

// Reads what is not read again, and writes what is not read at all, without a place in the first cache.
__device__ Halves read(const __nv_bfloat16 *from) {
  Halves value;
#if STREAM && VEC == 8
  *reinterpret_cast<uint4 *>(&value) = __ldcs(reinterpret_cast<const uint4 *>(from));
#elif STREAM && VEC == 4
  *reinterpret_cast<uint2 *>(&value) = __ldcs(reinterpret_cast<const uint2 *>(from));
#else
  value = *reinterpret_cast<const Halves *>(from);
#endif
  return value;
}

__device__ void write(__nv_bfloat16 *to, const Halves &value) {
#if STREAM && VEC == 8
  __stcs(reinterpret_cast<uint4 *>(to), *reinterpret_cast<const uint4 *>(&value));
#elif STREAM && VEC == 4
  __stcs(reinterpret_cast<uint2 *>(to), *reinterpret_cast<const uint2 *>(&value));
#else
  *reinterpret_cast<Halves *>(to) = value;
#endif
}

constexpr int PAIRS = head_dim / 2, TURNS = PAIRS / VEC;
constexpr int GROUPS = (query_heads + key_heads) / HEADS;
static_assert(query_heads % HEADS == 0 && key_heads % HEADS == 0, "no thread has queries and keys");

struct alignas(VEC < 4 ? 4 * VEC : 16) Angles {
  float at[VEC];
};

extern "C" __global__ void __launch_bounds__(THREADS)
    rope(const __nv_bfloat16 *query, const __nv_bfloat16 *key, const float *cosines, const float *sines,
         __nv_bfloat16 *rotated_query, __nv_bfloat16 *rotated_key, int tokens) {
  const long long item = blockIdx.x * (long long)THREADS + threadIdx.x;
  const long long token = item / (GROUPS * TURNS);
  if (token >= tokens) return;
  const int pair = item % TURNS * VEC, head0 = item / TURNS % GROUPS * HEADS;
  const Angles cosine = *reinterpret_cast<const Angles *>(cosines + token * PAIRS + pair);
  const Angles sine = *reinterpret_cast<const Angles *>(sines + token * PAIRS + pair);
  const bool is_query = head0 < query_heads;
  const long long begin = is_query ? (token * query_heads + head0) * head_dim + pair
                                   : (token * key_heads + head0 - query_heads) * head_dim + pair;
  const __nv_bfloat16 *from = (is_query ? query : key) + begin;
  __nv_bfloat16 *to = (is_query ? rotated_query : rotated_key) + begin;
#pragma unroll
  for (int head = 0; head < HEADS; head++) {
    const Halves first = read(from + head * head_dim), second = read(from + head * head_dim + PAIRS);
    Halves turned_first, turned_second;
#pragma unroll
    for (int v = 0; v < VEC; v++) {
      const float a = __bfloat162float(first.at[v]), b = __bfloat162float(second.at[v]);
      turned_first.at[v] = __float2bfloat16(a * cosine.at[v] - b * sine.at[v]);
      turned_second.at[v] = __float2bfloat16(b * cosine.at[v] + a * sine.at[v]);
    }
    write(to + head * head_dim, turned_first);
    write(to + head * head_dim + PAIRS, turned_second);
  }
}
