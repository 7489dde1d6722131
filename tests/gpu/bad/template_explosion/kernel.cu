// Two to the 40th power different types.
template <int DEPTH, long long PATH> struct Tree {
  static constexpr long long count = Tree<DEPTH - 1, 2 * PATH>::count + Tree<DEPTH - 1, 2 * PATH + 1>::count;
};
template <long long PATH> struct Tree<0, PATH> {
  static constexpr long long count = PATH;
};

extern "C" __global__ void twice(const float *x, float *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i] + Tree<40, 1>::count * 0;
}
