"""Does an output match what was expected? SOL-ExecBench's rules, with evidence a person can act on.

Compares values only; guard bands, poison and inputs are looked at by `sitting`, which owns the memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from swarm.definition import DType
from swarm.judge import elements
from swarm.problem import Limits

CHUNK = 1 << 15
"""Elements compared at a time, so that all temporaries stay in the second-level cache."""


@dataclass(frozen=True, slots=True)
class Match:
    """How close one output came."""

    reason: str
    """Empty if it matched."""
    max_abs_error: float
    max_rel_error: float
    """Relative to max(|expected|, atol)."""
    matched_ratio: float

    @property
    def passed(self) -> bool:
        return not self.reason


@dataclass(slots=True)
class _Tally:
    bad: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    worst: int = -1
    got_any: bool = False
    expected_any: bool = False


def compare(
    name: str,
    got: torch.Tensor,
    expected: torch.Tensor,
    dtype: DType,
    dims: tuple[int, ...],
    limits: Limits,
    poison: int | None = None,
) -> Match:
    """Compare a flat output with the expected values (in the comparable dtype).

    Non-finite values fail even where both agree, except that -inf matches -inf if the limits allow it.
    """
    count = got.numel()
    if count == 0:
        return Match("", 0.0, 0.0, 1.0)
    tally = _Tally()
    logical = 2 if dtype.is_packed else 1
    for begin in range(0, count, CHUNK):
        x = elements.comparable(got[begin : begin + CHUNK], dtype)
        y = expected[begin * logical : begin * logical + x.numel()]
        strange = _non_finite(name, x, y, dims, begin, limits)
        if isinstance(strange, Match):
            return _unwritten(name, got, dims, poison) or strange
        _add(tally, x, y, strange, begin, limits)
    return _judge(name, tally, got, expected, dtype, dims, limits)


def invalid_reference(name: str, expected: torch.Tensor, limits: Limits) -> str:
    """Say why the expected output itself is no answer; empty if it is one."""
    if not expected.is_floating_point() or expected.numel() == 0:
        return ""
    low = float(expected.min())  # NaN propagates, so two reductions see every kind
    high = float(expected.max())
    if math.isfinite(high) and (math.isfinite(low) or (limits.allow_negative_inf and low == -math.inf)):
        return ""
    if limits.allow_negative_inf and high == low == -math.inf:
        return ""
    return f"the reference returned {high if not math.isfinite(high) else low} in output {name}"


def _non_finite(
    name: str, x: torch.Tensor, y: torch.Tensor, dims: tuple[int, ...], begin: int, limits: Limits
) -> torch.Tensor | Match | None:
    """Return where both are -inf and that is allowed, None if all is finite, or the failure."""
    if not x.is_floating_point():
        return None
    # A sum is finite only if all its terms are; that is one pass instead of two over most chunks.
    if math.isfinite(float(x.sum())) and math.isfinite(float(y.sum())):
        return None
    agreed = (
        (x == -math.inf) & (y == -math.inf)
        if limits.allow_negative_inf
        else torch.zeros_like(x, dtype=torch.bool)
    )
    wrong = (~torch.isfinite(x) | ~torch.isfinite(y)) & ~agreed
    if not bool(wrong.any()):
        return agreed
    nan = wrong & torch.isnan(x)
    index = int(torch.nonzero(nan if bool(nan.any()) else wrong)[0])
    got, wanted, where = _number(x[index]), _number(y[index]), _at(begin + index, dims)
    reason = f"output {name}: {got} at {where} where {wanted} is expected"
    return Match(reason, math.inf, math.inf, 0.0)


def _unwritten(name: str, got: torch.Tensor, dims: tuple[int, ...], poison: int | None) -> Match | None:
    """Say so if the non-finite values are what the judge had put there."""
    if poison is None:
        return None
    hit = torch.eq(elements.as_bits(got), poison)
    count = int(torch.count_nonzero(hit))
    if not count:
        return None
    first = _at(int(hit.to(torch.uint8).argmax()), dims)
    reason = f"output {name}: {count} of {got.numel()} elements were never written, the first at {first}"
    return Match(reason, math.inf, math.inf, 1 - count / got.numel())


def _add(
    tally: _Tally, x: torch.Tensor, y: torch.Tensor, agreed: torch.Tensor | None, begin: int, limits: Limits
) -> None:
    """Count one chunk. Only plain maxima in the usual case: counting and arg-max cost ten times as much."""
    if agreed is not None:
        x, y = x.masked_fill(agreed, 0.0), y.masked_fill(agreed, 0.0)
    precision = torch.float64 if y.dtype != torch.float32 else torch.float32
    size = y.abs().to(precision)
    error = (x - y).abs_().to(precision)
    if float((error - size * limits.rtol).amax()) > limits.atol:
        tally.bad += int(torch.count_nonzero(error > size * limits.rtol + limits.atol))
    top = float(error.amax())
    if top > tally.max_abs or tally.worst < 0:
        tally.max_abs, tally.worst = top, begin + int(error.argmax())
    if not tally.got_any:
        tally.got_any = bool(x.any())
    if not tally.expected_any:
        tally.expected_any = bool(y.any())
    if top > tally.max_rel * limits.atol:  # else even the smallest divisor gives nothing larger
        tally.max_rel = max(tally.max_rel, float(error.div_(size.clamp_(min=limits.atol or 1e-30)).amax()))


def _judge(
    name: str,
    tally: _Tally,
    got: torch.Tensor,
    expected: torch.Tensor,
    dtype: DType,
    dims: tuple[int, ...],
    limits: Limits,
) -> Match:
    count = expected.numel()
    ratio = 1 - tally.bad / count
    reason = ""
    if tally.expected_any and not tally.got_any:
        reason = f"output {name}: all {count} elements are zero"
    elif ratio < limits.required_matched_ratio or (
        limits.max_error_cap is not None and tally.max_abs > limits.max_error_cap
    ):
        worst = tally.worst
        value = elements.comparable(got, dtype)[worst] if dtype.is_packed else got[worst]
        reason = (
            f"output {name}: {100 * ratio:.4g} % of {count} elements match "
            f"(atol {limits.atol:g}, rtol {limits.rtol:g}; {100 * limits.required_matched_ratio:g} % must); "
            f"the worst is at {_at(worst, dims)}: "
            f"expected {_number(expected[worst])}, got {_number(value)}"
        )
    return Match(reason, tally.max_abs, tally.max_rel, ratio)


def _at(index: int, dims: tuple[int, ...]) -> str:
    """Write a flat index as a position in the tensor."""
    place = []
    for dim in reversed(dims):
        index, rest = divmod(index, dim)
        place.append(rest)
    return f"[{', '.join(map(str, reversed(place)))}]"


def _number(value: torch.Tensor) -> str:
    return f"{value.item():.6g}"
