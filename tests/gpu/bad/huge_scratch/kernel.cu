// A petabyte of scratch memory.
extern "C" __global__ void twice(const float *x, float *y, int n, float *much) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  much[i] = 0;
  if (i < n) y[i] = 2 * x[i];
}
