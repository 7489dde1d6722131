"""Stand-ins that are real implementations of the seams, and a whole small run to put them into.

The pool looks times up in a table where the real one compiles and measures; the agent follows a script where
the real ones think. Everything between them is the product.
"""

from __future__ import annotations

import json
import os
import time
import tomllib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from swarm.agents.protocol import Agent, Desk, Progress
from swarm.agents.tuner import Tuner
from swarm.agents.worker import Worker
from swarm.device import Device
from swarm.hub import Hub
from swarm.job import Job, Purpose, Tree
from swarm.layout import RunPaths, RunRoot
from swarm.ledger import Ledger
from swarm.plan import Planner
from swarm.planner.decisions import Decision
from swarm.pool.protocol import DeviceState, Done, Lost
from swarm.protocol import load_protocol
from swarm.role import Stop
from swarm.verdict import (
    JUDGE_VERSION,
    Comparison,
    Environment,
    Outcome,
    Status,
    Trust,
    Verdict,
    WorkloadRatio,
    WorkloadResult,
)
from swarm.watcher import Watcher

REPOSITORY = Path(__file__).parent.parent
DEVICE = Device("cpu", "table-cpu", "cpu-table-1", (1,))
ENVIRONMENT = Environment(DEVICE.model, DEVICE.uuid, "table", "none", Trust.HOST, {})
T_SOL_US = 1.0
LEAST_RATIO = 1.01

Table = Callable[[Tree], float | Status]
"""Time of a tree in us, or how it fails."""


def solution(tune: Mapping[str, Sequence[int]] | None = None, **params: int) -> dict[str, bytes]:
    """Return a valid cpp solution with these parameters and this search space."""
    lines = ['language = "cpp"', 'sources = ["kernel.cpp"]', "", "[params]"]
    lines += [f"{name} = {value}" for name, value in params.items()]
    if tune:
        lines += ["", "[tune]", *(f"{name} = {list(values)}" for name, values in tune.items())]
    return {"solution.toml": ("\n".join(lines) + "\n").encode(), "kernel.cpp": b'#include "problem.h"\n'}


def params_of(tree: Tree) -> dict[str, int]:
    manifest = tomllib.loads(tree.files["solution.toml"].decode())
    return dict(manifest["params"])


def by_params(tree: Tree) -> float | Status:
    """The table most tests use: the time is 100 us divided by every parameter; 13 does not compile."""
    time_us = 100.0
    for value in params_of(tree).values():
        if value == 13:
            return Status.COMPILE_ERROR
        time_us /= value
    return time_us


@dataclass(slots=True)
class TablePool:
    """A pool of one device that takes times from a table. One job at a time; comparisons go first."""

    table: Table = by_params
    job_s: float = 0.0
    journal: Path | None = None
    """Where each start and end of a job is noted, for tests that kill the process around it."""
    lose: set[str] = field(default_factory=set)
    """Ids of jobs to lose, once each."""
    _queue: deque[Job] = field(default_factory=deque)
    _running: tuple[Job, float] | None = None
    _done: int = 0

    def submit(self, job: Job) -> None:
        if job.purpose is Purpose.COMPARISON:
            self._queue.appendleft(job)
        else:
            self._queue.append(job)

    def poll(self, timeout_s: float) -> list[Done | Lost]:
        end_s = time.monotonic() + timeout_s
        while True:
            if self._running is None and self._queue:
                job = self._queue.popleft()
                self._note("start", job)
                self._running = job, time.monotonic() + self.job_s
            if self._running is not None and time.monotonic() >= self._running[1]:
                job, self._running = self._running[0], None
                self._note("end", job)
                self._done += 1
                if job.id in self.lose:
                    self.lose.discard(job.id)
                    return [Lost(job, "the table was taken away")]
                return [Done(job, self._judge(job))]
            if time.monotonic() >= end_s:
                return []
            time.sleep(0.002)

    def queued(self) -> int:
        return len(self._queue) + (self._running is not None)

    def devices(self) -> list[DeviceState]:
        return [DeviceState(DEVICE, self._running[0].id if self._running else None, self._done, 0.0)]

    def close(self) -> None:
        self._queue.clear()
        self._running = None

    def _judge(self, job: Job) -> Verdict | Comparison:
        return verdict_of(job, self.table) if job.champion is None else comparison_of(job, self.table)

    def _note(self, event: str, job: Job) -> None:
        if self.journal is not None:
            fields = {"event": event, "id": job.id, "problem": job.problem, "pid": os.getpid()}
            line = json.dumps(fields)
            with self.journal.open("a") as file:
                file.write(line + "\n")


def verdict_of(job: Job, table: Table) -> Verdict:
    found = table(job.candidate)
    status = found if isinstance(found, Status) else Status.PASSED
    time_us = None if isinstance(found, Status) else found
    return Verdict(
        key=job.id,
        problem=job.problem,
        epoch=job.epoch,
        tree=job.candidate.sha,
        commit=job.candidate.commit,
        language="cpp",
        judge_version=JUDGE_VERSION,
        status=status,
        reason="" if status is Status.PASSED else "the table says so",
        workloads=(WorkloadResult("w0", status, time_us=time_us, t_sol_us=T_SOL_US),),
        environment=ENVIRONMENT,
        seed="table",
        created_s=time.time(),
        measured_s=0.0,
        total_s=0.0,
    )


