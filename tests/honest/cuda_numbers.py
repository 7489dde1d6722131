"""Device code whose numbers come about in unusual ways, within the tolerance."""

from __future__ import annotations

from tests.corpus.cases import Files, honest, plan


@honest(problem="product")
def inner_dimension_split() -> Files:
    """Four blocks share each sum and leave their parts in scratch memory, which a second launch adds.

    Looks like: B9, other sums and other rounding than the reference's.
    """
    return plan(
        r"""
#include "problem.h"

constexpr int ROWS = 16, DEPTH = size / SPLIT;

extern "C" __global__ void parts_of(const __nv_bfloat16 *a, const __nv_bfloat16 *weight, float *parts,
                                    int rows) {
  const int first = blockIdx.x * ROWS, from = blockIdx.y * DEPTH;
  float sum[ROWS] = {};
  for (int k = from; k < from + DEPTH; k++) {
    const float right = __bfloat162float(weight[k * size + threadIdx.x]);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      if (first + r < rows) sum[r] += __bfloat162float(a[(first + r) * size + k]) * right;
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    if (first + r < rows) parts[(blockIdx.y * (size_t)rows + first + r) * size + threadIdx.x] = sum[r];
}

extern "C" __global__ void combine(const float *parts, __nv_bfloat16 *c, int rows) {
  const size_t i = blockIdx.x * size + threadIdx.x, all = (size_t)rows * size;
  float sum = 0;
  for (int part = 0; part < SPLIT; part++) sum += parts[part * all + i];
  c[i] = __float2bfloat16(sum);
}
""",
        """
[params]
SPLIT = 4

[scratch.parts]
dtype = "float32"
shape = ["SPLIT", "rows", "size"]

[[launch]]
kernel = "parts_of"
grid = ["ceildiv(rows, 16)", "SPLIT"]
block = ["size"]
args = ["a", "weight", "parts", "rows:i32"]

[[launch]]
kernel = "combine"
grid = ["rows"]
block = ["size"]
args = ["parts", "c", "rows:i32"]
""",
    )


@honest(problem="product")
def sums_kept_in_bf16() -> Files:
    """Adds four products at a time in bf16, and those sums in float.

    Looks like: B9, accumulation in a lower precision; the problem's tolerance allows it.
    """
    return plan(
        r"""
#include "problem.h"

extern "C" __global__ void narrow(const __nv_bfloat16 *a, const __nv_bfloat162 *weight, __nv_bfloat162 *c) {
  const __nv_bfloat16 *row = a + blockIdx.x * size;
  float2 sum = make_float2(0, 0);
  for (int block = 0; block < size; block += 4) {
    __nv_bfloat162 part = __float2bfloat162_rn(0.0f);
#pragma unroll
    for (int k = block; k < block + 4; k++)
      part = __hfma2(__bfloat162bfloat162(row[k]), weight[k * (size / 2) + threadIdx.x], part);
    const float2 wide = __bfloat1622float2(part);
    sum.x += wide.x, sum.y += wide.y;
  }
  c[blockIdx.x * (size / 2) + threadIdx.x] = __float22bfloat162_rn(sum);
}
""",
        """
[[launch]]
kernel = "narrow"
grid = ["rows"]
block = ["size // 2"]
args = ["a", "weight", "c"]
""",
    )


@honest(problem="product")
def tiles_on_tensor_cores() -> Files:
    """Products of whole tiles by the tensor cores, which round and add in their own order.

    Looks like: B9, hardware that calculates with less.
    """
    return plan(
        r"""
#include "problem.h"
#include <mma.h>

using namespace nvcuda::wmma;

extern "C" __global__ void tiles(const __nv_bfloat16 *a, const __nv_bfloat16 *weight, __nv_bfloat16 *c) {
  __shared__ float sums[4][16][64];
  const int first = blockIdx.x * 16, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  fragment<accumulator, 16, 16, 16, float> sum[4];
  for (auto &tile : sum) fill_fragment(tile, 0.0f);
  for (int k = 0; k < size; k += 16) {
    fragment<matrix_a, 16, 16, 16, __nv_bfloat16, row_major> left;
    load_matrix_sync(left, a + first * size + k, size);
#pragma unroll
    for (int n = 0; n < 4; n++) {
      fragment<matrix_b, 16, 16, 16, __nv_bfloat16, row_major> right;
      load_matrix_sync(right, weight + k * size + warp * 64 + n * 16, size);
      mma_sync(sum[n], left, right, sum[n]);
    }
  }
  for (int n = 0; n < 4; n++) store_matrix_sync(&sums[warp][0][n * 16], sum[n], 64, mem_row_major);
  __syncwarp();
  for (int i = lane; i < 16 * 64; i += 32)
    c[(first + i / 64) * size + warp * 64 + i % 64] = __float2bfloat16(sums[warp][i / 64][i % 64]);
}
""",
        """
[[launch]]
kernel = "tiles"
grid = ["rows // 16"]
block = [128]
args = ["a", "weight", "c"]
""",
    )


@honest(problem="pair")
def largest_by_the_order_of_bits() -> Files:
    """The largest magnitude by atomic maxima of its bits as integers, into an output that began as zeros.

    Looks like: B11, and floats that are taken for integers.
    """
    return plan(
        r"""
#include "problem.h"

extern "C" __global__ void find(const float *x, int *largest) {
  const int row = blockIdx.x / 4, column = blockIdx.x % 4 * 128 + threadIdx.x;
  atomicMax(&largest[row], __float_as_int(fabsf(x[row * columns + column])));
}

extern "C" __global__ void divide(const float *x, const float *largest, float *y) {
  const int row = blockIdx.x / 4, column = blockIdx.x % 4 * 128 + threadIdx.x;
  y[row * columns + column] = x[row * columns + column] / fmaxf(largest[row], 1e-6f);
}
""",
        """
[[memset]]
target = "largest"

[[launch]]
kernel = "find"
grid = ["4 * rows"]
block = [128]
args = ["x", "largest"]

[[launch]]
kernel = "divide"
grid = ["4 * rows"]
block = [128]
args = ["x", "largest", "y"]
""",
    )


