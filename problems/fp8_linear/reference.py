import torch


def run(x, x_scale, weight, weight_scale):
    return (x_scale * weight_scale * (x.float() @ weight.float().T)).to(torch.bfloat16)
