"""More device memory than there is."""

import torch


def run(x: torch.Tensor, y: torch.Tensor) -> None:
    much = torch.empty(1 << 40, dtype=torch.uint8, device=x.device)
    y.copy_(x * 2 + much[0])
