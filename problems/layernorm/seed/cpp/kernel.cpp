// LayerNorm: the mean, then the variance, then the normalised row; each step goes over one block of rows.
//
// ROWS      rows in a block: 1 keeps a row in the first cache for all steps, many rows stream from memory
// VEC       floats handled at a time (1 is plain scalar code)
// UNROLL    independent partial sums, which hide the latency of an addition
// STREAM    1 writes the result past the caches, which saves reading the lines first
// PREFETCH  bytes ahead of the element in work that the input is fetched (0: left to the hardware)
#include "problem.h"

#if VEC == 1
typedef float floats;
#else
typedef float floats __attribute__((vector_size(VEC * 4)));
#endif

static_assert(hidden % (VEC * UNROLL) == 0, "a row is a whole number of steps");

static inline floats load(const float *at) {
  floats value;
  __builtin_memcpy(&value, at, sizeof value);
  return value;
}

static inline void store(float *at, floats value) {
#if STREAM && defined(__clang__) && VEC > 1
  __builtin_nontemporal_store(value, (floats *)at);
#elif STREAM && defined(__AVX512F__) && VEC == 16
  __builtin_ia32_movntps512(at, value);
#elif STREAM && defined(__AVX__) && VEC == 8
  __builtin_ia32_movntps256(at, value);
#elif STREAM && defined(__SSE__) && VEC == 4
  __builtin_ia32_movntps(at, value);
#else
  __builtin_memcpy(at, &value, sizeof value);
#endif
}

static inline void prefetch(const float *at) {
  if (PREFETCH && (uintptr_t)at % 64 < VEC * 4) __builtin_prefetch((const char *)at + PREFETCH);
}

static inline float average(const floats *parts) {
  float total = 0;
  for (int i = 0; i < UNROLL * VEC; i++) total += ((const float *)parts)[i];
  return total / hidden;
}

static inline float mean_of(const float *row) {
  floats sums[UNROLL] = {};
  for (int64_t i = 0; i < hidden; i += UNROLL * VEC)
    for (int u = 0; u < UNROLL; u++) {
      prefetch(row + i + u * VEC);
      sums[u] += load(row + i + u * VEC);
    }
  return average(sums);
}

static inline float variance_of(const float *row, float mean) {
  floats squares[UNROLL] = {};
  for (int64_t i = 0; i < hidden; i += UNROLL * VEC)
    for (int u = 0; u < UNROLL; u++) {
      const floats centred = load(row + i + u * VEC) - mean;
      squares[u] += centred * centred;
    }
  return average(squares);
}

static void block(const float *in, const float *weight, const float *bias, float *out, int64_t rows) {
  float mean[ROWS], scale[ROWS];
  for (int64_t row = 0; row < rows; row++) mean[row] = mean_of(in + row * hidden);
  for (int64_t row = 0; row < rows; row++)
    scale[row] = 1 / __builtin_sqrtf(variance_of(in + row * hidden, mean[row]) + 1e-5f);
  for (int64_t row = 0; row < rows; row++)
    for (int64_t i = 0; i < hidden; i += VEC) {
      const int64_t at = row * hidden + i;
      store(out + at, (load(in + at) - mean[row]) * scale[row] * load(weight + i) + load(bias + i));
    }
}

void run(const float *hidden_states, const float *weight, const float *bias, float *output, int64_t tokens) {
#pragma omp parallel for num_threads(SWARM_CORES) if (SWARM_CORES > 1)
  for (int64_t row = 0; row < tokens; row += ROWS) {
    block(hidden_states + row * hidden, weight, bias, output + row * hidden,
          tokens - row < ROWS ? tokens - row : ROWS);
#if STREAM && defined(__SSE__)
    __builtin_ia32_sfence();  // streamed lines are visible to the reader before this thread is done
#endif
  }
}
