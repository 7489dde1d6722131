// Fills pages with keys and values: a block writes a slot, of the pages in the order of kv_indices.
//
// THREADS  threads of a block
// VEC      elements of one access
#include <cuda_bf16.h>

#include "problem.h"

constexpr int ROW = num_kv_heads * head_dim;

struct alignas(2 * VEC) Part {
  __nv_bfloat16 at[VEC];
};

extern "C" __global__ void __launch_bounds__(THREADS)
    fill(const __nv_bfloat16 *key, const __nv_bfloat16 *value, const int *cu_seqlens, const int *kv_indptr,
         const int *kv_indices, __nv_bfloat16 *k_cache, __nv_bfloat16 *v_cache, int batch_size) {
  const int index = blockIdx.x / page_size;
  const long long slot = kv_indices[index] * page_size + blockIdx.x % page_size;
  int prompt = 0;
  while (prompt < batch_size && kv_indptr[prompt + 1] <= index) prompt++;
  bool is_used = prompt < batch_size;  // the page; and the slot, if the prompt is long enough
  long long token = 0;
  if (is_used) {
    token = cu_seqlens[prompt] + (long long)blockIdx.x - kv_indptr[prompt] * page_size;
    is_used = token < cu_seqlens[prompt + 1];
  }
  for (int d = threadIdx.x * VEC; d < ROW; d += THREADS * VEC) {
    Part of_key = {}, of_value = {};
    if (is_used) {
      of_key = *reinterpret_cast<const Part *>(key + token * ROW + d);
      of_value = *reinterpret_cast<const Part *>(value + token * ROW + d);
    }
    *reinterpret_cast<Part *>(k_cache + slot * ROW + d) = of_key;
    *reinterpret_cast<Part *>(v_cache + slot * ROW + d) = of_value;
  }
}
