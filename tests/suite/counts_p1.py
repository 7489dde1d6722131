"""FLOPs and bytes of norms, embeddings, activations and backward passes, by hand; tiny sizes for each.

None of these multiplies matrices, so no FLOPs count: bytes bound them. A bfloat16 or float16 has 2 bytes, a
float32 has 4, an int64 has 8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

Axes = Mapping[str, int]
Count = tuple[float | None, float]


def groupnorm_silu(axes: Axes) -> Count:
    image = axes["channels"] * axes["height"] * axes["width"] * 2
    gain_and_offset = axes["channels"] * 2 * 2
    return 0, axes["batch"] * (image + image) + gain_and_offset


def qk_norm(axes: Axes) -> Count:
    heads_of_a_token = 32 + 8
    read_and_written = axes["tokens"] * heads_of_a_token * (128 * 2 + 128 * 2)
    return 0, read_and_written + 128 * 2 + 128 * 2


def rope_multi_axis(axes: Axes) -> Count:
    """Count for each token its heads, in and out, and a sine and a cosine for each of 64 pairs."""
    heads_of_a_token = (28 + 4) * (128 * 2 + 128 * 2)
    angles_of_a_token = (16 + 24 + 24) * (4 + 4)
    return 0, axes["tokens"] * (heads_of_a_token + angles_of_a_token)


def softcapped_softmax(axes: Axes) -> Count:
    """Count row by row: the scores that a query may see, and all weights."""
    queries, keys = axes["query_len"], axes["key_len"]
    total = 0
    for query in range(queries):
        position = keys - queries + query
        total += (position + 1) * 2 + keys * 2
    return 0, axes["batch"] * 16 * total


def geglu(axes: Axes) -> Count:
    return 0, axes["tokens"] * (14336 * 2 + 14336 * 2 + 14336 * 2)


def embedding_gather(axes: Axes) -> Count:
    """Count the rows that random ids have not hit before, less 2 % for chance; each token writes one."""
    rows, tokens, row = axes["vocabulary"], axes["tokens"], 4096 * 2
    distinct = 0.0
    for _ in range(tokens):
        distinct += (rows - distinct) / rows
    return 0, tokens * 8 + tokens * row + 0.98 * distinct * row


def rmsnorm_backward(axes: Axes) -> Count:
    gradient, states, result = (axes["tokens"] * 4096 * 2 for _ in range(3))
    gain, its_gradient = 4096 * 2, 4096 * 2
    return 0, gradient + states + result + gain + its_gradient


def layernorm_backward(axes: Axes) -> Count:
    gradient, states, result = (axes["tokens"] * 1024 * 4 for _ in range(3))
    gain, its_gradient, offset_gradient = (1024 * 4 for _ in range(3))
    return 0, gradient + states + result + gain + its_gradient + offset_gradient


def swiglu_backward(axes: Axes) -> Count:
    gradient = 14336 * 2
    gate_and_up = 2 * 14336 * 2
    return 0, axes["tokens"] * (gradient + gate_and_up + gate_and_up)


def rope_backward(axes: Axes) -> Count:
    """Count the angles once for all sequences, and each head in and out."""
    angles = axes["positions"] * 64 * (4 + 4)
    heads = axes["batch"] * axes["positions"] * (32 + 8) * (128 * 2 + 128 * 2)
    return 0, angles + heads


def cross_entropy_backward(axes: Axes) -> Count:
    of_a_token = 128256 * 2 + 128256 * 2 + 8 + 4
    return 0, axes["tokens"] * of_a_token


COUNTS: dict[str, Callable[[Axes], Count]] = {
    "groupnorm_silu": groupnorm_silu,
    "qk_norm": qk_norm,
    "rope_multi_axis": rope_multi_axis,
    "softcapped_softmax": softcapped_softmax,
    "geglu": geglu,
    "embedding_gather": embedding_gather,
    "rmsnorm_backward": rmsnorm_backward,
    "layernorm_backward": layernorm_backward,
    "swiglu_backward": swiglu_backward,
    "rope_backward": rope_backward,
    "cross_entropy_backward": cross_entropy_backward,
}

SMALL: dict[str, list[dict[str, int]]] = {
    "groupnorm_silu": [
        {"batch": 2, "channels": 64, "height": 3, "width": 5},
        {"batch": 1, "channels": 96, "height": 13, "width": 17},
    ],
    "qk_norm": [{"tokens": 3}],
    "rope_multi_axis": [{"tokens": 3}],
    "softcapped_softmax": [
        {"batch": 2, "query_len": 3, "key_len": 3},
        {"batch": 1, "query_len": 2, "key_len": 301},
    ],
    "geglu": [{"tokens": 2}],
    "embedding_gather": [{"vocabulary": 37, "tokens": 5}],
    "rmsnorm_backward": [{"tokens": 67}],
    "layernorm_backward": [{"tokens": 67}],
    "swiglu_backward": [{"tokens": 2}],
    "rope_backward": [{"batch": 2, "positions": 3}],
    "cross_entropy_backward": [{"tokens": 2}],
}
