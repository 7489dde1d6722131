// gelu(x @ weight^T + bias): a block computes a tile of y, from tiles of x and weight in shared memory.
//
// TILE   rows and columns of a block's tile of y, a multiple of 16
// DEPTH  columns of x and weight in shared memory at a time
#include "problem.h"

constexpr int SIDE = 16;           // a block has SIDE x SIDE threads
constexpr int EACH = TILE / SIDE;  // a thread has EACH x EACH elements of y, SIDE apart

extern "C" __global__ void __launch_bounds__(SIDE *SIDE)
    matmul(const __half *x, const __half *weight, const __half *bias, __half *y, int rows, int depth, int columns) {
  __shared__ float of_x[DEPTH][TILE + 1], of_weight[DEPTH][TILE + 1];
  const int row0 = blockIdx.y * TILE, column0 = blockIdx.x * TILE, own = threadIdx.y * SIDE + threadIdx.x;
  float sums[EACH][EACH] = {};
  for (int first = 0; first < depth; first += DEPTH) {
    for (int i = own; i < TILE * DEPTH; i += SIDE * SIDE) {
      const int line = i / DEPTH, k = i % DEPTH, row = row0 + line, column = column0 + line;
      const bool is_in = first + k < depth;
      of_x[k][line] = is_in && row < rows ? __half2float(x[(size_t)row * depth + first + k]) : 0;
      of_weight[k][line] = is_in && column < columns ? __half2float(weight[(size_t)column * depth + first + k]) : 0;
    }
    __syncthreads();
    for (int k = 0; k < DEPTH; k++)
      for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++)
          sums[i][j] += of_x[k][i * SIDE + threadIdx.y] * of_weight[k][j * SIDE + threadIdx.x];
    __syncthreads();
  }
  for (int i = 0; i < EACH; i++)
    for (int j = 0; j < EACH; j++) {
      const int row = row0 + i * SIDE + threadIdx.y, column = column0 + j * SIDE + threadIdx.x;
      if (row < rows && column < columns) {
        const float sum = sums[i][j] + __half2float(bias[column]);
        y[(size_t)row * columns + column] = __float2half(0.5f * sum * (1 + erff(sum * 0.70710678f)));
      }
    }
}
