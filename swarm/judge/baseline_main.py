"""The process that measures baselines: `python -m swarm.judge.baseline_main FD CACHE`.

While eager torch is measured on the device, torch compiles on the other cores; what is not compiled when
the budget is spent is left out, and the record says so. Baselines are trusted code in the sandbox of the
references; they are timed with the slots, cold caches and checks of any candidate, without the bound of the
judge's clock.
"""

from __future__ import annotations

import json
import random
import secrets
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from swarm.baseline import NOT_IN_TIME, Baseline, Contender, Optimised, parse_baseline, to_json
from swarm.contents import files_hash
from swarm.definition import REFERENCE_FILE
from swarm.device import Device, other_cores
from swarm.errors import Refused
from swarm.foreign import one_line
from swarm.job import decode_files
from swarm.judge import timing
from swarm.judge.build import Frozen, build
from swarm.judge.desk import CpuDesk, versions
from swarm.judge.reference import InvalidReference, Reference, References, input_specs
from swarm.judge.runner import Slot
from swarm.judge.sitting import Sitting
from swarm.judge.slots import Buffer, Memory, shapes
from swarm.judge.wire import receive, send
from swarm.languages.protocol import Failure
from swarm.locks import device_lock_path, held
from swarm.problem import BASELINE_FILE, Problem, problem_from_files
from swarm.protocol import Protocol, load_protocol
from swarm.verdict import JUDGE_VERSION, Status
from swarm.workload import Workload

LOCK_S = 600.0
SHARED = "shared"
WORKLOAD_S, MAX_CALLS = 0.3, 50
"""Of one contender on one workload; a stored T_b is worth less than a comparison."""
EAGER, COMPILED, LIBRARY = "eager", "compile", "baseline.py"
GROUP = 8
"""Problems whose processes are alive at a time."""
GRACE_S = 10.0
"""Past the budget, to time what has been compiled in it."""
REASON_CHARS = 300


class ReferenceCaller:
    """A function in the reference's process, called as a runner calls a candidate."""

    def __init__(
        self, reference: Reference, name: str, problem: Problem, workload: Workload, memory: Memory
    ) -> None:
        reference.map(SHARED, memory.arena)
        self._reference = reference
        self._name = name
        self._in, self._out = shapes(problem.definition, problem.definition.resolve(workload))
        self.wall_ns = self.busy_ns = 0
        self.clock = "monotonic"

    def call(self, slots: Sequence[Slot]) -> list[int] | Failure:
        work = [
            (
                [
                    value if shape is None else Buffer(shape, int(value))
                    for shape, value in zip(self._in, slot.inputs, strict=True)
                ],
                [Buffer(shape, offset) for shape, offset in zip(self._out, slot.outputs, strict=True)],
            )
            for slot in slots
        ]
        try:
            return self._reference.time(self._name, SHARED, work)
        except InvalidReference as error:
            return Failure(Status.RUNTIME_ERROR, str(error))

    def linger(self, seconds: float) -> None:
        """Nothing: this code is the project's own."""


def main() -> int:
    peer, cache = socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2])
    raw = json.loads(receive(peer)[0])
    device = Device(**raw["device"] | {"cores": tuple(raw["device"]["cores"])})
    protocol = load_protocol(raw["coordination"])
    problems = [problem_from_files(decode_files(files), name) for name, files in raw["problems"].items()]
    begun = {
        name: parse_baseline(json.dumps(one).encode(), f"what was begun of {name}")
        for name, one in raw["begun"].items()
    }
    optimised = {
        name: Optimised(commit, decode_files(files)) for name, (commit, files) in raw["optimised"].items()
    }
    if device.kind == "cuda":
        from swarm.judge.cuda import baseline as on_gpu  # needs a driver

        found = on_gpu.measure(problems, protocol, device, cache, raw["budget_s"], begun, optimised)
    else:
        found = measure(problems, protocol, device, cache, raw["budget_s"], begun, optimised)
    for baseline in found:
        send(peer, to_json(baseline))
    return 0


