// Cross-entropy: the logarithm of the sum of exponentials of a row, less the target's logit. A row is taken in
// pieces: the piece's maximum first, then its exponentials, with what was summed so far rescaled.
//
// CHUNK     logits in a piece; one piece as long as the row is the textbook's two passes over memory
// EXP       0 calls the math library for every element; n evaluates a polynomial of degree n on a vector
// VEC       floats handled at a time (1 is plain scalar code)
// UNROLL    independent partial maxima and sums, which hide the latency of an addition
// PREFETCH  bytes ahead of the element in work that the logits are fetched (0: left to the hardware)
#include "problem.h"
#include <math.h>

#if VEC == 1
typedef float floats;
typedef int32_t ints;
#else
typedef float floats __attribute__((vector_size(VEC * 4)));
typedef int32_t ints __attribute__((vector_size(VEC * 4)));
#endif

template <class To, class From> static inline To bits(From value) {
  To to;
  static_assert(sizeof to == sizeof value, "same size");
  __builtin_memcpy(&to, &value, sizeof to);
  return to;
}

const int64_t SUMMED = 4096;  // more terms would lose digits in a float

static_assert(vocabulary % (VEC * UNROLL) == 0 && CHUNK % (VEC * UNROLL) == 0, "whole steps only");

static inline floats load(const float *at) {
  floats value;
  __builtin_memcpy(&value, at, sizeof value);
  return value;
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

static inline float maximum(const float *logits, int64_t count) {
  floats most[UNROLL];
  for (floats &part : most) part = floats{} + logits[0];
  for (int64_t i = 0; i < count; i += UNROLL * VEC)
    for (int u = 0; u < UNROLL; u++) {
      const float *at = logits + i + u * VEC;
      if (PREFETCH && (uintptr_t)at % 64 < VEC * 4) __builtin_prefetch((const char *)at + PREFETCH);
      const floats value = load(at);
      most[u] = value > most[u] ? value : most[u];
    }
  float result = logits[0];
  for (int i = 0; i < UNROLL * VEC; i++) {
    const float part = ((const float *)most)[i];
    result = part > result ? part : result;
  }
  return result;
}

static inline float sum_of_exponentials(const float *logits, float most, int64_t count) {
  floats sums[UNROLL] = {};
  for (int64_t i = 0; i < count; i += UNROLL * VEC)
    for (int u = 0; u < UNROLL; u++) sums[u] += exponential(load(logits + i + u * VEC) - most);
  float total = 0;
  for (int i = 0; i < UNROLL * VEC; i++) total += ((const float *)sums)[i];
  return total;
}

static float log_sum_exp(const float *logits) {
  float most = logits[0];
  double total = 0;
  for (int64_t from = 0; from < vocabulary; from += CHUNK) {
    const int64_t count = vocabulary - from < CHUNK ? vocabulary - from : CHUNK;
    const float here = maximum(logits + from, count);
    if (here > most) {
      total *= exp(most - here);
      most = here;
    }
    for (int64_t at = 0; at < count; at += SUMMED)
      total += sum_of_exponentials(logits + from + at, most, count - at < SUMMED ? count - at : SUMMED);
  }
  return most + log(total);
}

void run(const float *logits, const int64_t *target, float *loss, int64_t tokens) {
#pragma omp parallel for num_threads(SWARM_CORES) if (SWARM_CORES > 1)
  for (int64_t token = 0; token < tokens; token++) {
    const float *row = logits + token * vocabulary;
    loss[token] = log_sum_exp(row) - row[target[token]];
  }
}
