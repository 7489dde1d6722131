import math

import torch


def run(q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len):
    output = torch.empty_like(q)
    lse = q.new_empty(q.shape[:2], dtype=torch.float32)
    page_size = k_cache.shape[1]
    pages, last = kv_indptr.tolist(), kv_last_page_len.tolist()
    for i in range(len(last)):
        held = kv_indices[pages[i] : pages[i + 1]].long()
        length = (len(held) - 1) * page_size + last[i]
        key = k_cache[held].flatten(0, 1)[:length].float()
        value = v_cache[held].flatten(0, 1)[:length].float()
        query = q[i].float().unflatten(0, (key.shape[1], -1))  # key head, query head of it, size
        scores = torch.einsum("hgd,khd->hgk", query, key) / math.sqrt(q.shape[-1])
        lse[i] = scores.logsumexp(-1).flatten() / math.log(2)
        output[i] = torch.einsum("hgk,khd->hgd", scores.softmax(-1), value).flatten(0, 1)
    return output, lse


def make_inputs(axes, device):
    batch, page_size = axes["batch_size"], axes["page_size"]
    lengths = (torch.randperm(batch, device=device) + 1) * axes["kv_step"]
    counts = (lengths + page_size - 1) // page_size
    cache = (axes["num_pages"], page_size, axes["num_kv_heads"], axes["head_dim"])
    return {
        "q": queries(batch, axes["num_qo_heads"], axes["head_dim"], device),
        "k_cache": torch.randn(cache, device=device, dtype=torch.bfloat16),
        "v_cache": torch.randn(cache, device=device, dtype=torch.bfloat16),
        "kv_indptr": torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int(),
        "kv_indices": torch.randperm(axes["num_pages"], device=device)[: axes["num_kv_indices"]].int(),
        "kv_last_page_len": (lengths - (counts - 1) * page_size).int(),
    }


def queries(tokens, heads, size, device):
    """Draw queries so large that a head looks at a few keys and not at all; each head has a sharpness."""
    sharpness = torch.empty(heads, 1, device=device).uniform_(2, 4)
    return (torch.randn(tokens, heads, size, device=device) * sharpness).bfloat16()
