"""Host and device code: streams, graphs, launches, memory and tables as libraries use them."""

from __future__ import annotations

from tests.corpus.cases import Files, cuda_cpp, honest
from tests.honest.cuda_data import PART
from tests.honest.cuda_rows import ROW

RUN_ROWS = 'extern "C" void run(const float *x, const float *w, float *y, int64_t rows, cudaStream_t stream)'
RUN_TOTAL = 'extern "C" void run(const float *x, float *y, int64_t rows, cudaStream_t stream)'
KERNEL = r"""
__global__ void __launch_bounds__(128) rows_of(const float *x, const float *w, float *y, int rows) {
  for (int row = blockIdx.x; row < rows; row += gridDim.x) row_of(x + row * columns, w, y + row * columns);
}
"""


@honest()
def plain_rows() -> Files:
    """One block for each row.

    Looks like: nothing; others are compared with it.
    """
    return cuda_cpp(f"""{ROW}{KERNEL}
{RUN_ROWS} {{
  rows_of<<<rows, 128, 0, stream>>>(x, w, y, rows);
}}
""")


@honest()
def two_streams_that_meet_again() -> Files:
    """Half of the rows on a stream of its own, which begins after and ends before the caller's.

    Looks like: A1, work on a stream that is not the caller's.
    """
    return cuda_cpp(f"""{ROW}{KERNEL}
struct Side {{
  cudaStream_t stream;
  cudaEvent_t begun, done;
  Side() {{
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&begun, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
  }}
}};

{RUN_ROWS} {{
  static const Side side;
  const int first = rows / 2, second = rows - first;
  cudaEventRecord(side.begun, stream);
  cudaStreamWaitEvent(side.stream, side.begun, 0);
  rows_of<<<second, 128, 0, side.stream>>>(x + first * columns, w, y + first * columns, second);
  cudaEventRecord(side.done, side.stream);
  if (first) rows_of<<<first, 128, 0, stream>>>(x, w, y, first);
  cudaStreamWaitEvent(stream, side.done, 0);
}}
""")


@honest()
def streams_of_each_call() -> Files:
    """Makes its streams and events in every call and lets go of them again; four of them share the rows.

    Looks like: A1, many streams, and A15, resources that nobody holds.
    """
    return cuda_cpp(f"""{ROW}{KERNEL}
{RUN_ROWS} {{
  cudaEvent_t begun;
  cudaEventCreateWithFlags(&begun, cudaEventDisableTiming);
  cudaEventRecord(begun, stream);
  for (int part = 0; part < 4; part++) {{
    const int64_t from = rows * part / 4, count = rows * (part + 1) / 4 - from;
    if (count == 0) continue;
    cudaStream_t side;
    cudaEvent_t done;
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    cudaStreamWaitEvent(side, begun, 0);
    rows_of<<<count, 128, 0, side>>>(x + from * columns, w, y + from * columns, count);
    cudaEventRecord(done, side);
    cudaStreamWaitEvent(stream, done, 0);
    cudaEventDestroy(done);
    cudaStreamDestroy(side);
  }}
  cudaEventDestroy(begun);
}}
""")


@honest()
def graph_of_each_call() -> Files:
    """Records its launches into a graph, launches that once and throws it away.

    Looks like: A10, a graph that is replayed.
    """
    return cuda_cpp(f"""{ROW}{KERNEL}
{RUN_ROWS} {{
  static cudaStream_t own = nullptr;
  if (own == nullptr) cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
  const int first = rows / 2, second = rows - first;
  cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal);
  if (first) rows_of<<<first, 128, 0, own>>>(x, w, y, first);
  rows_of<<<second, 128, 0, own>>>(x + first * columns, w, y + first * columns, second);
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  cudaStreamEndCapture(own, &graph);
  cudaGraphInstantiate(&ready, graph, 0);
  cudaGraphLaunch(ready, stream);
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
}}
""")


