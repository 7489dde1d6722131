"""The judge of one device: takes a Job, returns a Verdict or a Comparison.

A candidate's failure is in the record. What it raises is our own fault (or BadInput for a broken problem),
and the commit stays pending. The device's lock is held while something runs on it, never while something is
compiled.
"""

from __future__ import annotations

import math
import random
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from swarm import sandbox
from swarm.device import Device
from swarm.foreign import one_line
from swarm.job import Job, Purpose
from swarm.judge import compare, timing
from swarm.judge.build import Built, Frozen, build, frozen
from swarm.judge.compare import Quads, SideFailure
from swarm.judge.inputs import seed_number
from swarm.judge.limit import Limit, limit_of
from swarm.judge.protocol import Candidate, Clock, Control, Desk, Table
from swarm.judge.reference import InvalidReference
from swarm.languages.protocol import Failure
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
REASON_CHARS = 400
WEAKEST_FIRST = tuple(Trust)
SIDES = ("champion", "candidate")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one job is measured, and what by."""

    rules: Frozen
    workloads: tuple[Workload, ...]
    table: Table
    rng: random.Random


class Judge:
    """Long-lived; keeps references warm and memory mapped between jobs."""

    def __init__(self, device: Device, cache: Path, peaks: Peaks) -> None:
        self._desk = open_desk(device, cache)
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
        self._desk.warm_up()

    def judge(self, job: Job) -> Verdict | Comparison:
        try:
            return self.verdict(job) if job.purpose is Purpose.VERDICT else self.compare(job)
        finally:
            self._desk.rest()

    def verdict(self, job: Job) -> Verdict:
        """Build, check and time one tree."""
        begun = self._desk.clock()
        rules = self._frozen(job)
        seed = secrets.token_hex(16)
        built = build(job.candidate.files, rules, self._device, self._cache)
        if isinstance(built, Failure):
            return self._record(job, None, built, (), seed, begun)
        found: tuple[WorkloadResult, ...] = ()
        doubt = ""
        try:
            with self._place(job, rules, seed, begun) as place:
                found, failure = self._measured(place, built, job.epoch, begun)
                if failure is None:
                    built, found, failure, doubt = self._replayed(place, built, found, job.epoch, begun)
        except InvalidReference as error:
            self._desk.drop(job.epoch, error)
            failure = Failure(Status.INVALID_REFERENCE, str(error))
        return self._record(job, built, failure, found, seed, begun, doubt)

    def compare(self, job: Job) -> Comparison:
        """Build two trees and run them beside each other."""
        assert job.champion is not None, "a comparison has a champion"
        begun = self._desk.clock()
        rules = self._frozen(job)
        seed = secrets.token_hex(16)
        built: list[Built] = []
        doubt = ""
        for tree in (job.champion, job.candidate):
            made = build(tree.files, rules, self._device, self._cache)
            if isinstance(made, Failure):
                failed = SideFailure(len(built), made)
                return self._comparison(job, failed, built, seed, begun)
            built.append(made)
        try:
            with self._place(job, rules, seed, begun) as place:
                found, built, doubt = self._sides(place, built)
                if isinstance(found, SideFailure):
                    begun.check_alone(found.failure)
        except InvalidReference as error:
            self._desk.drop(job.epoch, error)
            found = SideFailure(compare.CANDIDATE, Failure(Status.INVALID_REFERENCE, str(error)))
        return self._comparison(job, found, built, seed, begun, doubt)

    def _measured(
        self, place: _Place, built: Built, epoch: str, begun: Clock
    ) -> tuple[tuple[WorkloadResult, ...], Failure | None]:
        place.table.prepare([built])
        with place.table.runner(built) as runner:
            found = tuple(self._workloads(place, runner, place.table.control(built), epoch, begun))
            return found, _first_failure(found, runner)

    def _replayed(
        self, place: _Place, built: Built, found: tuple[WorkloadResult, ...], epoch: str, begun: Clock
    ) -> tuple[Built, tuple[WorkloadResult, ...], Failure | None, str]:
        """Measure what passed once more without its code on the host: that is the result, not what it claims.

        The last value says why not, if that is impossible: what it claims stands then, and so does the doubt.
        """
        replay = place.table.replay(built, place.workloads)
        if isinstance(replay, str):
            return built, found, None, replay
        again, failure = self._measured(place, replay, epoch, begun)
        if failure is not None and failure.status is not Status.BELOW_SOL:
            return built, found, None, _replay_failed(failure)
        return replay, again, failure, ""

    def _workloads(
        self, place: _Place, runner: Candidate, control: Control | None, epoch: str, begun: Clock
    ) -> Iterator[WorkloadResult]:
        """Measure the workloads in a secret order, up to the first that fails; yield in that order."""
        for workload in place.rng.sample(place.workloads, len(place.workloads)):
            sitting = place.table.sitting(workload)
            timed = timing.measure(sitting, runner, control, place.rng)
            evidence = sitting.evidence
            is_compared = evidence.compared > 0
            limit = self._limit(place, workload, epoch)
            status, reason, time_us, ci_us, calls, clock = Status.PASSED, "", None, None, 0, ""
            if isinstance(timed, Failure):
                begun.check_alone(timed)
                status, reason = timed.status, timed.reason
            else:
                time_us, ci_us, calls, clock = timed.time_us, timed.ci_us, timed.calls, timed.clock
                if time_us < limit.floor_us * (1 - self._desk.floor_noise):
                    status = Status.BELOW_SOL
                    reason = f"{time_us:.2f} us is below the physical floor of {limit.floor_us:.2f} us"
                elif timed.quick_us < limit.floor_us * (1 - self._desk.floor_noise):
                    status, time_us = Status.REWARD_HACK, None
                    reason = (
                        f"one call of a request did the work of the others: some took "
                        f"{timed.quick_us:.2f} us, and the physical floor is {limit.floor_us:.2f} us"
                    )
            yield WorkloadResult(
                uuid=workload.uuid,
                status=status,
                reason=reason,
                time_us=time_us,
                ci_us=ci_us,
                calls=calls,
                t_sol_us=limit.t_sol_us,
                flops=limit.flops,
                max_abs_error=_finite(evidence.max_abs_error) if is_compared else None,
                max_rel_error=_finite(evidence.max_rel_error) if is_compared else None,
                matched_ratio=evidence.matched_ratio if is_compared else None,
                clock=clock,
            )
            if isinstance(timed, Failure):
                return

    def _sides(
        self, place: _Place, built: Sequence[Built]
    ) -> tuple[dict[str, Quads] | SideFailure, list[Built], str]:
        """Run both trees, by their replays where those hold; return what was run, and why not all were."""
        sides, doubts = list(built), {}
        for at, name in enumerate(SIDES):
            replay = place.table.replay(built[at], place.workloads)
            if isinstance(replay, Built):
                sides[at] = replay
            elif replay:
                doubts[name] = replay
        while True:
            found = self._quads(place, sides)
            if not isinstance(found, SideFailure) or sides[found.side].replay_of is None:
                return found, sides, "; ".join(f"{name}: {doubt}" for name, doubt in doubts.items())
            doubts[SIDES[found.side]] = _replay_failed(found.failure)
            sides[found.side] = built[found.side]

    def _quads(self, place: _Place, built: Sequence[Built]) -> dict[str, Quads] | SideFailure:
        processes = range(place.rules.protocol.tests.processes_per_tree)
        place.table.prepare([side for side in built for _ in processes])
        found: dict[str, Quads] = {}
        with ExitStack() as stack:
            callers = [[stack.enter_context(place.table.runner(side)) for _ in processes] for side in built]
            controls = [place.table.control(side) for side in built]
            for workload in place.workloads:
                sitting = place.table.sitting(workload)
                quads = compare.sit(sitting, (callers[0], callers[1]), (controls[0], controls[1]), place.rng)
                if isinstance(quads, SideFailure):
                    return quads
                told = place.table.doubt(built, workload, quads, place.rng)
                if isinstance(told, SideFailure):
                    return told
                quads.doubt = told
                found[workload.uuid] = quads
        return found

    def _limit(self, place: _Place, workload: Workload, epoch: str) -> Limit:
        return limit_of(
            place.rules.problem, workload, self._peaks, lambda: self._counted_flops(place, workload, epoch)
        )

    def _counted_flops(self, place: _Place, workload: Workload, epoch: str) -> float:
        key = (epoch, workload.uuid)
        if key not in self._flops:
            self._flops[key] = place.table.flops(workload)
        return self._flops[key]

    def _frozen(self, job: Job) -> Frozen:
        if job.epoch not in self._epochs:
            self._epochs[job.epoch] = frozen(job)
            if len(self._epochs) > KEPT_EPOCHS:
                self._epochs.popitem(last=False)
        rules = self._epochs[job.epoch]
        sandbox.require(sandbox.Level(rules.protocol.rules.min_sandbox), by="[rules] min_sandbox")
        return rules

    @contextmanager
    def _place(self, job: Job, rules: Frozen, seed: str, begun: Clock) -> Iterator[_Place]:
        """Hold the device and lay out what a job is measured with."""
        workloads = rules.problem.workloads_on(self._device)
        with (
            self._device_held(f"{job.purpose} {job.id}"),
            begun.measuring(),
            self._desk.table(job.epoch, rules, workloads, seed) as table,
        ):
            yield _Place(rules, workloads, table, random.Random(f"{seed}/order"))

    def _device_held(self, purpose: str) -> AbstractContextManager[None]:
        return held(device_lock_path(self._device.uuid), timeout_s=LOCK_S, purpose=purpose)

    def _record(
        self,
        job: Job,
        built: Built | None,
        failure: Failure | None,
        found: Sequence[WorkloadResult],
        seed: str,
        begun: Clock,
        doubt: str = "",
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
            language="" if built is None else built.manifest.language,
            judge_version=JUDGE_VERSION,
            status=status,
            reason=reason or f"all {len(found)} workloads passed",
            workloads=tuple(found),
            environment=self._environment(begun, [] if built is None else [built], doubt),
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
        built: Sequence[Built],
        seed: str,
        begun: Clock,
        doubt: str = "",
    ) -> Comparison:
        assert job.champion is not None, "a comparison has a champion"
        tests = self._frozen(job).protocol.tests
        decision = (
            None
            if isinstance(found, SideFailure)
            else compare.decide(
                found,
                tests,
                seed_number(seed, "bootstrap"),
                self._trust(built[compare.CANDIDATE :]),
                believed_us=compare.HOST_BELIEVED_US if self._device.kind == "cuda" else 0.0,
            )
        )
        failure, reason = None, "" if decision is None else decision.reason
        if isinstance(found, SideFailure):
            reason = f"the {SIDES[found.side]} failed: {found.failure.status}: {found.failure.reason}"
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
            environment=self._environment(begun, built, doubt),
            seed=seed,
            created_s=time.time(),
            measured_s=begun.measured_s,
            ratio=None if decision is None else decision.ratio,
            low=None if decision is None else decision.low,
            high=None if decision is None else decision.high,
            failure=failure,
        )

    def _environment(self, begun: Clock, built: Sequence[Built], doubt: str) -> Environment:
        return Environment(
            device_model=self._device.model,
            device_uuid=self._device.uuid,
            timer=self._desk.timer,
            sandbox=sandbox.standing(),
            trust=self._trust(built),
            trust_reason=one_line(doubt, REASON_CHARS),
            versions=self._desk.versions(),
            facts=begun.facts,
        )

    def _trust(self, built: Sequence[Built]) -> Trust:
        """Return the weakest trust among what was run."""
        given = [
            self._desk.trust(one.artifact.kind) if one.replay_of is None else Trust.REPLAYED for one in built
        ]
        return min(given, key=WEAKEST_FIRST.index, default=Trust.HOST)


def open_desk(device: Device, cache: Path) -> Desk:
    """Return the desk of a device of this host."""
    if device.kind == "cuda":
        from swarm.judge.cuda.desk import CudaDesk  # needs a driver, which a CPU's judge does not

        return CudaDesk(device, cache)
    from swarm.judge.desk import CpuDesk

    return CpuDesk(device, cache)


def _first_failure(found: Sequence[WorkloadResult], runner: Candidate) -> Failure | None:
    for item in found:
        if item.status is not Status.PASSED:
            return Failure(item.status, item.reason, runner.log)
    return None


def _replay_failed(failure: Failure) -> str:
    return f"its replay failed: {failure.status}: {failure.reason}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
