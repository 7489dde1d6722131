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
    lengths = (kv_indptr.diff() - 1) * k_cache.shape[1] + kv_last_page_len
    ends = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    rows = token_rows(k_cache.shape[1], lengths, ends, kv_indptr, kv_indices)
    key, value = k_cache.flatten(0, 1)[rows], v_cache.flatten(0, 1)[rows]
    most = (
        2 * len(q) // len(qo_indptr)
    )  # new tokens of the longest sequence, which an engine knows on the host
    output, lse, *_ = torch.ops.aten._flash_attention_forward(
        q, key, value, qo_indptr, ends, most, len(rows), 0.0, True, False
    )
    return output, lse.T / math.log(2)


def token_rows(page_size, lengths, ends, kv_indptr, kv_indices):
    """Return where in the cache each token of each sequence lies, one sequence after the other."""
    sequence = torch.repeat_interleave(lengths)
    place = torch.arange(len(sequence), device=lengths.device) - ends[sequence]
    return kv_indices[kv_indptr[sequence] + place // page_size] * page_size + place % page_size
