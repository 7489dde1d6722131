"""Puts the planner's facts together from the hub, the ledger, the board and the workers' status files.

Only reads. What it keeps between two calls saves reading the same again and can be dropped at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from swarm import status
from swarm.board import Board, ProblemRow
from swarm.errors import BadInput
from swarm.hub import Hub, Submission
from swarm.layout import NAME, RunPaths, WorkBranch
from swarm.ledger import ComparisonFact, Ledger, VerdictFact
from swarm.planner.facts import Facts, Match, ProblemFacts, Rules, Trial, WorkerFacts
from swarm.protocol import Protocol
from swarm.requests import requests
from swarm.role import Beat, beats, worker_role
from swarm.stamps import settled_stamp
from swarm.status import WorkerState
from swarm.verdict import JUDGE_VERSION, verdict_key

log = logging.getLogger(__name__)

UP_S = 30.0
"""A worker that gave no sign of life for so long gets no new work."""
LOST_S = 120.0
"""... and for so long loses what it has."""


class _Source(NamedTuple):
    """All that the facts of one problem are derived from; while it is the same, so are they."""

    champion: str
    heads: dict[WorkBranch, str]
    verdicts: list[VerdictFact]
    comparisons: list[ComparisonFact]
    requested: frozenset[str]
    exhausted: ProblemRow | None
    refused_ns: int


@dataclass(slots=True)
class Gatherer:
    paths: RunPaths
    hub: Hub
    ledger: Ledger
    device_model: str
    problems: Sequence[str] | None = None
    """Only these take part, if given."""
    _seen: dict[str, tuple[_Source, ProblemFacts]] = field(default_factory=dict)
    _keys: dict[tuple[str, str], str] = field(default_factory=dict)
    _aside: dict[str, str] = field(default_factory=dict)

    def gather(self, board: Board | None, board_fault: str | None, protocol: Protocol, now_s: float) -> Facts:
        champions, heads = self.hub.champions(), self._heads()
        names = sorted(set(champions) if self.problems is None else set(self.problems) & set(champions))
        rows = {row.problem: row for row in board.problems} if board is not None else {}
        asked: dict[str, set[str]] = {}
        for request in requests(self.paths)[0]:
            asked.setdefault(request.problem, set()).add(request.id)
        problems = []
        for name in names:
            row = rows.get(name)
            source = _Source(
                champions[name],
                heads.get(name, {}),
                self.ledger.facts(name),
                self.ledger.comparison_facts(name),
                frozenset(asked.get(name, ())),
                row if row is not None and row.state == "exhausted" else None,
                settled_stamp(self.paths.refusals(name)),
            )
            try:
                problems.append(self._problem(name, source))
            except BadInput as error:  # a branch that somebody moved with a git of his own
                self._leave_aside(name, str(error))
        branches = [branch for held in heads.values() for branch in held]
        workers = tuple(self._workers(branches, board, now_s))
        return Facts(tuple(problems), workers, rules_of(protocol), board_fault)

    # problems

    def _leave_aside(self, name: str, why: str) -> None:
        if self._aside.get(name) != why:
            self._aside[name] = why
            log.warning("%s is left aside: %s", name, why)

    def _problem(self, name: str, source: _Source) -> ProblemFacts:
        seen = self._seen.get(name)
        if seen is None or seen[0] != source:
            seen = self._seen[name] = source, self._derive(name, source)
        return seen[1]

    def _derive(self, name: str, source: _Source) -> ProblemFacts:
        submissions = self.hub.commits(name)
        refused = self.ledger.refusals(name) if source.refused_ns else {}
        records = {row.key: row for row in source.verdicts}
        trials = [_trial(item, records.get(self._key(item)), item.commit in refused) for item in submissions]
        # The planner's own commits follow each other, so this is right even if a ref moved since it was read.
        head = [item for item in submissions if item.branch is None][-1]
        record = records.get(self._key(head))
        used = frozenset(row.id for row in source.comparisons)
        return ProblemFacts(
            name,
            head.commit,
            head.tree,
            tuple(sorted(trials, key=lambda trial: (trial.at_s, trial.commit))),
            tuple(_match(row) for row in source.comparisons if self._counts(row, head.epoch)),
            used,
            source.requested - used,
            frozenset(trial.tree for trial in trials if trial.branch is None) - {head.tree},
            record.t_sol_us if record is not None else None,
            source.exhausted is not None and _still_holds(source.exhausted, trials),
        )

    def _key(self, item: Submission) -> str:
        place = item.tree, item.epoch
        if place not in self._keys:
            self._keys[place] = verdict_key(item.tree, item.epoch, self.device_model)
        return self._keys[place]

    def _counts(self, row: ComparisonFact, epoch: str) -> bool:
        is_current = row.epoch == epoch and row.judge_version == JUDGE_VERSION
        return is_current and row.outcome is not None and row.device_model == self.device_model

    # workers

    def _heads(self) -> dict[str, dict[WorkBranch, str]]:
        found: dict[str, dict[WorkBranch, str]] = {}
        for branch in self.hub.branches():
            found.setdefault(branch.work.problem, {})[branch.work] = branch.head
        return found

    def _workers(
        self, branches: Iterable[WorkBranch], board: Board | None, now_s: float
    ) -> Iterable[WorkerFacts]:
        newest: dict[str, WorkBranch] = {}
        for branch in branches:
            held = newest.get(branch.worker)
            if held is None or held.number < branch.number:
                newest[branch.worker] = branch
        signs = beats(self.paths)
        named = (path.parent.name for path in self.paths.agents.glob("*/status.md"))
        names = {name for name in named if NAME.fullmatch(name)}
        names |= {row.worker for row in board.workers} if board is not None else set()
        for name in sorted(names):
            yield self._worker(name, newest.get(name), board, signs.get(worker_role(name)), now_s)

    def _worker(
        self, name: str, newest: WorkBranch | None, board: Board | None, sign: Beat | None, now_s: float
    ) -> WorkerFacts:
        said = status.read(self.paths.agent(name).status)
        is_stopped = said is not None and said.state is WorkerState.STOPPED
        silent_s = now_s - sign.at_s if sign is not None else float("inf")
        branch, assigned_s = newest, now_s
        row = board.worker(name) if board is not None else None
        if row is not None and row.branch == newest:  # else git knows of an assignment that the board missed
            branch, assigned_s = (newest if row.state == "assigned" else None), row.since_s
        return WorkerFacts(
            name,
            is_up=not is_stopped and silent_s < UP_S and sign is not None and sign.is_alive,
            is_lost=not is_stopped and silent_s >= LOST_S,
            newest=newest,
            branch=branch,
            is_outdated=branch is not None and not self._is_current(branch),
            assigned_s=assigned_s,
            exhausted=said is not None and said.state is WorkerState.EXHAUSTED and said.branch == branch,
        )

    def _is_current(self, branch: WorkBranch) -> bool:
        try:
            return self.hub.is_current(branch)
        except BadInput as error:
            self._leave_aside(branch.problem, str(error))
            return False


def rules_of(protocol: Protocol) -> Rules:
    """Return the numbers that decisions depend on; [planner] is read live."""
    planner, tests = protocol.planner, protocol.tests
    return Rules(
        minimum_effect=tests.minimum_effect,
        confirmations=tests.confirmations,
        stall_verdicts=planner.stall_verdicts,
        stall_minutes=planner.stall_minutes,
        settle_verdicts=planner.settle_verdicts,
        settle_s=planner.settle_s,
        exploration=planner.exploration,
        max_workers_per_problem=planner.max_workers_per_problem,
    )


def _trial(submission: Submission, record: VerdictFact | None, refused: bool) -> Trial:
    if record is None or record.status is None:
        at_s, status_, time_us = float(submission.committed_s), None, None
    else:
        at_s = max(record.created_s, submission.committed_s)
        status_, time_us = record.status, record.time_us
    return Trial(submission.commit, submission.tree, submission.branch, at_s, status_, time_us, refused)


def _still_holds(row: ProblemRow, trials: list[Trial]) -> bool:
    """Say whether nothing was measured in this epoch since `row` was written."""
    judged = {trial.tree for trial in trials if trial.status is not None}
    return row.verdicts == len(judged) and any(trial.commit == row.champion for trial in trials)


def _match(row: ComparisonFact) -> Match:
    assert row.outcome is not None
    return Match(row.id, row.champion_tree, row.candidate_tree, row.outcome, row.ratio)
