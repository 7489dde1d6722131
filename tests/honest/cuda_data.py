"""Device code whose blocks and launches work together, and that leaves nothing for the next call."""

from __future__ import annotations

from tests.corpus.cases import Files, honest, plan

PART = r"""
#include "problem.h"

// Sums of squares of 4 columns for each of 128 threads, over this block's rows.
__device__ float4 part_of(const float *x, int rows) {
  float4 sum = make_float4(0, 0, 0, 0);
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    const float4 v = reinterpret_cast<const float4 *>(x + row * columns)[threadIdx.x];
    sum.x += v.x * v.x, sum.y += v.y * v.y, sum.z += v.z * v.z, sum.w += v.w * v.w;
  }
  return sum;
}

// The columns' sums over the parts of all blocks.
__device__ float4 combined(const float4 *parts, int count) {
  float4 sum = make_float4(0, 0, 0, 0);
  for (int part = 0; part < count; part++) {
    const float4 v = __ldcg(&parts[part * 128 + threadIdx.x]);
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  return sum;
}
"""
PARTS = """
[params]
BLOCKS = 64

[scratch.parts]
dtype = "float32"
shape = ["BLOCKS", "columns"]
"""


@honest(problem="total")
def sums_by_atomics() -> Files:
    """Blocks add to the output atomically, so that the last bits are others in every run.

    Looks like: B10, results that are not the same twice.
    """
    return plan(
        PART
        + r"""
extern "C" __global__ void add(const float *x, float *y, int rows) {
  const float4 sum = part_of(x, rows);
  float *to = y + 4 * threadIdx.x;
  atomicAdd(to, sum.x), atomicAdd(to + 1, sum.y), atomicAdd(to + 2, sum.z), atomicAdd(to + 3, sum.w);
}
""",
        """
[[memset]]
target = "y"

[[launch]]
kernel = "add"
grid = ["min(rows, 4 * num_sms)"]
block = [128]
args = ["x", "y", "rows:i32"]
""",
    )


@honest(problem="total")
def last_block_combines() -> Files:
    """Every block leaves its part in scratch memory; the one that arrives last adds them all.

    Looks like: B11, a block that reads what others wrote in the same launch.
    """
    return plan(
        PART
        + r"""
extern "C" __global__ void arrive(const float *x, float4 *parts, unsigned *arrived, float4 *y, int rows) {
  __shared__ bool is_last;
  parts[blockIdx.x * 128 + threadIdx.x] = part_of(x, rows);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(arrived, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  y[threadIdx.x] = combined(parts, gridDim.x);
}
""",
        PARTS
        + """
[scratch.arrived]
dtype = "int32"
shape = [1]
fill = 0

[[launch]]
kernel = "arrive"
grid = ["BLOCKS"]
block = [128]
args = ["x", "parts", "arrived", "y", "rows:i32"]
""",
    )


@honest(problem="total")
def counter_of_the_module() -> Files:
    """A counter in a `__device__` variable, which the last block of each call leaves at zero for the next.

    Looks like: B3, a state that outlives the call.
    """
    return plan(
        PART
        + r"""
__device__ unsigned arrived;

extern "C" __global__ void arrive(const float *x, float4 *parts, float4 *y, int rows) {
  __shared__ bool is_last;
  parts[blockIdx.x * 128 + threadIdx.x] = part_of(x, rows);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  y[threadIdx.x] = combined(parts, gridDim.x);
}
""",
        PARTS
        + """
[[launch]]
kernel = "arrive"
grid = ["BLOCKS"]
block = [128]
args = ["x", "parts", "y", "rows:i32"]
""",
    )


