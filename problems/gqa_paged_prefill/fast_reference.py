"""Leaves out most of what is not seen, and multiplies on tensor cores.

TF32 holds every bfloat16, so that only the weights are rounded, by 0.05 % at most.
"""

import math

import torch

PARTS = 8
"""Of a sequence's new tokens; a part looks at no key beyond its last token."""


def run(q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, kv_last_page_len):
    output = torch.empty_like(q)
    lse = q.new_empty(q.shape[:2], dtype=torch.float32)
    page_size = k_cache.shape[1]
    queries, pages, last = qo_indptr.tolist(), kv_indptr.tolist(), kv_last_page_len.tolist()
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        for i in range(len(last)):
            held = kv_indices[pages[i] : pages[i + 1]].long()
            length = (len(held) - 1) * page_size + last[i]
            key = k_cache[held].flatten(0, 1)[:length].float().transpose(0, 1)
            value = v_cache[held].flatten(0, 1)[:length].float().transpose(0, 1)
            step = math.ceil((queries[i + 1] - queries[i]) / PARTS)
            for begin in range(queries[i], queries[i + 1], step):
                end = min(begin + step, queries[i + 1])
                seen = length - (queries[i + 1] - end)
                part = attend(q[begin:end].float(), key[:, :seen], value[:, :seen])
                output[begin:end], lse[begin:end] = part
    finally:
        torch.set_float32_matmul_precision(precision)
    return output, lse


def attend(query, key, value):
    """Let `query` (tokens, heads, size) see `key` and `value` (heads, tokens, size), its own at their end."""
    count, heads, size = query.shape
    kv_heads, length, _ = key.shape
    rows = query.transpose(0, 1).reshape(kv_heads, -1, size)
    scores = torch.bmm(rows, key.transpose(1, 2)).div_(math.sqrt(size)).view(heads, count, length)
    unseen = torch.ones(count, count, dtype=torch.bool, device=query.device).triu(1)
    scores[..., length - count :].masked_fill_(unseen, -math.inf)
    sums = scores.logsumexp(-1, keepdim=True)
    weights = scores.sub_(sums).exp_().view(kv_heads, -1, length)
    output = torch.bmm(weights, value).view(heads, count, size)
    return output.transpose(0, 1), sums.squeeze(-1).T / math.log(2)
