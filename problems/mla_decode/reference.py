import math

import torch

SCALE = 1 / math.sqrt(128 + 64)  # the size of a head's key before it is absorbed


def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, kv_last_page_len):
    output = torch.empty_like(q_nope)
    lse = q_nope.new_empty(q_nope.shape[:2], dtype=torch.float32)
    page_size = ckv_cache.shape[1]
    pages, last = kv_indptr.tolist(), kv_last_page_len.tolist()
    for i in range(len(last)):
        held = kv_indices[pages[i] : pages[i + 1]].long()
        length = (len(held) - 1) * page_size + last[i]
        latent = ckv_cache[held].flatten(0, 1)[:length].float()
        rotated = kpe_cache[held].flatten(0, 1)[:length].float()
        scores = SCALE * (q_nope[i].float() @ latent.T + q_pe[i].float() @ rotated.T)
        lse[i] = scores.logsumexp(-1) / math.log(2)
        output[i] = scores.softmax(-1) @ latent
    return output, lse


def make_inputs(axes, device):
    batch, page_size = axes["batch_size"], axes["page_size"]
    heads, latent, rotated = axes["num_heads"], axes["latent_dim"], axes["rope_dim"]
    lengths = (torch.randperm(batch, device=device) + 1) * axes["kv_step"]
    counts = (lengths + page_size - 1) // page_size
    slots = (axes["num_pages"], page_size)
    # Queries so large that a head looks at a few keys and not at all; each head has a sharpness.
    sharpness = torch.empty(heads, 1, device=device).uniform_(1.2, 2.3)
    return {
        "q_nope": (torch.randn(batch, heads, latent, device=device) * sharpness).bfloat16(),
        "q_pe": (torch.randn(batch, heads, rotated, device=device) * sharpness).bfloat16(),
        "ckv_cache": torch.randn(*slots, latent, device=device, dtype=torch.bfloat16),
        "kpe_cache": torch.randn(*slots, rotated, device=device, dtype=torch.bfloat16),
        "kv_indptr": torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int(),
        "kv_indices": torch.randperm(axes["num_pages"], device=device)[: axes["num_kv_indices"]].int(),
        "kv_last_page_len": (lengths - (counts - 1) * page_size).int(),
    }
