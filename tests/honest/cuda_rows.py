"""Device code for the problem `rows`: how blocks are handed out, and how rows are moved."""

from __future__ import annotations

from tests.corpus.cases import Files, honest, plan

ROW = r"""
#include "problem.h"

// Adds over a block; every thread gets the sum.
__device__ float block_sum(float own) {
  __shared__ float of_warp[32];
  for (int step = 16; step > 0; step /= 2) own += __shfl_xor_sync(~0u, own, step);
  __syncthreads();  // the sum of the row before has been read
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < blockDim.x / 32; warp++) sum += of_warp[warp];
  return sum;
}

__device__ float4 scaled(float4 v, float scale, float4 gain) {
  return make_float4(v.x * scale * gain.x, v.y * scale * gain.y, v.z * scale * gain.z, v.w * scale * gain.w);
}

// One row by a block of 128 threads.
__device__ void row_of(const float *x, const float *w, float *y) {
  const float4 v = reinterpret_cast<const float4 *>(x)[threadIdx.x];
  const float sum = block_sum(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w);
  const float4 gain = reinterpret_cast<const float4 *>(w)[threadIdx.x];
  reinterpret_cast<float4 *>(y)[threadIdx.x] = scaled(v, rsqrtf(sum / columns + 1e-5f), gain);
}
"""


@honest()
def plain_rows() -> Files:
    """One block for each row.

    Looks like: nothing; others are compared with it.
    """
    return plan(
        ROW
        + r"""
extern "C" __global__ void rows_of(const float *x, const float *w, float *y) {
  row_of(x + blockIdx.x * columns, w, y + blockIdx.x * columns);
}
""",
        """
[[launch]]
kernel = "rows_of"
grid = ["rows"]
block = [128]
args = ["x", "w", "y"]
""",
    )


@honest()
def blocks_that_stay() -> Files:
    """As many blocks as the device holds, each of which walks over many rows.

    Looks like: A15, a kernel that stays on the device.
    """
    return plan(
        ROW
        + r"""
extern "C" __global__ void stay(const float *x, const float *w, float *y, int rows) {
  for (int row = blockIdx.x; row < rows; row += gridDim.x) row_of(x + row * columns, w, y + row * columns);
}
""",
        """
[[launch]]
kernel = "stay"
grid = ["min(rows, num_sms * max_active_blocks(stay))"]
block = [128]
args = ["x", "w", "y", "rows:i32"]
""",
    )


@honest()
def next_row_from_a_counter() -> Files:
    """Blocks take the next row from a counter as they get free, so that no two runs hand them out alike.

    Looks like: B11, a race between blocks.
    """
    return plan(
        ROW
        + r"""
extern "C" __global__ void take(const float *x, const float *w, float *y, int *next, int rows) {
  __shared__ int taken;
  while (true) {
    if (threadIdx.x == 0) taken = atomicAdd(next, 1);
    __syncthreads();
    const int row = taken;
    if (row >= rows) return;
    row_of(x + row * columns, w, y + row * columns);
  }
}
""",
        """
[scratch.next]
dtype = "int32"
shape = [1]
fill = 0

[[launch]]
kernel = "take"
grid = ["min(rows, 4 * num_sms)"]
block = [128]
args = ["x", "w", "y", "next", "rows:i32"]
""",
    )


@honest()
def output_is_scratch() -> Files:
    """A first launch leaves each row's scale in the output, a second one reads it there and overwrites it.

    Looks like: B1, an output that is read before it is written by the same launch.
    """
    return plan(
        ROW
        + r"""
extern "C" __global__ void scales(const float *x, float *y) {
  const float4 v = reinterpret_cast<const float4 *>(x)[blockIdx.x * 128 + threadIdx.x];
  const float sum = block_sum(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w);
  if (threadIdx.x == 0) y[blockIdx.x * columns] = rsqrtf(sum / columns + 1e-5f);
}

extern "C" __global__ void apply(const float *x, const float *w, float *y) {
  const float scale = y[blockIdx.x * columns];
  __syncthreads();  // all have read it
  const int i = blockIdx.x * 128 + threadIdx.x;
  const float4 v = reinterpret_cast<const float4 *>(x)[i];
  reinterpret_cast<float4 *>(y)[i] = scaled(v, scale, reinterpret_cast<const float4 *>(w)[threadIdx.x]);
}
""",
        """
[[launch]]
kernel = "scales"
grid = ["rows"]
block = [128]
args = ["x", "y"]

[[launch]]
kernel = "apply"
grid = ["rows"]
block = [128]
args = ["x", "w", "y"]
""",
    )


