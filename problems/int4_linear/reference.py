import torch

GROUP = 128


def run(x, weight, zeros, scales):
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=x.device)
    held = (weight[:, None] >> shifts[:, None] & 15).view(-1, GROUP, weight.shape[1])
    zero = (zeros[..., None] >> shifts & 15).flatten(1)
    dequantised = (held - zero[:, None]) * scales.float()[:, None]
    return (x.float() @ dequantised.flatten(0, 1)).to(x.dtype)
