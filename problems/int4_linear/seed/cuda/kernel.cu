// x @ ((weight - zeros) * scales): a block computes a tile of y, from tiles of x and the dequantised weight in shared memory.
//
// TILE   rows and columns of a block's tile of y, a multiple of 16
// DEPTH  columns of x and rows of the weight in shared memory at a time
#include "problem.h"

constexpr int SIDE = 16;           // a block has SIDE x SIDE threads
constexpr int GROUP = 128;         // rows of the weight that share scales and zero points
constexpr int EACH = TILE / SIDE;  // a thread has EACH x EACH elements of y, SIDE apart

// Eight of 4 bits lie in a word, the first in its low bits.
__device__ int nibble(int word, int place) { return word >> (4 * place) & 15; }

extern "C" __global__ void __launch_bounds__(SIDE *SIDE)
    matmul(const __nv_bfloat16 *x, const int *weight, const int *zeros, const __nv_bfloat16 *scales, __nv_bfloat16 *y,
           int rows, int depth, int columns) {
  __shared__ float of_x[DEPTH][TILE + 1], of_weight[DEPTH][TILE + 1];
  const int row0 = blockIdx.y * TILE, column0 = blockIdx.x * TILE, own = threadIdx.y * SIDE + threadIdx.x;
  float sums[EACH][EACH] = {};
  for (int first = 0; first < depth; first += DEPTH) {
    for (int i = own; i < TILE * DEPTH; i += SIDE * SIDE) {
      const int line = i / DEPTH, k = i % DEPTH, row = row0 + line;
      of_x[k][line] = first + k < depth && row < rows ? __bfloat162float(x[(size_t)row * depth + first + k]) : 0;
    }
    for (int i = own; i < TILE * DEPTH; i += SIDE * SIDE) {
      const int line = i % TILE, k = i / TILE, column = column0 + line, at = first + k, group = at / GROUP;
      of_weight[k][line] = 0;
      if (at < depth && column < columns) {
        const int held = nibble(weight[(size_t)(at / 8) * columns + column], at % 8);
        const int zero = nibble(zeros[(size_t)group * (columns / 8) + column / 8], column % 8);
        of_weight[k][line] = (held - zero) * __bfloat162float(scales[(size_t)group * columns + column]);
      }
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
      if (row < rows && column < columns) y[(size_t)row * columns + column] = __float2bfloat16(sums[i][j]);
    }
}
