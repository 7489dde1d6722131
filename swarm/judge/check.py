"""Does an output match what was expected? SOL-ExecBench's rules, with evidence a person can act on.

Compares values only; guard bands, poison and inputs are looked at by `sitting`, which owns the memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
class Stats:
    """What comparing one output element by element found; places are flat indices, -1 where there is none."""

    count: int
    """Logical elements."""
    bad: int = 0
    """Elements out of tolerance."""
    max_abs: float = 0.0
    max_rel: float = 0.0
    worst: int = -1
    """Where the largest error is."""
    got_any: bool = False
    """Whether anything but zero is there."""
    expected_any: bool = False
    strange: int = -1
    """Where the first NaN is, or else the first other value that is not finite and should not be there."""
    poisoned: int = 0
    """Elements that still hold what the judge had put there; looked for where something is strange."""
    first_poisoned: int = -1


Values = Callable[[int], tuple[int | float, int | float]]
"""Returns what was got and what was expected at a flat index."""


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
    logical = 2 if dtype.is_packed else 1
    stats = Stats(got.numel() * logical)

    def values(index: int) -> tuple[int | float, int | float]:
        element, part = divmod(index, logical)
        return (
            elements.comparable(got[element : element + 1], dtype)[part].item(),
            expected[index].item(),
        )

    for begin in range(0, got.numel(), CHUNK):
        x = elements.comparable(got[begin : begin + CHUNK], dtype)
        first = begin * logical
        y = expected[first : first + x.numel()]
        agreed = _non_finite(stats, x, y, first, limits)
        if stats.strange >= 0:
            _count_poison(stats, got, poison)
            break
        _add(stats, x, y, agreed, first, limits)
    return judge(name, stats, dims, limits, values)


def judge(name: str, stats: Stats, dims: tuple[int, ...], limits: Limits, values: Values) -> Match:
    """Apply the rules to what was found, wherever it was counted."""
    count = stats.count
    if count == 0:
        return Match("", 0.0, 0.0, 1.0)
    if stats.strange >= 0:
        return _strange(name, stats, dims, values)
    ratio = 1 - stats.bad / count
    reason = ""
    if stats.expected_any and not stats.got_any:
        reason = f"output {name}: all {count} elements are zero"
    elif ratio < limits.required_matched_ratio or (
        limits.max_error_cap is not None and stats.max_abs > limits.max_error_cap
    ):
        got, wanted = values(stats.worst)
        reason = (
            f"output {name}: {_percent(ratio)} % of {count} elements match "
            f"(atol {limits.atol:g}, rtol {limits.rtol:g}; {100 * limits.required_matched_ratio:g} % must); "
            f"the worst is at {_at(stats.worst, dims)}: expected {wanted:.6g}, got {got:.6g}"
        )
    return Match(reason, stats.max_abs, stats.max_rel, ratio)


def _percent(ratio: float) -> str:
    """Write a share so that what is not all of it does not read as 100."""
    texts = (f"{100 * ratio:.{digits}g}" for digits in range(4, 17))
    return next((text for text in texts if text != "100"), "100")


def _strange(name: str, stats: Stats, dims: tuple[int, ...], values: Values) -> Match:
    """Fail for what is not finite, or for the poison if that is what it is."""
    if stats.poisoned:
        first = _at(stats.first_poisoned, dims)
        told = f"{stats.poisoned} of {stats.count} elements were never written, the first at {first}"
        return Match(f"output {name}: {told}", math.inf, math.inf, 1 - stats.poisoned / stats.count)
    got, wanted = values(stats.strange)
    told = f"{got:.6g} at {_at(stats.strange, dims)} where {wanted:.6g} is expected"
    return Match(f"output {name}: {told}", math.inf, math.inf, 0.0)


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
    return no_answer(name, high if not math.isfinite(high) else low)


def no_answer(name: str, value: float) -> str:
    """Say that what a reference returned is not finite."""
    return f"the reference returned {value} in output {name}"


def _non_finite(
    stats: Stats, x: torch.Tensor, y: torch.Tensor, first: int, limits: Limits
) -> torch.Tensor | None:
    """Return where both are -inf and that is allowed, None if all is finite; note what is strange."""
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
    if bool(wrong.any()):
        nan = wrong & torch.isnan(x)
        stats.strange = first + int(torch.nonzero(nan if bool(nan.any()) else wrong)[0])
    return agreed


def _count_poison(stats: Stats, got: torch.Tensor, poison: int | None) -> None:
    """See whether the non-finite values are what the judge had put there."""
    if poison is None:
        return
    hit = torch.eq(elements.as_bits(got), poison)
    stats.poisoned = int(torch.count_nonzero(hit))
    stats.first_poisoned = int(hit.to(torch.uint8).argmax()) if stats.poisoned else -1


def _add(
    stats: Stats, x: torch.Tensor, y: torch.Tensor, agreed: torch.Tensor | None, first: int, limits: Limits
) -> None:
    """Count one chunk. Only plain maxima in the usual case: counting and arg-max cost ten times as much."""
    if agreed is not None:
        x, y = x.masked_fill(agreed, 0.0), y.masked_fill(agreed, 0.0)
    precision = torch.float64 if y.dtype != torch.float32 else torch.float32
    size = y.abs().to(precision)
    error = (x - y).abs_().to(precision)
    if float((error - size * limits.rtol).amax()) > limits.atol:
        stats.bad += int(torch.count_nonzero(error > size * limits.rtol + limits.atol))
    top = float(error.amax())
    if top > stats.max_abs or stats.worst < 0:
        stats.max_abs, stats.worst = top, first + int(error.argmax())
    if not stats.got_any:
        stats.got_any = bool(x.any())
    if not stats.expected_any:
        stats.expected_any = bool(y.any())
    if top > stats.max_rel * limits.atol:  # else even the smallest divisor gives nothing larger
        stats.max_rel = max(stats.max_rel, float(error.div_(size.clamp_(min=limits.atol or 1e-30)).amax()))


def _at(index: int, dims: tuple[int, ...]) -> str:
    """Write a flat index as a position in the tensor."""
    place = []
    for dim in reversed(dims):
        index, rest = divmod(index, dim)
        place.append(rest)
    return f"[{', '.join(map(str, reversed(place)))}]"
