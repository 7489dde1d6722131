// Backward pass of LayerNorm in three launches: a block per row for the gradient of the input, then sums down the columns
// for those of gain and offset, over ROWS tokens at a time and over what that leaves.
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
    rows(const float *grad_output, const float *hidden_states, const float *weight, float *grad_hidden_states,
         float2 *statistics) {
  const size_t begin = (size_t)blockIdx.x * hidden;
  const float *x = hidden_states + begin;
  auto grad_normed = [&](int i) { return grad_output[begin + i] * weight[i]; };

  float sum = 0;
  for (int i = threadIdx.x; i < hidden; i += THREADS) sum += x[i];
  const float mean = sum_block(sum) / hidden;

  float squares = 0, grads = 0, products = 0;
  for (int i = threadIdx.x; i < hidden; i += THREADS) {
    const float off = x[i] - mean;
    squares += off * off;
    grads += grad_normed(i);
    products += grad_normed(i) * off;
  }
  const float scale = rsqrtf(sum_block(squares) / hidden + 1e-5f);
  const float across = sum_block(grads) / hidden, along = sum_block(products) * scale / hidden;

  for (int i = threadIdx.x; i < hidden; i += THREADS)
    grad_hidden_states[begin + i] = scale * (grad_normed(i) - across - (x[i] - mean) * scale * along);
  if (threadIdx.x == 0) statistics[blockIdx.x] = {mean, scale};
}

extern "C" __global__ void __launch_bounds__(THREADS)
    column_parts(const float *grad_output, const float *hidden_states, const float2 *statistics, float2 *parts, int tokens) {
  const int column = blockIdx.x * THREADS + threadIdx.x, first = blockIdx.y * ROWS;
  if (column >= hidden) return;
  float2 sum = {0, 0};
  for (int row = first; row < min(first + ROWS, tokens); row++) {
    const size_t at = (size_t)row * hidden + column;
    const auto [mean, scale] = statistics[row];
    sum.x += grad_output[at] * (hidden_states[at] - mean) * scale;
    sum.y += grad_output[at];
  }
  parts[blockIdx.y * hidden + column] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    columns(const float2 *parts, float *grad_weight, float *grad_bias, int count) {
  const int column = blockIdx.x * THREADS + threadIdx.x;
  if (column >= hidden) return;
  float2 sum = {0, 0};
  for (int part = 0; part < count; part++) {
    sum.x += parts[part * hidden + column].x;
    sum.y += parts[part * hidden + column].y;
  }
  grad_weight[column] = sum.x;
  grad_bias[column] = sum.y;
}