@honest(problem="total")
def blocks_wait_for_their_turn() -> Files:
    """Blocks add to the output in order, each spinning until it is its turn: the same bits every time.

    Looks like: A15, a kernel that spins on memory.
    """
    return plan(
        PART
        + r"""
extern "C" __global__ void turns(const float *x, float4 *y, unsigned *turn, int rows) {
  const float4 own = part_of(x, rows);
  if (threadIdx.x == 0)
    while (atomicAdd(turn, 0u) != blockIdx.x) __nanosleep(100);
  __syncthreads();
  __threadfence();
  float4 sum = blockIdx.x == 0 ? make_float4(0, 0, 0, 0) : __ldcg(&y[threadIdx.x]);
  sum.x += own.x, sum.y += own.y, sum.z += own.z, sum.w += own.w;
  __stcg(&y[threadIdx.x], sum);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(turn, 1u);
}
""",
        """
[params]
BLOCKS = 64

[scratch.turn]
dtype = "int32"
shape = [1]
fill = 0

[[launch]]
kernel = "turns"
grid = ["min(BLOCKS, num_sms)"]
block = [128]
args = ["x", "y", "turn", "rows:i32"]
""",
    )


@honest(problem="total")
def grid_meets_in_the_middle() -> Files:
    """A cooperative launch: all blocks leave their parts, meet, and then share the columns.

    Looks like: A15, blocks that wait for each other.
    """
    return plan(
        PART
        + r"""
#include <cooperative_groups.h>

extern "C" __global__ void meet(const float *x, float4 *parts, float *y, int rows) {
  parts[blockIdx.x * 128 + threadIdx.x] = part_of(x, rows);
  cooperative_groups::this_grid().sync();
  for (int c = blockIdx.x * 128 + threadIdx.x; c < columns; c += gridDim.x * 128) {
    float sum = 0;
    for (int part = 0; part < gridDim.x; part++)
      sum += __ldcg(reinterpret_cast<float *>(parts) + part * columns + c);
    y[c] = sum;
  }
}
""",
        PARTS
        + """
[[launch]]
kernel = "meet"
cooperative = true
grid = ["min(BLOCKS, num_sms)"]
block = [128]
args = ["x", "parts", "y", "rows:i32"]
""",
    )


@honest(problem="total")
def second_launch_starts_early() -> Files:
    """The launch that adds the parts may start while the first one ends, and waits on the device.

    Looks like: A1, launches that run at once.
    """
    return plan(
        PART
        + r"""
extern "C" __global__ void parts_of(const float *x, float4 *parts, int rows) {
  parts[blockIdx.x * 128 + threadIdx.x] = part_of(x, rows);
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

extern "C" __global__ void combine(const float4 *parts, float4 *y) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  y[threadIdx.x] = combined(parts, BLOCKS);
}
""",
        PARTS
        + """
[[launch]]
kernel = "parts_of"
grid = ["BLOCKS"]
block = [128]
args = ["x", "parts", "rows:i32"]

[[launch]]
kernel = "combine"
pdl = true
grid = [1]
block = [128]
args = ["parts", "y"]
""",
    )


@honest(problem="ragged")
def ends_at_the_length() -> Files:
    """A warp reads what a row's length counts, and writes zeros for the rest.

    Looks like: B8, half of the input is never read.
    """
    return plan(
        r"""
#include "problem.h"

extern "C" __global__ void ragged(const float *x, const int *length, float *y, int rows) {
  const int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  const float *from = x + row * columns;
  float *to = y + row * columns, most = from[0], sum = 0;
  const int count = length[row];
  for (int c = lane; c < count; c += 32) most = fmaxf(most, from[c]);
  for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
  for (int c = lane; c < count; c += 32) sum += expf(from[c] - most);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  for (int c = lane; c < columns; c += 32) to[c] = c < count ? expf(from[c] - most) / sum : 0;
}
""",
        """
[[launch]]
kernel = "ragged"
grid = ["ceildiv(rows, 4)"]
block = [128]
args = ["x", "length", "y", "rows:i32"]
""",
    )