@honest()
def rows_of_zeros_cost_nothing() -> Files:
    """A block that finds nothing but zeros in its row writes zeros and leaves.

    Looks like: B8, work that some inputs do not need.
    """
    return plan(
        ROW
        + r"""
extern "C" __global__ void skip(const float *x, const float *w, float *y) {
  const float4 v = reinterpret_cast<const float4 *>(x)[blockIdx.x * 128 + threadIdx.x];
  float4 &to = reinterpret_cast<float4 *>(y)[blockIdx.x * 128 + threadIdx.x];
  if (!__syncthreads_or(v.x != 0 || v.y != 0 || v.z != 0 || v.w != 0)) {
    to = make_float4(0, 0, 0, 0);
    return;
  }
  const float sum = block_sum(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w);
  to = scaled(v, rsqrtf(sum / columns + 1e-5f), reinterpret_cast<const float4 *>(w)[threadIdx.x]);
}
""",
        """
[[launch]]
kernel = "skip"
grid = ["rows"]
block = [128]
args = ["x", "w", "y"]
""",
    )


@honest()
def other_code_for_many_rows() -> Files:
    """Two builds of one kernel with other constants, of which the number of rows chooses one.

    Looks like: B8, code for the very sizes that are measured.
    """
    return plan(
        ROW
        + r"""
extern "C" __global__ void some(const float *x, const float *w, float *y, int rows) {
  const int first = blockIdx.x * ROWS_OF_A_BLOCK;
  for (int row = first; row < first + ROWS_OF_A_BLOCK && row < rows; row++)
    row_of(x + row * columns, w, y + row * columns);
}
""",
        """
[params]
ROWS_OF_A_BLOCK = 1

[[launch]]
kernel = "some"
when = "rows <= 1024"
grid = ["rows"]
block = [128]
args = ["x", "w", "y", "rows:i32"]

[[launch]]
kernel = "some"
when = "rows > 1024"
params = { ROWS_OF_A_BLOCK = 8 }
grid = ["ceildiv(rows, ROWS_OF_A_BLOCK)"]
block = [128]
args = ["x", "w", "y", "rows:i32"]
""",
    )


@honest()
def row_split_between_two_blocks() -> Files:
    """A cluster of two blocks has a row: each reads the other's sum in its shared memory.

    Looks like: B13, reads of memory that is not the block's own.
    """
    return plan(
        ROW
        + r"""
#include <cooperative_groups.h>

extern "C" __global__ void halves(const float *x, const float *w, float *y) {
  __shared__ float half_sum;
  const auto cluster = cooperative_groups::this_cluster();
  const int i = blockIdx.x * 64 + threadIdx.x;
  const float4 v = reinterpret_cast<const float4 *>(x)[i];
  const float own = block_sum(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w);
  if (threadIdx.x == 0) half_sum = own;
  cluster.sync();
  const float other = *cluster.map_shared_rank(&half_sum, cluster.block_rank() ^ 1);
  cluster.sync();  // nobody leaves whose memory is still read
  const float4 gain = reinterpret_cast<const float4 *>(w)[i % 128];
  reinterpret_cast<float4 *>(y)[i] = scaled(v, rsqrtf((own + other) / columns + 1e-5f), gain);
}
""",
        """
[[launch]]
kernel = "halves"
grid = ["2 * rows"]
block = [64]
cluster = [2]
args = ["x", "w", "y"]
""",
    )


@honest()
def rows_copied_ahead() -> Files:
    """Copies the next row into shared memory while it works on this one.

    Looks like: A2, memory that changes while nobody is seen to write it.
    """
    return plan(
        ROW
        + r"""
#include <cuda_pipeline.h>

extern "C" __global__ void ahead(const float *x, const float *w, float *y, int rows) {
  __shared__ alignas(16) float4 held[2][128];
  const float4 gain = reinterpret_cast<const float4 *>(w)[threadIdx.x];
  int row = blockIdx.x;
  const auto copy = [&](int of, int into) {
    if (of < rows) __pipeline_memcpy_async(&held[into][threadIdx.x], x + of * columns + 4 * threadIdx.x, 16);
    __pipeline_commit();
  };
  copy(row, 0);
  for (int turn = 0; row < rows; row += gridDim.x, turn ^= 1) {
    copy(row + gridDim.x, turn ^ 1);
    __pipeline_wait_prior(1);  // each thread reads back what it copied itself
    const float4 v = held[turn][threadIdx.x];
    const float sum = block_sum(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w);
    reinterpret_cast<float4 *>(y)[row * 128 + threadIdx.x] = scaled(v, rsqrtf(sum / columns + 1e-5f), gain);
  }
}
""",
        """
[[launch]]
kernel = "ahead"
grid = ["min(rows, 4 * num_sms)"]
block = [128]
args = ["x", "w", "y", "rows:i32"]
""",
    )


