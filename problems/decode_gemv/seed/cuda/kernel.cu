// x @ weight^T for a few tokens: a warp reads rows of the weight, each once for all tokens.
//
// WARPS  warps of a block
// ROWS   rows of the weight that a warp takes, one after the other
#include "problem.h"

constexpr int MOST = 8;  // tokens of a block

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    matvec(const __nv_bfloat16 *x, const __nv_bfloat16 *weight, __nv_bfloat16 *y, int tokens, int in_features,
           int out_features) {
  const int lane = threadIdx.x % 32, warp = blockIdx.x * WARPS + threadIdx.x / 32;
  const int token0 = blockIdx.y * MOST, count = min(MOST, tokens - token0);
  for (int row = warp * ROWS; row < (warp + 1) * ROWS && row < out_features; row++) {
    float sums[MOST] = {};
    for (int k = lane; k < in_features; k += 32) {
      const float held = __bfloat162float(weight[(size_t)row * in_features + k]);
      for (int t = 0; t < MOST; t++)
        if (t < count) sums[t] += held * __bfloat162float(x[(size_t)(token0 + t) * in_features + k]);
    }
    for (int t = 0; t < MOST; t++)
      for (int step = 16; step > 0; step /= 2) sums[t] += __shfl_xor_sync(~0u, sums[t], step);
    if (lane == 0)
      for (int t = 0; t < count; t++) y[(size_t)(token0 + t) * out_features + row] = __float2bfloat16(sums[t]);
  }
}
