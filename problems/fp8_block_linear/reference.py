import torch

BLOCK = 128


def run(x, x_scales, weight, weight_scales):
    out_features, in_features = weight.shape
    of_x = x_scales.repeat_interleave(BLOCK, dim=1)[:, :in_features]
    of_weight = weight_scales.repeat_interleave(BLOCK, dim=0).repeat_interleave(BLOCK, dim=1)
    of_weight = of_weight[:out_features, :in_features]
    return ((x.float() * of_x) @ (weight.float() * of_weight).T).to(torch.bfloat16)