@honest(problem="ragged")
def longest_rows_first() -> Files:
    """A first launch sorts the rows by length, roughly and in another order each time; a second follows it.

    Looks like: B4, a look at the contents before the work.
    """
    return plan(
        r"""
#include "problem.h"

extern "C" __global__ void sort_rows(const int *length, int *order, int rows) {
  __shared__ int begin[512];
  for (int i = threadIdx.x; i < 512; i += blockDim.x) begin[i] = 0;
  __syncthreads();
  for (int row = threadIdx.x; row < rows; row += blockDim.x) atomicAdd(&begin[512 - length[row]], 1);
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 0, sum = 0; i < 512; i++) {
      const int count = begin[i];
      begin[i] = sum;
      sum += count;
    }
  __syncthreads();
  for (int row = threadIdx.x; row < rows; row += blockDim.x)
    order[atomicAdd(&begin[512 - length[row]], 1)] = row;
}

extern "C" __global__ void ragged(const float *x, const int *length, const int *order, float *y) {
  const int row = order[blockIdx.x], lane = threadIdx.x, count = length[row];
  const float *from = x + row * columns;
  float *to = y + row * columns, most = from[0], sum = 0;
  for (int c = lane; c < count; c += 32) most = fmaxf(most, from[c]);
  for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
  for (int c = lane; c < count; c += 32) sum += expf(from[c] - most);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  for (int c = lane; c < columns; c += 32) to[c] = c < count ? expf(from[c] - most) / sum : 0;
}
""",
        """
[scratch.order]
dtype = "int32"
shape = ["rows"]

[[launch]]
kernel = "sort_rows"
grid = [1]
block = [1024]
args = ["length", "order", "rows:i32"]

[[launch]]
kernel = "ragged"
grid = ["rows"]
block = [32]
args = ["x", "length", "order", "y"]
""",
    )


@honest(problem="gather")
def whole_table_first() -> Files:
    """Works the whole table out into scratch memory, and copies from there what is asked for.

    Looks like: B3, a table of results; it is made anew in every call.
    """
    return plan(
        r"""
#include "problem.h"

extern "C" __global__ void work_out(const float *table, float *done) {
  const float *row = table + blockIdx.x * width;
  const float low = row[threadIdx.x], high = row[threadIdx.x + 32];
  float most = fmaxf(low, high);
  for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
  float sum = expf(low - most) + expf(high - most);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  done[blockIdx.x * width + threadIdx.x] = expf(low - most) / sum;
  done[blockIdx.x * width + threadIdx.x + 32] = expf(high - most) / sum;
}

extern "C" __global__ void hand_out(const float4 *done, const int *index, float4 *y, int count) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < count * 16) y[i] = done[index[i / 16] * 16 + i % 16];
}
""",
        """
[scratch.done]
dtype = "float32"
shape = ["entries", "width"]

[[launch]]
kernel = "work_out"
grid = ["entries"]
block = [32]
args = ["table", "done"]

[[launch]]
kernel = "hand_out"
grid = ["ceildiv(count * 16, 256)"]
block = [256]
args = ["done", "index", "y", "count:i32"]
""",
    )


@honest(problem="counts")
def histograms_in_shared_memory() -> Files:
    """A histogram for each block, added to the common one atomically; many blocks may find nothing.

    Looks like: B11, a race, and blocks without work.
    """
    return plan(
        r"""
#include "problem.h"

extern "C" __global__ void count_values(const int *x, int *y, long long count) {
  __shared__ int own[bins];
  own[threadIdx.x] = 0;
  __syncthreads();
  for (long long i = blockIdx.x * 256ll + threadIdx.x; i < count; i += gridDim.x * 256ll)
    atomicAdd(&own[x[i]], 1);
  __syncthreads();
  if (own[threadIdx.x] != 0) atomicAdd(&y[threadIdx.x], own[threadIdx.x]);
}
""",
        """
[[memset]]
target = "y"

[[launch]]
kernel = "count_values"
grid = ["8 * num_sms"]
block = [256]
args = ["x", "y", "count:i64"]
""",
    )
