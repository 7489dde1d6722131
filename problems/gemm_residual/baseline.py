"""cuBLAS through torch, which adds the residual itself; parts of a split sum are added in float32."""

import torch

torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def run(x, weight, residual):
    return torch.addmm(residual, x, weight.T)
