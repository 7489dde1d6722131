"""The judge of one device: takes a Job, returns a Verdict or a Comparison.

A candidate's failure is in the record. What it raises is our own fault (or BadInput for a broken problem),
and the commit stays pending. The device's lock is held while something runs on it, never while something is
compiled.
"""

from __future__ import annotations

import math
import platform
import random
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from swarm import sandbox
from swarm.device import Device
from swarm.errors import Refused
from swarm.job import Job, Purpose
from swarm.judge import compare, timing
from swarm.judge.build import Built, Frozen, build, frozen
from swarm.judge.clock import Clock
from swarm.judge.compare import Quads, SideFailure
from swarm.judge.desk import Desk
from swarm.judge.inputs import seed_number
from swarm.judge.limit import limit_of
from swarm.judge.reference import InvalidReference, Reference, input_specs
from swarm.judge.runner import Runner
from swarm.judge.sitting import Sitting
from swarm.judge.slots import Memory
from swarm.languages import toolchain
from swarm.languages.protocol import Failure, Kind
from swarm.locks import device_lock_path, held
from swarm.sol import Peaks
from swarm.verdict import (
    JUDGE_VERSION,
    Comparison,
    Environment,
    Outcome,
    Status,
    Trust,
    Verdict,
    WorkloadResult,
)
from swarm.workload import Workload

LOCK_S = 600.0
"""How long to wait for another run on this host."""
KEPT_EPOCHS = 64
LOG_CHARS = 2000
FLOOR_NOISE = 0.05
"""A device's peaks are measured: T_SOL differs by some percent from one calibration to the next."""
TRUST = Trust.HOST
"""A CPU kernel's own code is called, so all of a result rests on the doubts of the judge."""


@dataclass(frozen=True, slots=True)
class _Table:
    """Where one job is measured."""

    rules: Frozen
    workloads: tuple[Workload, ...]
    reference: Reference
    shared: Memory
    private: Memory
    seed: str
    rng: random.Random

    def sitting(self, workload: Workload) -> Sitting:
        return Sitting(
            self.rules.problem,
            workload,
            self.rules.protocol.tests,
            self.reference,
            self.shared,
            self.private,
            self.seed,
        )


