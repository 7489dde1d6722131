import math

import torch


def run(q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, kv_last_page_len):
    output = torch.empty_like(q)
    lse = q.new_empty(q.shape[:2], dtype=torch.float32)
    page_size = k_cache.shape[1]
    queries, pages, last = qo_indptr.tolist(), kv_indptr.tolist(), kv_last_page_len.tolist()
    for i in range(len(last)):
        new = slice(queries[i], queries[i + 1])
        held = kv_indices[pages[i] : pages[i + 1]].long()
        length = (len(held) - 1) * page_size + last[i]
        key = k_cache[held].flatten(0, 1)[:length]
        value = v_cache[held].flatten(0, 1)[:length]
        output[new], lse[new] = attend(q[new], key, value)
    return output, lse


def attend(query, key, value):
    """Let the last tokens of a sequence see all up to themselves."""
    count, _, size = query.shape
    length, kv_heads, _ = key.shape
    unseen = torch.ones(count, length, dtype=torch.bool, device=query.device).triu(length - count + 1)
    outputs, sums = [], []
    for part, k, v in zip(query.chunk(kv_heads, 1), key.unbind(1), value.unbind(1), strict=True):
        scores = torch.einsum("qhd,kd->hqk", part.float(), k.float()) / math.sqrt(size)
        scores.masked_fill_(unseen, -math.inf)
        sums.append(scores.logsumexp(-1).T / math.log(2))
        outputs.append(torch.einsum("hqk,kd->qhd", scores.softmax(-1), v.float()))
    return torch.cat(outputs, 1), torch.cat(sums, 1)


def make_inputs(axes, device):
    batch, page_size = axes["batch_size"], axes["page_size"]
    rank = torch.randperm(batch, device=device) + 1
    new = rank * axes["query_step"]
    lengths = new + (batch + 1 - rank) * axes["prefix_step"]
    counts = (lengths + page_size - 1) // page_size
    cache = (axes["num_pages"], page_size, axes["num_kv_heads"], axes["head_dim"])
    return {
        "q": queries(axes["q_tokens"], axes["num_qo_heads"], axes["head_dim"], device),
        "k_cache": torch.randn(cache, device=device, dtype=torch.bfloat16),
        "v_cache": torch.randn(cache, device=device, dtype=torch.bfloat16),
        "qo_indptr": starts(new),
        "kv_indptr": starts(counts),
        "kv_indices": torch.randperm(axes["num_pages"], device=device)[: axes["num_kv_indices"]].int(),
        "kv_last_page_len": (lengths - (counts - 1) * page_size).int(),
    }


def queries(tokens, heads, size, device):
    """Draw queries so large that a head looks at a few keys and not at all; each head has a sharpness."""
    sharpness = torch.empty(heads, 1, device=device).uniform_(2, 4)
    return (torch.randn(tokens, heads, size, device=device) * sharpness).bfloat16()


def starts(counts):
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()
