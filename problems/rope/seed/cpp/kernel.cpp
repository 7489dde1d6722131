// Rotary embedding: every pair (x[i], x[i + half_dim]) of a head turns by the angle of its token.
//
// TOKENS    tokens in a block; in it the heads are taken one after another, each for all tokens.
//           1 goes through memory in order, many tokens stride over it
// HEADS     heads turned at once, which share the loaded angles
// VEC       floats handled at a time (1 is plain scalar code)
// STREAM    1 writes the results past the caches, which saves reading the lines first
// PREFETCH  bytes ahead of the head in work that the next input is fetched (0: left to the hardware)
#include "problem.h"

#if VEC == 1
typedef float floats;
typedef uint32_t words;
typedef uint16_t halves;
#define CONVERT(value, type) ((type)(value))
#else
typedef float floats __attribute__((vector_size(VEC * 4)));
typedef uint32_t words __attribute__((vector_size(VEC * 4)));
typedef uint16_t halves __attribute__((vector_size(VEC * 2)));
#define CONVERT(value, type) __builtin_convertvector(value, type)
#endif

static_assert(half_dim % VEC == 0 && query_heads % HEADS == 0 && key_heads % HEADS == 0, "whole steps only");

template <class To, class From> static inline To bits(From value) {
  To to;
  static_assert(sizeof to == sizeof value, "same size");
  __builtin_memcpy(&to, &value, sizeof to);
  return to;
}

static inline floats load(const float *at) {
  floats value;
  __builtin_memcpy(&value, at, sizeof value);
  return value;
}

static inline floats load(const bf16 *at) {
  halves half;
  __builtin_memcpy(&half, at, sizeof half);
  return bits<floats>(CONVERT(half, words) << 16);
}

static inline void store(bf16 *at, floats value) {
  words word = bits<words>(value);
  halves half = CONVERT((word + 0x7fff + ((word >> 16) & 1)) >> 16, halves);  // to nearest, ties to even
#if STREAM && defined(__clang__) && VEC > 1
  __builtin_nontemporal_store(half, (halves *)at);
#elif STREAM && defined(__AVX__) && VEC == 16
  __builtin_ia32_movntps256((float *)at, bits<float __attribute__((vector_size(32)))>(half));
#elif STREAM && defined(__SSE__) && VEC == 8
  __builtin_ia32_movntps((float *)at, bits<float __attribute__((vector_size(16)))>(half));
#else
  __builtin_memcpy(at, &half, sizeof half);
#endif
}

static inline void prefetch(const bf16 *at) {
  if (PREFETCH && (uintptr_t)at % 64 < VEC * 2) __builtin_prefetch((const char *)at + PREFETCH);
}

// Turns HEADS heads that lie one after another.
static inline void turn(const bf16 *in, bf16 *out, const float *cos, const float *sin) {
  for (int64_t i = 0; i < half_dim; i += VEC) {
    const floats c = load(cos + i), s = load(sin + i);
    for (int64_t at = i; at < HEADS * head_dim; at += head_dim) {
      prefetch(in + at);
      prefetch(in + at + half_dim);
      const floats first = load(in + at), second = load(in + at + half_dim);
      store(out + at, first * c - second * s);
      store(out + at + half_dim, second * c + first * s);
    }
  }
}

static void block(const bf16 *in, bf16 *out, const float *cos, const float *sin, int64_t heads, int64_t from,
                  int64_t to) {
  for (int64_t head = 0; head < heads; head += HEADS)
    for (int64_t token = from; token < to; token++) {
      const int64_t at = (token * heads + head) * head_dim;
      turn(in + at, out + at, cos + token * half_dim, sin + token * half_dim);
    }
}

void run(const bf16 *query, const bf16 *key, const float *cos, const float *sin, bf16 *rotated_query,
         bf16 *rotated_key, int64_t tokens) {
#pragma omp parallel for num_threads(SWARM_CORES) if (SWARM_CORES > 1)
  for (int64_t from = 0; from < tokens; from += TOKENS) {
    const int64_t to = tokens - from < TOKENS ? tokens : from + TOKENS;
    block(query, rotated_query, cos, sin, query_heads, from, to);
    block(key, rotated_key, cos, sin, key_heads, from, to);
#if STREAM && defined(__SSE__)
    __builtin_ia32_sfence();  // streamed lines are visible to the reader before this thread is done
#endif
  }
}