@honest()
def graph_given_new_addresses() -> Files:
    """Keeps a graph for each number of rows, and tells its kernel the addresses of each call.

    Looks like: A10 and B3, a graph that is kept and replayed.
    """
    return cuda_cpp(f"""{ROW}{KERNEL}
#include <unordered_map>
struct Kept {{
  cudaGraph_t graph;
  cudaGraphNode_t node;
  cudaGraphExec_t ready;
}};

{RUN_ROWS} {{
  static std::unordered_map<int64_t, Kept> kept;
  int count = rows;
  void *arguments[] = {{&x, &w, &y, &count}};
  cudaKernelNodeParams params = {{}};
  params.func = reinterpret_cast<void *>(rows_of);
  params.gridDim = dim3(rows);
  params.blockDim = dim3(128);
  params.kernelParams = arguments;
  auto found = kept.find(rows);
  if (found == kept.end()) {{
    Kept made;
    cudaGraphCreate(&made.graph, 0);
    cudaGraphAddKernelNode(&made.node, made.graph, nullptr, 0, &params);
    cudaGraphInstantiate(&made.ready, made.graph, 0);
    found = kept.emplace(rows, made).first;
  }}
  cudaGraphExecKernelNodeSetParams(found->second.ready, found->second.node, &params);
  cudaGraphLaunch(found->second.ready, stream);
}}
""")


@honest()
def launches_of_few_rows_each() -> Files:
    """Up to 64 launches one after the other, as a loop over the rows' blocks in a framework makes them.

    Looks like: A8, a number of launches that no kernel needs.
    """
    return cuda_cpp(f"""{ROW}{KERNEL}
{RUN_ROWS} {{
  for (int part = 0; part < 64; part++) {{
    const int64_t from = rows * part / 64, count = rows * (part + 1) / 64 - from;
    if (count) rows_of<<<count, 128, 0, stream>>>(x + from * columns, w, y + from * columns, count);
  }}
}}
""")


@honest()
def grid_from_what_fits() -> Files:
    """Asks the runtime once how many blocks fit, remembers it, and has that many stay for all rows.

    Looks like: A9, a first call that does more than the others.
    """
    return cuda_cpp(f"""{ROW}{KERNEL}
static int resident_blocks() {{
  int device, multiprocessors, blocks;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, rows_of, 128, 0);
  return multiprocessors * blocks;
}}

{RUN_ROWS} {{
  static const int most = resident_blocks();
  rows_of<<<rows < most ? rows : most, 128, 0, stream>>>(x, w, y, rows);
}}
""")


@honest()
def copied_first_and_changed_in_place() -> Files:
    """Copies the input into the output, and changes it there.

    Looks like: B7, a copy of the input.
    """
    return cuda_cpp(f"""{ROW}{KERNEL}
{RUN_ROWS} {{
  cudaMemcpyAsync(y, x, rows * columns * sizeof(float), cudaMemcpyDeviceToDevice, stream);
  rows_of<<<rows, 128, 0, stream>>>(y, w, y, rows);
}}
""")


@honest()
def constants_sent_by_the_first_call() -> Files:
    """A table in constant memory, calculated on the host and sent there by the first call.

    Looks like: B3, memory of the module that outlives the call.
    """
    return cuda_cpp(f"""{ROW}
__constant__ int order[128];

__global__ void __launch_bounds__(128) ordered(const float *x, const float *w, float *y) {{
  const int place = order[threadIdx.x];
  const float4 v = reinterpret_cast<const float4 *>(x)[blockIdx.x * 128 + place];
  const float sum = block_sum(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w);
  const float4 gain = reinterpret_cast<const float4 *>(w)[place];
  reinterpret_cast<float4 *>(y)[blockIdx.x * 128 + place] = scaled(v, rsqrtf(sum / columns + 1e-5f), gain);
}}

{RUN_ROWS} {{
  static bool is_sent = false;
  if (!is_sent) {{
    int places[128];
    for (int i = 0; i < 128; i++) places[i] = (i * 5 + 3) % 128;
    cudaMemcpyToSymbol(order, places, sizeof places);
    is_sent = true;
  }}
  ordered<<<rows, 128, 0, stream>>>(x, w, y);
}}
""")


