// Softmax over the keys that the mask keeps: scale and maximum, then exponentials and their sum, then the
// quotient; each step goes over one block of rows (all queries of a head lie one after another).
//
// ROWS      rows in a block: 1 keeps a row in the first cache for all steps, many rows stream from memory
// EXP       0 calls the math library for every element; n evaluates a polynomial of degree n on a vector
// VEC       floats handled at a time (1 is plain scalar code)
// UNROLL    independent partial maxima and sums, which hide the latency of an addition
// STREAM    1 keeps what is unfinished in a scratch row and writes the result past the caches
// PREFETCH  bytes ahead of the element in work that the scores are fetched (0: left to the hardware)
#include "problem.h"
#include <math.h>
#include <stdlib.h>

#if VEC == 1
typedef float floats;
typedef int32_t ints;
typedef int8_t bytes;
#define CONVERT(value, type) ((type)(value))
#else
typedef float floats __attribute__((vector_size(VEC * 4)));
typedef int32_t ints __attribute__((vector_size(VEC * 4)));
typedef int16_t shorts __attribute__((vector_size(VEC * 2)));
typedef int8_t bytes __attribute__((vector_size(VEC)));
typedef char packed __attribute__((vector_size(16)));
typedef long long pair __attribute__((vector_size(16)));
#define CONVERT(value, type) __builtin_convertvector(value, type)
#endif

template <class To, class From> static inline To bits(From value) {
  To to;
  static_assert(sizeof to == sizeof value, "same size");
  __builtin_memcpy(&to, &value, sizeof to);
  return to;
}

const float LOWEST = -3.40282347e38f;

// The last vector of a row may be partial: `count` lanes are real, the rest read as zero.
template <class Vector, class Element> static inline Vector load(const Element *at, int64_t count) {
  Vector value = {};
  if (count >= VEC)
    __builtin_memcpy(&value, at, sizeof value);
  else
    __builtin_memcpy(&value, at, count * sizeof *at);
  return value;
}

static inline void store(float *at, floats value, int64_t count) {
  if (count >= VEC)
    __builtin_memcpy(at, &value, sizeof value);
  else
    __builtin_memcpy(at, &value, count * sizeof *at);
}

static inline void stream(float *at, floats value, int64_t count) {
#if STREAM && VEC > 1
  if (count >= VEC && (uintptr_t)at % sizeof value == 0) {
#if defined(__clang__)
    return __builtin_nontemporal_store(value, (floats *)at);
#elif defined(__AVX512F__) && VEC == 16
    return __builtin_ia32_movntps512(at, value);
#elif defined(__AVX__) && VEC == 8
    return __builtin_ia32_movntps256(at, value);
#endif
  }
#endif
  store(at, value, count);
}

static inline ints widen(bytes byte) {
#if VEC == 16 && defined(__AVX512F__) && !defined(__clang__)
  return __builtin_ia32_pmovsxbd512_mask((packed)byte, ints{}, -1);
#elif VEC == 8 && defined(__AVX2__) && !defined(__clang__)
  return __builtin_ia32_pmovsxbd256((packed)pair{bits<long long>(byte), 0});
#elif VEC > 1
  return CONVERT(CONVERT(byte, shorts), ints);  // g++ takes a single step lane by lane
#else
  return byte;
#endif
}

// For x <= 0, as all differences from a maximum are.
static inline floats exponential(floats x) {
#if EXP
  const floats low = floats{} - 87.0f;
  const float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const floats shifted = (x < low ? low : x) * 1.44269504f + shift;
  const floats power = shifted - shift;
  const floats r = (x < low ? low : x) - power * 0.693145752f - power * 1.42860677e-6f;  // log 2 in two parts
#if EXP == 4
  floats p = r * 0.041513682f + 0.167875917f;
  p = p * r + 0.500030198f;
  p = p * r + 0.999966773f;
#else
  floats p = r * 0.00829027193f + 0.0418981597f;
  p = p * r + 0.166676381f;
  p = p * r + 0.499991478f;
  p = p * r + 0.999999706f;
#endif
  p = p * r + 1.0f;
  p = bits<floats>(bits<ints>(p) + ((bits<ints>(shifted) - bits<ints>(floats{} + shift)) << 23));
  return x < low ? floats{} : p;
#else
  float lanes[VEC];
  __builtin_memcpy(lanes, &x, sizeof x);
  for (float &lane : lanes) lane = expf(lane);
  __builtin_memcpy(&x, lanes, sizeof x);
  return x;
#endif
}

