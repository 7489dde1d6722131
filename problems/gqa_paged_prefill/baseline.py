"""On GPUs: FlashInfer where it is installed, else torch's FlashAttention, for which pages are gathered."""

import math

import torch

try:
    import flashinfer
except ImportError:
    flashinfer = None
WORKSPACE = 128 << 20


def run(q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, kv_last_page_len):
    if flashinfer is not None:
        workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=q.device)
        paged = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")
        (_, heads, size), (_, page_size, kv_heads, _) = q.shape, k_cache.shape
        paged.plan(
            *(qo_indptr, kv_indptr, kv_indices, kv_last_page_len, heads, kv_heads, size, page_size),
            causal=True,
            q_data_type=q.dtype,
        )
        return paged.run(q, (k_cache, v_cache), return_lse=True)
    page_size = k_cache.shape[1]
    lengths = (kv_indptr.diff() - 1) * page_size + kv_last_page_len
    key, value = k_cache[kv_indices].flatten(0, 1), v_cache[kv_indices].flatten(0, 1)
    longest = 2 * len(q) // len(qo_indptr)  # in new tokens; an engine knows it on the host
    output, lse, *_ = torch.ops.aten._flash_attention_forward(
        *(q, key, value, qo_indptr, kv_indptr * page_size, longest, len(key), 0.0, True, False),
        seqused_k=lengths,
    )
    return output, lse.T / math.log(2)
