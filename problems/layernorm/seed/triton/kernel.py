"""Layer normalisation: a program takes some rows whole.

ROWS    rows of a program
WARPS   warps of a program
STAGES  loads that the compiler may keep ahead
"""

import torch
import triton
import triton.language as tl
from params import ROWS, STAGES, WARPS


@triton.jit
def layernorm(x, weight, bias, y, tokens, hidden: tl.constexpr, rows: tl.constexpr):
    row = tl.program_id(0) * rows + tl.arange(0, rows)[:, None]
    column = tl.arange(0, hidden)[None, :]
    at = row.to(tl.int64) * hidden + column
    held = tl.load(x + at, mask=row < tokens, other=0.0)
    centred = held - tl.sum(held, axis=1, keep_dims=True) / hidden
    scale = tl.rsqrt(tl.sum(centred * centred, axis=1, keep_dims=True) / hidden + 1e-5)
    result = centred * scale * tl.load(weight + column) + tl.load(bias + column)
    tl.store(y + at, result, mask=row < tokens)


def run(hidden_states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, output: torch.Tensor) -> None:
    tokens, hidden = hidden_states.shape
    grid = (triton.cdiv(tokens, ROWS),)
    layernorm[grid](
        hidden_states, weight, bias, output, tokens, hidden, ROWS, num_warps=WARPS, num_stages=STAGES
    )
