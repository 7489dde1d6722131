// The highest logits of each token and their softmax: a thread per expert, whose place is the number of experts before it.
//
// TOKENS  tokens of a block
#include "problem.h"

extern "C" __global__ void __launch_bounds__(experts *TOKENS)
    route(const __nv_bfloat16 *router_logits, float *weights, int *chosen, int tokens) {
  __shared__ float logits[TOKENS][experts], best[TOKENS][top_k];
  const int slot = threadIdx.y, expert = threadIdx.x, token = blockIdx.x * TOKENS + slot;
  const bool is_token = token < tokens;
  const float own = is_token ? __bfloat162float(router_logits[(size_t)token * experts + expert]) : 0;
  logits[slot][expert] = own;
  __syncthreads();
  int place = 0;
  for (int other = 0; other < experts; other++) {
    const float its = logits[slot][other];
    place += its > own || (its == own && other < expert);
  }
  if (place < top_k) best[slot][place] = own;
  __syncthreads();
  if (place >= top_k || !is_token) return;
  float sum = 0;
  for (int i = 0; i < top_k; i++) sum += expf(best[slot][i] - best[slot][0]);
  weights[(size_t)token * top_k + place] = expf(own - best[slot][0]) / sum;
  chosen[(size_t)token * top_k + place] = expert;
}
