// C[M, N] = A[M, K] B[N, K]^T without tensor cores: what the fast one must agree with. A block makes 64 x 64 elements,
// a thread 4 x 4 of them.
#include <cuda_bf16.h>

constexpr int TILE = 64, STEP = 16;

extern "C" __global__ void __launch_bounds__(256)
    gemm_simple(const __nv_bfloat16 *a, const __nv_bfloat16 *b, __nv_bfloat16 *c, int M, int N, int K) {
  __shared__ float rows_a[STEP][TILE + 1], rows_b[STEP][TILE + 1];
  const int m0 = blockIdx.y * TILE, n0 = blockIdx.x * TILE;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  float sums[4][4] = {};
  for (int k0 = 0; k0 < K; k0 += STEP) {
    for (int i = threadIdx.x; i < TILE * STEP; i += 256) {
      const int row = i / STEP, k = i % STEP;
      rows_a[k][row] = m0 + row < M ? __bfloat162float(a[(size_t)(m0 + row) * K + k0 + k]) : 0.0f;
      rows_b[k][row] = n0 + row < N ? __bfloat162float(b[(size_t)(n0 + row) * K + k0 + k]) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < STEP; k++)
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sums[i][j] += rows_a[k][y + 16 * i] * rows_b[k][x + 16 * j];
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      const int m = m0 + y + 16 * i, n = n0 + x + 16 * j;
      if (m < M && n < N) c[(size_t)m * N + n] = __float2bfloat16(sums[i][j]);
    }
}
