// Writes where nothing is.
extern "C" __global__ void twice(const float *x, float *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[(1ll << 40) + i] = 2 * x[i];
}
