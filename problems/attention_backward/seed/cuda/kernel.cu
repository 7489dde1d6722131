// Gradients of causal attention: a warp takes a head of a token, first of the queries, then of the keys and values.
//
// WARPS   warps of a block
// UNROLL  tokens that a warp looks at in one turn of its loop
#include <cuda_bf16.h>

#include "problem.h"

constexpr int GROUP = query_heads / kv_heads, DIMS = head_dim / 32;

struct alignas(2 * DIMS) Part {
  __nv_bfloat16 at[DIMS];
};

__device__ void load(float *to, const __nv_bfloat16 *from, long long row) {
  const Part part = *reinterpret_cast<const Part *>(from + row * head_dim + threadIdx.x % 32 * DIMS);
  for (int d = 0; d < DIMS; d++) to[d] = __bfloat162float(part.at[d]);
}

__device__ void store(__nv_bfloat16 *to, long long row, const float *values) {
  Part part;
  for (int d = 0; d < DIMS; d++) part.at[d] = __float2bfloat16(values[d]);
  *reinterpret_cast<Part *>(to + row * head_dim + threadIdx.x % 32 * DIMS) = part;
}

// The product of two rows that the lanes of a warp hold a part of each.
__device__ float dot(const float *a, const float *b) {
  float sum = 0;
  for (int d = 0; d < DIMS; d++) sum += a[d] * b[d];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return sum;
}

__device__ long long item() { return blockIdx.x * (long long)WARPS + threadIdx.x / 32; }

// What the gradients of a query's weights are on average, each counted with its weight.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
    share(const __nv_bfloat16 *output, const __nv_bfloat16 *grad_output, float *shares, int rows) {
  const long long row = item();
  if (row >= rows * query_heads) return;
  float out[DIMS], grad[DIMS];
  load(out, output, row);
  load(grad, grad_output, row);
  const float sum = dot(out, grad);
  if (threadIdx.x % 32 == 0) shares[row] = sum;
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    queries(const __nv_bfloat16 *query, const __nv_bfloat16 *key, const __nv_bfloat16 *value, const float *lse,
            const __nv_bfloat16 *grad_output, const float *shares, __nv_bfloat16 *grad_query, int batch,
            int tokens) {
  const long long row = item();
  const int token = row / query_heads, head = row % query_heads;
  if (token >= batch * tokens) return;
  const int sequence = token / tokens, begin = sequence * tokens;
  const float scale = 1 / sqrtf(head_dim), share = shares[row];
  const float total = lse[((long long)sequence * query_heads + head) * tokens + token - begin];
  float q[DIMS], grad[DIMS], sum[DIMS] = {};
  load(q, query, row);
  load(grad, grad_output, row);
#pragma unroll UNROLL
  for (int at = begin; at <= token; at++) {
    const long long seen = (long long)at * kv_heads + head / GROUP;
    float k[DIMS], v[DIMS];
    load(k, key, seen);
    load(v, value, seen);
    const float weight = expf(dot(q, k) * scale - total);
    const float grad_score = weight * (dot(grad, v) - share) * scale;
    for (int d = 0; d < DIMS; d++) sum[d] += grad_score * k[d];
  }
  store(grad_query, row, sum);
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    keys(const __nv_bfloat16 *query, const __nv_bfloat16 *key, const __nv_bfloat16 *value, const float *lse,
         const __nv_bfloat16 *grad_output, const float *shares, __nv_bfloat16 *grad_key,
         __nv_bfloat16 *grad_value, int batch, int tokens) {
  const long long row = item();
  const int token = row / kv_heads, kv_head = row % kv_heads;
  if (token >= batch * tokens) return;
  const int sequence = token / tokens, begin = sequence * tokens, end = begin + tokens;
  const float scale = 1 / sqrtf(head_dim);
  float k[DIMS], v[DIMS], sum_k[DIMS] = {}, sum_v[DIMS] = {};
  load(k, key, row);
  load(v, value, row);
  for (int head = kv_head * GROUP; head < (kv_head + 1) * GROUP; head++) {
#pragma unroll UNROLL
    for (int at = token; at < end; at++) {
      const long long seeing = (long long)at * query_heads + head;
      float q[DIMS], grad[DIMS];
      load(q, query, seeing);
      load(grad, grad_output, seeing);
      const float total = lse[((long long)sequence * query_heads + head) * tokens + at - begin];
      const float weight = expf(dot(q, k) * scale - total);
      const float grad_score = weight * (dot(grad, v) - shares[seeing]) * scale;
      for (int d = 0; d < DIMS; d++) {
        sum_k[d] += grad_score * q[d];
        sum_v[d] += weight * grad[d];
      }
    }
  }
  store(grad_key, row, sum_k);
  store(grad_value, row, sum_v);
}
