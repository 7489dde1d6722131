"""Torch has no NVFP4 product before Blackwell: one in bfloat16 per expert, on tensor cores.

bfloat16 holds an E2M1 number times an E4M3 scale exactly, so that only the sums, in float32, are rounded.
"""

import torch
from torch.nn.functional import silu

BLOCK = 16
LARGEST, LARGEST_SCALE = 6.0, 448.0
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def run(
    hidden_states,
    expert_ids,
    expert_weights,
    hidden_scale,
    gate_up,
    gate_up_scales,
    gate_up_scale,
    intermediate_scale,
    down,
    down_scales,
    down_scale,
):
    pairs = torch.tensor([(E2M1[byte & 15], E2M1[byte >> 4]) for byte in range(256)])
    pairs = pairs.to(hidden_states.device, torch.bfloat16)
    x = quantised(hidden_states.float(), hidden_scale)
    output = torch.zeros_like(hidden_states, dtype=torch.float32)
    for e in expert_ids.unique().tolist():
        token, place = (expert_ids == e).nonzero(as_tuple=True)
        both = product(x[token], weight(gate_up[e], gate_up_scales[e], pairs))
        gate, up = (both * (hidden_scale * gate_up_scale[e])).chunk(2, -1)
        between = quantised(silu(gate) * up, intermediate_scale[e])
        share = expert_weights[token, place, None] * (intermediate_scale[e] * down_scale[e])
        output[token] += share * product(between, weight(down[e], down_scales[e], pairs))
    return output.to(hidden_states.dtype)


def product(a, b):
    """Return a @ b^T in float32."""
    return torch.mm(a, b.T, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float().T


def weight(packed, scales, pairs):
    """Return a weight but for its global scale."""
    values = pairs[packed.view(torch.uint8).int()].flatten(-2).unflatten(-1, (-1, BLOCK))
    return (values * scales.bfloat16()[..., None]).flatten(-2)


def quantised(x, scale):
    """Return x as NVFP4 holds it but for the global scale."""
    blocks = x.unflatten(-1, (-1, BLOCK))
    largest = blocks.abs().amax(-1, keepdim=True)
    scales = (largest / (LARGEST * scale)).clamp(max=LARGEST_SCALE).to(torch.float8_e4m3fn).float()
    sizes = torch.where(scales > 0, blocks.abs() / (scales * scale), 0.0).clamp(max=LARGEST)
    spacing = torch.where(sizes < 2, 0.5, torch.where(sizes < 4, 1.0, 2.0))
    return ((sizes / spacing).round() * spacing * scales).copysign(blocks).flatten(-2).bfloat16()
