// Leaves half of the output as it was.
extern "C" __global__ void twice(const float *x, float *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n / 2) y[i] = 2 * x[i];
}