class Judge:
    """Long-lived; keeps references warm and memory mapped between jobs."""

    def __init__(self, device: Device, cache: Path, peaks: Peaks) -> None:
        self._desk = Desk(device, cache)
        self._device = device
        self._cache = cache
        self._peaks = peaks
        self._epochs: OrderedDict[str, Frozen] = OrderedDict()
        self._flops: dict[tuple[str, str], float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._desk.close()

    def warm_up(self) -> None:
        """Start what the first job would have to wait for."""
        self._desk.references.start()
        self._desk.control(Kind.SHARED_OBJECT)

    def judge(self, job: Job) -> Verdict | Comparison:
        return self.verdict(job) if job.purpose is Purpose.VERDICT else self.compare(job)

    def verdict(self, job: Job) -> Verdict:
        """Build, check and time one tree."""
        begun = Clock(self._device)
        rules = self._frozen(job)
        seed = secrets.token_hex(16)
        built = build(job.candidate.files, rules, self._device, self._cache)
        if isinstance(built, Failure):
            return self._record(job, "", built, (), seed, begun)
        found: tuple[WorkloadResult, ...] = ()
        try:
            with self._table(job, rules, seed, begun) as table, self._runner(built, table) as runner:
                control = self._desk.control(built.artifact.kind)
                found = tuple(self._workloads(table, runner, control, job.epoch, begun))
                failure = _first_failure(found, runner)
        except InvalidReference as error:
            self._desk.references.drop(job.epoch, error)
            failure = Failure(Status.INVALID_REFERENCE, str(error))
        return self._record(job, built.manifest.language, failure, found, seed, begun)

    def compare(self, job: Job) -> Comparison:
        """Build two trees and run them beside each other."""
        assert job.champion is not None, "a comparison has a champion"
        begun = Clock(self._device)
        rules = self._frozen(job)
        seed = secrets.token_hex(16)
        built: list[Built] = []
        for tree in (job.champion, job.candidate):
            made = build(tree.files, rules, self._device, self._cache)
            if isinstance(made, Failure):
                failed = SideFailure(len(built), made)
                return self._comparison(job, failed, seed, begun)
            built.append(made)
        try:
            with self._table(job, rules, seed, begun) as table, ExitStack() as stack:
                processes = range(rules.protocol.tests.processes_per_tree)
                callers = [
                    [stack.enter_context(self._runner(side, table)) for _ in processes] for side in built
                ]
                controls = [self._desk.control(side.artifact.kind) for side in built]
                found = self._quads(table, (callers[0], callers[1]), (controls[0], controls[1]))
                if isinstance(found, SideFailure):
                    begun.check_alone(found.failure)
        except InvalidReference as error:
            self._desk.references.drop(job.epoch, error)
            found = SideFailure(compare.CANDIDATE, Failure(Status.INVALID_REFERENCE, str(error)))
        return self._comparison(job, found, seed, begun)

    def _workloads(
        self, table: _Table, runner: Runner, control: timing.Control, epoch: str, begun: Clock
    ) -> Iterator[WorkloadResult]:
        """Measure the workloads in a secret order, up to the first that fails; yield in that order."""
        for workload in table.rng.sample(table.workloads, len(table.workloads)):
            sitting = table.sitting(workload)
            timed = timing.measure(sitting, runner, control, table.rng)
            evidence = sitting.evidence
            is_compared = evidence.compared > 0
            floor_us = self._floor_us(table, workload, epoch)
            status, reason, time_us, ci_us, calls = Status.PASSED, "", None, None, 0
            if isinstance(timed, Failure):
                begun.check_alone(timed)
                status, reason = timed.status, timed.reason
            else:
                time_us, ci_us, calls = timed.time_us, timed.ci_us, timed.calls
                if time_us < floor_us * (1 - FLOOR_NOISE):
                    status = Status.BELOW_SOL
                    reason = f"{time_us:.2f} us is below the physical floor of {floor_us:.2f} us"
            yield WorkloadResult(
                uuid=workload.uuid,
                status=status,
                reason=reason,
                time_us=time_us,
                ci_us=ci_us,
                calls=calls,
                t_sol_us=floor_us,
                max_abs_error=_finite(evidence.max_abs_error) if is_compared else None,
                max_rel_error=_finite(evidence.max_rel_error) if is_compared else None,
                matched_ratio=evidence.matched_ratio if is_compared else None,
            )
            if isinstance(timed, Failure):
                return

    def _quads(
        self,
        table: _Table,
        callers: tuple[Sequence[Runner], Sequence[Runner]],
        controls: tuple[timing.Control, timing.Control],
    ) -> dict[str, Quads] | SideFailure:
        found: dict[str, Quads] = {}
        for workload in table.workloads:
            quads = compare.sit(table.sitting(workload), callers, controls, table.rng)
            if isinstance(quads, SideFailure):
                return quads
            found[workload.uuid] = quads
        return found

    def _floor_us(self, table: _Table, workload: Workload, epoch: str) -> float:
        """Return T_SOL of a workload."""
        return limit_of(
            table.rules.problem, workload, self._peaks, lambda: self._counted_flops(table, workload, epoch)
        ).t_sol_us

    def _counted_flops(self, table: _Table, workload: Workload, epoch: str) -> float:
        key = (epoch, workload.uuid)
        if key not in self._flops:
            specs = input_specs(table.rules.problem.definition, workload)
            self._flops[key] = table.reference.flops(specs)
        return self._flops[key]

    def _frozen(self, job: Job) -> Frozen:
        if job.epoch not in self._epochs:
            self._epochs[job.epoch] = frozen(job)
            if len(self._epochs) > KEPT_EPOCHS:
                self._epochs.popitem(last=False)
        rules = self._epochs[job.epoch]
        wanted = rules.protocol.rules.min_sandbox
        if wanted == "namespaces" and sandbox.level() is not sandbox.Level.NAMESPACES:
            raise Refused(
                "this machine has no namespaces for the sandbox, and [rules] min_sandbox asks for them",
                remedy='allow unprivileged user namespaces, or set min_sandbox = "process-group"',
            )
        return rules

    @contextmanager
    def _table(self, job: Job, rules: Frozen, seed: str, begun: Clock) -> Iterator[_Table]:
        """Hold the device and lay out what a job is measured with."""
        problem = rules.problem
        workloads = problem.workloads_on(self._device)
        with self._device_held(f"{job.purpose} {job.id}"), begun.measuring():
            reference = self._desk.reference(job.epoch, problem)
            shared, private = self._desk.memories(problem, workloads)
            yield _Table(rules, workloads, reference, shared, private, seed, random.Random(f"{seed}/order"))

    def _device_held(self, purpose: str) -> AbstractContextManager[None]:
        return held(device_lock_path(self._device.uuid), timeout_s=LOCK_S, purpose=purpose)

    def _runner(self, built: Built, table: _Table) -> Runner:
        rules = table.rules.protocol.rules
        return self._desk.runner(
            built.artifact,
            table.rules.problem,
            table.shared.arena,
            memory_gib=rules.memory_gib,
            timeout_s=rules.run_timeout_s,
        )

    def _record(
        self,
        job: Job,
        language: str,
        failure: Failure | None,
        found: Sequence[WorkloadResult],
        seed: str,
        begun: Clock,
    ) -> Verdict:
        status, reason, log = Status.PASSED, "", ""
        if failure is not None:
            status, reason, log = failure.status, failure.reason, failure.log[-LOG_CHARS:]
        return Verdict(
            key=job.id,
            problem=job.problem,
            epoch=job.epoch,
            tree=job.candidate.sha,
            commit=job.candidate.commit,
            language=language,
            judge_version=JUDGE_VERSION,
            status=status,
            reason=reason or f"all {len(found)} workloads passed",
            workloads=tuple(found),
            environment=self._environment(begun),
            seed=seed,
            created_s=time.time(),
            measured_s=begun.measured_s,
            total_s=begun.total_s,
            log=log,
        )

    def _comparison(
        self,
        job: Job,
        found: dict[str, Quads] | SideFailure,
        seed: str,
        begun: Clock,
    ) -> Comparison:
        assert job.champion is not None, "a comparison has a champion"
        tests = self._frozen(job).protocol.tests
        decision = (
            None
            if isinstance(found, SideFailure)
            else compare.decide(found, tests, seed_number(seed, "bootstrap"), TRUST)
        )
        failure, reason = None, "" if decision is None else decision.reason
        if isinstance(found, SideFailure):
            side = ("champion", "candidate")[found.side]
            reason = f"the {side} failed: {found.failure.status}: {found.failure.reason}"
            failure = found.failure.status if found.side == compare.CANDIDATE else None
        return Comparison(
            id=job.id,
            problem=job.problem,
            epoch=job.epoch,
            judge_version=JUDGE_VERSION,
            champion_tree=job.champion.sha,
            candidate_tree=job.candidate.sha,
            outcome=Outcome.UNDECIDED if decision is None else decision.outcome,
            reason=reason,
            workloads=() if decision is None else decision.workloads,
            environment=self._environment(begun),
            seed=seed,
            created_s=time.time(),
            measured_s=begun.measured_s,
            ratio=None if decision is None else decision.ratio,
            low=None if decision is None else decision.low,
            high=None if decision is None else decision.high,
            failure=failure,
        )

    def _environment(self, begun: Clock) -> Environment:
        return Environment(
            device_model=self._device.model,
            device_uuid=self._device.uuid,
            timer="CLOCK_MONOTONIC in the runner, bounded by the judge's",
            sandbox=sandbox.level(),
            trust=TRUST,
            versions=versions(),
            facts=begun.facts,
        )


@cache
def versions() -> dict[str, str]:
    """Return what a result depends on besides the device."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "compiler": toolchain.compiler().version,
        "kernel": platform.release(),
    }


def _first_failure(found: Sequence[WorkloadResult], runner: Runner) -> Failure | None:
    for item in found:
        if item.status is not Status.PASSED:
            return Failure(item.status, item.reason, runner.log)
    return None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
