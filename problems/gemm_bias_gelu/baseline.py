"""cuBLASLt's epilogue through torch. On a GPU its GELU is the one with tanh, 5e-4 away at most."""

import torch

torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def run(x, weight, bias):
    return torch._addmm_activation(bias, x, weight.T, use_gelu=True)
