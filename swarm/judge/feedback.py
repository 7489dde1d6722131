"""What a kernel needs and how much of the device it can fill; and what a verdict's times are worth.

For whoever writes kernels. It needs no device: occupancy follows from registers, threads and shared memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from swarm.device import Device
from swarm.languages import dry_run
from swarm.languages.cuda import PLAN
from swarm.languages.plan import Plan
from swarm.languages.protocol import Artifact, KernelInfo, Kind
from swarm.languages.resolve import resolve
from swarm.languages.steps import KernelStep
from swarm.problem import Problem
from swarm.sol import Peaks
from swarm.verdict import Verdict


@dataclass(frozen=True, slots=True)
class KernelUse:
    """One kernel with one shape of block; ranges are over the workloads."""

    info: KernelInfo
    build: str
    """How its [params] differ from the manifest's: `BLOCK=32`."""
    threads: int | None
    """Of a block; None where host code decides."""
    smem_bytes: int
    """Static and dynamic, of a block."""
    blocks: tuple[int, int] | None
    """Least and most blocks of a grid."""
    resident_blocks: int | None
    """That fit on one multiprocessor."""
    occupancy: float | None
    """Share of a multiprocessor's warps that they are."""


@dataclass(frozen=True, slots=True)
class Achieved:
    """One workload's time as rates; a share is of the device's peak."""

    uuid: str
    gbps: float
    bandwidth_share: float
    tflops: float | None
    """None where the FLOPs are not known and bytes are what limits the time."""
    flops_share: float | None


def kernel_uses(artifact: Artifact, problem: Problem, device: Device) -> list[KernelUse]:
    """Return what each kernel needs, in the order in which a call starts them."""
    facts = dry_run.static_facts(device)
    if artifact.kind is Kind.PLAN:
        return list(_planned(artifact, problem, device, facts))
    return [_use(info, facts, threads=info.max_threads or None) for info in artifact.kernels]


def achieved(verdict: Verdict, problem: Problem, device: Device, peaks: Peaks) -> list[Achieved]:
    """Return the rates of the workloads that have a time."""
    found = []
    workloads = {one.uuid: one for one in problem.workloads_on(device)}
    for result in verdict.workloads:
        if result.time_us is None or result.uuid not in workloads:
            continue
        moved = problem.sol_bytes(workloads[result.uuid])
        by_bytes_us = moved / peaks.bytes_per_us
        flops = problem.sol_flops(workloads[result.uuid]) if result.flops is None else result.flops
        share = None
        if result.t_sol_us is not None and result.t_sol_us > 1.001 * by_bytes_us:
            share = result.t_sol_us / result.time_us  # FLOPs are what the limit follows from
        found.append(
            Achieved(
                result.uuid,
                moved / result.time_us / 1e3,
                by_bytes_us / result.time_us,
                None if flops is None else flops / result.time_us / 1e6,
                share,
            )
        )
    return found


def _planned(
    artifact: Artifact, problem: Problem, device: Device, facts: dry_run.StaticFacts
) -> Iterator[KernelUse]:
    """Walk the plan over all workloads, each occupancy taken for the most that can be."""
    plan = Plan.from_json(json.loads((artifact.path / PLAN).read_bytes()))
    known = {(info.variant, info.name): info for info in artifact.kernels}
    guess = dry_run.Guess(facts, known, is_full=True)
    uses: dict[tuple[int, int, str, int, int], KernelUse] = {}
    for case in dry_run.cases(problem.definition, problem.workloads_on(device)):
        for step in resolve(plan, case.axes, case.scalars, guess, case.guesses).steps:
            if not isinstance(step, KernelStep):
                continue
            threads, blocks = math.prod(step.block), math.prod(step.grid)
            key = (step.launch, step.variant, step.kernel, threads, step.smem)
            if key in uses:
                least, most = uses[key].blocks or (blocks, blocks)
                uses[key] = replace(uses[key], blocks=(min(least, blocks), max(most, blocks)))
                continue
            use = _use(known[step.variant, step.kernel], facts, threads=threads, smem=step.smem)
            build = ", ".join(
                f"{name}={value}"
                for name, value in plan.variants[step.variant].items()
                if plan.variants[0][name] != value
            )
            uses[key] = replace(use, build=build, blocks=(blocks, blocks))
    yield from (uses[key] for key in sorted(uses, key=lambda key: (key[0], key[3:])))


def _use(info: KernelInfo, facts: dry_run.StaticFacts, *, threads: int | None, smem: int = 0) -> KernelUse:
    total = info.static_smem_bytes + smem
    if threads is None:
        return KernelUse(info, "", None, total, None, None, None)
    resident = dry_run.most_blocks(info, threads, smem, facts)
    warps = -(-threads // dry_run.WARP)
    share = resident * warps * dry_run.WARP / dry_run.THREADS_PER_SM.get(facts.arch, dry_run.THREADS)
    return KernelUse(info, "", threads, total, None, resident, share)
