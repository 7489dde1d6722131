"""logsumexp(logits) - logits[target]: a program goes over a row once, with a maximum and a sum for each lane.

BLOCK   logits at a time
WARPS   warps of a program
STAGES  blocks that are on their way
"""

import torch
import triton
import triton.language as tl
from params import BLOCK, STAGES, WARPS


@triton.jit
def loss_of_row(logits, target, loss, vocabulary: tl.constexpr, block: tl.constexpr, stages: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    row = logits + token * vocabulary
    tops = tl.full((block,), -3.4028234663852886e38, tl.float32)
    sums = tl.zeros((block,), tl.float32)
    for begin in tl.range(0, vocabulary, block, num_stages=stages):
        columns = begin + tl.arange(0, block)
        held = tl.load(row + columns, mask=columns < vocabulary, other=float("-inf"))
        higher = tl.maximum(tops, held)
        sums = sums * tl.exp(tops - higher) + tl.exp(held - higher)
        tops = higher
    top = tl.max(tops)
    total = tl.sum(sums * tl.exp(tops - top))
    tl.store(loss + token, top + tl.log(total) - tl.load(row + tl.load(target + token)))


def run(logits: torch.Tensor, target: torch.Tensor, loss: torch.Tensor) -> None:
    tokens, vocabulary = logits.shape
    loss_of_row[(tokens,)](logits, target, loss, vocabulary, BLOCK, STAGES, num_warps=WARPS)
