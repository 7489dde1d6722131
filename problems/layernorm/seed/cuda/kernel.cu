// Layer normalisation, ROWS rows a block, THREADS threads a row: the mean, the variance around it, the result.
//
// THREADS  threads that share a row
// ROWS     rows of a block
// VEC      floats of one access
// HOLD     1 keeps the row in registers, 0 reads it again for each of the three steps
// STREAM   1 keeps rows out of the caches, with VEC = 2 or 4
#include "problem.h"

struct alignas(4 * VEC) Floats {
  float at[VEC];
};

// Reads what is not read again, and writes what is not read at all, without a place in the first cache.
__device__ Floats read(const float *from) {
  Floats value;
#if STREAM && VEC == 4
  *reinterpret_cast<float4 *>(&value) = __ldcs(reinterpret_cast<const float4 *>(from));
#elif STREAM && VEC == 2
  *reinterpret_cast<float2 *>(&value) = __ldcs(reinterpret_cast<const float2 *>(from));
#else
  value = *reinterpret_cast<const Floats *>(from);
#endif
  return value;
}

__device__ void write(float *to, const Floats &value) {
#if STREAM && VEC == 4
  __stcs(reinterpret_cast<float4 *>(to), *reinterpret_cast<const float4 *>(&value));
#elif STREAM && VEC == 2
  __stcs(reinterpret_cast<float2 *>(to), *reinterpret_cast<const float2 *>(&value));
#else
  *reinterpret_cast<Floats *>(to) = value;
#endif
}

// Adds over the THREADS threads of a row; every one of them gets the sum.
__device__ float sum_row(float own) {
  __shared__ float of_warp[ROWS][(THREADS + 31) / 32];
  for (int step = 16; step > 0; step /= 2) own += __shfl_xor_sync(~0u, own, step);
  if (THREADS == 32) return own;
  __syncthreads();  // the sums of the call before have been read
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.y][threadIdx.x / 32] = own;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < THREADS / 32; warp++) sum += of_warp[threadIdx.y][warp];
  return sum;
}

constexpr int STEPS = hidden / (VEC * THREADS);
static_assert(hidden % (VEC * THREADS) == 0, "a row is a whole number of steps");

extern "C" __global__ void __launch_bounds__(THREADS *ROWS)
    layernorm(const float *x, const float *weight, const float *bias, float *y, int tokens) {
  const int row = blockIdx.x * ROWS + threadIdx.y;
  const bool is_row = row < tokens;
  const size_t begin = (size_t)(is_row ? row : tokens - 1) * hidden + threadIdx.x * VEC;
  Floats held[HOLD ? STEPS : 1] = {};
  auto part = [&](int step) { return HOLD ? held[HOLD ? step : 0] : read(x + begin + step * VEC * THREADS); };
#pragma unroll
  for (int step = 0; step < (HOLD ? STEPS : 0); step++) held[step] = read(x + begin + step * VEC * THREADS);

  float sum = 0;
#pragma unroll
  for (int step = 0; step < STEPS; step++) {
    const Floats value = part(step);
#pragma unroll
    for (int v = 0; v < VEC; v++) sum += value.at[v];
  }
  const float mean = sum_row(sum) / hidden;

  float squares = 0;
#pragma unroll
  for (int step = 0; step < STEPS; step++) {
    const Floats value = part(step);
#pragma unroll
    for (int v = 0; v < VEC; v++) squares += (value.at[v] - mean) * (value.at[v] - mean);
  }
  const float scale = rsqrtf(sum_row(squares) / hidden + 1e-5f);

  if (!is_row) return;
#pragma unroll
  for (int step = 0; step < STEPS; step++) {
    const int column = threadIdx.x * VEC + step * VEC * THREADS;
    Floats value = part(step);
    const Floats gain = *reinterpret_cast<const Floats *>(weight + column);
    const Floats offset = *reinterpret_cast<const Floats *>(bias + column);
#pragma unroll
    for (int v = 0; v < VEC; v++) value.at[v] = (value.at[v] - mean) * scale * gain.at[v] + offset.at[v];
    write(y + begin + step * VEC * THREADS, value);
  }
}
