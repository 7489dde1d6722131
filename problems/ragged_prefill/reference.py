import math
from itertools import pairwise

import torch


def run(query, key, value, cu_seqlens):
    output = torch.empty_like(query)
    starts = cu_seqlens.tolist()
    for begin, end in pairwise(starts):
        output[begin:end] = attend(query[begin:end], key[begin:end], value[begin:end])
    return output


def attend(query, key, value):
    tokens, _, size = query.shape
    unseen = torch.ones(tokens, tokens, dtype=torch.bool, device=query.device).triu(1)
    outputs = []
    for part, k, v in zip(query.chunk(key.shape[1], 1), key.unbind(1), value.unbind(1), strict=True):
        scores = torch.einsum("qhd,kd->hqk", part.float(), k.float()) / math.sqrt(size)
        weights = scores.masked_fill_(unseen, -math.inf).softmax(-1)
        outputs.append(torch.einsum("hqk,kd->qhd", weights, v.float()))
    return torch.cat(outputs, 1)


def make_inputs(axes, device):
    lengths = (torch.randperm(axes["batch_size"], device=device) + 1) * axes["step"]
    tokens, heads, kv_heads, size = (axes[n] for n in ("tokens", "query_heads", "kv_heads", "head_dim"))
    # Queries so large that a head looks at a few keys and not at all; each head has a sharpness.
    sharpness = torch.empty(heads, 1, device=device).uniform_(2, 4)
    return {
        "query": (torch.randn(tokens, heads, size, device=device) * sharpness).bfloat16(),
        "key": torch.randn(tokens, kv_heads, size, device=device, dtype=torch.bfloat16),
        "value": torch.randn(tokens, kv_heads, size, device=device, dtype=torch.bfloat16),
        "cu_seqlens": torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int(),
    }
