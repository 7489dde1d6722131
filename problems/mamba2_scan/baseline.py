"""The scan in chunks, whose products are large enough for tensor cores: their operands are bfloat16."""

import torch
from torch.nn.functional import pad, softplus

CHUNK = 64


def chunked(tensor, padding):
    """Return [batch, chunks, heads, positions, ...]; positions added at the end hold zeros."""
    tensor = pad(tensor, (0, 0) * (tensor.dim() - 2) + (0, padding))
    return tensor.unflatten(1, (-1, CHUNK)).transpose(2, 3)


def product(a, b):
    return (a.bfloat16() @ b.bfloat16()).float()


def run(x, dt, a_log, b, c, d, dt_bias):
    seq, padding = x.shape[1], -x.shape[1] % CHUNK
    step = softplus(dt.float() + dt_bias.float())
    values = chunked(step[..., None] * x.float(), padding)
    b, c = chunked(b[:, :, None], padding), chunked(c[:, :, None], padding)
    passed = chunked(-step * a_log.float().exp(), padding).cumsum(-1)[..., None]  # logarithm of the decay

    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=x.device).triu(1)
    decay = (passed - passed.transpose(-1, -2)).masked_fill_(later, -torch.inf).exp_()
    y = product(product(c, b.transpose(-1, -2)) * decay, values)

    end = passed[..., -1:, :]
    added = product(((end - passed).exp() * values).transpose(-1, -2), b)
    kept = end.exp()
    state = torch.zeros_like(added[:, 0])
    before = torch.empty_like(added)
    for chunk in range(added.shape[1]):
        before[:, chunk] = state
        state = kept[:, chunk] * state + added[:, chunk]
    y += passed.exp() * product(c, before.transpose(-1, -2))
    y = y.transpose(2, 3).flatten(1, 2)[:, :seq] + d.float()[:, None] * x.float()
    return y.to(x.dtype), state
