// RMSNorm of bf16 rows of 4096: one block a row, one load of 16 bytes a thread.
#include <cuda_bf16.h>

#include "problem.h"

constexpr int THREADS = hidden_size / 8;

__device__ float2 unpack(unsigned pair) {
  return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000));
}

__device__ unsigned scaled(unsigned x, unsigned weight, float scale) {
  const float2 a = unpack(x), b = unpack(weight);
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a.x * scale * b.x, a.y * scale * b.y);
  return reinterpret_cast<const unsigned &>(pair);
}

__global__ void __launch_bounds__(THREADS) rmsnorm(const uint4 *x, const uint4 *weight, uint4 *y) {
  __shared__ float of_warp[THREADS / 32];
  const size_t at = (size_t)blockIdx.x * THREADS + threadIdx.x;
  const uint4 held = x[at], gain = weight[threadIdx.x];
  const unsigned words[4] = {held.x, held.y, held.z, held.w};
  float sum = 0;
  for (unsigned word : words) {
    const float2 pair = unpack(word);
    sum += pair.x * pair.x + pair.y * pair.y;
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  float all = 0;
  for (int warp = 0; warp < THREADS / 32; warp++) all += of_warp[warp];
  const float scale = rsqrtf(all / hidden_size + 1e-5f);
  y[at] = make_uint4(scaled(held.x, gain.x, scale), scaled(held.y, gain.y, scale), scaled(held.z, gain.z, scale),
                     scaled(held.w, gain.w, scale));
}

extern "C" void run(const __nv_bfloat16 *hidden_states, const __nv_bfloat16 *weight, __nv_bfloat16 *output,
                    int64_t batch_size, cudaStream_t stream) {
  if (batch_size == 0) return;
  rmsnorm<<<batch_size, THREADS, 0, stream>>>(reinterpret_cast<const uint4 *>(hidden_states),
                                              reinterpret_cast<const uint4 *>(weight), reinterpret_cast<uint4 *>(output));
}
