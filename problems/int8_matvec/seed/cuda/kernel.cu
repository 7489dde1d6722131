// scales * (weight @ x), a warp for ROWS rows.
//
// WARPS   warps of a block
// ROWS    rows of a warp, which share what they read of x
// VEC     weights of one access
// UNROLL  accesses a row before the first is multiplied
// SHARED  1 keeps x in shared memory, as floats
#include <cuda_bf16.h>

#include "problem.h"

struct alignas(VEC) Bytes {
  signed char at[VEC];
};

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    matvec(const __nv_bfloat16 *x, const signed char *weight, const __nv_bfloat16 *scales, __nv_bfloat16 *y,
           int out_features, int in_features) {
  extern __shared__ float shared_x[];
  if (SHARED) {
    for (int k = threadIdx.x; k < in_features; k += WARPS * 32) shared_x[k] = __bfloat162float(x[k]);
    __syncthreads();
  }
  const int row0 = (blockIdx.x * WARPS + threadIdx.x / 32) * ROWS, lane = threadIdx.x % 32;
  float sums[ROWS] = {};
  for (int first = lane * VEC; first < in_features; first += UNROLL * 32 * VEC) {
    Bytes held[UNROLL][ROWS];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        const int k = first + u * 32 * VEC;
        if (k < in_features && row0 + r < out_features)
          held[u][r] = *reinterpret_cast<const Bytes *>(weight + (size_t)(row0 + r) * in_features + k);
      }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const int k = first + u * 32 * VEC;
      if (k >= in_features) continue;
#pragma unroll
      for (int v = 0; v < VEC; v++) {
        const float of_x = SHARED ? shared_x[k + v] : __bfloat162float(x[k + v]);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
          if (row0 + r < out_features) sums[r] += held[u][r].at[v] * of_x;
      }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    for (int step = 16; step > 0; step /= 2) sums[r] += __shfl_xor_sync(~0u, sums[r], step);
    if (lane == 0 && row0 + r < out_features)
      y[row0 + r] = __float2bfloat16(sums[r] * __bfloat162float(scales[row0 + r]));
  }
}
