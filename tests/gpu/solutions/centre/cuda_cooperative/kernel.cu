// A tensor less its mean, in one cooperative launch: all blocks add, meet, and then each subtracts.
#include <cooperative_groups.h>

// Adds over a block; every thread gets the sum.
template <int SIZE> __device__ double sum_block(double own) {
  __shared__ double of_thread[SIZE];
  __syncthreads();  // the sum of the call before has been read
  of_thread[threadIdx.x] = own;
  for (int half = SIZE / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) of_thread[threadIdx.x] += of_thread[threadIdx.x + half];
  }
  __syncthreads();
  return of_thread[0];
}

template <int SIZE>
__global__ void __launch_bounds__(SIZE) centre(const float *x, float *y, double *parts, long long n) {
  const long long begin = blockIdx.x * (long long)SIZE + threadIdx.x, stride = gridDim.x * (long long)SIZE;
  double own = 0;
  for (long long i = begin; i < n; i += stride) own += x[i];
  own = sum_block<SIZE>(own);
  if (threadIdx.x == 0) parts[blockIdx.x] = own;
  cooperative_groups::this_grid().sync();
  double all = 0;
  for (int part = threadIdx.x; part < gridDim.x; part += SIZE) all += __ldcg(&parts[part]);
  const double mean = sum_block<SIZE>(all) / n;
  for (long long i = begin; i < n; i += stride) y[i] = static_cast<float>(x[i] - mean);
}
