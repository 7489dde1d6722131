// logsumexp(logits) - logits[target]. SPLIT blocks share a row; if they are several, a second launch joins what they
// left in scratch memory. Nothing is read twice: the sum is scaled when a larger logit turns up.
//
// THREADS  threads of a block
// VEC      logits of one access
// UNROLL   accesses before the sum is looked at again
// SPLIT    blocks of a row
// FAST     1 takes the quick exponential, which is exact enough
#include "problem.h"

struct alignas(4 * VEC) Floats {
  float at[VEC];
};

struct Summary {
  float top, sum;  // sum of exp(x - top)
};

constexpr float LOWEST = -3.402823466e38f;

__device__ float power(float x) { return FAST ? __expf(x) : expf(x); }

__device__ Summary join(Summary a, Summary b) {
  const float top = fmaxf(a.top, b.top);
  return {top, a.sum * power(a.top - top) + b.sum * power(b.top - top)};
}

extern "C" __global__ void __launch_bounds__(THREADS)
    summarise(const float *logits, const long long *target, float *loss, Summary *parts) {
  constexpr int ACCESSES = vocabulary / VEC, SHARE = (ACCESSES + SPLIT - 1) / SPLIT;
  static_assert(vocabulary % VEC == 0, "a row is a whole number of accesses");
  const float *row = logits + (size_t)blockIdx.y * vocabulary;
  const int begin = blockIdx.x * SHARE, end = min(begin + SHARE, ACCESSES);
  Summary own = {LOWEST, 0};
  for (int first = begin + threadIdx.x; first < end; first += UNROLL * THREADS) {
    Floats held[UNROLL];
    float top = own.top;
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      if (first + u * THREADS < end) held[u] = reinterpret_cast<const Floats *>(row)[first + u * THREADS];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      if (first + u * THREADS < end)
#pragma unroll
        for (int v = 0; v < VEC; v++) top = fmaxf(top, held[u].at[v]);
    float sum = own.sum * power(own.top - top);
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      if (first + u * THREADS < end)
#pragma unroll
        for (int v = 0; v < VEC; v++) sum += power(held[u].at[v] - top);
    own = {top, sum};
  }

  __shared__ Summary of_warp[THREADS / 32];
  for (int step = 16; step > 0; step /= 2)
    own = join(own, {__shfl_xor_sync(~0u, own.top, step), __shfl_xor_sync(~0u, own.sum, step)});
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int warp = 1; warp < THREADS / 32; warp++) own = join(own, of_warp[warp]);
  if (SPLIT > 1)
    parts[blockIdx.y * SPLIT + blockIdx.x] = own;
  else
    loss[blockIdx.y] = own.top + logf(own.sum) - row[target[blockIdx.y]];
}

extern "C" __global__ void finish(const float *logits, const long long *target, float *loss, const Summary *parts,
                                  int tokens) {
  const int token = blockIdx.x * blockDim.x + threadIdx.x;
  if (token >= tokens) return;
  Summary all = parts[token * SPLIT];
  for (int part = 1; part < SPLIT; part++) all = join(all, parts[token * SPLIT + part]);
  loss[token] = all.top + logf(all.sum) - logits[(size_t)token * vocabulary + target[token]];
}
