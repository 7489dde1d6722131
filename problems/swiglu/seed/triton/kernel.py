"""silu(gate) * up: a program takes a piece of some rows.

BLOCK   columns of a program
ROWS    rows of a program
WARPS   warps of a program
"""

import torch
import triton
import triton.language as tl
from params import BLOCK, ROWS, WARPS


@triton.jit
def swiglu(gate_up, output, tokens, intermediate: tl.constexpr, block: tl.constexpr, rows: tl.constexpr):
    row = (tl.program_id(1) * rows + tl.arange(0, rows)[:, None]).to(tl.int64)
    column = tl.program_id(0) * block + tl.arange(0, block)[None, :]
    inside = (row < tokens) & (column < intermediate)
    at = row * (2 * intermediate) + column
    gate = tl.load(gate_up + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + at + intermediate, mask=inside, other=0.0).to(tl.float32)
    result = gate / (1 + tl.exp(-gate)) * up
    tl.store(output + row * intermediate + column, result.to(tl.bfloat16), mask=inside)


def run(gate_up: torch.Tensor, output: torch.Tensor) -> None:
    tokens, intermediate = output.shape
    grid = (triton.cdiv(intermediate, BLOCK), triton.cdiv(tokens, ROWS))
    swiglu[grid](gate_up, output, tokens, intermediate, BLOCK, ROWS, num_warps=WARPS)
