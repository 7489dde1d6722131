import torch

LARGEST = 448.0  # of float8_e4m3fn
LEAST = 1e-12  # a token of zeros has a scale too


def run(x):
    x = x.float()
    scales = x.abs().amax(-1).clamp(min=LEAST) / LARGEST
    return (x / scales[:, None]).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scales
