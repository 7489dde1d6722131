"""Softmax over the keys that a mask keeps: a program takes some rows whole.

ROWS    rows of a program
WARPS   warps of a program
STAGES  loads that the compiler may keep ahead
"""

import torch
import triton
import triton.language as tl
from params import ROWS, STAGES, WARPS


@triton.jit
def softmax(
    scores,
    mask,
    scale,
    weights,
    count,
    queries,
    keys,
    heads: tl.constexpr,
    block: tl.constexpr,
    rows: tl.constexpr,
):
    row = (tl.program_id(0) * rows + tl.arange(0, rows)[:, None]).to(tl.int64)
    column = tl.arange(0, block)[None, :]
    inside = (row < count) & (column < keys)
    mask_row = row // (heads * queries) * queries + row % queries
    held = tl.load(scores + row * keys + column, mask=inside, other=0.0) * scale
    kept = tl.load(mask + mask_row * keys + column, mask=inside, other=0)
    held = tl.where(
        kept != 0, held, -3.4028234663852886e38
    )  # the lowest float: a row without keys is uniform
    held = tl.where(column < keys, held, float("-inf"))
    powers = tl.exp(held - tl.max(held, axis=1, keep_dims=True))
    result = powers / tl.sum(powers, axis=1, keep_dims=True)
    tl.store(weights + row * keys + column, result, mask=inside)


def run(scores: torch.Tensor, mask: torch.Tensor, scale: float, weights: torch.Tensor) -> None:
    batch, heads, queries, keys = scores.shape
    count = batch * heads * queries
    grid = (triton.cdiv(count, ROWS),)
    softmax[grid](
        scores,
        mask,
        scale,
        weights,
        count,
        queries,
        keys,
        heads,
        triton.next_power_of_2(keys),
        ROWS,
        num_warps=WARPS,
        num_stages=STAGES,
    )
