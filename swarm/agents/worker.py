"""A worker: takes its assignment from the board, lets its agent work on it, and commits what is handed in.

This process is trusted, the agent's text and files are not: trees are validated before they are committed, by
plumbing, from files read without following links. What it needs to remember is in git, results and files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from swarm import board as boards
from swarm import status
from swarm.agents import mailbox
from swarm.agents.mailbox import AnswerState
from swarm.agents.protocol import Agent, Attempt, Progress
from swarm.errors import BadInput, Raced, Refused
from swarm.hub import NOTES, Hub, Submission
from swarm.layout import RunPaths, WorkBranch
from swarm.ledger import Ledger
from swarm.protocol import Protocol
from swarm.role import Stop, beat, worker_role
from swarm.solution import validate_tree
from swarm.status import WorkerState, WorkerStatus
from swarm.verdict import Status, verdict_key

log = logging.getLogger(__name__)

WAIT_S = 0.15
"""Between two steps of an agent that waits: short against a verdict."""
IDLE_S = 0.3
BEAT_S = 2.0


@dataclass(slots=True)
class Worker:
    worker: str
    agent: Agent
    paths: RunPaths
    hub: Hub
    ledger: Ledger
    protocol: Protocol
    device_model: str
    stop: Stop
    clock: Callable[[], float] = time.time
    _desk: WorkerDesk | None = None
    _beaten_s: float = 0.0
    _board_fault: str | None = None
    _said: str = ""

    def run(self) -> None:
        """Work until told to stop."""
        while not self.stop():
            progress = self.step()
            if progress is not Progress.SUBMITTED:
                self.stop.sleep(WAIT_S if progress is Progress.WAITING else IDLE_S)
        self._say(WorkerState.STOPPED)

    def step(self) -> Progress:
        """Do one step of the assignment; EXHAUSTED also where there is none."""
        try:
            progress = self._work()
        except (Raced, Refused) as error:  # the branch has a new epoch or another writer; the board will tell
            self._warn(str(error))
            progress = Progress.WAITING
        except BadInput as error:  # what is on the branch cannot be worked on; the planner gives another one
            self._warn(str(error))
            self._desk, progress = None, Progress.WAITING
        if self._desk is None:
            self._say(WorkerState.IDLE)
            return Progress.EXHAUSTED
        self._say(WorkerState.EXHAUSTED if progress is Progress.EXHAUSTED else WorkerState.WORKING)
        return progress

    def _work(self) -> Progress:
        desk = self._take_assignment()
        if desk is None:
            return Progress.EXHAUSTED
        self._serve_mailbox(desk)
        return self.agent.step(desk)

    def _warn(self, text: str) -> None:
        if text != self._said:
            self._said = text
            log.warning("%s", text)

    def _take_assignment(self) -> WorkerDesk | None:
        board_rules = self.protocol.board
        try:
            board = boards.read(self.paths.board, board_rules.columns, board_rules.states)
            self._board_fault = None
        except BadInput as error:
            if str(error) != self._board_fault:
                self._board_fault = str(error)
                log.error("keeping the assignment: %s", error)
            return self._desk
        branch = board.assignment(self.worker) if board is not None else None
        if branch is None or not self.hub.is_current(branch):
            self._desk = None
        elif self._desk is None or self._desk.branch != branch:
            folder = self.hub.worktree(self.worker, branch)
            self._desk = WorkerDesk(self, branch, folder)
            log.info("%s: %s on %s", self.worker, self.agent.name, branch.ref)
        return self._desk

    def _serve_mailbox(self, desk: WorkerDesk) -> None:
        agent = self.paths.agent(self.worker)
        mailbox.serve(agent, desk.branch.problem, desk.hand_in)
        for answer in mailbox.open_answers(agent):
            if self.paths.verdict(answer.problem, answer.verdict).exists():
                judged = mailbox.Answer(
                    answer.id, AnswerState.JUDGED, answer.problem, answer.commit, answer.verdict
                )
                mailbox.put_answer(agent, judged)
            elif refusal := self.ledger.refusals(answer.problem).get(answer.commit):
                refused = mailbox.Answer(
                    answer.id, AnswerState.REFUSED, answer.problem, answer.commit, reason=refusal.reason
                )
                mailbox.put_answer(agent, refused)

    def _say(self, state: WorkerState) -> None:
        desk = self._desk
        mine = [] if desk is None else [a for a in desk.attempts() if a.branch == desk.branch]
        said = WorkerStatus(
            self.worker,
            state,
            self.agent.name,
            desk.branch if desk is not None else None,
            len(mine),
            sum(1 for attempt in mine if attempt.status is None),
            mine[-1].subject if mine else "",
        )
        status.write(self.paths.agent(self.worker).status, said)
        if self.clock() - self._beaten_s >= BEAT_S or state is WorkerState.STOPPED:
            beat(self.paths, worker_role(self.worker), self.clock(), state=state, commits=said.commits)
            self._beaten_s = self.clock()


@dataclass(slots=True)
class WorkerDesk:
    """What the worker offers to its agent for one assignment; see agents.protocol.Desk."""

    _worker: Worker
    branch: WorkBranch
    worktree: Path
    _files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    _records: dict[str, tuple[Status, float | None]] = field(default_factory=dict)

    def champion(self) -> Mapping[str, bytes]:
        head = self._worker.hub.champions()[self.branch.problem]
        return self._solution(head, head)

    def solution(self, attempt: Attempt) -> Mapping[str, bytes]:
        return self._solution(attempt.tree, attempt.commit)

    def attempts(self) -> list[Attempt]:
        hub = self._worker.hub
        epoch = hub.epoch(self.branch.problem).hash
        return [self._attempt(submission, epoch) for submission in hub.commits(self.branch.problem)]

    def submit(self, files: Mapping[str, bytes], subject: str, body: str = "") -> str:
        return self._commit(files, None, f"{subject}\n\n{body}")

    def hand_in(self, message: str) -> tuple[str, str]:
        """Commit what lies in the worktree; return the commit and the key of the verdict it will get."""
        found = self._worker.hub.read_worktree(self._worker.worker)
        commit = self._commit(found.solution, found.notes, message)
        submission = next(s for s in self._worker.hub.commits(self.branch.problem) if s.commit == commit)
        return commit, self._key(submission)

    def wants_stop(self) -> bool:
        return self._worker.stop()

    def _commit(self, files: Mapping[str, bytes], notes: bytes | None, message: str) -> str:
        worker = self._worker
        validate_tree(files, worker.protocol)
        limit = worker.protocol.output.max_file_bytes
        if notes is not None and len(notes) > limit:
            raise BadInput(f"{len(notes)} bytes", where=NOTES, remedy=f"use at most {limit}")
        trailers = worker.protocol.output.trailing({"Worker": worker.worker, "Agent": worker.agent.name})
        return worker.hub.submit(worker.worker, self.branch, files, notes, message, trailers)

    def _solution(self, key: str, commit: str) -> dict[str, bytes]:
        if key not in self._files:
            self._files[key] = self._worker.hub.solution_files(commit)
        return self._files[key]

    def _key(self, submission: Submission) -> str:
        return verdict_key(submission.tree, submission.epoch, self._worker.device_model)

    def _attempt(self, submission: Submission, epoch: str) -> Attempt:
        key = self._key(submission)
        if key not in self._records:
            try:
                verdict = self._worker.ledger.verdict(self.branch.problem, key)
            except BadInput as error:
                log.error("%s", error)
                verdict = None
            if verdict is not None:
                self._records[key] = verdict.status, verdict.time_us
        status_, time_us = self._records.get(key, (None, None))
        return Attempt(
            submission.commit, submission.tree, submission.branch, submission.subject, status_, time_us
        )
