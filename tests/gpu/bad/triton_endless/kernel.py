"""A Triton kernel that never ends."""

import torch
import triton
import triton.language as tl


@triton.jit
def forever(x, y, n):
    value = tl.load(x)
    while value < 1e30:
        value = tl.load(x, volatile=True)
    tl.store(y, value)


def run(x: torch.Tensor, y: torch.Tensor) -> None:
    forever[(1,)](x, y, x.shape[0])
