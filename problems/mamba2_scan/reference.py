import torch
from torch.nn.functional import softplus


def run(x, dt, a_log, b, c, d, dt_bias):
    batch, seq, heads, head_dim = x.shape
    values, b, c = x.float(), b.float(), c.float()
    step = softplus(dt.float() + dt_bias.float())
    decay = torch.exp(-step * a_log.float().exp())
    state = values.new_zeros(batch, heads, head_dim, b.shape[-1])
    read = []
    for t in range(seq):
        taken_in = (step[:, t, :, None] * values[:, t])[..., None] * b[:, t, None, None]
        state = decay[:, t, :, None, None] * state + taken_in
        read.append(state @ c[:, t, None, :, None])
    y = torch.stack(read, dim=1)[..., 0] + d.float()[:, None] * values
    return y.to(x.dtype), state
