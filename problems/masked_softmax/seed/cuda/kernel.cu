// Softmax over the keys that a mask keeps, ROWS rows a block, THREADS threads a row: the maximum, the sum, the weights.
//
// THREADS  threads that share a row
// ROWS     rows of a block
// VEC      keys of one access, where the number of keys is a multiple of it
// HELD     accesses of a thread whose scores stay in registers, if that is all of its row; else they are read again
// FAST     1 takes the quick exponential, which is exact enough
#include "problem.h"

constexpr float HIDDEN = -3.402823466e38f;  // what a masked score becomes: the lowest float

struct alignas(4 * VEC) Floats {
  float at[VEC];
};
struct alignas(VEC) Bools {
  bool at[VEC];
};

struct Most {
  static __device__ float join(float a, float b) { return fmaxf(a, b); }
};
struct Sum {
  static __device__ float join(float a, float b) { return a + b; }
};

// Joins over the THREADS threads of a row; every one of them gets the result.
template <class Rule> __device__ float over_row(float own) {
  __shared__ float of_warp[ROWS][(THREADS + 31) / 32];
  for (int step = 16; step > 0; step /= 2) own = Rule::join(own, __shfl_xor_sync(~0u, own, step));
  if (THREADS == 32) return own;
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.y][threadIdx.x / 32] = own;
  __syncthreads();
  float all = of_warp[threadIdx.y][0];
  for (int warp = 1; warp < THREADS / 32; warp++) all = Rule::join(all, of_warp[threadIdx.y][warp]);
  return all;
}

__device__ float power(float x) { return FAST ? __expf(x) : expf(x); }

// Calls use(step, column, scores) for each access of this thread; WIDTH is VEC, or 1 for an odd number of keys.
template <int WIDTH, bool IS_HELD, class Use>
__device__ void each(const float *scores, const bool *mask, float scale, int keys, Floats (&held)[HELD], Use use) {
  const int steps = (keys + WIDTH * THREADS - 1) / (WIDTH * THREADS);
#pragma unroll(IS_HELD ? HELD : 1)
  for (int step = 0; step < (IS_HELD ? HELD : steps); step++) {
    const int column = (step * THREADS + threadIdx.x) * WIDTH;
    if (column >= keys) continue;
    Floats value;
    if (IS_HELD && !Use::is_first)
      value = held[IS_HELD ? step : 0];
    else {
      Bools kept;
      if (WIDTH == VEC) {
        value = *reinterpret_cast<const Floats *>(scores + column);
        kept = *reinterpret_cast<const Bools *>(mask + column);
      } else {
        value.at[0] = scores[column];
        kept.at[0] = mask[column];
      }
#pragma unroll
      for (int v = 0; v < WIDTH; v++) value.at[v] = kept.at[v] ? value.at[v] * scale : HIDDEN;
      if (IS_HELD) held[IS_HELD ? step : 0] = value;
    }
    use(column, value);
  }
}

template <int WIDTH> struct FindTop {
  static constexpr bool is_first = true;
  float &top;
  __device__ void operator()(int, const Floats &value) {
#pragma unroll
    for (int v = 0; v < WIDTH; v++) top = fmaxf(top, value.at[v]);
  }
};
template <int WIDTH> struct AddUp {
  static constexpr bool is_first = false;
  float &sum;
  float top;
  __device__ void operator()(int, const Floats &value) {
#pragma unroll
    for (int v = 0; v < WIDTH; v++) sum += power(value.at[v] - top);
  }
};
template <int WIDTH> struct Write {
  static constexpr bool is_first = false;
  float *weights;
  float top, factor;
  __device__ void operator()(int column, const Floats &value) {
    Floats result;
#pragma unroll
    for (int v = 0; v < WIDTH; v++) result.at[v] = power(value.at[v] - top) * factor;
    if (WIDTH == VEC)
      *reinterpret_cast<Floats *>(weights + column) = result;
    else
      weights[column] = result.at[0];
  }
};

template <int WIDTH, bool IS_HELD>
__device__ void softmax(const float *scores, const bool *mask, float scale, float *weights, int keys, bool is_row) {
  Floats held[HELD];
  float top = HIDDEN, sum = 0;
  each<WIDTH, IS_HELD>(scores, mask, scale, keys, held, FindTop<WIDTH>{top});
  top = over_row<Most>(top);
  each<WIDTH, IS_HELD>(scores, mask, scale, keys, held, AddUp<WIDTH>{sum, top});
  sum = over_row<Sum>(sum);
  if (is_row) each<WIDTH, IS_HELD>(scores, mask, scale, keys, held, Write<WIDTH>{weights, top, 1 / sum});
}

extern "C" __global__ void __launch_bounds__(THREADS *ROWS)
    masked_softmax(const float *scores, const bool *mask, float scale, float *weights, int batch, int queries, int keys) {
  const int rows = batch * heads * queries;
  const int given = blockIdx.x * ROWS + threadIdx.y, row = min(given, rows - 1);
  const size_t begin = (size_t)row * keys;
  const bool *of_mask = mask + ((size_t)(row / (heads * queries)) * queries + row % queries) * keys;
  const bool is_row = given < rows, is_wide = keys % VEC == 0, is_held = keys <= HELD * THREADS * (is_wide ? VEC : 1);
  if (is_wide && is_held)
    softmax<VEC, true>(scores + begin, of_mask, scale, weights + begin, keys, is_row);
  else if (is_wide)
    softmax<VEC, false>(scores + begin, of_mask, scale, weights + begin, keys, is_row);
  else
    softmax<1, false>(scores + begin, of_mask, scale, weights + begin, keys, is_row);
}
