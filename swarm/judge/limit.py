"""The speed of light of one workload: what must be computed and moved, at a device's peaks. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from swarm.definition import DType
from swarm.problem import Problem
from swarm.sol import Peaks, floor_us, t_sol_us
from swarm.workload import Workload


@dataclass(frozen=True, slots=True)
class Limit:
    flops: float | None
    """None where they cannot be counted and problem.toml does not say: then only bytes bound the time."""
    bytes: float
    t_sol_us: float
    """What scores are computed from: 0 for a workload without bytes, which nothing can be below."""
    floor_us: float
    """At most T_SOL; a time below it is quarantined. See `swarm.sol.floor_us`."""


@dataclass(frozen=True, slots=True)
class Term:
    """A part of what must be moved or computed."""

    what: str
    amount: float


class Bound(StrEnum):
    BYTES = "bytes"
    FLOPS = "FLOPs"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a limit comes from."""

    limit: Limit
    bytes: tuple[Term, ...]
    flops: tuple[Term, ...]
    remark: str
    """Why there are no FLOPs; empty if there are."""
    dtype: str
    """Of the inputs with the fastest path, by which FLOPs are divided."""
    bytes_us: float
    flops_us: float

    @property
    def bound(self) -> Bound:
        return Bound.FLOPS if self.flops_us > self.bytes_us else Bound.BYTES


def limit_of(problem: Problem, workload: Workload, peaks: Peaks, count_flops: Callable[[], float]) -> Limit:
    """Return the limit of a workload; `count_flops` is asked only where the problem allows counting."""
    flops = problem.sol_flops(workload)
    if flops is None and not problem.settings.irregular:
        flops = count_flops()
    dtype = _fastest_dtype(problem, peaks)
    if dtype is None:
        flops = None
    dtype = dtype or DType.FLOAT32
    moved = problem.sol_bytes(workload)
    axes = problem.definition.resolve(workload)
    written = float(sum(problem.definition.nbytes(name, axes) for name in problem.definition.outputs))
    return Limit(
        flops,
        moved,
        t_sol_us(flops, moved, peaks, dtype),
        floor_us(flops, moved, written, peaks, dtype),
    )


def explain(
    problem: Problem, workload: Workload, peaks: Peaks, count_flops: Callable[[], Mapping[str, float]]
) -> Explanation:
    """Return the limit of a workload with its terms: given ones as written, else tensors and operations."""
    counted: Mapping[str, float] = {}

    def total() -> float:
        nonlocal counted
        counted = count_flops()
        return sum(counted.values())

    limit = limit_of(problem, workload, peaks, total)
    dtype = _fastest_dtype(problem, peaks)
    given = problem.sol_terms("flops", workload) or list(counted.items())
    moved = problem.sol_terms("bytes", workload) or _tensors(problem, workload)
    return Explanation(
        limit,
        tuple(Term(*term) for term in moved),
        () if limit.flops is None else tuple(Term(*term) for term in given),
        _remark(problem, limit, dtype),
        dtype or "",
        t_sol_us(None, limit.bytes, peaks, dtype or ""),
        limit.flops / peaks.flops_per_us(dtype) if limit.flops and dtype else 0.0,
    )


def _remark(problem: Problem, limit: Limit, dtype: DType | None) -> str:
    if dtype is None:
        return "not counted: no input has a dtype with a known peak"
    if limit.flops is None:
        return "not counted: the problem is irregular, and problem.toml gives no sol.flops"
    if not limit.flops and problem.settings.sol.flops is None:
        return "torch's counter finds none in the reference"
    return ""


def _tensors(problem: Problem, workload: Workload) -> list[tuple[str, float]]:
    """Return what each tensor takes if it is moved once."""
    definition, axes = problem.definition, problem.definition.resolve(workload)
    found = []
    for verb, specs in (("read", definition.inputs), ("write", definition.outputs)):
        for name, spec in specs.items():
            if spec.shape is not None:
                sizes = " × ".join(map(str, definition.shape(name, axes) or (1,)))
                found.append((f"{verb} {name}: {sizes} {spec.dtype}", float(definition.nbytes(name, axes))))
    return found


def _fastest_dtype(problem: Problem, peaks: Peaks) -> DType | None:
    """Return the input dtype with the highest peak; None if no input's has one.

    Scalars and 0-d tensors (a scale, an epsilon) move their bytes, but nothing is multiplied in their dtype.
    """
    specs = problem.definition.inputs.values()
    known = [spec.dtype for spec in specs if spec.shape and spec.dtype.value in peaks.gflops]
    return max(known, key=peaks.flops_per_us, default=None)
