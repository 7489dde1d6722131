// The host crashes.
#include "problem.h"

__global__ void twice(const float *x, float *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}

extern "C" void run(const float *x, float *y, int64_t n, cudaStream_t stream) {
  *reinterpret_cast<volatile int *>(16) = n;
}
