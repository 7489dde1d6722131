// Three-point averages, one launch a step, from one buffer into the other. The buffers alternate so that the last step
// writes into y. No step at all is a copy.

extern "C" __global__ void copy(const float *x, float *to, long long n) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) to[i] = x[i];
}

extern "C" __global__ void step(const float *x, float *between, float *y, long long n, int number, int steps) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  const bool into_y = (steps - number) % 2 == 1;
  const float *from = number == 0 ? x : into_y ? between : y;
  float *to = into_y ? y : between;
  if (i < n) to[i] = i == 0 || i == n - 1 ? from[i] : (from[i - 1] + from[i] + from[i + 1]) / 3.0f;
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
