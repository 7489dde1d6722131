// GroupNorm and SiLU: a block takes one group of one image, which lies in one piece, and reads it three times: for the
// mean, for the variance around it, and for the result.
//
// THREADS  threads of a block
// FAST     1 takes the quick exponential and division, which are exact enough
#include "problem.h"

// Adds over the block; every thread gets the sum.
__device__ float sum_block(float own) {
  __shared__ float of_warp[THREADS / 32];
  for (int step = 16; step > 0; step /= 2) own += __shfl_xor_sync(~0u, own, step);
  __syncthreads();  // the sums of the call before have been read
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
  __syncthreads();
  float sum = 0;
  for (float part : of_warp) sum += part;
  return sum;
}

__device__ float silu(float x) { return FAST ? __fdividef(x, 1 + __expf(-x)) : x / (1 + expf(-x)); }

extern "C" __global__ void __launch_bounds__(THREADS)
    groupnorm_silu(const __half *x, const __half *weight, const __half *bias, __half *output, int channels, int pixels) {
  const int size = channels / groups, first = blockIdx.x * size;  // the channels of this group
  const int count = size * pixels;
  const size_t begin = ((size_t)blockIdx.y * channels + first) * pixels;

  float sum = 0;
  for (int i = threadIdx.x; i < count; i += THREADS) sum += __half2float(x[begin + i]);
  const float mean = sum_block(sum) / count;

  float squares = 0;
  for (int i = threadIdx.x; i < count; i += THREADS) {
    const float off = __half2float(x[begin + i]) - mean;
    squares += off * off;
  }
  const float scale = rsqrtf(sum_block(squares) / count + 1e-5f);

  for (int i = threadIdx.x; i < count; i += THREADS) {
    const int channel = first + i / pixels;
    const float normed = (__half2float(x[begin + i]) - mean) * scale;
    output[begin + i] = __float2half(silu(normed * __half2float(weight[channel]) + __half2float(bias[channel])));
  }
}