def measure(
    problems: Sequence[Problem],
    protocol: Protocol,
    device: Device,
    cache: Path,
    budget_s: float,
    begun: Mapping[str, Baseline],
    optimised: Mapping[str, Optimised],
) -> Iterator[Baseline]:
    """Yield a baseline per problem, a group of them at a time."""
    others = other_cores()
    with ExitStack() as stack:
        desk = stack.enter_context(CpuDesk(device, cache))
        lock = device_lock_path(device.uuid)
        stack.enter_context(held(lock, timeout_s=LOCK_S, purpose="measure baselines"))
        desk.references.wait()
        deadline = time.monotonic() + budget_s  # for measuring: what it takes to get ready is not its fault
        compiler = stack.enter_context(Compiler(cache, device, others, deadline))
        bench = Bench(desk, protocol, deadline)
        for start in range(0, len(problems), GROUP):
            group = [(problem, begun.get(problem.name, _nothing(problem))) for problem in problems]
            group = group[start : start + GROUP]
            compiling = [
                None if before.kept(COMPILED, versions()).is_done else compiler.submit(problem)
                for problem, before in group
            ]
            plain = [bench.plain(problem, before) for problem, before in group]
            for (problem, before), contenders, future in zip(group, plain, compiling, strict=True):
                compiled = bench.compiled(problem, before.kept(COMPILED, versions()), future)
                champions = bench.optimised(problem, before, optimised.get(problem.name))
                yield Baseline(
                    problem.name,
                    device.model,
                    files_hash(problem.files),
                    JUDGE_VERSION,
                    time.time(),
                    (*contenders, compiled, *champions),
                )


def _nothing(problem: Problem) -> Baseline:
    """Return the baseline of a problem of which nothing is measured yet."""
    return Baseline(problem.name, "", "", JUDGE_VERSION, 0.0)


class Compiler:
    """Has torch compile problems one after the other, on the cores that are not measured."""

    def __init__(self, cache: Path, device: Device, others: frozenset[int], deadline: float) -> None:
        folder = cache / "inductor"
        folder.mkdir(parents=True, exist_ok=True)
        self._references = References(device, compiling_in=folder, compiling_on=sorted(others))
        self._device = device
        self._deadline = deadline
        self._thread = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._references.close()  # which ends what the thread is waiting for
        self._thread.shutdown()

    def submit(self, problem: Problem) -> Future[Reference]:
        """Return what will be a reference with the compiled function COMPILED, back on the device's cores."""
        return self._thread.submit(self._compile, problem)

    def _compile(self, problem: Problem) -> Reference:
        reference = self._references.get(problem.name, problem.name, problem.definition, is_wider=False)
        reference.load(COMPILED, problem.reference, compiled=True, file=REFERENCE_FILE)
        calls = [input_specs(problem.definition, workload) for workload in problem.workloads_on(self._device)]
        reference.compile_for(COMPILED, calls, max(1.0, self._deadline - time.monotonic()))
        reference.pin(self._device.cores)
        return reference


