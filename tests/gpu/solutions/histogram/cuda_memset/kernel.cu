// Counts of 256 values: each block counts in shared memory and adds its counts to the outputs, which a memset cleared.

extern "C" __global__ void __launch_bounds__(256) count(const int *x, int *counts, long long n) {
  __shared__ int own[256];
  own[threadIdx.x] = 0;
  __syncthreads();
  for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) atomicAdd(&own[x[i] & 255], 1);
  __syncthreads();
  if (own[threadIdx.x]) atomicAdd(&counts[threadIdx.x], own[threadIdx.x]);
}
