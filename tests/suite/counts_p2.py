"""Matrix products, plain and quantised, quantisers, NVFP4 experts: hand counts, and sizes to emulate."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Axes = Mapping[str, int]
Count = tuple[float | None, float]


def _product(axes: Axes) -> float:
    """Each element of the result takes a multiplication and an addition for each input feature."""
    outputs = axes["tokens"] * axes["out_features"]
    return 2.0 * outputs * axes["in_features"]


def half_precision_linear(axes: Axes) -> Count:
    """Of x, weight and y, two bytes an element."""
    tokens, ins, outs = axes["tokens"], axes["in_features"], axes["out_features"]
    return _product(axes), 2.0 * tokens * ins + 2.0 * outs * ins + 2.0 * tokens * outs


def gemm_bias_gelu(axes: Axes) -> Count:
    flops, moved = half_precision_linear(axes)
    return flops, moved + 2 * axes["out_features"]


def gemm_residual(axes: Axes) -> Count:
    flops, moved = half_precision_linear(axes)
    return flops, moved + 2 * axes["tokens"] * axes["out_features"]


def _byte_linear(axes: Axes) -> float:
    """A byte for each element of x and weight, two for y."""
    tokens, ins, outs = axes["tokens"], axes["in_features"], axes["out_features"]
    return 1.0 * tokens * ins + 1.0 * outs * ins + 2.0 * tokens * outs


def int8_linear(axes: Axes) -> Count:
    return _product(axes), _byte_linear(axes) + 4 * (axes["tokens"] + axes["out_features"])


def fp8_linear(axes: Axes) -> Count:
    return _product(axes), _byte_linear(axes) + 2 * 4


def fp8_block_linear(axes: Axes) -> Count:
    across = len(range(0, axes["in_features"], 128))
    down = len(range(0, axes["out_features"], 128))
    return _product(axes), _byte_linear(axes) + 4 * axes["tokens"] * across + 4 * down * across


def int4_linear(axes: Axes) -> Count:
    tokens, ins, outs = axes["tokens"], axes["in_features"], axes["out_features"]
    groups = ins / 128
    weight = outs * (ins / 2 + groups / 2 + 2 * groups)  # half a byte each, and zero points; bfloat16 scales
    return _product(axes), 2.0 * tokens * ins + weight + 2.0 * tokens * outs


def fp8_quantise(axes: Axes) -> Count:
    per_token = 2 * axes["hidden"] + 1 * axes["hidden"] + 4
    return None, float(axes["tokens"] * per_token)


def nvfp4_quantise(axes: Axes) -> Count:
    per_block = 16 * 2 + 16 / 2 + 1
    return None, axes["tokens"] * axes["hidden"] / 16 * per_block + 4


def nvfp4_moe(axes: Axes) -> Count:
    """All routes are computed; of the weights, only those of experts that have a token are read."""
    hidden, intermediate = axes["hidden"], axes["intermediate"]
    routes = axes["tokens"] * axes["top_k"]
    flops = 0.0
    for rows, columns in ((intermediate, hidden), (intermediate, hidden), (hidden, intermediate)):
        flops += 2.0 * routes * rows * columns  # gate, up and down
    elements = 3 * hidden * intermediate
    per_expert = (
        elements / 2 + elements / 16 + 3 * 4
    )  # global scales of gate and up, down, and what is between
    states = 2 * axes["tokens"] * hidden + 2 * axes["tokens"] * hidden
    return flops, axes["active_experts"] * per_expert + states + routes * (4 + 4) + 4


COUNTS: dict[str, Callable[[Axes], Count]] = {
    "bf16_matmul": half_precision_linear,
    "decode_gemv": half_precision_linear,
    "gemm_bias_gelu": gemm_bias_gelu,
    "gemm_residual": gemm_residual,
    "int8_linear": int8_linear,
    "fp8_linear": fp8_linear,
    "fp8_block_linear": fp8_block_linear,
    "int4_linear": int4_linear,
    "fp8_quantise": fp8_quantise,
    "nvfp4_quantise": nvfp4_quantise,
    "nvfp4_moe": nvfp4_moe,
}


def _linear(tokens: int, in_features: int, out_features: int) -> dict[str, int]:
    return {"tokens": tokens, "in_features": in_features, "out_features": out_features}


def _routed(tokens: int, top_k: int, active: int, experts: int) -> dict[str, int]:
    sizes = {"tokens": tokens, "hidden": 48, "intermediate": 80, "experts": experts}
    return {**sizes, "top_k": top_k, "active_experts": active}


SMALL: dict[str, list[dict[str, int]]] = {
    "bf16_matmul": [_linear(1, 70, 65), _linear(67, 45, 130)],
    "decode_gemv": [_linear(3, 70, 13), _linear(9, 33, 9)],
    "gemm_bias_gelu": [_linear(5, 70, 130), _linear(67, 33, 65)],
    "gemm_residual": [_linear(5, 70, 130), _linear(67, 33, 65)],
    "int8_linear": [_linear(5, 70, 130), _linear(67, 33, 65)],
    "fp8_linear": [_linear(5, 70, 130), _linear(67, 33, 65)],
    "fp8_block_linear": [_linear(3, 300, 150), _linear(67, 100, 65)],
    "int4_linear": [_linear(3, 256, 136), _linear(67, 128, 8)],
    "fp8_quantise": [{"tokens": 3, "hidden": 500}, {"tokens": 2, "hidden": 33}],
    "nvfp4_quantise": [{"tokens": 5, "hidden": 208}, {"tokens": 9, "hidden": 16}],
    "nvfp4_moe": [_routed(1, 3, 3, 5), _routed(4, 2, 5, 6)],
}
