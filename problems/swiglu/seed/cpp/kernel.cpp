// SwiGLU: silu(gate) * up, one element after another.
//
// EXP       0 calls the math library for every element; n evaluates a polynomial of degree n on a vector
// NEWTON    0 divides; n refines an estimate of the reciprocal by n Newton steps instead
// VEC       floats handled at a time (1 is plain scalar code)
// UNROLL    vectors in one step of the loop
// STREAM    1 writes the result past the caches, which saves reading the lines first
// PREFETCH  bytes ahead of the element in work that the inputs are fetched (0: left to the hardware)
#include "problem.h"
#include <math.h>

#if VEC == 1
typedef float floats;
typedef int32_t ints;
typedef uint32_t words;
typedef uint16_t halves;
#define CONVERT(value, type) ((type)(value))
#else
typedef float floats __attribute__((vector_size(VEC * 4)));
typedef int32_t ints __attribute__((vector_size(VEC * 4)));
typedef uint32_t words __attribute__((vector_size(VEC * 4)));
typedef uint16_t halves __attribute__((vector_size(VEC * 2)));
#define CONVERT(value, type) __builtin_convertvector(value, type)
#endif

static_assert(intermediate % (VEC * UNROLL) == 0, "a row is a whole number of steps");

template <class To, class From> static inline To bits(From value) {
  To to;
  static_assert(sizeof to == sizeof value, "same size");
  __builtin_memcpy(&to, &value, sizeof to);
  return to;
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

static inline floats exponential(floats x) {
  const floats most = floats{} + 80.0f;  // far enough: the quotient is next to 0, or the gate itself
  x = x > most ? most : x;
  x = x < -most ? -most : x;
#if EXP
  const float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const floats shifted = x * 1.44269504f + shift;
  const floats power = shifted - shift;
  const floats r = x - power * 0.693145752f - power * 1.42860677e-6f;  // log 2 in two parts
#if EXP == 3
  floats p = r * 0.165178291f + 0.504134495f;
  p = p * r + 1.00019623f;
#else
  floats p = r * 0.00829027193f + 0.0418981597f;
  p = p * r + 0.166676381f;
  p = p * r + 0.499991478f;
  p = p * r + 0.999999706f;
#endif
  p = p * r + 1.0f;
  return bits<floats>(bits<ints>(p) + ((bits<ints>(shifted) - bits<ints>(floats{} + shift)) << 23));
#else
  float lanes[VEC];
  __builtin_memcpy(lanes, &x, sizeof x);
  for (float &lane : lanes) lane = expf(lane);
  __builtin_memcpy(&x, lanes, sizeof x);
  return x;
#endif
}

static inline floats divide(floats numerator, floats denominator) {
#if NEWTON
  // The difference of exponents gives an estimate within 12 %, and each step squares the error.
  floats estimate = bits<floats>(0x7ef311c7 - bits<ints>(denominator));
  for (int i = 0; i < NEWTON; i++) estimate *= 2.0f - denominator * estimate;
  return numerator * estimate;
#else
  return numerator / denominator;
#endif
}

void run(const bf16 *gate_up, bf16 *output, int64_t tokens) {
#pragma omp parallel for num_threads(SWARM_CORES) if (SWARM_CORES > 1)
  for (int64_t token = 0; token < tokens; token++) {
    const bf16 *gate = gate_up + token * gate_up_width, *up = gate + intermediate;
    for (int64_t i = 0; i < intermediate; i += UNROLL * VEC)
      for (int u = 0; u < UNROLL; u++) {
        const int64_t at = i + u * VEC;
        prefetch(gate + at);
        prefetch(up + at);
        const floats g = load(gate + at);
        store(output + token * intermediate + at, divide(g * load(up + at), 1.0f + exponential(-g)));
      }
#if STREAM && defined(__SSE__)
    __builtin_ia32_sfence();  // streamed lines are visible to the reader before this thread is done
#endif
  }
}