@honest()
def one_of_many_kernels() -> Files:
    """Thirty-two builds of one kernel in a table of pointers, of which the number of rows chooses.

    Looks like: B8, code for certain sizes, and a large binary.
    """
    return cuda_cpp(f"""{ROW}
#include <utility>
template <int ROWS>
__global__ void __launch_bounds__(128) some(const float *x, const float *w, float *y, int rows) {{
  const int first = blockIdx.x * ROWS;
#pragma unroll
  for (int i = 0; i < ROWS; i++)
    if (first + i < rows) row_of(x + (first + i) * columns, w, y + (first + i) * columns);
}}

template <int... I>
static void launch(int each, const float *x, const float *w, float *y, int64_t rows, cudaStream_t stream,
                   std::integer_sequence<int, I...>) {{
  void (*const table[])(const float *, const float *, float *, int) = {{some<I + 1>...}};
  table[each - 1]<<<(rows + each - 1) / each, 128, 0, stream>>>(x, w, y, rows);
}}

{RUN_ROWS} {{
  const int64_t each = rows / 2048 + 1;
  launch(each < 32 ? each : 32, x, w, y, rows, stream, std::make_integer_sequence<int, 32>());
}}
""")


@honest(problem="total")
def workspace_that_is_kept() -> Files:
    """Device memory that the first call takes and all use; each call writes what it reads from it.

    Looks like: B3, memory that outlives the call.
    """
    return cuda_cpp(f"""{PART}
constexpr int BLOCKS = 128;

__global__ void parts_of(const float *x, float4 *parts, int rows) {{
  parts[blockIdx.x * 128 + threadIdx.x] = part_of(x, rows);
}}

__global__ void combine(const float4 *parts, float4 *y) {{ y[threadIdx.x] = combined(parts, BLOCKS); }}

{RUN_TOTAL} {{
  static float4 *parts = nullptr;
  if (parts == nullptr) cudaMalloc(&parts, BLOCKS * 128 * sizeof(float4));
  parts_of<<<BLOCKS, 128, 0, stream>>>(x, parts, rows);
  combine<<<1, 128, 0, stream>>>(parts, reinterpret_cast<float4 *>(y));
}}
""")


@honest(problem="total")
def workspace_of_each_call() -> Files:
    """Takes memory in the order of the stream, and gives it back there; the pool hands out the same again.

    Looks like: B1, fresh memory in which an old answer may lie.
    """
    return cuda_cpp(f"""{PART}
__global__ void parts_of(const float *x, float4 *parts, int rows) {{
  parts[blockIdx.x * 128 + threadIdx.x] = part_of(x, rows);
}}

__global__ void combine(const float4 *parts, float4 *y, int count) {{
  y[threadIdx.x] = combined(parts, count);
}}

{RUN_TOTAL} {{
  const int blocks = rows < 128 ? rows : 128;
  float4 *parts;
  cudaMallocAsync(&parts, blocks * 128 * sizeof(float4), stream);
  parts_of<<<blocks, 128, 0, stream>>>(x, parts, rows);
  combine<<<1, 128, 0, stream>>>(parts, reinterpret_cast<float4 *>(y), blocks);
  cudaFreeAsync(parts, stream);
}}
""")


@honest(problem="total")
def second_launch_starts_early() -> Files:
    """The second launch may start while the first ends, by an attribute of its launch.

    Looks like: A1, launches that run at once.
    """
    return cuda_cpp(f"""{PART}
constexpr int BLOCKS = 64;
__device__ float4 parts[BLOCKS * 128];

__global__ void parts_of(const float *x, int rows) {{
  parts[blockIdx.x * 128 + threadIdx.x] = part_of(x, rows);
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}}

__global__ void combine(float4 *y) {{
  asm volatile("griddepcontrol.wait;" ::: "memory");
  y[threadIdx.x] = combined(parts, BLOCKS);
}}

{RUN_TOTAL} {{
  cudaLaunchAttribute attribute = {{}};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {{}};
  config.gridDim = dim3(1);
  config.blockDim = dim3(128);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  parts_of<<<BLOCKS, 128, 0, stream>>>(x, int(rows));
  cudaLaunchKernelEx(&config, combine, reinterpret_cast<float4 *>(y));
}}
""")


