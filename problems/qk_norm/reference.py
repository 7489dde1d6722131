import torch


def run(query, key, query_weight, key_weight):
    return norm(query, query_weight), norm(key, key_weight)


def norm(x, weight):
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + 1e-6)
    return (wide * scale * weight.float()).to(x.dtype)
