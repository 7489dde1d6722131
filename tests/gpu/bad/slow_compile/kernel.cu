// Minutes of work for the compiler: thousands of dependent steps in straight line, of which nothing can be left out.
template <int DEPTH> __device__ __forceinline__ float more(float a, float b) {
  return more<DEPTH - 1>(sinf(a) + b, more<DEPTH - 1>(cosf(b) * a, a - b));
}
template <> __device__ __forceinline__ float more<0>(float a, float b) { return powf(a, b); }

extern "C" __global__ void twice(const float *x, float *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = more<14>(x[i], 2);
}
