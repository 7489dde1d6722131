"""Count the FLOPs of a reference without computing anything: torch's counter over shapes alone.

Runs inside the reference's process, as it executes problem code. The counter knows matrix products,
convolutions and attention; element-wise work counts nothing, and it ignores masks, so irregular problems
give their own expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.utils.flop_counter import FlopCounterMode

Spec = tuple[Sequence[int] | None, str, Any]
"""(shape, torch dtype, None), or (None, dtype, the scalar's value)."""

VECTORS = {
    torch.ops.aten.dot: lambda a, b, **_: 2 * math.prod(a),
    torch.ops.aten.mv: lambda a, b, **_: 2 * math.prod(a),
    torch.ops.aten.addmv: lambda to, a, b, **_: 2 * math.prod(a),
}
"""Products with a vector, by the shapes of what goes in; torch's counter knows those of matrices alone."""


def count_flops(function: Callable[..., Any], inputs: Sequence[Spec]) -> dict[str, int]:
    """Return the FLOPs of one call by torch's name of what does them, as far as it goes without values."""
    counter = FlopCounterMode(display=False, custom_mapping=VECTORS)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), counter:
        made = [
            value if shape is None else torch.empty(tuple(shape), dtype=getattr(torch, dtype))
            for shape, dtype, value in inputs
        ]
        with suppress(DataDependentOutputException, DynamicOutputShapeException):
            function(*made)
    return {str(kind): int(flops) for kind, flops in counter.get_flop_counts().get("Global", {}).items()}
