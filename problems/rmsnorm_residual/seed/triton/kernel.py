"""RMSNorm of hidden_states + residual: a program takes some rows whole.

ROWS    rows of a program
WARPS   warps of a program
STAGES  loads that the compiler may keep ahead
"""

import torch
import triton
import triton.language as tl
from params import ROWS, STAGES, WARPS


@triton.jit
def rmsnorm(states, residual, weight, output, new_residual, tokens, hidden: tl.constexpr, rows: tl.constexpr):
    row = tl.program_id(0) * rows + tl.arange(0, rows)[:, None]
    column = tl.arange(0, hidden)[None, :]
    at = row.to(tl.int64) * hidden + column
    inside = row < tokens
    total = tl.load(states + at, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(new_residual + at, total.to(tl.bfloat16), mask=inside)
    scale = tl.rsqrt(tl.sum(total * total, axis=1, keep_dims=True) / hidden + 1e-5)
    result = total * scale * tl.load(weight + column).to(tl.float32)
    tl.store(output + at, result.to(tl.bfloat16), mask=inside)


def run(
    hidden_states: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    output: torch.Tensor,
    new_residual: torch.Tensor,
) -> None:
    tokens, hidden = hidden_states.shape
    grid = (triton.cdiv(tokens, ROWS),)
    rmsnorm[grid](
        hidden_states,
        residual,
        weight,
        output,
        new_residual,
        tokens,
        hidden,
        ROWS,
        num_warps=WARPS,
        num_stages=STAGES,
    )
