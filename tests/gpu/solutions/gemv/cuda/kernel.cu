// y[N] = W[N, K] x[K] in bf16, the K of a row split over blockIdx.y: each block writes its part of the sums, and the
// block that counts itself last adds the parts, in their order, so that the result is the same in every run.
//
// ROWS    rows of a warp
// CHUNK   elements of a row that one block multiplies; a multiple of AHEAD * 256
// WARPS   warps of a block
// AHEAD   steps of 256 elements that are loaded before the first is multiplied
#include <cuda_bf16.h>

static_assert(CHUNK % (AHEAD * 256) == 0, "a warp reads 32 x 8 elements in a step");

struct alignas(16) Eight {
  uint4 bits;
  __device__ float2 pair(int i) const { return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162 *>(&bits)[i]); }
};

__device__ __forceinline__ Eight stream(const __nv_bfloat16 *at) {
  uint4 bits;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
      : "l"(at));
  return {bits};
}

__device__ __forceinline__ float dot(const Eight &a, const Eight &b) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float2 x = a.pair(i), y = b.pair(i);
    sum += x.x * y.x + x.y * y.y;
  }
  return sum;
}

// Adds the products of AHEAD steps of ROWS rows, all loads first; those outside of W are left out if some may be.
template <bool IS_WHOLE>
__device__ __forceinline__ void add_steps(float (&sums)[ROWS], const __nv_bfloat16 *w, const __nv_bfloat16 *x, int rows,
                                          int k, int K) {
  Eight of_x[AHEAD], of_w[AHEAD][ROWS];
#pragma unroll
  for (int step = 0; step < AHEAD; step++) {
    const int at = k + step * 256;  // K is a multiple of 8
    of_x[step] = IS_WHOLE || at < K ? *reinterpret_cast<const Eight *>(x + at) : Eight{};
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      of_w[step][r] = IS_WHOLE || (at < K && r < rows) ? stream(w + (size_t)r * K + at) : Eight{};
  }
#pragma unroll
  for (int step = 0; step < AHEAD; step++)
#pragma unroll
    for (int r = 0; r < ROWS; r++) sums[r] += dot(of_w[step][r], of_x[step]);
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    gemv(const __nv_bfloat16 *__restrict__ w, const __nv_bfloat16 *__restrict__ x, __nv_bfloat16 *y,
         float *parts /* [splits][N] */, int *arrived /* [blocks] */, int N, int K) {
  const int lane = threadIdx.x % 32, row0 = (blockIdx.x * WARPS + threadIdx.x / 32) * ROWS;
  const int begin = blockIdx.y * CHUNK, rows = N - row0;
  const __nv_bfloat16 *first_row = w + (size_t)row0 * K;
  float sums[ROWS] = {};
  for (int k = begin; k < begin + CHUNK; k += AHEAD * 256)
    if (rows >= ROWS && k + AHEAD * 256 <= K)
      add_steps<true>(sums, first_row, x, rows, k + lane * 8, K);
    else
      add_steps<false>(sums, first_row, x, rows, k + lane * 8, K);
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sums[r] += __shfl_xor_sync(~0u, sums[r], step);
    if (lane == 0 && row0 + r < N) __stcg(&parts[(size_t)blockIdx.y * N + row0 + r], sums[r]);
  }

  __shared__ bool is_last;
  __threadfence();  // the parts are out before the block is counted
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(&arrived[blockIdx.x], 1) == gridDim.y - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  const int row = blockIdx.x * WARPS * ROWS + threadIdx.x;
  if (threadIdx.x < WARPS * ROWS && row < N) {
    float sum = 0;
    for (int part = 0; part < gridDim.y; part++) sum += __ldcg(&parts[(size_t)part * N + row]);
    y[row] = __float2bfloat16(sum);
  }
}
