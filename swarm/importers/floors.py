"""What work a stranger's problem cannot do without, as far as its text shows: no honest time beats T_SOL.

torch's counter sees a mask's zeros, a triangle's other half and pages that nobody reads as work. So FLOPs are
counted, and inputs taken to be read, only where nothing in the reference hints at any of that; elsewhere the
floor is that every output is written once. A [sol] that somebody writes into problem.toml is sharper.
"""

from __future__ import annotations

import ast
import re

from swarm.definition import Definition, DType
from swarm.schema import read_python

HINTS = re.compile(
    r"mask|causal|tril|triu|diag|top_?[kp]|sort|gather|scatter|index|indices|select|where|nonzero|unique|cum|"
    r"embedding|one_hot|bincount|bucketize|searchsorted|take|lookup|rout|page|indptr|scan|recurr|dropout",
    re.IGNORECASE,
)
"""Masked, triangular, routed, paged, gathered or recurrent, by the names that a reference uses."""


def is_irregular(definition: Definition) -> bool:
    """Say whether contents, not shapes alone, may decide the work."""
    tensors = [spec for spec in definition.inputs.values() if not spec.is_scalar]
    if any(not spec.dtype.is_float and spec.dtype is not DType.INT8 for spec in tensors):
        return True
    tree = read_python(definition.reference)
    if any(isinstance(node, ast.While) for node in ast.walk(tree)):
        return True
    return any(HINTS.search(name) for name in (*definition.inputs, *_names(tree)))


def outputs_alone(definition: Definition) -> str:
    """Return the bytes of the outputs as an expression over the axes."""
    terms = []
    for spec in definition.outputs.values():
        size = f"{spec.dtype.bits // 8}" if spec.dtype.bits >= 8 else f"{spec.dtype.bits / 8}"
        terms.append(" * ".join([*(spec.shape or ()), size]))
    return " + ".join(terms)


def _names(tree: ast.Module) -> list[str]:
    """Return the names that code uses: no comments, no strings, no parameters' names."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.append(node.id)
        elif isinstance(node, ast.Attribute):
            found.append(node.attr)
        elif isinstance(node, ast.keyword) and node.arg:
            found.append(node.arg)
    return found
