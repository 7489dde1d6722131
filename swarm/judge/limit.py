"""The speed of light of one workload: what must be computed and moved, at a device's peaks. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from swarm.definition import DType, TensorSpec
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


def limit_of(problem: Problem, workload: Workload, peaks: Peaks, count_flops: Callable[[], float]) -> Limit:
    """Return the limit of a workload; `count_flops` is asked only where the problem allows counting."""
    flops = problem.sol_flops(workload)
    if flops is None and not problem.settings.irregular:
        flops = count_flops()
    dtype = _fastest_dtype(problem.definition.inputs.values(), peaks)
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


def _fastest_dtype(specs: Iterable[TensorSpec], peaks: Peaks) -> DType | None:
    """Return the input dtype with the highest peak; None if no input's has one.

    Scalars and 0-d tensors (a scale, an epsilon) move their bytes, but nothing is multiplied in their dtype.
    """
    known = [spec.dtype for spec in specs if spec.shape and spec.dtype.value in peaks.gflops]
    return max(known, key=peaks.flops_per_us, default=None)
