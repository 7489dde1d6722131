// Never ends.
extern "C" __global__ void twice(const float *x, float *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  volatile float *at = y;
  while (at[0] != 12345.678f || n > 0) at[0] = 1;
  y[i] = x[i];
}
