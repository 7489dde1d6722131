// RMSNorm of hidden_states + residual. The three steps (add, mean square, normalise) go over one block
// of rows after another, as three separate operators would when the block is the whole tensor.
//
// ROWS      rows in a block: 1 keeps a row in the first cache for all steps, many rows stream from memory
// FUSE      1 sums the squares while it adds, so that the inputs are read once less
// VEC       floats handled at a time (1 is plain scalar code)
// UNROLL    independent partial sums, which hide the latency of an addition
// STREAM    1 writes the results past the caches, which saves reading the lines first
// PREFETCH  bytes ahead of the row in work that the next input is fetched (0: left to the hardware)
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

static_assert(hidden % (VEC * UNROLL) == 0, "a row is a whole number of steps");

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

static inline float sum(const floats *parts) {
  float total = 0;
  for (int i = 0; i < UNROLL * VEC; i++) total += ((const float *)parts)[i];
  return total;
}

static inline void prefetch(const bf16 *at) {
  if (PREFETCH && (uintptr_t)at % 64 < VEC * 2) __builtin_prefetch((const char *)at + PREFETCH);
}

static void block(const bf16 *states, const bf16 *residual, const bf16 *weight, bf16 *output,
                  bf16 *new_residual, int64_t rows) {
  float scale[ROWS];
  for (int64_t i = 0; i < (FUSE ? 0 : rows * hidden); i += VEC) {
    prefetch(states + i);
    prefetch(residual + i);
    store(new_residual + i, load(states + i) + load(residual + i));
  }
  for (int64_t row = 0; row < rows; row++) {
    floats squares[UNROLL] = {};
    for (int64_t i = row * hidden; i < (row + 1) * hidden; i += UNROLL * VEC)
      for (int u = 0; u < UNROLL; u++) {
        const int64_t at = i + u * VEC;
        floats total = load(states + at) + load(residual + at);
        squares[u] += total * total;
        if (FUSE) {
          prefetch(states + at);
          prefetch(residual + at);
          store(new_residual + at, total);
        }
      }
    scale[row] = 1 / __builtin_sqrtf(sum(squares) / hidden + 1e-5f);
  }
  for (int64_t row = 0; row < rows; row++)
    for (int64_t i = 0; i < hidden; i += VEC) {
      const int64_t at = row * hidden + i;
      store(output + at, (load(states + at) + load(residual + at)) * scale[row] * load(weight + i));
    }
}

void run(const bf16 *hidden_states, const bf16 *residual, const bf16 *weight, bf16 *output, bf16 *new_residual,
         int64_t tokens) {
#pragma omp parallel for num_threads(SWARM_CORES) if (SWARM_CORES > 1)
  for (int64_t row = 0; row < tokens; row += ROWS) {
    const int64_t at = row * hidden;
    block(hidden_states + at, residual + at, weight, output + at, new_residual + at,
          tokens - row < ROWS ? tokens - row : ROWS);
#if STREAM && defined(__SSE__)
    __builtin_ia32_sfence();  // streamed lines are visible to the reader before this thread is done
#endif
  }
}