def comparison_of(job: Job, table: Table) -> Comparison:
    assert job.champion is not None
    champion, candidate = table(job.champion), table(job.candidate)
    ratio: float | None = None
    outcome, failure = Outcome.UNDECIDED, None
    if isinstance(candidate, Status):
        failure = candidate
    elif not isinstance(champion, Status):
        ratio = champion / candidate
        slower = Outcome.SLOWER if ratio < 1 / LEAST_RATIO else Outcome.SAME
        outcome = Outcome.FASTER if ratio > LEAST_RATIO else slower
    return Comparison(
        id=job.id,
        problem=job.problem,
        epoch=job.epoch,
        judge_version=JUDGE_VERSION,
        champion_tree=job.champion.sha,
        candidate_tree=job.candidate.sha,
        outcome=outcome,
        reason="the table says so",
        workloads=() if ratio is None else (WorkloadRatio("w0", ratio, ratio, ratio, 30),),
        environment=ENVIRONMENT,
        seed="table",
        created_s=time.time(),
        measured_s=0.0,
        ratio=ratio,
        failure=failure,
    )


class ScriptedAgent:
    """Hands in the same list of solutions on every branch, one at a time; the desk says how far it came."""

    name = "script"

    def __init__(self, script: Sequence[tuple[str, Mapping[str, bytes]]]) -> None:
        self._script = script

    def step(self, desk: Desk) -> Progress:
        mine = [attempt for attempt in desk.attempts() if attempt.branch == desk.branch]
        if any(attempt.status is None for attempt in mine):
            return Progress.WAITING
        if len(mine) == len(self._script):
            return Progress.EXHAUSTED
        subject, files = self._script[len(mine)]
        known = {attempt.commit for attempt in desk.attempts()}
        is_new = desk.submit(files, subject) not in known
        return Progress.SUBMITTED if is_new else Progress.EXHAUSTED


PROBLEM_FILES = {
    "workload.cpu.jsonl": b"{}\n",
    "reference.py": b"def run():\n    return 0\n",
    "problem.toml": b'family = "table"\n',
}
TUNE = {"BLOCK": (1, 2, 4), "UNROLL": (1, 2, 3)}
SEED = solution(TUNE, BLOCK=1, UNROLL=1)
PLANNER = {"settle_verdicts": 1, "settle_s": 0.0, "stall_verdicts": 3}


@dataclass(slots=True)
class Swarm:
    """One run in one process, stepped by hand. Everything in it can be dropped and opened again."""

    root: RunRoot
    pool: TablePool = field(default_factory=TablePool)
    agent: Callable[[], Agent] = Tuner
    workers: tuple[str, ...] = ("w1",)
    paths: RunPaths = field(init=False)
    hub: Hub = field(init=False)
    ledger: Ledger = field(init=False)
    watcher: Watcher = field(init=False)
    planner: Planner = field(init=False)
    crew: list[Worker] = field(init=False)

    def __post_init__(self) -> None:
        self.paths = self.root.run("test")
        protocol = load_protocol(self.root.coordination.read_text())
        self.hub, self.ledger = Hub(self.paths), Ledger(self.paths)
        self.hub.ensure()
        model = DEVICE.model
        self.watcher = Watcher(self.paths, self.hub, self.ledger, self.pool, model, protocol.output.editable)
        self.planner = Planner(
            self.paths, self.hub, self.ledger, model, self.root.coordination, lambda problem, commit: None
        )
        self.crew = [
            Worker(
                name,
                self.agent(),
                self.paths,
                self.hub,
                self.ledger,
                protocol,
                model,
                Stop(self.paths.stop),
            )
            for name in self.workers
        ]

    def __enter__(self) -> Swarm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.pool.close()
        self.ledger.close()
        self.hub.close()

    def start(self, *problems: str, seed: Mapping[str, bytes] = SEED) -> None:
        for problem in problems:
            self.hub.ensure_epoch(problem, self.problem_files(problem), seed, "planner")

    def problem_files(self, problem: str) -> dict[str, bytes]:
        definition = json.dumps({"name": problem}).encode()
        coordination = self.root.coordination.read_bytes()
        return {**PROBLEM_FILES, "definition.json": definition, "COORDINATION.md": coordination}

    def round(self) -> list[Decision]:
        """Let every role do one step."""
        for worker in self.crew:
            worker.step()
        self.watcher.step(0.0)
        return self.planner.step()

    def until(self, condition: Callable[[], bool], rounds: int = 400) -> None:
        for _ in range(rounds):
            if condition():
                return
            self.round()
        raise AssertionError(f"not reached in {rounds} rounds:\n{self.paths.board.read_text()}")

    def is_quiet(self) -> bool:
        """Say whether every commit is judged and nobody has anything left to try."""
        beat = self.paths.heartbeats / "planner.json"
        return beat.exists() and bool(json.loads(beat.read_bytes())["facts"]["finished"])

    def champion(self, problem: str) -> Tree:
        commit = self.hub.champions()[problem]
        return Tree("", commit, self.hub.solution_files(commit))


def make_root(folder: Path, **planner: float) -> RunRoot:
    """Make a run root with the project's own protocol, its [planner] numbers changed."""
    text = (REPOSITORY / "COORDINATION.md").read_text()
    head, _, tail = text.partition("[planner]\n")
    for name, value in (PLANNER | planner).items():
        lines = tail.split("\n")
        [index] = [n for n, line in enumerate(lines) if line.startswith(f"{name} =")]
        lines[index] = f"{name} = {value}"
        tail = "\n".join(lines)
    root = RunRoot(folder)
    root.path.mkdir(parents=True, exist_ok=True)
    root.coordination.write_text(f"{head}[planner]\n{tail}")
    root.config.write_text("")
    return root
