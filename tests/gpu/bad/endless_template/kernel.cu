// A type that contains the next one, without an end.
template <int DEPTH> struct Next {
  static constexpr int value = Next<DEPTH + 1>::value + 1;
};

extern "C" __global__ void twice(const float *x, float *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i] + Next<0>::value * 0;
}
