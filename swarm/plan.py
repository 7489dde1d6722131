"""The planner's loop: gather facts, decide, carry out, and write the board, the knowledge and the inboxes.

One planner per run, by lock. Everything it writes is derived anew each time, so it can be killed at any
moment; only the board remembers what neither git nor a result says: who was retired, and what is exhausted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from swarm import board as boards
from swarm.apply import SolScore, apply
from swarm.board import Board, ProblemRow, WorkerRow
from swarm.changes import Changes
from swarm.durable import write_if_new
from swarm.errors import BadInput
from swarm.hub import Hub
from swarm.knowledge import Lore, Tried, Won, family_of, render_inbox, render_knowledge
from swarm.layout import RunPaths, WorkBranch
from swarm.ledger import Ledger
from swarm.locks import held
from swarm.planner.decisions import Assign, Decision, Reassign, Retire, Wait
from swarm.planner.facts import Facts, ProblemFacts, WorkerFacts
from swarm.planner.gather import Gatherer
from swarm.planner.policy import decide, is_finished, stall_reason
from swarm.protocol import Protocol, read_protocol
from swarm.requests import requests, withdraw
from swarm.role import Stop, beat
from swarm.verdict import Status

log = logging.getLogger(__name__)

ROLE = "planner"
LOCK = "planner"
STEP_S, IDLE_STEP_S = 0.2, 1.0
"""Shortest and longest time between two decisions."""
LOCK_TIMEOUT_S = 10.0


@dataclass(slots=True)
class Planner:
    paths: RunPaths
    hub: Hub
    ledger: Ledger
    device_model: str
    coordination: Path
    """COORDINATION.md; read again when it changes, since [board] and [planner] apply at once."""
    sol_score: SolScore
    problems: Sequence[str] | None = None
    """Only these take part, if given."""
    clock: Callable[[], float] = time.time
    _gatherer: Gatherer = field(init=False)
    _protocol: tuple[bytes, Protocol] | None = None
    _fault: str | None = None
    _families: dict[str, tuple[str, str]] = field(default_factory=dict)
    _known: dict[str, tuple[ProblemFacts, Lore]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._gatherer = Gatherer(self.paths, self.hub, self.ledger, self.device_model, self.problems)

    def run(self, stop: Stop) -> None:
        """Plan until told to stop; Refused if another planner is at work."""
        with (
            held(self.paths.lock(LOCK), timeout_s=LOCK_TIMEOUT_S, purpose="plan"),
            Changes([self.paths.hub / "refs", self.paths.results, self.paths.agents]) as changes,
        ):
            stepped_s = 0.0
            while not stop():
                if changes.take() or self.clock() - stepped_s >= IDLE_STEP_S:
                    self.step()
                    stepped_s = self.clock()
                stop.sleep(STEP_S)

    def step(self, rebuild: bool = False) -> list[Decision]:
        """Decide once and carry it out; `rebuild` ignores the board that is there and writes a new one."""
        now_s = self.clock()
        protocol = self._read_protocol()
        board, fault = (None, None) if rebuild else self._read_board(protocol)
        facts = self._gatherer.gather(board, fault, protocol, now_s)
        self._withdraw_stale(facts)
        decisions = decide(facts, now_s)
        granted: dict[str, WorkBranch] = {}
        for decision in decisions:
            branch = apply(decision, self.paths, self.hub, protocol.output, self.sol_score)
            if branch is not None:
                granted[branch.worker] = branch
        if fault is None:
            new_board = _board(facts, decisions, granted, now_s)
            boards.write(self.paths.board, new_board, protocol.board.columns)
            self._tell(facts, new_board)
        self._beat(facts, decisions, fault, now_s)
        return decisions

    def _read_protocol(self) -> Protocol:
        """Return the protocol as it is now; while it is broken, as it last was."""
        data = self.coordination.read_bytes()
        if self._protocol is None:
            self._protocol = data, read_protocol(data, str(self.coordination))
        elif self._protocol[0] != data:
            live = self._protocol[1]
            try:
                new = read_protocol(data, str(self.coordination))
            except BadInput as error:
                log.error("the protocol stays as it was: %s", error)
            else:
                # What an epoch froze, [tests] among it, changes with the next epoch only.
                live = live.model_copy(update={"board": new.board, "planner": new.planner})
            self._protocol = data, live
        return self._protocol[1]

    def _read_board(self, protocol: Protocol) -> tuple[Board | None, str | None]:
        try:
            return boards.read(self.paths.board, protocol.board.columns, protocol.board.states), None
        except BadInput as error:
            self._say(str(error))
            return None, str(error)

    def _say(self, fault: str) -> None:
        if fault != self._fault:
            self._fault = fault
            log.error("no new assignments: %s", fault)

    def _withdraw_stale(self, facts: Facts) -> None:
        """Remove requests that have their record, or whose champion is one no longer."""
        champions = {problem.name: problem for problem in facts.problems}
        for request in requests(self.paths)[0]:
            problem = champions.get(request.problem)
            if problem is None:
                continue  # of a problem that does not take part this time
            if request.id in problem.used_ids or request.champion != problem.champion:
                withdraw(self.paths, request)

    def _tell(self, facts: Facts, board: Board) -> None:
        """Bring the knowledge and the inboxes up to date."""
        changed = [p for p in facts.problems if self._known.get(p.name, (None,))[0] is not p]
        self._known |= {problem.name: (problem, self._lore(problem)) for problem in changed}
        lore = {problem.name: self._known[problem.name][1] for problem in facts.problems}
        if changed:
            write_if_new(self.paths.knowledge, render_knowledge(lore.values()).encode())
        for row in board.workers:
            text = render_inbox(row.worker, board.assignment(row.worker), lore)
            write_if_new(self.paths.agent(row.worker).inbox, text.encode())

    def _lore(self, problem: ProblemFacts) -> Lore:
        submissions = {item.commit: item for item in self.hub.commits(problem.name)}
        epoch = self.hub.epoch(problem.name)
        if self._families.get(problem.name, ("",))[0] != epoch.commit:
            toml = self.hub.frozen_files(epoch.commit).get("problem.toml")
            self._families[problem.name] = epoch.commit, family_of(toml)
        times = {trial.commit: trial.time_us for trial in problem.trials}
        won = [
            Won(
                item.subject.removeprefix("Merge: "),
                f"{item.trailers['Speedup']} times as fast" if item.trailers.get("Speedup") else "passes",
                item.trailers.get("Worker", "-"),
            )
            for item in submissions.values()
            if item.branch is None and item.commit != epoch.commit
        ]
        tried = [
            Tried(submissions[trial.commit].subject, trial.branch.worker, trial.status, trial.time_us)
            for trial in problem.trials
            if trial.branch is not None and trial.status is not None
        ]
        return Lore(
            problem.name,
            self._families[problem.name][1],
            problem.champion,
            times.get(problem.champion),
            times.get(epoch.commit),
            problem.t_sol_us,
            tuple(won),
            tuple(tried),
        )

    def _beat(self, facts: Facts, decisions: list[Decision], fault: str | None, now_s: float) -> None:
        beat(
            self.paths,
            ROLE,
            now_s,
            finished=is_finished(facts),
            workers=sum(1 for worker in facts.workers if worker.is_up),
            waiting=next((d.reason for d in decisions if isinstance(d, Wait)), None),
            board_fault=fault,
        )


def _board(
    facts: Facts, decisions: Iterable[Decision], granted: dict[str, WorkBranch], now_s: float
) -> Board:
    """Return the board after `decisions`: what the facts said, with the new assignments in it."""
    freed = {d.worker for d in decisions if isinstance(d, Retire)}
    moved = {d.worker for d in decisions if isinstance(d, Assign | Reassign)}
    rows = []
    for worker in facts.workers:
        if worker.worker in granted:
            rows.append(WorkerRow(worker.worker, "assigned", granted[worker.worker], now_s))
        elif worker.branch is None or worker.worker in freed or worker.worker in moved:
            rows.append(WorkerRow(worker.worker, "free", worker.newest, worker.assigned_s))
        else:
            rows.append(WorkerRow(worker.worker, "assigned", worker.branch, worker.assigned_s))
    at_work = [row.branch.problem for row in rows if row.state == "assigned" and row.branch is not None]
    return Board(
        tuple(_problem_row(p, facts, at_work.count(p.name), now_s) for p in facts.problems), tuple(rows)
    )


def _problem_row(problem: ProblemFacts, facts: Facts, workers: int, now_s: float) -> ProblemRow:
    judged = {trial.tree: trial.status for trial in problem.trials if trial.status is not None}
    champion = next(trial for trial in problem.trials if trial.commit == problem.champion)
    merges = sum(1 for trial in problem.trials if trial.branch is None) - 1
    passed = sum(1 for status in judged.values() if status is Status.PASSED)
    state = _state(problem, facts, workers, now_s)
    time_us = champion.time_us
    return ProblemRow(
        problem.name, state, problem.champion, time_us, problem.t_sol_us, len(judged), passed, merges, workers
    )


def _state(problem: ProblemFacts, facts: Facts, workers: int, now_s: float) -> str:
    here: list[WorkerFacts] = [w for w in facts.workers if w.branch and w.branch.problem == problem.name]
    if problem.exhausted or any(worker.exhausted for worker in here):
        return "exhausted"
    if not workers:
        return "waiting" if any(trial.branch for trial in problem.trials) else "new"
    if here and all(stall_reason(problem, worker, facts.rules, now_s) for worker in here):
        return "stalled"
    return "active"