@honest(problem="total")
def grid_that_meets() -> Files:
    """A cooperative launch of as many blocks as fit, which meet in the middle.

    Looks like: A15, blocks that wait for each other.
    """
    return cuda_cpp(f"""{PART}
#include <cooperative_groups.h>
constexpr int BLOCKS = 64;
__device__ float4 parts[BLOCKS * 128];

__global__ void meet(const float *x, float4 *y, int rows) {{
  parts[blockIdx.x * 128 + threadIdx.x] = part_of(x, rows);
  cooperative_groups::this_grid().sync();
  if (blockIdx.x == 0) y[threadIdx.x] = combined(parts, gridDim.x);
}}

{RUN_TOTAL} {{
  float4 *to = reinterpret_cast<float4 *>(y);
  int count = rows;
  void *arguments[] = {{&x, &to, &count}};
  cudaLaunchCooperativeKernel(reinterpret_cast<void *>(meet), dim3(BLOCKS), dim3(128), arguments, 0, stream);
}}
""")


@honest(problem="ragged")
def longest_row_told_to_the_host() -> Files:
    """Has the host wait for the longest length, and launches as many threads as that needs.

    Looks like: A1, a call in which the host waits for the device.
    """
    return cuda_cpp(
        r"""
#include "problem.h"

__global__ void longest_of(const int *length, int *longest, int rows) {
  for (int row = threadIdx.x; row < rows; row += blockDim.x) atomicMax(longest, length[row]);
}

__global__ void ragged(const float *x, const int *length, float *y) {
  __shared__ float of_warp[16];
  const int row = blockIdx.x, c = threadIdx.x, count = length[row], warps = blockDim.x / 32;
  const float v = c < count ? x[row * columns + c] : -1e30f;
  float most = v;
  for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
  if (c % 32 == 0) of_warp[c / 32] = most;
  __syncthreads();
  for (int warp = 0; warp < warps; warp++) most = fmaxf(most, of_warp[warp]);
  __syncthreads();
  const float e = c < count ? expf(v - most) : 0;
  float sum = e;
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (c % 32 == 0) of_warp[c / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int warp = 0; warp < warps; warp++) sum += of_warp[warp];
  for (int to = c; to < columns; to += blockDim.x) y[row * columns + to] = to == c ? e / sum : 0;
}

extern "C" void run(const float *x, const int *length, float *y, int64_t rows, cudaStream_t stream) {
  static int *longest = nullptr;
  if (longest == nullptr) cudaMalloc(&longest, sizeof(int));
  int most;
  cudaMemsetAsync(longest, 0, sizeof(int), stream);
  longest_of<<<1, 1024, 0, stream>>>(length, longest, rows);
  cudaMemcpyAsync(&most, longest, sizeof(int), cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize(stream);
  ragged<<<rows, (most + 31) / 32 * 32, 0, stream>>>(x, length, y);
}
"""
    )


@honest(problem="order")
def shared_memory_on_request() -> Files:
    """Raises its kernel's limit of shared memory in every call, and sorts 64 rows at once there.

    Looks like: B10, shared memory beyond the usual limit, and a setting that is changed.
    """
    return cuda_cpp(
        r"""
#include "problem.h"

constexpr int ROWS = 64, BYTES = ROWS * columns * sizeof(float);

__global__ void __launch_bounds__(1024) exchange(const float *x, float *y, int rows) {
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

extern "C" void run(const float *x, float *y, int64_t rows, cudaStream_t stream) {
  cudaFuncSetAttribute(exchange, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
  exchange<<<(rows + ROWS - 1) / ROWS, 1024, BYTES, stream>>>(x, y, rows);
}
"""
    )
