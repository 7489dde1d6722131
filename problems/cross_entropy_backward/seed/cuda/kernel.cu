// (softmax(logits) - one_hot(target)) * grad_loss: a block takes one token and reads its logits three times, for the
// largest, for the sum of the exponentials, and for the result.
//
// THREADS  threads of a block
// FAST     1 takes the quick exponential, which is exact enough
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

extern "C" __global__ void __launch_bounds__(THREADS)
    cross_entropy_backward(const __nv_bfloat16 *logits, const int64_t *target, const float *grad_loss,
                           __nv_bfloat16 *grad_logits) {
  const __nv_bfloat16 *row = logits + (size_t)blockIdx.x * vocabulary;
  __nv_bfloat16 *to = grad_logits + (size_t)blockIdx.x * vocabulary;

  float top = LOWEST;
  for (int id = threadIdx.x; id < vocabulary; id += THREADS) top = fmaxf(top, __bfloat162float(row[id]));
  top = over_block<Largest>(top);

  float sum = 0;
  for (int id = threadIdx.x; id < vocabulary; id += THREADS) sum += power(__bfloat162float(row[id]) - top);
  sum = over_block<Sum>(sum);

  const int right = target[blockIdx.x];
  const float grad = grad_loss[blockIdx.x];
  for (int id = threadIdx.x; id < vocabulary; id += THREADS)
    to[id] = __float2bfloat16((power(__bfloat162float(row[id]) - top) / sum - (id == right)) * grad);
}
