// float8 with a scale for each token: a block finds the largest magnitude of a token, then reads it again.
//
// THREADS  threads of a block, a power of two
#include "problem.h"

constexpr float LARGEST = 448, LEAST = 1e-12f;

extern "C" __global__ void __launch_bounds__(THREADS)
    quantise(const __nv_bfloat16 *x, __nv_fp8_e4m3 *quantised, float *scales, int hidden) {
  __shared__ float most[THREADS];
  x += (size_t)blockIdx.x * hidden, quantised += (size_t)blockIdx.x * hidden;
  float own = LEAST;
  for (int k = threadIdx.x; k < hidden; k += THREADS) own = fmaxf(own, fabsf(__bfloat162float(x[k])));
  most[threadIdx.x] = own;
  __syncthreads();
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) most[threadIdx.x] = fmaxf(most[threadIdx.x], most[threadIdx.x + half]);
    __syncthreads();
  }
  const float scale = most[0] / LARGEST;
  for (int k = threadIdx.x; k < hidden; k += THREADS)
    quantised[k] = __nv_fp8_e4m3(__bfloat162float(x[k]) / scale);  // which saturates
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}
