// y[N] = W[N, K] x[K]: one warp adds one row.
#include <cuda_bf16.h>

extern "C" __global__ void gemv_simple(const __nv_bfloat16 *w, const __nv_bfloat16 *x, __nv_bfloat16 *y, int N, int K) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= N) return;
  float sum = 0;
  for (int k = threadIdx.x % 32; k < K; k += 32)
    sum += __bfloat162float(w[(size_t)row * K + k]) * __bfloat162float(x[k]);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) y[row] = __float2bfloat16(sum);
}
