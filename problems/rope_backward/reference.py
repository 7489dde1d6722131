import torch


def run(grad_rotated_query, grad_rotated_key, cos, sin):
    return turn_back(grad_rotated_query, cos, sin), turn_back(grad_rotated_key, cos, sin)


def turn_back(grad, cos, sin):
    first, second = grad.float().chunk(2, dim=-1)
    cos, sin = cos[:, None, :], sin[:, None, :]
    return torch.cat((first * cos + second * sin, second * cos - first * sin), dim=-1).to(grad.dtype)
