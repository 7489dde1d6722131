"""FlashInfer where it is installed; else products over gathered pages, padded to the longest sequence."""

import math

import torch

try:
    import flashinfer
except ImportError:
    flashinfer = None
SCALE = 1 / math.sqrt(128 + 64)
WORKSPACE = 128 << 20


def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, kv_last_page_len):
    page_size = ckv_cache.shape[1]
    lengths = (kv_indptr.diff() - 1) * page_size + kv_last_page_len
    if flashinfer is not None and q_nope.is_cuda:
        workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=q_nope.device)
        paged = flashinfer.mla.BatchMLAPagedAttentionWrapper(workspace)
        starts = torch.arange(len(kv_indptr), dtype=torch.int32, device=q_nope.device)
        (_, heads, latent), rotated = q_nope.shape, q_pe.shape[-1]
        paged.plan(
            *(starts, kv_indptr, kv_indices, lengths.int(), heads, latent, rotated, page_size),
            causal=False,
            sm_scale=SCALE,
            q_data_type=q_nope.dtype,
            kv_data_type=ckv_cache.dtype,
        )
        return paged.run(q_nope, q_pe, ckv_cache, kpe_cache, return_lse=True)
    # The longest sequence has so many tokens or a few less, which an engine knows on the host.
    place = torch.arange(2 * len(kv_indices) * page_size // len(kv_indptr), device=q_nope.device)
    page = (kv_indptr[:-1, None] + place // page_size).clamp(max=len(kv_indices) - 1)
    slots = kv_indices[page] * page_size + place % page_size
    latent = ckv_cache.flatten(0, 1)[slots]
    key = torch.cat((latent, kpe_cache.flatten(0, 1)[slots]), -1)
    scores = product(torch.cat((q_nope, q_pe), -1), key.transpose(1, 2)) * SCALE
    scores.masked_fill_((place >= lengths[:, None])[:, None], -math.inf)
    return torch.bmm(scores.softmax(-1).to(latent.dtype), latent), scores.logsumexp(-1) / math.log(2)


def product(a, b):
    return torch.bmm(a, b, out_dtype=torch.float32) if a.is_cuda else torch.bmm(a.float(), b.float())
