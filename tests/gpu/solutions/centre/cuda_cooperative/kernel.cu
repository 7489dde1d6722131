// A tensor less its mean, in one cooperative launch: all blocks add, meet, and then each subtracts.
#include <cooperative_groups.h>

constexpr int THREADS = 256;

// Adds over a block; every thread gets the sum.
__device__ double sum_block(double own) {
  __shared__ double of_thread[THREADS];
  __syncthreads();  // the sum of the call before has been read
  of_thread[threadIdx.x] = own;
  for (int half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) of_thread[threadIdx.x] += of_thread[threadIdx.x + half];
  }
  __syncthreads();
  return of_thread[0];
}

extern "C" __global__ void __launch_bounds__(THREADS) centre(const float *x, float *y, double *parts, long long n) {
  const long long begin = blockIdx.x * (long long)THREADS + threadIdx.x, stride = gridDim.x * (long long)THREADS;
  double own = 0;
  for (long long i = begin; i < n; i += stride) own += x[i];
  own = sum_block(own);
  if (threadIdx.x == 0) parts[blockIdx.x] = own;
  cooperative_groups::this_grid().sync();
  double all = 0;
  for (int part = threadIdx.x; part < gridDim.x; part += THREADS) all += __ldcg(&parts[part]);
  const double mean = sum_block(all) / n;
  for (long long i = begin; i < n; i += stride) y[i] = static_cast<float>(x[i] - mean);
}
