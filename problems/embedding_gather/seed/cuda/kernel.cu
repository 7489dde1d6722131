// A block copies the row of one token.
//
// THREADS  threads of a block
// VEC      elements of one access
#include "problem.h"

struct alignas(2 * VEC) Halves {
  __nv_bfloat16 at[VEC];
};

static_assert(hidden % VEC == 0, "a row is a whole number of accesses");

extern "C" __global__ void __launch_bounds__(THREADS)
    embedding_gather(const __nv_bfloat16 *table, const int64_t *ids, __nv_bfloat16 *output) {
  const Halves *from = reinterpret_cast<const Halves *>(table + ids[blockIdx.x] * hidden);
  Halves *to = reinterpret_cast<Halves *>(output + (size_t)blockIdx.x * hidden);
  for (int i = threadIdx.x; i < hidden / VEC; i += THREADS) to[i] = from[i];
}
