// Softmax of rows in fp32. Short rows: one block keeps its row in registers. Long rows: a first launch leaves the
// maximum and the sum of each part of a row in scratch memory, a second one (which may start early) combines them and
// writes the row; what the first one read last is then still in the second cache.
//
// THREADS   threads of a block
// HELD      elements a thread keeps of a short row
// PART      elements of a long row that one block reads; a multiple of 4 * THREADS

#define LOWEST __int_as_float(0xff800000)  // minus infinity

struct Summary {
  float top, sum;  // sum of exp(x - top)
};

__device__ __forceinline__ Summary join(Summary a, Summary b) {
  const float top = fmaxf(a.top, b.top);
  // Where neither holds an element both tops are -inf, and -inf less itself is NaN.
  return {top, (a.sum == 0 ? 0 : a.sum * __expf(a.top - top)) + (b.sum == 0 ? 0 : b.sum * __expf(b.top - top))};
}

// Joins over a block; every thread gets the result.
__device__ __forceinline__ Summary join_block(Summary own) {
  __shared__ Summary of_warp[32];
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    own = join(own, {__shfl_xor_sync(~0u, own.top, step), __shfl_xor_sync(~0u, own.sum, step)});
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
  __syncthreads();
  Summary all = of_warp[0];
  for (int warp = 1; warp < THREADS / 32; warp++) all = join(all, of_warp[warp]);
  return all;
}

extern "C" __global__ void __launch_bounds__(THREADS) softmax_short(const float *x, float *y, int cols) {
  const size_t row = (size_t)blockIdx.x * cols;
  float held[HELD];
  Summary own = {LOWEST, 0};
#pragma unroll
  for (int i = 0; i < HELD; i++) {
    const int col = threadIdx.x + i * THREADS;
    held[i] = col < cols ? __ldcs(&x[row + col]) : LOWEST;
    own.top = fmaxf(own.top, held[i]);
  }
#pragma unroll
  for (int i = 0; i < HELD; i++)
    if (threadIdx.x + i * THREADS < cols) own.sum += __expf(held[i] - own.top);
  const Summary all = join_block(own);
  const float scale = 1 / all.sum;
#pragma unroll
  for (int i = 0; i < HELD; i++)
    if (threadIdx.x + i * THREADS < cols) __stcs(&y[row + threadIdx.x + i * THREADS], __expf(held[i] - all.top) * scale);
}

extern "C" __global__ void __launch_bounds__(THREADS) softmax_parts(const float *x, float2 *parts, int cols) {
  const float *row = x + (size_t)blockIdx.y * cols;
  const int begin = blockIdx.x * PART, end = min(begin + PART, cols);
  Summary own = {LOWEST, 0};
  for (int first = begin + threadIdx.x; first < end; first += 4 * THREADS) {
    float four[4];
    Summary of_four = {LOWEST, 0};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int col = first + i * THREADS;
      four[i] = col < end ? row[col] : LOWEST;
      of_four.top = fmaxf(of_four.top, four[i]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) of_four.sum += __expf(four[i] - of_four.top);  // four[0] is a number: top is one
    own = join(own, of_four);
  }
  const Summary all = join_block(own);
  if (threadIdx.x == 0) parts[blockIdx.y * gridDim.x + blockIdx.x] = {all.top, all.sum};
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_apply(const float *x, const float2 *parts, float *y, int cols) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const size_t row = (size_t)blockIdx.y * cols;
  Summary all = {LOWEST, 0};
  for (int part = threadIdx.x; part < gridDim.x; part += THREADS) {
    const float2 one = __ldcg(&parts[blockIdx.y * gridDim.x + part]);
    all = join(all, {one.x, one.y});
  }
  all = join_block(all);
  const float scale = 1 / all.sum;
  const int begin = blockIdx.x * PART, end = min(begin + PART, cols);
  for (int col = begin + threadIdx.x; col < end; col += THREADS) y[row + col] = __expf(x[row + col] - all.top) * scale;
}