static inline float largest(const floats *parts) {
  float result = LOWEST;
  for (int i = 0; i < UNROLL * VEC; i++) {
    const float part = ((const float *)parts)[i];
    result = part > result ? part : result;
  }
  return result;
}

static inline float sum(const floats *parts) {
  float total = 0;
  for (int i = 0; i < UNROLL * VEC; i++) total += ((const float *)parts)[i];
  return total;
}

// Writes scaled scores to `work`, the lowest float where masked, and returns their maximum.
static inline float scaled(const float *scores, const bool *mask, float scale, float *work, int64_t keys) {
  const floats lowest = floats{} + LOWEST;
  floats most[UNROLL];
  for (floats &part : most) part = lowest;
  for (int64_t i = 0; i < keys; i += UNROLL * VEC)
    for (int u = 0; u < UNROLL && i + u * VEC < keys; u++) {
      const int64_t at = i + u * VEC;
      if (PREFETCH && (uintptr_t)(scores + at) % 64 < VEC * 4)
        __builtin_prefetch((const char *)(scores + at) + PREFETCH);
      const ints kept = widen(load<bytes>(mask + at, keys - at));
      const floats score = load<floats>(scores + at, keys - at) * scale;
      const floats value = kept != 0 ? score : lowest;
      most[u] = value > most[u] ? value : most[u];
      store(work + at, value, keys - at);
    }
  return largest(most);
}

// Turns the scaled scores into exponentials and returns their sum.
static inline float exponentials(float *work, float most, int64_t keys) {
  floats sums[UNROLL] = {};
  int64_t i = 0;
  for (; i + UNROLL * VEC <= keys; i += UNROLL * VEC)
    for (int u = 0; u < UNROLL; u++) {
      const floats value = exponential(load<floats>(work + i + u * VEC, VEC) - most);
      sums[u] += value;
      store(work + i + u * VEC, value, VEC);
    }
  float total = sum(sums);
  for (; i < keys; i += VEC) {
    float lanes[VEC];
    const floats value = exponential(load<floats>(work + i, keys - i) - most);
    __builtin_memcpy(lanes, &value, sizeof value);
    for (int64_t lane = 0; lane < VEC && i + lane < keys; lane++) total += lanes[lane];
    store(work + i, value, keys - i);
  }
  return total;
}

static void block(const float *scores, const bool *mask, float scale, float *work, float *weights, int64_t rows,
                  int64_t keys) {
  float most[ROWS], total[ROWS];
  for (int64_t row = 0; row < rows; row++)
    most[row] = scaled(scores + row * keys, mask + row * keys, scale, work + row * keys, keys);
  for (int64_t row = 0; row < rows; row++) total[row] = exponentials(work + row * keys, most[row], keys);
  for (int64_t row = 0; row < rows; row++) {
    const float share = 1 / total[row];
    for (int64_t i = 0; i < keys; i += VEC) {
      const int64_t at = row * keys + i;
      stream(weights + at, load<floats>(work + at, keys - i) * share, keys - i);
    }
  }
}

void run(const float *scores, const bool *mask, double scale, float *weights, int64_t batch, int64_t query_len,
         int64_t key_len) {
  const int64_t blocks = (query_len + ROWS - 1) / ROWS;
#pragma omp parallel num_threads(SWARM_CORES) if (SWARM_CORES > 1)
  {
    float *scratch = STREAM ? (float *)malloc(ROWS * key_len * sizeof(float)) : 0;
#pragma omp for
    for (int64_t i = 0; i < batch * heads * blocks; i++) {
      const int64_t head = i / blocks, from = i % blocks * ROWS, at = (head * query_len + from) * key_len;
      block(scores + at, mask + (head / heads * query_len + from) * key_len, scale, STREAM ? scratch : weights + at,
            weights + at, query_len - from < ROWS ? query_len - from : ROWS, key_len);
    }
    free(scratch);
#if STREAM && defined(__SSE__)
    __builtin_ia32_sfence();  // streamed lines are visible to the reader before this thread is done
#endif
  }
}