@honest()
def tiles_by_the_copy_engine() -> Files:
    """Tensor maps for both ways: the copy engine brings tiles of rows, and takes results back by itself.

    Looks like: A2, writes that end after the thread that asked for them went on.
    """
    return plan(
        ROW
        + r"""
#include <cuda.h>

__device__ unsigned shared(const void *at) { return unsigned(__cvta_generic_to_shared(at)); }

extern "C" __global__ void tiles(const __grid_constant__ CUtensorMap from,
                                 const __grid_constant__ CUtensorMap to, const float *w) {
  __shared__ alignas(128) float held[2][2][256];  // half, row, column
  __shared__ alignas(8) uint64_t full;
  const unsigned barrier = shared(&full);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 4096;" ::"r"(barrier) : "memory");
    for (int half = 0; half < 2; half++)
      asm volatile(
          "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
          " [%0], [%1, {%2, %3}], [%4];" ::"r"(shared(held[half])),
          "l"(&from), "r"(256 * half), "r"(2 * blockIdx.x), "r"(barrier)
          : "memory");
  }
  __syncthreads();
  asm volatile(
      "{ .reg .pred done;\n"
      " again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
      " @!done bra again; }" ::"r"(barrier)
      : "memory");
  for (int row = 0; row < 2; row++) {
    float4 &v = reinterpret_cast<float4 *>(held[threadIdx.x / 64][row])[threadIdx.x % 64];
    const float sum = block_sum(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w);
    v = scaled(v, rsqrtf(sum / columns + 1e-5f), reinterpret_cast<const float4 *>(w)[threadIdx.x]);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int half = 0; half < 2; half++)
      asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&to),
                   "r"(256 * half), "r"(2 * blockIdx.x), "r"(shared(held[half]))
                   : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
  }
}
""",
        """
[tensormap.from]
of = "x"
dims = ["columns", "rows"]
box = [256, 2]

[tensormap.to]
of = "y"
dims = ["columns", "rows"]
box = [256, 2]

[[launch]]
kernel = "tiles"
grid = ["ceildiv(rows, 2)"]
block = [128]
args = ["from", "to", "w"]
""",
    )


@honest()
def weight_stays_in_the_cache() -> Files:
    """Asks the second cache to evict the weight last and the rows first.

    Looks like: A11, lines that outlive the flush.
    """
    return plan(
        ROW
        + r"""
__device__ float4 wished(const float *at, uint64_t policy) {
  float4 v;
  asm volatile("ld.global.nc.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(at), "l"(policy));
  return v;
}

extern "C" __global__ void wish(const float *x, const float *w, float *y) {
  uint64_t last, first;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last));
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
  const int i = blockIdx.x * 128 + threadIdx.x;
  const float4 v = wished(x + 4 * i, first), gain = wished(w + 4 * threadIdx.x, last);
  const float sum = block_sum(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w);
  __stcs(reinterpret_cast<float4 *>(y) + i, scaled(v, rsqrtf(sum / columns + 1e-5f), gain));
}
""",
        """
[[launch]]
kernel = "wish"
grid = ["rows"]
block = [128]
args = ["x", "w", "y"]
""",
    )


@honest()
def warps_with_different_jobs() -> Files:
    """One warp loads rows, four work on them; they meet at barriers with names, not all at once.

    Looks like: B11, shared memory that is read and written without a barrier of the whole block.
    """
    return plan(
        r"""
#include "problem.h"

__device__ void meet(int name) { asm volatile("barrier.cta.sync %0, 160;" ::"r"(name) : "memory"); }
__device__ void announce(int name) { asm volatile("barrier.cta.arrive %0, 160;" ::"r"(name) : "memory"); }

extern "C" __global__ void __launch_bounds__(160) jobs(const float *x, const float *w, float *y, int rows) {
  constexpr int FULL = 1, FREE = 3, WORKERS = 5;  // barriers: FULL and FREE have two each
  __shared__ float4 held[2][128];
  __shared__ float of_warp[4];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int turn = 0;
  for (int row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
    if (warp == 4) {
      if (row >= blockIdx.x + 2 * gridDim.x) meet(FREE + turn);
      const float4 *from = reinterpret_cast<const float4 *>(x + row * columns);
      for (int i = lane; i < 128; i += 32) held[turn][i] = from[i];
      announce(FULL + turn);
      continue;
    }
    meet(FULL + turn);
    const float4 v = held[turn][threadIdx.x];
    if (row + 2 * gridDim.x < rows) announce(FREE + turn);
    float sum = v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0) of_warp[warp] = sum;
    asm volatile("barrier.cta.sync %0, 128;" ::"n"(WORKERS) : "memory");
    const float scale = rsqrtf((of_warp[0] + of_warp[1] + of_warp[2] + of_warp[3]) / columns + 1e-5f);
    asm volatile("barrier.cta.sync %0, 128;" ::"n"(WORKERS) : "memory");
    const float4 gain = reinterpret_cast<const float4 *>(w)[threadIdx.x];
    reinterpret_cast<float4 *>(y + row * columns)[threadIdx.x] =
        make_float4(v.x * scale * gain.x, v.y * scale * gain.y, v.z * scale * gain.z, v.w * scale * gain.w);
  }
}
""",
        """
[[launch]]
kernel = "jobs"
grid = ["min(rows, 4 * num_sms)"]
block = [160]
args = ["x", "w", "y", "rows:i32"]
""",
    )
