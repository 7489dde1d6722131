"""Rotary embedding: a program turns some heads of some tokens; queries come first, then keys.

HEADS   heads of a program
TOKENS  tokens of a program
WARPS   warps of a program
"""

import torch
import triton
import triton.language as tl
from params import HEADS, TOKENS, WARPS


@triton.jit
def turn(
    x, y, cosines, sines, tokens, total, pairs: tl.constexpr, heads: tl.constexpr, count: tl.constexpr, head0
):
    token = (tl.program_id(0) * count + tl.arange(0, count)[:, None, None]).to(tl.int64)
    head = head0 + tl.arange(0, heads)[None, :, None]
    pair = tl.arange(0, pairs)[None, None, :]
    inside = token < tokens
    cosine = tl.load(cosines + token * pairs + pair, mask=inside, other=0.0)
    sine = tl.load(sines + token * pairs + pair, mask=inside, other=0.0)
    at = (token * total + head) * (2 * pairs) + pair
    first = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(x + at + pairs, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + at, (first * cosine - second * sine).to(tl.bfloat16), mask=inside)
    tl.store(y + at + pairs, (second * cosine + first * sine).to(tl.bfloat16), mask=inside)


@triton.jit
def rope(
    query,
    key,
    cosines,
    sines,
    rotated_query,
    rotated_key,
    tokens,
    query_heads: tl.constexpr,
    key_heads: tl.constexpr,
    pairs: tl.constexpr,
    heads: tl.constexpr,
    count: tl.constexpr,
):
    head0 = tl.program_id(1) * heads
    if head0 < query_heads:
        turn(query, rotated_query, cosines, sines, tokens, query_heads, pairs, heads, count, head0)
    else:
        turn(key, rotated_key, cosines, sines, tokens, key_heads, pairs, heads, count, head0 - query_heads)


def run(
    query: torch.Tensor,
    key: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    rotated_query: torch.Tensor,
    rotated_key: torch.Tensor,
) -> None:
    tokens, query_heads, head_dim = query.shape
    key_heads = key.shape[1]
    grid = (triton.cdiv(tokens, TOKENS), (query_heads + key_heads) // HEADS)
    rope[grid](
        query,
        key,
        cos,
        sin,
        rotated_query,
        rotated_key,
        tokens,
        query_heads,
        key_heads,
        head_dim // 2,
        HEADS,
        TOKENS,
        num_warps=WARPS,
    )
