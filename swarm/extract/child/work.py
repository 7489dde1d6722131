"""What a cut cannot be done without: floating-point operations, and bytes that move."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.utils.flop_counter import FlopCounterMode

from swarm.extract.child import ops
from swarm.extract.child.regions import Cut, is_float, original


def is_irregular(cut: Cut) -> bool:
    """Say whether values decide what is read, or a mask what is computed."""
    for node in cut.body:
        if ops.name(node) in ops.IRREGULAR | ops.ORDERING:
            return True
        if ops.name(node) in ops.ATTENTION and (
            ops.argument(node, "is_causal", False) or ops.argument(node, "attn_mask", None) is not None
        ):
            return True
    return False


def forward_flops(cut: Cut) -> int:
    """Return those of products, convolutions and attention; of a causal one, of the lower triangle alone."""
    return sum(_flops(node) for node in cut.body if ops.name(node) in ops.ANCHORS)


def backward_flops(cut: Cut) -> int:
    """Return those of the gradients alone: of each product one more for each operand that has a gradient."""
    depends = {node for node in cut.inputs if is_float(node)}
    total = 0
    for node in cut.body:
        given = [original(n) for n in node.all_input_nodes]
        if any(n in depends for n in given):
            depends.add(node)
        if ops.name(node) in ops.ANCHORS:
            operands = sum(n in depends and ops.value(n).dim() > 1 for n in given)
            total += _flops(node) * min(2, operands)
    return total


def forward_bytes(cut: Cut) -> int | None:
    """Return the bytes that must move where inputs are read in part; None if all are read."""
    sizes = {node: _nbytes(node) for node in cut.inputs}
    is_partial = False
    for given in cut.inputs:
        readers = [node for node in cut.body if given in map(original, node.all_input_nodes)]
        if readers and all(
            ops.name(n) in ops.SELECTING and original(n.all_input_nodes[0]) is given for n in readers
        ):
            taken = sum(_taken(node, cut) for node in readers)
            if taken < sizes[given]:
                sizes[given], is_partial = taken, True
    return sum(sizes.values()) + sum(map(_nbytes, cut.outputs)) if is_partial else None


def _taken(node: fx.Node, cut: Cut) -> int:
    parts = [user for user in node.users if user in cut.body and ops.name(user) == "getitem"]
    return sum(map(_nbytes, parts or [node]))


def _nbytes(node: fx.Node) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in ops.tensors(node))


def _flops(node: fx.Node) -> int:
    if ops.name(node) in ops.ATTENTION:
        return _attention_flops(node)
    given: Any = fx.node.map_arg((node.args, node.kwargs), ops.value)
    fake = ops.tensors(node)[0]
    with fake.fake_mode, torch.no_grad(), FlopCounterMode(display=False) as counter:  # type: ignore[attr-defined]
        node.target(*given[0], **given[1])  # type: ignore[operator]
    return int(counter.get_total_flops())


def _attention_flops(node: fx.Node) -> int:
    """Count two for each pair of positions, feature and product; none under a mask: it may hide anything."""
    query, key, value = (ops.value(n) for n in node.args[:3])  # type: ignore[arg-type]
    if ops.argument(node, "attn_mask", None) is not None:
        return 0
    rows, columns = query.shape[-2], key.shape[-2]
    pairs = rows * columns
    if ops.argument(node, "is_causal", False):
        pairs = sum(min(row + 1, columns) for row in range(rows))
    heads = query.shape[:-2].numel()
    return int(2 * heads * pairs * (query.shape[-1] + value.shape[-1]))
