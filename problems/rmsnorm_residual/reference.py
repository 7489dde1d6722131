import torch


def run(hidden_states, residual, weight):
    total = hidden_states.float() + residual.float()
    scale = torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + 1e-5)
    output = total * scale * weight.float()
    return output.to(hidden_states.dtype), total.to(hidden_states.dtype)
