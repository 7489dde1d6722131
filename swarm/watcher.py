"""The watcher: every commit gets a verdict, every request a comparison. It decides nothing else.

What is pending follows from git, the requests and the ledger, so the watcher keeps no memory: what it knows
besides only saves work. Jobs go to a pool; a job that the pool lost stays pending and is tried again later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from swarm.changes import Changes
from swarm.errors import BadInput, SwarmError
from swarm.foreign import inline
from swarm.hub import Epoch, Hub, Submission
from swarm.job import Job, Purpose, Tree
from swarm.layout import RunPaths
from swarm.ledger import Ledger
from swarm.pool.protocol import Done, Lost, Pool
from swarm.requests import Request, requests
from swarm.role import Stop, beat
from swarm.verdict import JUDGE_VERSION, Verdict, verdict_key

log = logging.getLogger(__name__)

ROLE = "watcher"
POLL_S = 0.1
SCAN_S, SCAN_WITHOUT_EVENTS_S = 2.0, 0.5
"""Between two looks at all refs when no event came: events can be lost, and the observer can die."""
FULL_SCAN_S = 30.0
"""Between two looks at every record: somebody may have deleted one to have it measured again."""
BEAT_S = 1.0
AHEAD_PER_DEVICE = 3
"""Jobs queued per device: enough to compile ahead, few enough that what is pending is looked at often."""
RETRY_S, MAX_RETRY_S = 2.0, 300.0
PATH_CHARS = 80


@dataclass(slots=True)
class _Loss:
    times: int = 0
    retry_at_s: float = 0.0
    said: str = ""


@dataclass(slots=True)
class Watcher:
    paths: RunPaths
    hub: Hub
    ledger: Ledger
    pool: Pool
    device_model: str
    editable: Sequence[str]
    """The [output] block's patterns: what a worker's commit may touch."""
    clock: Callable[[], float] = time.time
    recorded: int = 0
    """Records this process wrote."""
    problems: Sequence[str] | None = None
    """Only these, if given."""
    ahead: int = AHEAD_PER_DEVICE
    _in_flight: set[str] = field(default_factory=set)
    _losses: dict[str, _Loss] = field(default_factory=dict)
    _settled: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)
    _checked: set[str] = field(default_factory=set)
    _frozen: dict[str, tuple[str, dict[str, bytes]]] = field(default_factory=dict)
    _full_scan_s: float = 0.0
    _pending: int = 0
    _faults: list[str] = field(default_factory=list)

    def run(self, stop: Stop) -> None:
        """Watch until told to stop."""
        scanned_s = beaten_s = 0.0
        with Changes([self.paths.hub / "refs", self.paths.requests]) as changes:
            while not stop():
                moved = self.take(POLL_S) if self._in_flight else 0
                if not self._in_flight:
                    stop.sleep(POLL_S)
                scan_s = SCAN_S if changes.fault is None else SCAN_WITHOUT_EVENTS_S
                if changes.take() or moved or self.clock() - scanned_s >= scan_s:
                    self.scan()
                    scanned_s = self.clock()
                if self.clock() - beaten_s >= BEAT_S:
                    self._beat(changes.fault)
                    beaten_s = self.clock()

    def step(self, timeout_s: float = POLL_S) -> int:
        """Scan, hand out, and record what is finished within `timeout_s`; return how many records are new."""
        self.scan()
        return self.take(timeout_s)

    def scan(self) -> None:
        """Put what is pending into the pool: comparisons, then the oldest commits, as far as it has room."""
        self._faults = []
        room = self.ahead * max(1, len(self.pool.devices())) - len(self._in_flight)
        wanted = [*self._wanted_comparisons()]
        for job_id, make in wanted:
            self._submit(job_id, make)  # they go to the head of the pool's queue, so room is no matter
        room -= len(wanted)
        waiting = sorted(self._wanted_verdicts(), key=_urgency)
        self._pending = len(waiting) + len(wanted)
        for submission, key in waiting[: max(0, room)]:
            self._submit(key, lambda s=submission, k=key: self._verdict_job(s, k))  # type: ignore[misc]

    def take(self, timeout_s: float) -> int:
        """Record what the pool has finished within `timeout_s`; return how many records are new."""
        new = 0
        for outcome in self.pool.poll(timeout_s):
            self._in_flight.discard(outcome.job.id)
            if isinstance(outcome, Lost):
                self._lost(outcome)
            elif self._record(outcome):
                new += 1
        self.recorded += new
        return new

    def _record(self, done: Done) -> bool:
        is_new = self.ledger.record(done.record)
        self._losses.pop(done.job.id, None)
        said = done.record.status if isinstance(done.record, Verdict) else done.record.outcome
        log.info("%s %s %s: %s", done.job.problem, done.job.candidate.commit[:8], done.job.purpose, said)
        return is_new

    def _lost(self, lost: Lost) -> None:
        loss = self._losses.setdefault(lost.job.id, _Loss())
        loss.times += 1
        loss.retry_at_s = self.clock() + min(MAX_RETRY_S, RETRY_S * 2 ** (loss.times - 1))
        loss.said = f"{lost.job.problem} {lost.job.candidate.commit[:8]} is not judged: {lost.reason}"
        log.warning("%s", loss.said)

    def _is_held_back(self, job_id: str) -> bool:
        loss = self._losses.get(job_id)
        return job_id in self._in_flight or (loss is not None and self.clock() < loss.retry_at_s)

    def _submit(self, job_id: str, make: Callable[[], Job | None]) -> None:
        job = make()
        if job is not None:
            self.pool.submit(job)
            self._in_flight.add(job_id)

    # verdicts

    def _wanted_verdicts(self) -> Iterator[tuple[Submission, str]]:
        if self.clock() - self._full_scan_s >= FULL_SCAN_S:
            self._settled.clear()
            self._full_scan_s = self.clock()
        for problem, head in sorted(self.hub.champions().items()):
            if self.problems is not None and problem not in self.problems:
                continue
            try:
                yield from self._wanted_of(problem, head)
            except BadInput as error:  # a branch that somebody moved with a git of his own
                self._faults.append(f"{problem} is left aside: {error}")

    def _wanted_of(self, problem: str, head: str) -> Iterator[tuple[Submission, str]]:
        submissions = self.hub.commits(problem)
        state = (head, submissions[0].epoch if submissions else "", len(submissions))
        if self._settled.get(problem) == state:
            return
        pending = list(self._pending_of(problem, head, submissions))
        yield from ((s, key) for s, key in pending if not self._is_held_back(key))
        if not pending:
            self._settled[problem] = state

    def _pending_of(
        self, problem: str, head: str, submissions: list[Submission]
    ) -> Iterator[tuple[Submission, str]]:
        """Yield the trees without a verdict, each once, with the key of the verdict that is missing."""
        epoch = self.hub.epoch(problem)
        seen: set[str] = set()
        always = {s.tree for s in submissions if s.commit in (head, epoch.commit)}
        for submission in submissions:
            if self._is_refused(submission) or submission.tree in seen:
                continue
            seen.add(submission.tree)
            key = verdict_key(submission.tree, epoch.hash, self.device_model)
            if self.paths.verdict(problem, key).exists():
                continue
            if submission.tree not in always and self._has_older_verdict(submission, epoch):
                continue
            yield submission, key

    def _has_older_verdict(self, submission: Submission, epoch: Epoch) -> bool:
        """Say whether an earlier judge saw the tree: then only seeds and champions are judged again."""
        older = (
            verdict_key(submission.tree, epoch.hash, self.device_model, version)
            for version in range(1, JUDGE_VERSION)
        )
        return any(self.paths.verdict(submission.problem, key).exists() for key in older)

    def _is_refused(self, submission: Submission) -> bool:
        """Refuse a worker's commit that touches what it may not; its tree may come in another commit."""
        if submission.commit in self._refused:
            return True
        if submission.branch is None or submission.commit in self._checked:
            return False
        try:
            outside = self.hub.changed_outside(submission.commit, self.editable)
        except BadInput as error:
            self._refuse(submission, str(error))
            return True
        if outside:
            named = ", ".join(inline(ascii(path)[1:-1], PATH_CHARS) for path in outside[:3])
            self._refuse(submission, f"changes {named}, which [output] does not allow")
            return True
        self._checked.add(submission.commit)
        return False

    def _refuse(self, submission: Submission, reason: str) -> None:
        self.ledger.refuse(submission.problem, submission.commit, reason)
        self._refused.add(submission.commit)
        log.warning("%s %s: refused: %s", submission.problem, submission.commit[:8], reason)

    def _verdict_job(self, submission: Submission, key: str) -> Job | None:
        try:
            files = self.hub.solution_files(submission.commit)
        except BadInput as error:
            self._refuse(submission, str(error))
            return None
        epoch, frozen = self._epoch(submission.problem)
        candidate = Tree(submission.tree, submission.commit, files)
        return Job(key, Purpose.VERDICT, submission.problem, epoch, frozen, candidate)

    def _epoch(self, problem: str) -> tuple[str, dict[str, bytes]]:
        epoch = self.hub.epoch(problem)
        if self._frozen.get(problem, ("",))[0] != epoch.commit:
            self._frozen[problem] = (epoch.commit, self.hub.frozen_files(epoch.commit))
        return epoch.hash, self._frozen[problem][1]

    # comparisons

    def _wanted_comparisons(self) -> Iterator[tuple[str, Callable[[], Job | None]]]:
        asked, faults = requests(self.paths)
        self._faults += map(str, faults)
        known = self.hub.champions()
        for request in asked:
            if request.problem not in known:
                self._faults.append(f"{request.id}: there is no problem {request.problem}")
            elif self.paths.comparison(request.problem, request.id).exists() or self._is_held_back(
                request.id
            ):
                continue
            else:
                yield request.id, lambda r=request: self._comparison_job(r)  # type: ignore[misc]

    def _comparison_job(self, request: Request) -> Job | None:
        try:
            submissions = {s.commit: s for s in self.hub.commits(request.problem)}
            champion, candidate = submissions[request.champion], submissions[request.candidate]
            epoch, frozen = self._epoch(request.problem)
            return Job(
                request.id,
                Purpose.COMPARISON,
                request.problem,
                epoch,
                frozen,
                Tree(candidate.tree, candidate.commit, self.hub.solution_files(candidate.commit)),
                Tree(champion.tree, champion.commit, self.hub.solution_files(champion.commit)),
            )
        except KeyError:
            self._faults.append(f"{request.id}: a commit is not of the current epoch of {request.problem}")
        except SwarmError as error:
            self._faults.append(f"{request.id}: {error}")
        return None

    def _beat(self, observer_fault: str | None) -> None:
        devices = [
            {"uuid": d.device.uuid, "job": d.job_id, "done": d.done, "busy_s": round(d.busy_s, 3)}
            for d in self.pool.devices()
        ]
        beat(
            self.paths,
            ROLE,
            self.clock(),
            recorded=self.recorded,
            in_flight=len(self._in_flight),
            pending=self._pending,
            devices=devices,
            events=observer_fault or "arriving",
            faults=self.faults()[:5],
        )

    def faults(self) -> list[str]:
        """Return what a person should know of: what cannot be asked for, and what cannot be judged."""
        return [*self._faults, *(loss.said for loss in self._losses.values())]


def _urgency(item: tuple[Submission, str]) -> tuple[bool, int, str]:
    """Order what is pending: seeds and champions first, since everything is measured against them."""
    submission, _ = item
    return submission.branch is not None, submission.committed_s, submission.commit
