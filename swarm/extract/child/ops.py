"""What the cutting rule knows about operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from swarm.definition import DType

MATMUL = {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "mv", "_grouped_mm", "_scaled_mm"}
CONVOLUTION = {"conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d"}
ATTENTION = {"scaled_dot_product_attention"}
ANCHORS = {
    **dict.fromkeys(MATMUL, "matmul"),
    **dict.fromkeys(CONVOLUTION, "convolution"),
    **dict.fromkeys(ATTENTION, "attention"),
}
SAME = {"clone", "alias", "detach", "contiguous", "lift_fresh_copy", "lift_fresh"}
"""Their result is their input."""
VIEWS = {
    "view", "reshape", "_unsafe_view", "transpose", "permute", "t", "unsqueeze", "squeeze", "expand",
    "expand_as", "flatten", "unflatten", "movedim", "view_as",
}  # fmt: skip
SELECTING = {
    "slice", "select", "narrow", "chunk", "split", "split_with_sizes", "unbind",
    "gather", "index", "index_select", "embedding", "take_along_dim",
}  # fmt: skip
"""Read a part of their first tensor; of `embedding` the table is the first."""
ORDERING = {"topk", "sort", "argsort", "argmax", "argmin", "multinomial"}
"""Where close values change places a right answer may differ."""
IRREGULAR = {
    "gather",
    "index",
    "index_select",
    "embedding",
    "index_put",
    "scatter",
    "scatter_add",
    "index_add",
}
UNIQUE = {"scatter", "index_put", "index_copy"}
"""With an index twice, which value stays is open."""
NORM_STATISTICS = {"_native_batch_norm_legit_functional", "_native_batch_norm_legit"}
BATCH_NORM = "_native_batch_norm_legit_no_training"


def name(node: fx.Node) -> str:
    """Return an operator's name without namespace and overload; `getitem` for a part of a tuple."""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name.partition("::")[2]
    return getattr(node.target, "__name__", str(node.target))


def value(node: fx.Node) -> Any:
    """Return the fake tensor, or tuple of some, that stands for a node's result."""
    return node.meta.get("val")


def tensors(node: fx.Node) -> list[torch.Tensor]:
    found = value(node)
    return [v for v in (found if isinstance(found, tuple | list) else [found]) if isinstance(v, torch.Tensor)]


def is_same(node: fx.Node) -> bool:
    """Say whether a node's result is its first input, as that lies in memory or not."""
    if name(node) in SAME:
        return True
    if name(node) in ("to", "_to_copy", "type_as") and isinstance(node.args[0], fx.Node):
        before, after = value(node.args[0]), value(node)
        return isinstance(before, torch.Tensor) and before.dtype == after.dtype
    return False


def is_view(node: fx.Node) -> bool:
    """Say whether a node only looks at all of its input in another shape."""
    return name(node) in VIEWS


def is_elementwise(node: fx.Node) -> bool:
    found = node.target
    if isinstance(found, torch._ops.OpOverload) and torch.Tag.pointwise in found.tags:
        return True
    return name(node) in {"to", "_to_copy", "type_as", BATCH_NORM}


def fault(node: fx.Node, mutated: dict[str, str]) -> str:
    """Say why a node cannot be part of a problem; empty if it can."""
    target = node.target
    if name(node) == "getitem":
        return ""
    if not isinstance(target, torch._ops.OpOverload):
        return f"control flow or another operator of higher order ({name(node)})"
    if target.namespace != "aten":
        return f"an operator of its own ({target.namespace}::{name(node)})"
    if torch.Tag.nondeterministic_seeded in target.tags and dropout(node) != 0:
        return f"random numbers ({name(node)}); call .eval() in build if they come from dropout"
    if name(node) in NORM_STATISTICS:
        return "batch normalisation in training mode, which changes its statistics"
    if node.name in mutated:
        return f"an update in place of {mutated[node.name] or 'an input'}"
    found = tensors(node)
    if not found:
        return f"a value that Python reads ({name(node)})"
    for tensor in found:
        if any(not isinstance(size, int) for size in tensor.shape):
            return f"a shape that depends on values ({name(node)})"
        if dtype_name(tensor.dtype) is None:
            return f"elements of type {str(tensor.dtype).removeprefix('torch.')} ({name(node)})"
    return ""


def dropout(node: fx.Node) -> float | None:
    """Return the probability with which attention drops weights; None of other operators."""
    if name(node) not in ATTENTION:
        return None
    given = argument(node, "dropout_p", 0.0)
    assert isinstance(given, int | float)
    return float(given)


def argument(node: fx.Node, wanted: str, default: Any) -> Any:
    """Return an argument of an operator by its name."""
    assert isinstance(node.target, torch._ops.OpOverload)
    for i, argument in enumerate(node.target._schema.arguments):
        if argument.name == wanted:
            return node.args[i] if i < len(node.args) else node.kwargs.get(wanted, default)
    return default


def dtype_name(dtype: torch.dtype) -> str | None:
    """Return a definition's name for a dtype; None if it has none."""
    found = str(dtype).removeprefix("torch.")
    return found if found in tuple(DType) else None
