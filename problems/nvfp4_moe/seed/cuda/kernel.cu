// NVFP4 experts: quantise the hidden states, gate and up, quantise what is between, down. A warp takes a row of a weight
// at a time, for one token; weights are decoded as they are read, sums are in float32.
//
// WARPS    warps of a block
// COLUMNS  columns of a result that a block computes
#include "problem.h"

constexpr int BLOCK = 16;     // elements that share a scale
constexpr float LARGEST = 6;  // of E2M1

// The number that a 4-bit code stands for: a sign, two bits of exponent, one of mantissa.
__device__ float e2m1(int code) {
  const int exponent = code >> 1 & 3;
  const float half = code & 1 ? 0.5f : 0.0f;
  const float size = exponent ? (1 + half) * (1 << exponent) / 2 : half;
  return code & 8 ? -size : size;
}

// The nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6 with either sign; ties go to the even mantissa.
__device__ float nearest_e2m1(float value) {
  const float size = fminf(fabsf(value), LARGEST);
  const float spacing = size < 2 ? 0.5f : size < 4 ? 1.0f : 2.0f;
  return copysignf(rintf(size / spacing) * spacing, value);
}

// Rounds a block to what NVFP4 has with this global scale. `from` may be `to`.
template <class Element> __device__ void quantise(const Element *from, float global_scale, float *to) {
  float most = 0;
  for (int k = 0; k < BLOCK; k++) most = fmaxf(most, fabsf(float(from[k])));
  const float step = float(__nv_fp8_e4m3(most / (LARGEST * global_scale))) * global_scale;  // E4M3 saturates
  for (int k = 0; k < BLOCK; k++) to[k] = step > 0 ? nearest_e2m1(float(from[k]) / step) * step : 0;
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    quantise_hidden(const __nv_bfloat16 *hidden_states, const float *hidden_scale, float *x, int blocks) {
  const int block = blockIdx.x * WARPS * 32 + threadIdx.x;
  const size_t at = (size_t)block * BLOCK;
  if (block < blocks) quantise(hidden_states + at, *hidden_scale, x + at);
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    quantise_gated(float *gated, const int *expert_ids, const float *intermediate_scale, int rows, int blocks_of_row) {
  const int block = blockIdx.x * WARPS * 32 + threadIdx.x, row = block / blocks_of_row;
  float *at = gated + (size_t)block * BLOCK;
  if (row < rows) quantise(at, intermediate_scale[expert_ids[row]], at);
}

// The product of x and one row of a weight, summed by the lanes of a warp; all of them get it.
__device__ float dot(const float *x, const uint8_t *weight, const __nv_fp8_e4m3 *scales, size_t row, int columns) {
  weight += row * (columns / 2), scales += row * (columns / BLOCK);
  float sum = 0;
  for (int k = threadIdx.x % 32 * 2; k < columns; k += 32 * 2) {
    const int pair = weight[k / 2];
    sum += (x[k] * e2m1(pair & 15) + x[k + 1] * e2m1(pair >> 4)) * float(scales[k / BLOCK]);
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return sum;
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    gate_and_up(const float *x, const int *expert_ids, const uint8_t *gate_up, const __nv_fp8_e4m3 *gate_up_scales,
                const float *gate_up_scale, float *gated, int hidden, int intermediate, int top_k) {
  extern __shared__ float of_token[];
  const int route = blockIdx.x, expert = expert_ids[route], end = min(intermediate, (int)(blockIdx.y + 1) * COLUMNS);
  for (int k = threadIdx.x; k < hidden; k += WARPS * 32) of_token[k] = x[(size_t)(route / top_k) * hidden + k];
  __syncthreads();
  const size_t first = (size_t)expert * 2 * intermediate;
  for (int j = blockIdx.y * COLUMNS + threadIdx.x / 32; j < end; j += WARPS) {
    const float gate = dot(of_token, gate_up, gate_up_scales, first + j, hidden) * gate_up_scale[expert];
    const float up = dot(of_token, gate_up, gate_up_scales, first + intermediate + j, hidden) * gate_up_scale[expert];
    if (threadIdx.x % 32 == 0) gated[(size_t)route * intermediate + j] = gate / (1 + expf(-gate)) * up;
  }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    project_down(const float *gated, const int *expert_ids, const float *expert_weights, const uint8_t *down,
                 const __nv_fp8_e4m3 *down_scales, const float *down_scale, __nv_bfloat16 *output, int hidden,
                 int intermediate, int top_k) {
  extern __shared__ float of_route[];
  __shared__ float sums[COLUMNS];  // each belongs to one warp
  const int token = blockIdx.x, column0 = blockIdx.y * COLUMNS, columns = min(COLUMNS, hidden - column0);
  const int warp = threadIdx.x / 32;
  for (int place = 0; place < top_k; place++) {
    const int route = token * top_k + place, expert = expert_ids[route];
    __syncthreads();
    for (int k = threadIdx.x; k < intermediate; k += WARPS * 32) of_route[k] = gated[(size_t)route * intermediate + k];
    __syncthreads();
    const float share = expert_weights[route] * down_scale[expert];
    for (int j = warp; j < columns; j += WARPS) {
      const float result = dot(of_route, down, down_scales, (size_t)expert * hidden + column0 + j, intermediate);
      if (threadIdx.x % 32 == 0) sums[j] = (place ? sums[j] : 0) + share * result;
    }
  }
  __syncthreads();
  for (int j = threadIdx.x; j < columns; j += WARPS * 32)
    output[(size_t)token * hidden + column0 + j] = __float2bfloat16(sums[j]);
}
