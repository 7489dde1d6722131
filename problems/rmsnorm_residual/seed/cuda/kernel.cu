// RMSNorm of hidden_states + residual, ROWS rows a block, THREADS threads a row: the sum is written and its squares are
// added, then the sum is scaled.
//
// THREADS  threads that share a row
// ROWS     rows of a block
// VEC      elements of one access
// HOLD     1 keeps the sum in registers, 0 adds again for the second step
// STREAM   1 keeps rows out of the caches, with VEC = 4 or 8
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

struct Sums {
  float at[VEC];
};

extern "C" __global__ void __launch_bounds__(THREADS *ROWS)
    rmsnorm(const __nv_bfloat16 *states, const __nv_bfloat16 *residual, const __nv_bfloat16 *weight,
            __nv_bfloat16 *output, __nv_bfloat16 *new_residual, int tokens) {
  const int row = blockIdx.x * ROWS + threadIdx.y;
  const bool is_row = row < tokens;
  const size_t begin = (size_t)(is_row ? row : tokens - 1) * hidden + threadIdx.x * VEC;
  auto add = [&](int step) {
    const Halves a = read(states + begin + step * VEC * THREADS), b = read(residual + begin + step * VEC * THREADS);
    Sums total;
#pragma unroll
    for (int v = 0; v < VEC; v++) total.at[v] = __bfloat162float(a.at[v]) + __bfloat162float(b.at[v]);
    return total;
  };

  Sums held[HOLD ? STEPS : 1];
  float squares = 0;
#pragma unroll
  for (int step = 0; step < STEPS; step++) {
    const Sums total = add(step);
    Halves rounded;
#pragma unroll
    for (int v = 0; v < VEC; v++) {
      squares += total.at[v] * total.at[v];
      rounded.at[v] = __float2bfloat16(total.at[v]);
    }
    if (HOLD) held[HOLD ? step : 0] = total;
    if (is_row) write(new_residual + begin + step * VEC * THREADS, rounded);
  }
  const float scale = rsqrtf(sum_row(squares) / hidden + 1e-5f);

  if (!is_row) return;
#pragma unroll
  for (int step = 0; step < STEPS; step++) {
    const Sums total = HOLD ? held[HOLD ? step : 0] : add(step);
    const Halves gain = *reinterpret_cast<const Halves *>(weight + threadIdx.x * VEC + step * VEC * THREADS);
    Halves result;
#pragma unroll
    for (int v = 0; v < VEC; v++) result.at[v] = __float2bfloat16(total.at[v] * scale * __bfloat162float(gain.at[v]));
    write(output + begin + step * VEC * THREADS, result);
  }
}