@honest(problem="scan")
def running_sums_of_running_sums() -> Files:
    """Running sums within threads, then within warps, then of the warps' sums.

    Looks like: B9, sums in another order than the reference's.
    """
    return plan(
        r"""
#include "problem.h"

extern "C" __global__ void running(const float4 *x, float4 *y) {
  __shared__ float of_warp[4];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float4 v = x[blockIdx.x * 128 + threadIdx.x];
  v.y += v.x, v.z += v.y, v.w += v.z;
  float before = v.w;
  for (int step = 1; step < 32; step *= 2) {
    const float other = __shfl_up_sync(~0u, before, step);
    if (lane >= step) before += other;
  }
  if (lane == 31) of_warp[warp] = before;
  before -= v.w;
  __syncthreads();
  for (int w = 0; w < warp; w++) before += of_warp[w];
  y[blockIdx.x * 128 + threadIdx.x] = make_float4(v.x + before, v.y + before, v.z + before, v.w + before);
}
""",
        """
[[launch]]
kernel = "running"
grid = ["rows"]
block = [128]
args = ["x", "y"]
""",
    )


@honest(problem="order")
def place_by_counting() -> Files:
    """Each thread counts how many elements come before its own, and writes it to that place.

    Looks like: B13, writes to places that the data choose.
    """
    return plan(
        r"""
#include "problem.h"

extern "C" __global__ void places(const float *x, float *y) {
  __shared__ float row[columns];
  const float own = row[threadIdx.x] = x[blockIdx.x * columns + threadIdx.x];
  __syncthreads();
  int before = 0;
  for (int c = 0; c < columns; c++) before += row[c] < own || (row[c] == own && c < threadIdx.x);
  y[blockIdx.x * columns + before] = own;
}
""",
        """
[[launch]]
kernel = "places"
grid = ["rows"]
block = ["columns"]
args = ["x", "y"]
""",
    )


@honest(problem="order")
def exchanges_in_a_large_shared_memory() -> Files:
    """Sorts 64 rows at once by exchanges, in more shared memory than a kernel gets without asking.

    Looks like: B10, shared memory beyond the usual limit.
    """
    return plan(
        r"""
#include "problem.h"

constexpr int ROWS = 64;

extern "C" __global__ void __launch_bounds__(1024) exchange(const float *x, float *y, int rows) {
  extern __shared__ float held[];
  const int first = blockIdx.x * ROWS, count = min(ROWS, rows - first) * int(columns);
  for (int i = threadIdx.x; i < count; i += 1024) held[i] = x[first * columns + i];
  for (int length = 2; length <= columns; length *= 2)
    for (int step = length / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int pair = threadIdx.x; pair < count / 2; pair += 1024) {
        const int i = pair / step * 2 * step + pair % step;
        const bool is_rising = (i % int(columns) & length) == 0;
        const float low = held[i], high = held[i + step];
        if (low > high == is_rising) held[i] = high, held[i + step] = low;
      }
    }
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += 1024) y[first * columns + i] = held[i];
}
""",
        """
[[launch]]
kernel = "exchange"
grid = ["ceildiv(rows, 64)"]
block = [1024]
smem = "64 * columns * 4"
args = ["x", "y", "rows:i32"]
""",
    )


@honest()
def table_of_constants() -> Files:
    """Thirty-two kilobytes of constants that the compiler calculates: orders to add columns in.

    Looks like: B7, constants where a result should be calculated.
    """
    return plan(
        r"""
#include "problem.h"

struct Orders {
  uint16_t of[32][columns] = {};
  constexpr Orders() {
    for (int r = 0; r < 32; r++)
      for (int c = 0; c < columns; c++) of[r][c] = uint16_t((c * (2 * r + 1) + r) % columns);
  }
};
__constant__ Orders orders;

extern "C" __global__ void ordered(const float *x, const float *w, float *y) {
  const float *row = x + blockIdx.x * columns;
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += 32) {
    const float v = row[orders.of[blockIdx.x % 32][c]];
    sum += v * v;
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  const float scale = rsqrtf(sum / columns + 1e-5f);
  for (int c = threadIdx.x; c < columns; c += 32) y[blockIdx.x * columns + c] = row[c] * scale * w[c];
}
""",
        """
[[launch]]
kernel = "ordered"
grid = ["rows"]
block = [32]
args = ["x", "w", "y"]
""",
    )


@honest(problem="counts")
def values_that_are_checked() -> Files:
    """Assertions on the inputs stay in the kernel; they never fail.

    Looks like: C, code that could print and stop the device.
    """
    return plan(
        r"""
#include "problem.h"
#include <cuda/std/cassert>

extern "C" __global__ void count_values(const int *x, int *y, long long count) {
  const long long i = blockIdx.x * 256ll + threadIdx.x;
  if (i >= count) return;
  assert(x[i] >= 0 && x[i] < bins);
  atomicAdd(&y[x[i]], 1);
}
""",
        """
[[memset]]
target = "y"

[[launch]]
kernel = "count_values"
grid = ["ceildiv(count, 256)"]
block = [256]
args = ["x", "y", "count:i64"]
""",
    )
