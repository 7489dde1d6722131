import torch

PAIRS = (16, 24, 24)  # that turn by the position in time, by the row, by the column


def run(query, key, cos, sin):
    cos, sin = chosen(cos), chosen(sin)
    return rotate(query, cos, sin), rotate(key, cos, sin)


def chosen(table):
    """Take the first 16 pairs from the first axis, 24 from the second, the last 24 from the third."""
    return torch.cat([part[axis] for axis, part in enumerate(table.split(PAIRS, dim=-1))], dim=-1)


def rotate(x, cos, sin):
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = cos[:, None, :], sin[:, None, :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
