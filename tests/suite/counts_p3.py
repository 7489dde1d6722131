"""What attention must compute and move, counted row by row; nothing here is taken from problem.toml."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Axes = Mapping[str, int]
BF16, FLOAT, INT = 2, 4, 4
"""Bytes of an element."""


def sequences(axes: Axes) -> list[tuple[int, int]]:
    """Return (new tokens, tokens before them) of every sequence of a batch, shortest prompt first."""
    batch, query_step, prefix_step = axes["batch_size"], axes["query_step"], axes.get("prefix_step", 0)
    return [(n * query_step, (batch + 1 - n) * prefix_step) for n in range(1, batch + 1)]


def causal_pairs(count: int, before: int = 0) -> int:
    """Return how many keys `count` queries see, if the first sees itself and `before` earlier ones."""
    return sum(before + place + 1 for place in range(count))


def gqa_paged_prefill(axes: Axes) -> tuple[float, float]:
    heads, kv_heads, size, page = 32, 8, 128, axes["page_size"]
    flops = moved = 0
    for new, before in sequences(axes):
        flops += heads * causal_pairs(new, before) * (2 * size + 2 * size)
        moved += 2 * new * heads * size * BF16  # queries, output
        moved += new * heads * FLOAT  # lse
        moved += 2 * (new + before) * kv_heads * size * BF16  # keys, values
        moved += INT * (-(-(new + before) // page) + 3)  # pages, two starts, length of the last page
    return flops, moved + 2 * INT


def gqa_paged_decode(axes: Axes) -> tuple[float, float]:
    heads, kv_heads, size, page = 32, 8, 128, axes["page_size"]
    flops = moved = 0
    for length in (n * axes["kv_step"] for n in range(1, axes["batch_size"] + 1)):
        flops += heads * length * (2 * size + 2 * size)
        moved += 2 * heads * size * BF16 + heads * FLOAT  # query, output, lse
        moved += 2 * length * kv_heads * size * BF16  # keys, values
        moved += INT * (-(-length // page) + 2)  # pages, start, length of the last page
    return flops, moved + INT


def ragged_prefill(axes: Axes) -> tuple[float, float]:
    heads, kv_heads, size = 28, 4, 128
    flops = moved = 0
    for length in (n * axes["step"] for n in range(1, axes["batch_size"] + 1)):
        flops += heads * causal_pairs(length) * (2 * size + 2 * size)
        moved += (2 * heads + 2 * kv_heads) * length * size * BF16 + INT
    return flops, moved + INT


def causal_prefill(axes: Axes) -> tuple[float, float]:
    heads, kv_heads, size = 64, 8, 128
    flops = axes["batch"] * heads * causal_pairs(axes["tokens"]) * (2 * size + 2 * size)
    return flops, axes["batch"] * axes["tokens"] * (2 * heads + 2 * kv_heads) * size * BF16


def sliding_window_attention(axes: Axes) -> tuple[float, float]:
    heads, kv_heads, size = 32, 8, 128
    pairs = sum(min(place + 1, axes["window"]) for place in range(axes["tokens"]))
    flops = axes["batch"] * heads * pairs * (2 * size + 2 * size)
    return flops, axes["batch"] * axes["tokens"] * (2 * heads + 2 * kv_heads) * size * BF16


def mla_decode(axes: Axes) -> tuple[float, float]:
    heads, latent, rotated, page = 128, 512, 64, axes["page_size"]
    flops = moved = 0
    for length in (n * axes["kv_step"] for n in range(1, axes["batch_size"] + 1)):
        flops += heads * length * (2 * (latent + rotated) + 2 * latent)
        moved += heads * ((latent + rotated) * BF16 + latent * BF16 + FLOAT)  # query, output, lse
        moved += length * (latent + rotated) * BF16
        moved += INT * (-(-length // page) + 2)  # pages, start, length of the last page
    return flops, moved + INT


def attention_backward(axes: Axes) -> tuple[float, float]:
    heads, kv_heads, size = 32, 8, 128
    scores = of_weights = grad_query = grad_key = grad_value = 2 * size
    pairs = axes["batch"] * heads * causal_pairs(axes["tokens"])
    rows = axes["batch"] * axes["tokens"]
    read = rows * ((3 * heads + 2 * kv_heads) * size * BF16 + heads * FLOAT)
    written = rows * (heads + 2 * kv_heads) * size * BF16
    return pairs * (scores + of_weights + grad_query + grad_key + grad_value), read + written


def kv_cache_update(axes: Axes) -> tuple[float, float]:
    slot, page = 2 * 8 * 128 * BF16, 16
    lengths = [n * axes["step"] for n in range(1, axes["batch_size"] + 1)]
    pages = (sum(lengths) + len(lengths) * (page - 1)) // page
    assert pages >= sum(-(-length // page) for length in lengths)
    return 0, sum(lengths) * slot + pages * (page * slot + INT) + 2 * (len(lengths) + 1) * INT


COUNTS: dict[str, Callable[[Axes], tuple[float, float]]] = {
    "attention_backward": attention_backward,
    "causal_prefill": causal_prefill,
    "gqa_paged_decode": gqa_paged_decode,
    "gqa_paged_prefill": gqa_paged_prefill,
    "kv_cache_update": kv_cache_update,
    "mla_decode": mla_decode,
    "ragged_prefill": ragged_prefill,
    "sliding_window_attention": sliding_window_attention,
}
SMALL: dict[str, list[dict[str, int]]] = {
    "attention_backward": [{"batch": 2, "tokens": 3}],
    "causal_prefill": [{"batch": 2, "tokens": 5}],
    "gqa_paged_decode": [
        {"batch_size": 2, "page_size": 16, "kv_step": 9},
        {"batch_size": 3, "page_size": 1, "kv_step": 1},
    ],
    "gqa_paged_prefill": [
        {"batch_size": 3, "page_size": 16, "query_step": 1, "prefix_step": 7},
        {"batch_size": 2, "page_size": 1, "query_step": 3, "prefix_step": 2},
    ],
    "kv_cache_update": [{"batch_size": 3, "step": 7}],
    "mla_decode": [{"batch_size": 2, "page_size": 64, "kv_step": 3}],
    "ragged_prefill": [{"batch_size": 3, "step": 2}],
    "sliding_window_attention": [{"batch": 2, "tokens": 7, "window": 4}],
}
