import math

import torch


def run(query, key, value):
    tokens, size = query.shape[1], query.shape[3]
    unseen = torch.ones(tokens, tokens, dtype=torch.bool, device=query.device).triu(1)
    outputs = []
    for part, k, v in zip(query.chunk(key.shape[2], 2), key.unbind(2), value.unbind(2), strict=True):
        scores = torch.einsum("bqhd,bkd->bhqk", part.float(), k.float()) / math.sqrt(size)
        weights = scores.masked_fill_(unseen, -math.inf).softmax(-1)
        outputs.append(torch.einsum("bhqk,bkd->bqhd", weights, v.float()))
    return torch.cat(outputs, 2).to(query.dtype)
