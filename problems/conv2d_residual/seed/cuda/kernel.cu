// The block in three launches, each a matrix product of pixels and filters: a tile of TILE pixels by TILE channels per block,
// 4 by 4 of it per thread. What one launch leaves for the next is bfloat16.
//
// TILE   pixels and channels of a block's tile
// DEPTH  elements of each filter that lie in shared memory at a time
#include "problem.h"

constexpr int PER = 4, THREADS_SIDE = TILE / PER, THREADS = THREADS_SIDE * THREADS_SIDE;

// Convolves with filters of SIDE x SIDE, adds the bias and, if ADDS, `added`, and applies ReLU.
template <int SIDE, bool ADDS>
__global__ void __launch_bounds__(THREADS)
    convolve(const __nv_bfloat16 *x, const __nv_bfloat16 *filters, const __nv_bfloat16 *bias, const __nv_bfloat16 *added,
             __nv_bfloat16 *y, int pixels, int side, int in_channels, int out_channels) {
  __shared__ float of_x[DEPTH][TILE + 1], of_filter[DEPTH][TILE + 1];
  const int pixel0 = blockIdx.x * TILE, channel0 = blockIdx.y * TILE, length = SIDE * SIDE * in_channels;
  const int to_x = threadIdx.x % THREADS_SIDE, to_y = threadIdx.x / THREADS_SIDE;
  float sums[PER][PER] = {};
  for (int k0 = 0; k0 < length; k0 += DEPTH) {
    for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
      const int line = i / DEPTH, k = k0 + i % DEPTH, pixel = pixel0 + line, channel = channel0 + line;
      const int tap = k / in_channels, down = tap / SIDE - SIDE / 2, right = tap % SIDE - SIDE / 2;
      const int row = pixel / side % side + down, column = pixel % side + right;
      const bool is_inside = row >= 0 && row < side && column >= 0 && column < side;
      const size_t from = (size_t)(pixel + down * side + right) * in_channels + k % in_channels;
      of_x[i % DEPTH][line] = k < length && pixel < pixels && is_inside ? __bfloat162float(x[from]) : 0.0f;
      const bool is_filter = k < length && channel < out_channels;
      of_filter[i % DEPTH][line] = is_filter ? __bfloat162float(filters[(size_t)channel * length + k]) : 0.0f;
    }
    __syncthreads();
    for (int k = 0; k < DEPTH; k++)
#pragma unroll
      for (int p = 0; p < PER; p++)
#pragma unroll
        for (int c = 0; c < PER; c++)
          sums[p][c] += of_x[k][to_y + p * THREADS_SIDE] * of_filter[k][to_x + c * THREADS_SIDE];
    __syncthreads();
  }
  for (int p = 0; p < PER; p++)
    for (int c = 0; c < PER; c++) {
      const int pixel = pixel0 + to_y + p * THREADS_SIDE, channel = channel0 + to_x + c * THREADS_SIDE;
      if (pixel >= pixels || channel >= out_channels) continue;
      const size_t at = (size_t)pixel * out_channels + channel;
      const float sum = sums[p][c] + __bfloat162float(bias[channel]) + (ADDS ? __bfloat162float(added[at]) : 0.0f);
      y[at] = __float2bfloat16(fmaxf(sum, 0.0f));
    }
}
