"""Would an answer that skips the work pass? Tries such answers before anyone is asked to optimise a problem.

Zeros, constants, copies, half the work, the last call's results or lower precision must all fail. What passes
is a finding; whether a problem with findings is refused or only marked weak is for the caller to say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import torch

from swarm.definition import DType
from swarm.judge import check, elements
from swarm.judge.inputs import ROUND
from swarm.judge.reference import InvalidReference, References
from swarm.judge.slots import Shape
from swarm.judge.workbench import Workbench
from swarm.problem import Limits, Problem
from swarm.protocol import Tests
from swarm.workload import Workload

LEAST_SPREAD = 20.0
"""Outputs must vary by so many tolerances, or a rough guess comes close to them."""
COARSER = {
    DType.FLOAT64: torch.float32,
    DType.FLOAT32: torch.bfloat16,
    DType.FLOAT16: torch.float8_e4m3fn,
    DType.BFLOAT16: torch.float8_e4m3fn,
}
VALUES = (*COARSER, DType.INT8, DType.BOOL)
"""Dtypes of inputs that are data; wider integers are taken for indices, which cannot be made up."""


class Weakness(StrEnum):
    """An answer that should fail, or what makes every answer suspect."""

    ZEROS = "zeros"
    ONES = "ones"
    MEAN = "mean"
    """One number, the mean of the right answer."""
    ROW_MEAN = "row mean"
    """The mean of the right answer along its last axis."""
    HALF_WRITTEN = "half written"
    """The first half of the right answer, zeros after it."""
    COPY = "copy"
    """An input of the same size as it is."""
    STALE = "stale"
    """The right answer to the call before."""
    HALF_READ = "half read"
    """The right answer to inputs of which one has the second half of its rows replaced by its mean."""
    UNREAD = "unread"
    """The right answer to inputs of which one is replaced by its mean: a kernel need not read it."""
    LOWER_PRECISION = "lower precision"
    """Inputs and outputs rounded to the next coarser type."""
    NO_SPREAD = "no spread"
    BAD_REFERENCE = "bad reference"
    """It raised, hung, or returned what is not finite."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer that passed at least once, with the numbers."""

    weakness: Weakness
    workload: str
    about: str
    """The input or output that it is about, or what the reference said."""
    passed: int
    draws: int
    matched_ratio: float
    """Of the draw in which it came closest (for NO_SPREAD: the spread in tolerances)."""

    @property
    def is_weak(self) -> bool:
        """Whether the judge would take the answer: it passed for every kind of input."""
        return self.passed == self.draws

    def __str__(self) -> str:
        if self.weakness is Weakness.BAD_REFERENCE:
            return f"workload {self.workload}: the reference is unusable: {self.about}"
        if self.weakness is Weakness.NO_SPREAD:
            return (
                f"workload {self.workload}: {self.about} varies by {self.matched_ratio:.3g} tolerances only, "
                f"{LEAST_SPREAD:g} are needed"
            )
        return (
            f"workload {self.workload}: {self.weakness} ({self.about}) passes in {self.passed} of "
            f"{self.draws} draws; {100 * self.matched_ratio:.4g} % of the elements match"
        )


def lint(problem: Problem, tests: Tests, references: References, seed: str = "lint") -> list[Finding]:
    """Return what is weak about a problem, worst first; nothing for a sound one."""
    findings: list[Finding] = []
    for workload in linted_workloads(problem):
        findings += _lint_workload(problem, workload, problem.limits(workload, tests), references, seed)
    return sorted(findings, key=lambda finding: (not finding.is_weak, finding.weakness, finding.workload))


def linted_workloads(problem: Problem) -> tuple[Workload, ...]:
    """Return the workloads for a CPU; without any, the smallest one, as lint works on a CPU."""
    return problem.cpu_workloads or (min(problem.workloads, key=problem.sol_bytes),)


class _Tally:
    """How often, and how nearly, each wrong answer passed on one workload."""

    def __init__(self, workload: str) -> None:
        self._workload = workload
        self._counts: dict[tuple[Weakness, str], tuple[int, int, float]] = {}

    def add(self, weakness: Weakness, about: str, matches: Iterable[check.Match]) -> None:
        all_matches = list(matches)
        passed, draws, closest = self._counts.get((weakness, about), (0, 0, 0.0))
        ratio = min(match.matched_ratio for match in all_matches)
        self._counts[weakness, about] = (
            passed + all(match.passed for match in all_matches),
            draws + 1,
            max(closest, ratio),
        )

    def note(self, weakness: Weakness, about: str, number: float = 0.0) -> None:
        self._counts[weakness, about] = (1, 1, number)

    def findings(self) -> list[Finding]:
        return [
            Finding(weakness, self._workload, about, *counts)
            for (weakness, about), counts in self._counts.items()
            if counts[0]
        ]


def _lint_workload(
    problem: Problem, workload: Workload, limits: Limits, references: References, seed: str
) -> list[Finding]:
    tally = _Tally(workload.uuid)
    is_wider = problem.settings.reference_precision == "higher"
    try:
        reference = references.get(_key(problem, workload), problem.name, problem.definition, is_wider)
        with Workbench(problem, workload, reference, seed) as bench:
            _try_draws(tally, bench, limits)
    except InvalidReference as error:
        tally.note(Weakness.BAD_REFERENCE, str(error))
    return tally.findings()


