// int8 weight-only matrix-vector product: one dot product per row of the weight, then that row's scale.
//
// ROWS      rows at a time, which share the loaded activations and read as many streams of memory
// VEC       columns handled at a time (1 is plain scalar code)
// UNROLL    independent partial sums per row, which hide the latency of a multiply-add
// WIDEN     1 turns the activations into floats once, instead of for every row
// PREFETCH  bytes ahead of the column in work that the weight is fetched (0: left to the hardware)
#include "problem.h"
#include <stdlib.h>

#if VEC == 1
typedef float floats;
typedef uint32_t words;
typedef uint16_t halves;
typedef int8_t bytes;
#define CONVERT(value, type) ((type)(value))
#else
typedef float floats __attribute__((vector_size(VEC * 4)));
typedef int32_t ints __attribute__((vector_size(VEC * 4)));
typedef uint32_t words __attribute__((vector_size(VEC * 4)));
typedef uint16_t halves __attribute__((vector_size(VEC * 2)));
typedef int16_t shorts __attribute__((vector_size(VEC * 2)));
typedef int8_t bytes __attribute__((vector_size(VEC)));
typedef char packed __attribute__((vector_size(16)));
typedef long long pair __attribute__((vector_size(16)));
#define CONVERT(value, type) __builtin_convertvector(value, type)
#endif

#if WIDEN
typedef float activation;
#else
typedef bf16 activation;
#endif

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

static inline floats load(const int8_t *at) {
  bytes byte;
  __builtin_memcpy(&byte, at, sizeof byte);
#if VEC == 1
  return byte;
#elif VEC == 16 && defined(__AVX512F__) && !defined(__clang__)
  return CONVERT(__builtin_ia32_pmovsxbd512_mask((packed)byte, ints{}, -1), floats);
#elif VEC == 8 && defined(__AVX2__) && !defined(__clang__)
  return CONVERT(__builtin_ia32_pmovsxbd256((packed)pair{bits<long long>(byte), 0}), floats);
#else
  return CONVERT(CONVERT(CONVERT(byte, shorts), ints), floats);  // g++ takes a single step lane by lane
#endif
}

static inline float sum(const floats *parts) {
  float total = 0;
  for (int i = 0; i < UNROLL * VEC; i++) total += ((const float *)parts)[i];
  return total;
}

// Writes ROWS dot products of `x` with rows that lie `columns` apart.
template <int rows>
static inline void dot(const activation *x, const int8_t *weight, int64_t columns, float *result) {
  floats sums[rows][UNROLL] = {};
  int64_t i = 0;
  for (; i + UNROLL * VEC <= columns; i += UNROLL * VEC)
    for (int u = 0; u < UNROLL; u++) {
      const floats value = load(x + i + u * VEC);
      for (int row = 0; row < rows; row++) {
        const int8_t *at = weight + row * columns + i + u * VEC;
        if (PREFETCH && (uintptr_t)at % 64 < VEC) __builtin_prefetch(at + PREFETCH);
        sums[row][u] += value * load(at);
      }
    }
  for (int row = 0; row < rows; row++) {
    result[row] = sum(sums[row]);
    for (int64_t rest = i; rest < columns; rest++) result[row] += float(x[rest]) * weight[row * columns + rest];
  }
}

void run(const bf16 *x, const int8_t *weight, const bf16 *scales, bf16 *y, int64_t out_features,
         int64_t in_features) {
#if WIDEN
  float *activations = (float *)malloc(in_features * sizeof(float));
  for (int64_t i = 0; i < in_features; i++) activations[i] = x[i];
#else
  const bf16 *activations = x;
#endif
#pragma omp parallel for num_threads(SWARM_CORES) if (SWARM_CORES > 1)
  for (int64_t row = 0; row < out_features; row += ROWS) {
    float result[ROWS];
    const int64_t rows = out_features - row < ROWS ? out_features - row : ROWS;
    if (rows == ROWS)
      dot<ROWS>(activations, weight + row * in_features, in_features, result);
    else
      for (int64_t i = 0; i < rows; i++)
        dot<1>(activations, weight + (row + i) * in_features, in_features, result + i);
    for (int64_t i = 0; i < rows; i++) y[row + i] = result[i] * float(scales[row + i]);
  }
#if WIDEN
  free(activations);
#endif
}
