// A polynomial with coefficients of every type an argument can have; WIDTH elements a thread, in a build variant each.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename T>
__global__ void affine(const T *x, T *y, long long n, float f, double d, int i, long long l, __half h, __nv_bfloat16 b,
                       bool negate, unsigned char sign) {
  const double constant = d + static_cast<double>((l % 1000 + 1000) % 1000);  // as Python's %
  const float slope = static_cast<float>(static_cast<double>(f) + i);
#pragma unroll
  for (int k = 0; k < WIDTH; k++) {
    const long long at = (blockIdx.x * (long long)blockDim.x + threadIdx.x) * WIDTH + k;
    if (at >= n) return;
    const T value = x[at] * slope + static_cast<float>(constant) + __half2float(h) * x[at] - __bfloat162float(b);
    y[at] = negate && sign ? -value : value;
  }
}
