"""The work of routing, experts, recurrences, convolutions and sampling, by hand, and sizes to emulate."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Axes = Mapping[str, int]
FLOAT32, BFLOAT16, INT32, INT64 = 4, 2, 4, 8


def moe_topk_routing(axes: Axes) -> tuple[float | None, float]:
    """128 logits of a token come in, 8 weights and 8 numbers go out."""
    return 0, axes["tokens"] * (128 * BFLOAT16 + 8 * FLOAT32 + 8 * INT32)


def moe_permute(axes: Axes) -> tuple[float | None, float]:
    """A hidden state of 2048 is read once and written 8 times; each copy has an expert and a place."""
    state = 2048 * BFLOAT16
    per_token = state + 8 * state + 8 * INT32 + 8 * INT32
    return 0, axes["tokens"] * per_token + 128 * INT32


def grouped_gemm(axes: Axes) -> tuple[float | None, float]:
    """Each row has a product of its length with every output; only weights of experts with rows are read."""
    long, short = axes["in_features"], axes["out_features"]
    flops = axes["rows"] * short * (long + long)
    rows = axes["rows"] * (long * BFLOAT16 + short * BFLOAT16)
    weights = sum(long * short * BFLOAT16 for _ in range(axes["active"]))
    return flops, rows + weights + axes["experts"] * INT32


def causal_conv1d(axes: Axes) -> tuple[float | None, float]:
    """2048 channels with three values in and one out; position t has at most t + 1 taps."""
    taps = sum(min(t + 1, 3) for t in range(axes["seq"]))
    moved = axes["seq"] * 2048 * (3 + 1) * BFLOAT16
    return axes["batch"] * 2048 * taps * 2, axes["batch"] * moved + 2048 * 3 * BFLOAT16


def mamba2_scan(axes: Axes) -> tuple[float | None, float]:
    """A head has 64 values of 128 states, which each value enters; they are read, or the values before."""
    entered = axes["seq"] * 128 * 2
    read = sum(min(t + 1, 128) * 2 for t in range(axes["seq"]))
    flops = axes["batch"] * axes["heads"] * 64 * (entered + read)
    of_head = axes["seq"] * (64 + 64 + 1) * BFLOAT16 + 64 * 128 * FLOAT32
    of_sequence = axes["heads"] * of_head + axes["seq"] * (128 + 128) * BFLOAT16
    return flops, axes["batch"] * of_sequence + axes["heads"] * 3 * FLOAT32


def gated_delta_rule(axes: Axes) -> tuple[float | None, float]:
    """A head has 128 x 128 states. A position recalls before it changes them and reads afterwards."""
    heads = axes["key_heads"] + axes["key_heads"]
    per_value = 0
    for t in range(axes["seq"]):
        recalled, changed, read = min(t, 128), 128, min(t + 1, 128)
        per_value += 2 * (recalled + changed + read)
    of_position = axes["key_heads"] * (128 + 128) * BFLOAT16
    of_position += heads * (128 * BFLOAT16 + 128 * BFLOAT16 + FLOAT32 + BFLOAT16)
    of_sequence = axes["seq"] * of_position + heads * 128 * 128 * FLOAT32
    return axes["batch"] * heads * 128 * per_value, axes["batch"] * of_sequence


def conv2d_residual(axes: Axes) -> tuple[float | None, float]:
    """Two 1x1 convolutions, a 3x3 one with fewer taps at the border; images in and out, weights, biases."""
    narrow, wide, side = axes["narrow"], 4 * axes["narrow"], axes["side"]
    taps = sum(1 for at in range(side) for step in (-1, 0, 1) if 0 <= at + step < side) ** 2
    flops = (
        axes["batch"]
        * 2
        * (side * side * wide * narrow + taps * narrow * narrow + side * side * narrow * wide)
    )
    weights = narrow * wide + narrow + 9 * narrow * narrow + narrow + wide * narrow + wide
    return flops, BFLOAT16 * (2 * axes["batch"] * side * side * wide + weights)


def top_p_sampling(axes: Axes) -> tuple[float | None, float]:
    """Every logit is read, with two numbers for each sequence; a token and its probability come out."""
    return 0, axes["batch"] * (axes["vocabulary"] * FLOAT32 + FLOAT32 + FLOAT32 + INT64 + FLOAT32)


COUNTS: dict[str, Callable[[Axes], tuple[float | None, float]]] = {
    "moe_topk_routing": moe_topk_routing,
    "moe_permute": moe_permute,
    "grouped_gemm": grouped_gemm,
    "causal_conv1d": causal_conv1d,
    "mamba2_scan": mamba2_scan,
    "gated_delta_rule": gated_delta_rule,
    "conv2d_residual": conv2d_residual,
    "top_p_sampling": top_p_sampling,
}
SMALL: dict[str, list[dict[str, int]]] = {
    "moe_topk_routing": [{"tokens": 7}],
    "moe_permute": [{"tokens": 5}, {"tokens": 37}],
    "grouped_gemm": [
        {"experts": 5, "active": 3, "rows": 75, "out_features": 70, "in_features": 40},
        {"experts": 3, "active": 2, "rows": 3, "out_features": 33, "in_features": 17},
    ],
    "causal_conv1d": [{"batch": 2, "seq": 5}, {"batch": 1, "seq": 2}],
    "mamba2_scan": [{"batch": 2, "seq": 19, "heads": 3}],
    "gated_delta_rule": [{"batch": 2, "seq": 18, "key_heads": 1}],
    "conv2d_residual": [{"batch": 2, "side": 5, "narrow": 12}],
    "top_p_sampling": [{"batch": 3, "vocabulary": 1500}],
}
