import torch


def unit(x):
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def run(q, k, v, g, beta):
    batch, seq, key_heads, key_dim = q.shape
    value_heads, value_dim = v.shape[2:]
    sharing = value_heads // key_heads
    queries = unit(q.float()).repeat_interleave(sharing, dim=2) * key_dim**-0.5
    keys = unit(k.float()).repeat_interleave(sharing, dim=2)
    values, decay, rate = v.float(), g.float().exp(), beta.float()
    state = values.new_zeros(batch, value_heads, key_dim, value_dim)
    read = []
    for t in range(seq):
        state = state * decay[:, t, :, None, None]
        recalled = keys[:, t, :, None] @ state
        change = rate[:, t, :, None, None] * (values[:, t, :, None] - recalled)
        state = state + keys[:, t, :, :, None] * change
        read.append(queries[:, t, :, None] @ state)
    return torch.stack(read, dim=1)[..., 0, :].to(q.dtype), state
