"""scales * (weight @ x): a program takes some rows, a block of columns at a time.

ROWS    rows of a program
BLOCK   columns at a time
WARPS   warps of a program
STAGES  blocks that are on their way
"""

import torch
import triton
import triton.language as tl
from params import BLOCK, ROWS, STAGES, WARPS


@triton.jit
def matvec(x, weight, scales, y, outs, ins, rows: tl.constexpr, block: tl.constexpr, stages: tl.constexpr):
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    start = weight + row[:, None].to(tl.int64) * ins
    sums = tl.zeros((rows, block), tl.float32)
    for begin in tl.range(0, ins, block, num_stages=stages):
        column = begin + tl.arange(0, block)
        inside = (row[:, None] < outs) & (column[None, :] < ins)
        held = tl.load(start + column[None, :], mask=inside, other=0).to(tl.float32)
        sums += held * tl.load(x + column, mask=column < ins, other=0.0).to(tl.float32)[None, :]
    scale = tl.load(scales + row, mask=row < outs, other=0.0).to(tl.float32)
    tl.store(y + row, (tl.sum(sums, axis=1) * scale).to(tl.bfloat16), mask=row < outs)


def run(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor, y: torch.Tensor) -> None:
    outs, ins = weight.shape
    grid = (triton.cdiv(outs, ROWS),)
    matvec[grid](x, weight, scales, y, outs, ins, ROWS, BLOCK, STAGES, num_warps=WARPS)
