// NVFP4: a thread quantises a block of 16 elements, which share a scale.
//
// THREADS  threads of a block
#include "problem.h"

constexpr int BLOCK = 16;
constexpr float LARGEST = 6;  // of E2M1

// Returns the 4-bit code of the nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6, with the sign of the value; ties to even.
__device__ int e2m1(float value) {
  const float size = fabsf(value);
  const int code = (size > 0.25f) + (size >= 0.75f) + (size > 1.25f) + (size >= 1.75f) + (size > 2.5f) +
                   (size >= 3.5f) + (size > 5.0f);
  return code | (value < 0) << 3;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    quantise(const __nv_bfloat16 *x, const float *global_scale, uint8_t *quantised, __nv_fp8_e4m3 *scales, int blocks) {
  const int block = blockIdx.x * THREADS + threadIdx.x;
  if (block >= blocks) return;
  x += (size_t)block * BLOCK, quantised += (size_t)block * BLOCK / 2;
  float most = 0;
  for (int k = 0; k < BLOCK; k++) most = fmaxf(most, fabsf(__bfloat162float(x[k])));
  const __nv_fp8_e4m3 scale(most / (LARGEST * *global_scale));  // which saturates
  const float step = float(scale) * *global_scale;
  for (int k = 0; k < BLOCK; k += 2) {
    const int even = step > 0 ? e2m1(__bfloat162float(x[k]) / step) : 0;
    const int odd = step > 0 ? e2m1(__bfloat162float(x[k + 1]) / step) : 0;
    quantised[k / 2] = even | odd << 4;
  }
  scales[block] = scale;
}
