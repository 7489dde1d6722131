// Asks for 400 KB of local memory a thread: more than the device has for all that could run.
extern "C" __global__ void twice(const float *x, float *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  volatile float own[100000];
  for (int k = 0; k < 100000; k += n % 7 + 1) own[k] = x[0] + k;
  if (i < n) y[i] = own[i % 100000];
}
