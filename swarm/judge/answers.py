"""Answers that skip the work, made from the right one: what every tolerance must reject.

An answer is a function from flat positions in an output to its values there, so that a sample settles most
of them without ever making the whole. Whether one passes is for `check` to say; `lint` makes the calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch

from swarm.definition import DType
from swarm.judge import check, elements
from swarm.judge.slots import Shape
from swarm.problem import Limits

Answer = Callable[[torch.Tensor], torch.Tensor]
SAMPLE = 1 << 16
"""Elements of an output that are looked at first."""
DOUBT = 5.0
"""Standard deviations by which a sample must miss before the whole answer is taken to fail."""
PART = 1 << 22
"""Elements of a whole answer that are made at a time."""
COARSER = {
    DType.FLOAT64: torch.float32,
    DType.FLOAT32: torch.bfloat16,
    DType.FLOAT16: torch.float8_e4m3fn,
    DType.BFLOAT16: torch.float8_e4m3fn,
}


class Weakness(StrEnum):
    """An answer that should fail, or what makes every answer suspect."""

    ZEROS = "zeros"
    ONES = "ones"
    MEAN = "mean"
    """One number, the mean of the right answer."""
    MEDIAN = "median"
    """One number, the median of the right answer."""
    ROW_MEAN = "row mean"
    """The mean of the right answer along its last axis."""
    HALF_WRITTEN = "half written"
    """The first half of the right answer, zeros after it."""
    COPY = "copy"
    """An input as it is; a smaller one repeated, of a larger one the beginning of each row."""
    STALE = "stale"
    """The right answer to the call before."""
    HALF_READ = "half read"
    """The right answer to inputs of which one has the second half of each row replaced by its mean."""
    UNREAD = "unread"
    """The right answer to inputs of which one is replaced by its mean: a kernel need not read it."""
    LOWER_PRECISION = "lower precision"
    """Inputs and outputs rounded to the next coarser type."""
    NO_SPREAD = "no spread"
    """The right answer varies by so few tolerances that a rough guess comes close to it."""
    BAD_REFERENCE = "bad reference"
    """It raised, hung, or returned what is not finite."""
    OTHER_ANSWER = "other answer"
    """fast_reference.py's is not that of reference.py."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How a wrong answer that passed came out."""

    matched_ratio: float
    need: float
    """It passes down to this share of the tolerance."""


class Output:
    """One output of one call: the right values, and a sample of them."""

    def __init__(self, shape: Shape, right: torch.Tensor, limits: Limits, generator: torch.Generator) -> None:
        self.shape = shape
        self.right = right
        self._limits = limits
        count = right.numel()
        self._is_whole = count <= SAMPLE
        if self._is_whole:
            self._at = torch.arange(count)
        else:
            self._at = torch.randint(count, (SAMPLE,), generator=generator).sort().values
        self._sample = right[self._at]

    @property
    def row(self) -> int:
        """The length of the last axis."""
        return self.shape.dims[-1] if self.shape.dims else 1

    @property
    def spread(self) -> float:
        """Return the standard deviation in tolerances of a typical size."""
        values = self._sample.double()
        tolerance = self._limits.atol + self._limits.rtol * float(values.abs().mean())
        return float(values.std(correction=0)) / tolerance if tolerance else math.inf

    def fails(self, answer: Answer) -> bool:
        """Say whether the sample alone leaves no doubt that the answer fails."""
        ratio = self._limits.required_matched_ratio
        margin = 0.0 if self._is_whole else DOUBT * math.sqrt(ratio * (1 - ratio) / self._at.numel())
        return self._need(answer, ratio - margin) > 1

    def trial(self, answer: Answer) -> Trial | None:
        """Hold the whole answer against the right one as a judge does; None if it fails."""
        shape, count = self.shape, self.right.numel()
        parts = (torch.arange(begin, min(begin + PART, count)) for begin in range(0, count, PART))
        whole = torch.cat([answer(part) for part in parts])
        stored = elements.stored(whole, shape.dtype)
        match = check.compare(shape.name, stored, self.right, shape.dtype, shape.dims, self._limits)
        if not match.passed:
            return None
        return Trial(match.matched_ratio, self._need(answer, self._limits.required_matched_ratio))

    def _need(self, answer: Answer, ratio: float) -> float:
        got = elements.comparable(elements.stored(answer(self._at), self.shape.dtype), self.shape.dtype)
        return need(got, self._sample, ratio, self._limits)


def need(got: torch.Tensor, right: torch.Tensor, ratio: float, limits: Limits) -> float:
    """Return the smallest multiple of the tolerance at which `ratio` of the elements match."""
    tolerance = limits.atol + limits.rtol * right.abs()
    errors = torch.where(got == right, 0.0, (got - right).abs() / tolerance)
    errors.masked_fill_(errors.isnan(), math.inf)
    return float(errors.kthvalue(max(1, math.ceil(ratio * errors.numel()))).values)


def answers(
    output: Output, before: torch.Tensor | None, given: Sequence[tuple[Shape, torch.Tensor]]
) -> Iterator[tuple[Weakness, str, Answer]]:
    """Yield the answers for one output that need no reference, each with what it is about."""
    right, name, count = output.right, output.shape.name, output.right.numel()
    numbers: dict[Weakness, Callable[[], float]] = {
        Weakness.ZEROS: lambda: 0.0,
        Weakness.ONES: lambda: 1.0,
    }
    if count > 1:
        numbers |= {Weakness.MEAN: lambda: mean(right), Weakness.MEDIAN: lambda: float(right.median())}
        half = count // 2
        yield Weakness.HALF_WRITTEN, name, lambda at: right[at] * (at < half)
    for weakness, number in numbers.items():
        yield weakness, name, _constant(number)
    if len(output.shape.dims) > 1 and output.row > 1:
        yield Weakness.ROW_MEAN, name, _row_mean(right, output.row)
    if before is not None:
        stale = before
        yield Weakness.STALE, name, lambda at: stale[at]
    for shape, values in given:
        if values.numel() and not shape.dtype.is_packed:
            yield Weakness.COPY, f"{name} from {shape.name}", _copy(shape, values, output.shape)


def _constant(number: Callable[[], float]) -> Answer:
    return lambda at: torch.full(at.shape, number(), dtype=torch.float64)


def _row_mean(right: torch.Tensor, row: int) -> Answer:
    return lambda at: right.view(-1, row).mean(-1, dtype=torch.float64)[at // row]


def _copy(given: Shape, values: torch.Tensor, wanted: Shape) -> Answer:
    count, row = values.numel(), given.dims[-1] if given.dims else 1
    wanted_row = wanted.dims[-1] if wanted.dims else 1
    if row > wanted_row and given.dims[:-1] == wanted.dims[:-1]:
        return lambda at: values[at // wanted_row * row + at % wanted_row]
    return lambda at: values[at % count]


def coarser(values: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Round to the next coarser type: half the bits of a float, the upper half of an int8."""
    if dtype is DType.INT8:
        return (values >> 4 << 4) + 8
    if dtype not in COARSER:
        return values
    coarse = COARSER[dtype]
    most = torch.finfo(coarse).max
    return values.clamp(-most, most).to(coarse).to(values.dtype)


def mean(values: torch.Tensor) -> float:
    """Return the mean; that of packed pairs of signed numbers is taken to be zero."""
    if values.element_size() == 1:
        values = values.to(torch.float32)
    return float(values.mean(dtype=torch.float64))
