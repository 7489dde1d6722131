// A matrix product for each expert: a block makes a tile of TILE rows of one expert by TILE columns, a thread 4 by 4 of it.
// As many blocks are launched as one expert could need with all rows; those without rows leave at once.
//
// TILE   rows and columns of a block's tile
// DEPTH  elements of each row that lie in shared memory at a time
#include "problem.h"

constexpr int PER = 4, SIDE = TILE / PER, THREADS = SIDE * SIDE;

extern "C" __global__ void __launch_bounds__(THREADS)
    multiply(const __nv_bfloat16 *x, const __nv_bfloat16 *weight, const int *ends, __nv_bfloat16 *y, int out_features,
             int in_features) {
  __shared__ float of_x[DEPTH][TILE + 1], of_weight[DEPTH][TILE + 1];
  const int expert = blockIdx.z, end = ends[expert], column0 = blockIdx.x * TILE;
  const int row0 = (expert > 0 ? ends[expert - 1] : 0) + blockIdx.y * TILE;
  if (row0 >= end) return;
  weight += (size_t)expert * out_features * in_features;
  const int to_x = threadIdx.x % SIDE, to_y = threadIdx.x / SIDE;
  float sums[PER][PER] = {};
  for (int k0 = 0; k0 < in_features; k0 += DEPTH) {
    for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
      const int line = i / DEPTH, k = i % DEPTH;
      const bool is_row = row0 + line < end && k0 + k < in_features;
      const bool is_column = column0 + line < out_features && k0 + k < in_features;
      of_x[k][line] = is_row ? __bfloat162float(x[(size_t)(row0 + line) * in_features + k0 + k]) : 0.0f;
      of_weight[k][line] = is_column ? __bfloat162float(weight[(size_t)(column0 + line) * in_features + k0 + k]) : 0.0f;
    }
    __syncthreads();
    for (int k = 0; k < DEPTH; k++)
#pragma unroll
      for (int r = 0; r < PER; r++)
#pragma unroll
        for (int c = 0; c < PER; c++) sums[r][c] += of_x[k][to_y + r * SIDE] * of_weight[k][to_x + c * SIDE];
    __syncthreads();
  }
  for (int r = 0; r < PER; r++)
    for (int c = 0; c < PER; c++) {
      const int row = row0 + to_y + r * SIDE, column = column0 + to_x + c * SIDE;
      if (row < end && column < out_features) y[(size_t)row * out_features + column] = __float2bfloat16(sums[r][c]);
    }
}
