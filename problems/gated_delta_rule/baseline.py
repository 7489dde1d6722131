"""The rule in chunks, whose products are large enough for tensor cores: their operands are bfloat16."""

import torch
from torch.nn.functional import pad

CHUNK = 64


def unit(x):
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def chunked(tensor, sharing=1):
    """Return [batch, heads, chunks, positions, ...]; positions added at the end hold zeros."""
    tensor = tensor.transpose(1, 2)
    tensor = pad(tensor, (0, 0) * (tensor.dim() - 3) + (0, -tensor.shape[2] % CHUNK))
    return tensor.unflatten(2, (-1, CHUNK)).repeat_interleave(sharing, dim=1)


def product(a, b):
    return (a.bfloat16() @ b.bfloat16()).float()


def run(q, k, v, g, beta):
    seq, key_heads, key_dim = q.shape[1:]
    sharing = v.shape[2] // key_heads
    queries = chunked(unit(q.float()) * key_dim**-0.5, sharing)
    keys = chunked(unit(k.float()), sharing)
    rate = chunked(beta.float())[..., None]
    passed = chunked(g.float()).cumsum(-1)[..., None]  # logarithm of the decay since the chunk began
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).triu(1)
    decay = (passed - passed.transpose(-1, -2)).masked_fill(later, -torch.inf).exp()

    overlap = (rate * product(keys, keys.transpose(-1, -2)) * decay).tril(-1)
    system = overlap + torch.eye(CHUNK, device=q.device)
    change = torch.linalg.solve_triangular(system, rate * chunked(v.float()), upper=False, unitriangular=True)
    recall = torch.linalg.solve_triangular(
        system, rate * passed.exp() * keys, upper=False, unitriangular=True
    )
    direct = product(queries, keys.transpose(-1, -2)) * decay
    queries = queries * passed.exp()
    end = passed[..., -1:, :]
    keys = (keys * (end - passed).exp()).transpose(-1, -2)

    state = change.new_zeros(*change.shape[:2], key_dim, v.shape[-1])
    read = []
    for chunk in range(change.shape[2]):
        changed = change[:, :, chunk] - product(recall[:, :, chunk], state)
        read.append(product(queries[:, :, chunk], state) + product(direct[:, :, chunk], changed))
        state = state * end[:, :, chunk].exp() + product(keys[:, :, chunk], changed)
    o = torch.cat(read, dim=2)[:, :, :seq].transpose(1, 2)
    return o.to(q.dtype), state