def _key(problem: Problem, workload: Workload) -> str:
    """Name a process of its own for each workload, so that one that died does not fail the next."""
    return hashlib.sha256(repr((sorted(problem.files.items()), workload.uuid)).encode()).hexdigest()


def _try_draws(tally: _Tally, bench: Workbench, limits: Limits) -> None:
    before: list[torch.Tensor] | None = None
    for _ in ROUND:
        bench.draw()
        expected = bench.expect()
        strange = _non_finite(bench, expected, limits)
        if strange:
            raise InvalidReference(f"{strange} for {bench.spread} inputs")
        for index, shape in enumerate(bench.outputs):
            _try_outputs(tally, bench, shape, expected[index], before[index] if before else None, limits)
        _try_inputs(tally, bench, expected, limits)
        before = expected


def _non_finite(bench: Workbench, expected: list[torch.Tensor], limits: Limits) -> str:
    pairs = zip(bench.outputs, expected, strict=True)
    return next(filter(None, (check.invalid_reference(s.name, values, limits) for s, values in pairs)), "")


def _try_outputs(
    tally: _Tally,
    bench: Workbench,
    shape: Shape,
    right: torch.Tensor,
    before: torch.Tensor | None,
    limits: Limits,
) -> None:
    """Try answers for one output that need no reference; all other outputs count as right."""
    if shape.dtype.is_packed or not right.numel():
        return  # pairs of 4-bit values: a mean or a half of them is not a plain tensor
    spread = _spread(right, limits)
    if shape.dtype.is_float and right.numel() > 1 and spread < LEAST_SPREAD:
        tally.note(Weakness.NO_SPREAD, shape.name, spread)
    for weakness, answer in _answers(right, shape, before):
        tally.add(weakness, shape.name, [_match(answer, right, shape, limits)])
    for given in bench.tensors():
        if given.numel() == right.numel():
            tally.add(Weakness.COPY, shape.name, [_match(given, right, shape, limits)])


def _answers(
    right: torch.Tensor, shape: Shape, before: torch.Tensor | None
) -> Iterator[tuple[Weakness, torch.Tensor]]:
    yield Weakness.ZEROS, torch.zeros_like(right)
    yield Weakness.ONES, torch.ones_like(right)
    if right.numel() > 1:
        yield Weakness.MEAN, torch.full_like(right, _mean(right), dtype=torch.float64)
        half = right.clone()
        half[half.numel() // 2 :] = 0
        yield Weakness.HALF_WRITTEN, half
    if len(shape.dims) > 1 and shape.dims[-1] > 1:
        rows = right.reshape(-1, shape.dims[-1])
        yield Weakness.ROW_MEAN, rows.mean(-1, keepdim=True, dtype=torch.float64).expand_as(rows).flatten()
    if before is not None:
        yield Weakness.STALE, before


def _try_inputs(tally: _Tally, bench: Workbench, expected: list[torch.Tensor], limits: Limits) -> None:
    """Try the right answers to other inputs."""

    def matches(outputs: list[torch.Tensor], *, is_coarse: bool = False) -> list[check.Match]:
        triples = zip(bench.outputs, outputs, expected, strict=True)
        return [
            _match(_coarser(got, shape.dtype) if is_coarse else got, right, shape, limits)
            for shape, got, right in triples
            if not shape.dtype.is_packed
        ]

    kept = [values.clone() for values in bench.tensors()]
    for values, original, shape in zip(bench.tensors(), kept, bench.inputs, strict=True):
        if shape.dtype not in VALUES or not shape.count:
            continue
        mean = _mean(original)
        rows = values.view(-1, shape.dims[-1] if shape.dims else 1)
        if rows.shape[1] > 1:
            rows[:, rows.shape[1] // 2 :] = mean
            tally.add(Weakness.HALF_READ, shape.name, matches(bench.expect()))
        values.fill_(mean)
        tally.add(Weakness.UNREAD, shape.name, matches(bench.expect()))
        values.copy_(original)
    if any(shape.dtype in COARSER or shape.dtype is DType.INT8 for shape in bench.inputs):
        for values, shape in zip(bench.tensors(), bench.inputs, strict=True):
            values.copy_(_coarser(values, shape.dtype))
        tally.add(Weakness.LOWER_PRECISION, "all", matches(bench.expect(), is_coarse=True))
        for values, original in zip(bench.tensors(), kept, strict=True):
            values.copy_(original)


def _coarser(values: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Round to the next coarser type: half the bits of a float, the upper half of an int8."""
    if dtype is DType.INT8:
        return (values >> 4 << 4) + 8
    if dtype not in COARSER:
        return values
    coarse = COARSER[dtype]
    most = torch.finfo(coarse).max
    return values.clamp(-most, most).to(coarse).to(values.dtype)


def _match(answer: torch.Tensor, right: torch.Tensor, shape: Shape, limits: Limits) -> check.Match:
    stored = elements.stored_dtype(shape.dtype)
    values = answer if stored.is_floating_point or not answer.is_floating_point() else answer.round()
    return check.compare(shape.name, values.to(stored), right, shape.dtype, shape.dims, limits)


def _spread(right: torch.Tensor, limits: Limits) -> float:
    """Return the standard deviation of an output in tolerances of its typical size."""
    tolerance = limits.atol + limits.rtol * _mean(right.abs())
    return float(right.std(correction=0)) / tolerance if tolerance else float("inf")


def _mean(values: torch.Tensor) -> float:
    return float(values.mean(dtype=torch.float64))
