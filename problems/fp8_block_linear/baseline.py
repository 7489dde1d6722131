"""cuBLASLt's block-scaled float8 product through torch (a GPU with compute capability 9.0, CUDA 12.9).

It wants the scales of x by columns, and those of the weight padded to a multiple of four along a row.
"""

import torch
from torch.nn.functional import ScalingType, pad, scaled_mm


def run(x, x_scales, weight, weight_scales):
    return scaled_mm(
        x,
        weight.T,
        x_scales.T.contiguous().T,
        ScalingType.BlockWise1x128,
        pad(weight_scales, (0, -weight_scales.shape[1] % 4)).T,
        ScalingType.BlockWise128x128,
        output_dtype=torch.bfloat16,
    )
