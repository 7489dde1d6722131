import torch


def run(scores, scale, cap):
    capped = cap * torch.tanh(scores.float() * (scale / cap))
    queries, keys = scores.shape[-2:]
    seen = torch.ones(queries, keys, dtype=torch.bool, device=scores.device).tril(keys - queries)
    return torch.softmax(capped.masked_fill(~seen, float("-inf")), dim=-1).to(scores.dtype)
