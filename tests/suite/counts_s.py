"""The work of the seven problems that swarms begin with, by hand, and sizes that a CPU emulates quickly."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Axes = Mapping[str, int]
FLOAT32, BFLOAT16, INT8, BOOL, INT64 = 4, 2, 1, 1, 8


def cross_entropy(axes: Axes) -> tuple[float | None, float]:
    """Each token has a logit for every entry of the vocabulary, one target, one loss."""
    per_token = 128256 * FLOAT32 + INT64 + FLOAT32
    return 0, axes["tokens"] * per_token


def int8_matvec(axes: Axes) -> tuple[float | None, float]:
    """Each row of the weights is read with its scale, makes one product per element and one result."""
    rows, columns = axes["out_features"], axes["in_features"]
    per_row = columns * INT8 + BFLOAT16 + BFLOAT16
    return rows * (columns + columns), rows * per_row + columns * BFLOAT16


def layernorm(axes: Axes) -> tuple[float | None, float]:
    """Rows of 1024 in and out; weight and bias are one row each."""
    row = 1024 * FLOAT32
    return 0, axes["tokens"] * (row + row) + row + row


def masked_softmax(axes: Axes) -> tuple[float | None, float]:
    """A score and a weight for each of 12 heads; the heads share the mask; the scale is passed by value."""
    pairs = axes["batch"] * axes["query_len"] * axes["key_len"]
    return 0, pairs * BOOL + sum(pairs * (FLOAT32 + FLOAT32) for _ in range(12))


def rmsnorm_residual(axes: Axes) -> tuple[float | None, float]:
    """Two rows of 4096 in, two out, for each token; one row of weights."""
    row = 4096 * BFLOAT16
    return 0, axes["tokens"] * 4 * row + row


def rope(axes: Axes) -> tuple[float | None, float]:
    """Heads of 128 are read and written; a token's heads share one sine and one cosine for each pair."""
    heads = 32 + 8
    per_token = heads * 128 * BFLOAT16 * 2 + 64 * FLOAT32 * 2
    return 0, axes["tokens"] * per_token


def swiglu(axes: Axes) -> tuple[float | None, float]:
    """Gate and up, 14336 each, come in; 14336 go out."""
    return 0, axes["tokens"] * (14336 + 14336 + 14336) * BFLOAT16


COUNTS: dict[str, Callable[[Axes], tuple[float | None, float]]] = {
    "cross_entropy": cross_entropy,
    "int8_matvec": int8_matvec,
    "layernorm": layernorm,
    "masked_softmax": masked_softmax,
    "rmsnorm_residual": rmsnorm_residual,
    "rope": rope,
    "swiglu": swiglu,
}
SMALL: dict[str, list[dict[str, int]]] = {
    "cross_entropy": [{"tokens": 2}],
    "int8_matvec": [{"out_features": 37, "in_features": 4096}],
    "layernorm": [{"tokens": 5}],
    "masked_softmax": [
        {"batch": 2, "query_len": 2, "key_len": 50},
        {"batch": 1, "query_len": 1, "key_len": 600},
    ],
    "rmsnorm_residual": [{"tokens": 3}],
    "rope": [{"tokens": 3}],
    "swiglu": [{"tokens": 2}],
}
