"""RMSNorm by PyTorch's own operations."""

import torch


def run(hidden_states: torch.Tensor, weight: torch.Tensor, output: torch.Tensor) -> None:
    x = hidden_states.float()
    scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-5)
    output.copy_(x * scale * weight.float())
