// Backward pass of RMSNorm in three launches: a block per row for the gradient of the input, then sums down the columns
// for the gradient of the gain, over ROWS tokens at a time and over what that leaves.
//
// THREADS  threads of a block
// ROWS     tokens whose products one thread adds up
#include "problem.h"

// Adds over the block; every thread gets the sum.
__device__ float sum_block(float own) {
  __shared__ float of_warp[THREADS / 32];
  for (int step = 16; step > 0; step /= 2) own += __shfl_xor_sync(~0u, own, step);
  __syncthreads();  // the sums of the call before have been read
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
  __syncthreads();
  float sum = 0;
  for (float part : of_warp) sum += part;
  return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    rows(const __nv_bfloat16 *grad_output, const __nv_bfloat16 *hidden_states, const __nv_bfloat16 *weight,
         __nv_bfloat16 *grad_hidden_states, float *scales) {
  const size_t begin = (size_t)blockIdx.x * hidden;
  auto x = [&](int i) { return __bfloat162float(hidden_states[begin + i]); };
  auto grad_normed = [&](int i) { return __bfloat162float(grad_output[begin + i]) * __bfloat162float(weight[i]); };

  float squares = 0, products = 0;
  for (int i = threadIdx.x; i < hidden; i += THREADS) {
    squares += x(i) * x(i);
    products += grad_normed(i) * x(i);
  }
  const float scale = rsqrtf(sum_block(squares) / hidden + 1e-5f);
  const float along = sum_block(products) * scale / hidden;

  for (int i = threadIdx.x; i < hidden; i += THREADS)
    grad_hidden_states[begin + i] = __float2bfloat16(scale * (grad_normed(i) - x(i) * scale * along));
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    column_parts(const __nv_bfloat16 *grad_output, const __nv_bfloat16 *hidden_states, const float *scales, float *parts,
                 int tokens) {
  const int column = blockIdx.x * THREADS + threadIdx.x, first = blockIdx.y * ROWS;
  if (column >= hidden) return;
  float sum = 0;
  for (int row = first; row < min(first + ROWS, tokens); row++) {
    const size_t at = (size_t)row * hidden + column;
    sum += __bfloat162float(grad_output[at]) * __bfloat162float(hidden_states[at]) * scales[row];
  }
  parts[blockIdx.y * hidden + column] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS) columns(const float *parts, __nv_bfloat16 *grad_weight, int count) {
  const int column = blockIdx.x * THREADS + threadIdx.x;
  if (column >= hidden) return;
  float sum = 0;
  for (int part = 0; part < count; part++) sum += parts[part * hidden + column];
  grad_weight[column] = __float2bfloat16(sum);
}
