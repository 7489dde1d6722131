// Causal softmax of capped scores: a block takes one row and caps its scores three times: for the largest, for the sum of
// the exponentials, and for the quotient.
//
// THREADS  threads of a block
// FAST     1 takes the quick exponential, also for tanh, which is exact enough
#include "problem.h"

constexpr float LOWEST = -3.402823466e38f;

struct Largest {
  static constexpr float none = LOWEST;
  __device__ static float join(float a, float b) { return fmaxf(a, b); }
};

struct Sum {
  static constexpr float none = 0;
  __device__ static float join(float a, float b) { return a + b; }
};

// Joins what the threads of the block have; every thread gets the result.
template <class How> __device__ float over_block(float own) {
  __shared__ float of_warp[THREADS / 32];
  for (int step = 16; step > 0; step /= 2) own = How::join(own, __shfl_xor_sync(~0u, own, step));
  __syncthreads();  // the results of the call before have been read
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
  __syncthreads();
  float all = How::none;
  for (float part : of_warp) all = How::join(all, part);
  return all;
}

__device__ float power(float x) { return FAST ? __expf(x) : expf(x); }

__device__ float bounded(float x) { return FAST ? 1 - __fdividef(2, __expf(2 * x) + 1) : tanhf(x); }

extern "C" __global__ void __launch_bounds__(THREADS)
    softcapped_softmax(const __nv_bfloat16 *scores, float scale, float cap, __nv_bfloat16 *weights, int query_len,
                       int key_len) {
  const size_t begin = (size_t)blockIdx.x * key_len;
  const int seen = key_len - query_len + (int)(blockIdx.x % query_len) + 1;  // keys of this query
  auto capped = [&](int key) { return cap * bounded(__bfloat162float(scores[begin + key]) * (scale / cap)); };

  float top = LOWEST;
  for (int key = threadIdx.x; key < seen; key += THREADS) top = fmaxf(top, capped(key));
  top = over_block<Largest>(top);

  float sum = 0;
  for (int key = threadIdx.x; key < seen; key += THREADS) sum += power(capped(key) - top);
  sum = over_block<Sum>(sum);

  for (int key = threadIdx.x; key < key_len; key += THREADS)
    weights[begin + key] = __float2bfloat16(key < seen ? power(capped(key) - top) / sum : 0);
}