class Bench:
    """Times baselines on the device."""

    def __init__(self, desk: CpuDesk, protocol: Protocol, deadline: float) -> None:
        self._desk = desk
        limits = {"budget_s": WORKLOAD_S, "max_calls": max(MAX_CALLS, protocol.tests.min_calls)}
        self._tests = protocol.tests.model_copy(update=limits)
        self._protocol = protocol.model_copy(update={"tests": self._tests})
        self._deadline = deadline
        self._seed = secrets.token_hex(16)
        self._rng = random.Random(self._seed)

    def plain(self, problem: Problem, before: Baseline) -> list[Contender]:
        """Time eager torch and, if the problem has one, its baseline.py."""
        eager = before.kept(EAGER, versions())
        found = [self._plain(problem, eager, problem.reference, REFERENCE_FILE)]
        if problem.baseline is not None:
            library = before.kept(LIBRARY, versions())
            found.append(self._plain(problem, library, problem.baseline, BASELINE_FILE))
        return found

    def compiled(self, problem: Problem, before: Contender, compiling: Future[Reference] | None) -> Contender:
        """Time what torch compiles, once it is compiled; not if that is not wanted."""
        if compiling is None:
            return before
        try:
            reference = compiling.result(max(0.0, self._deadline - time.monotonic()))
            return self._time(problem, reference, before)
        except (TimeoutError, InvalidReference, RuntimeError, Refused) as error:
            is_late = time.monotonic() >= self._deadline
            return before if is_late else missing(COMPILED, str(error))

    def optimised(self, problem: Problem, before: Baseline, champion: Optimised | None) -> list[Contender]:
        """Time a run's champion as a judge times any tree, and keep what was timed of others."""
        found = [one for one in before.optimised if champion is None or one.name != champion.name]
        if champion is not None:
            found.append(self._optimised(problem, before.kept(champion.name, versions()), champion.files))
        return found

    def _optimised(self, problem: Problem, before: Contender, files: Mapping[str, bytes]) -> Contender:
        if before.is_done or time.monotonic() > self._deadline + GRACE_S:
            return before
        rules = Frozen(problem, self._protocol)
        workloads = problem.workloads_on(self._desk.device)
        built = build(files, rules, self._desk.device, self._desk.cache)
        if isinstance(built, Failure):
            return missing(before.name, f"{built.status}: {built.reason}")
        times_us = dict(before.times_us)
        try:
            with (
                self._desk.table(problem.name, rules, workloads, self._seed) as table,
                table.runner(built) as runner,
            ):
                for workload in (one for one in workloads if one.uuid not in times_us):
                    sitting = table.sitting(workload)
                    timed = timing.measure(sitting, runner, table.control(built), self._rng)
                    if isinstance(timed, Failure):
                        return missing(before.name, f"{timed.status}: {timed.reason}")
                    times_us[workload.uuid] = timed.time_us
        except InvalidReference as error:
            self._desk.references.drop(problem.name, error)
            return missing(before.name, str(error))
        except Refused as error:
            return missing(before.name, str(error))
        return Contender(before.name, times_us, versions())

    def _plain(self, problem: Problem, before: Contender, source: str, file: str) -> Contender:
        if before.is_done:
            return before
        name = before.name
        try:
            reference = self._desk.reference(problem.name, problem)
            reference.load(name, source, file=file)
            return self._time(problem, reference, before)
        except InvalidReference as error:
            self._desk.references.drop(problem.name, error)
            return missing(name, str(error))
        except Refused as error:
            return missing(name, str(error))

    def _time(self, problem: Problem, reference: Reference, before: Contender) -> Contender:
        name, times_us = before.name, dict(before.times_us)
        reasons = []
        workloads = problem.workloads_on(self._desk.device)
        shared, private = self._desk.memories(problem, workloads)
        expected = self._desk.reference(problem.name, problem)
        for workload in workloads:
            if workload.uuid in times_us:
                continue
            if time.monotonic() > self._deadline + GRACE_S:
                return Contender(name, times_us, versions(), NOT_IN_TIME)
            sitting = Sitting(problem, workload, self._tests, expected, shared, private, self._seed)
            caller = ReferenceCaller(reference, name, problem, workload, shared)
            timed = timing.measure(sitting, caller, None, self._rng)
            if isinstance(timed, Failure):
                reasons.append(f"{timed.status}: {timed.reason}")
            else:
                times_us[workload.uuid] = timed.time_us
        return Contender(name, times_us, versions(), one_line("; ".join(reasons), REASON_CHARS))


def missing(name: str, reason: str) -> Contender:
    return Contender(name, {}, versions(), one_line(reason, REASON_CHARS))


if __name__ == "__main__":
    sys.exit(main())
