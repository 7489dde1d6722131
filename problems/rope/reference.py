import torch


def run(query, key, cos, sin):
    return rotate(query, cos, sin), rotate(key, cos, sin)


def rotate(x, cos, sin):
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = cos[:, None, :], sin[:, None, :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
