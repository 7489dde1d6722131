"""Puts the planner's facts together from the hub, the ledger, the board and the workers' status files.

Only reads. What it keeps between two calls saves reading the same again and can be dropped at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from swarm import status
from swarm.board import Board, ProblemRow
from swarm.hub import Hub, Submission
from swarm.layout import RunPaths, WorkBranch
from swarm.ledger import ComparisonFact, Ledger, VerdictFact
from swarm.planner.facts import Facts, Match, ProblemFacts, Rules, Trial, WorkerFacts
from swarm.protocol import Protocol
from swarm.requests import requests
from swarm.role import Beat, beats, worker_role
from swarm.status import WorkerState
from swarm.verdict import JUDGE_VERSION, verdict_key

UP_S = 30.0
"""A worker that gave no sign of life for so long gets no new work."""
LOST_S = 120.0
"""... and for so long loses what it has."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the facts of one problem were derived from, and what came out."""

    source: tuple[object, ...]
    facts: ProblemFacts


@dataclass(slots=True)
class Gatherer:
    paths: RunPaths
    hub: Hub
    ledger: Ledger
    device_model: str
    problems: Sequence[str] | None = None
    """Only these take part, if given."""
    _seen: dict[str, _Seen] = field(default_factory=dict)
    _keys: dict[tuple[str, str], str] = field(default_factory=dict)

    def gather(self, board: Board | None, board_fault: str | None, protocol: Protocol, now_s: float) -> Facts:
        champions = self.hub.champions()
        names = sorted(set(champions) if self.problems is None else set(self.problems) & set(champions))
        asked = requests(self.paths)[0]
        problems = []
        for name in names:
            row = board.problem(name) if board is not None else None
            problems.append(
                self._problem(
                    name,
                    champions[name],
                    self.ledger.facts(name),
                    self.ledger.comparison_facts(name),
                    frozenset(request.id for request in asked if request.problem == name),
                    row if row is not None and row.state == "exhausted" else None,
                )
            )
        workers = tuple(self._workers(board, now_s))
        return Facts(tuple(problems), workers, rules_of(protocol), board_fault)

    # problems

    def _problem(
        self,
        name: str,
        champion: str,
        verdicts: list[VerdictFact],
        comparisons: list[ComparisonFact],
        requested: frozenset[str],
        exhausted: ProblemRow | None,
    ) -> ProblemFacts:
        submissions = self.hub.commits(name)
        refusals = self.paths.refusals(name)
        refused_ns = refusals.stat().st_mtime_ns if refusals.is_dir() else 0
        source = (champion, len(submissions), verdicts, comparisons, requested, exhausted, refused_ns)
        seen = self._seen.get(name)
        if seen is None or seen.source != source:
            refused = frozenset(self.ledger.refusals(name)) if refused_ns else frozenset()
            facts = self._derive(
                name, champion, submissions, verdicts, comparisons, requested, exhausted, refused
            )
            seen = self._seen[name] = _Seen(source, facts)
        return seen.facts

    def _derive(
        self,
        name: str,
        champion: str,
        submissions: list[Submission],
        verdicts: list[VerdictFact],
        comparisons: list[ComparisonFact],
        requested: frozenset[str],
        exhausted: ProblemRow | None,
        refused: frozenset[str],
    ) -> ProblemFacts:
        epoch = self.hub.epoch(name).hash
        records = {row.key: row for row in verdicts}
        trials = [
            _trial(submission, records.get(self._key(submission.tree, epoch)), submission.commit in refused)
            for submission in submissions
        ]
        head = next(trial for trial in trials if trial.commit == champion)
        champion_record = records.get(self._key(head.tree, epoch))
        used = frozenset(row.id for row in comparisons)
        return ProblemFacts(
            name,
            champion,
            head.tree,
            tuple(sorted(trials, key=lambda trial: (trial.at_s, trial.commit))),
            tuple(_match(row) for row in comparisons if self._counts(row, epoch)),
            used,
            requested - used,
            frozenset(trial.tree for trial in trials if trial.branch is None) - {head.tree},
            champion_record.t_sol_us if champion_record is not None else None,
            exhausted is not None and _still_holds(exhausted, trials),
        )

    def _key(self, tree: str, epoch: str) -> str:
        if (tree, epoch) not in self._keys:
            self._keys[tree, epoch] = verdict_key(tree, epoch, self.device_model)
        return self._keys[tree, epoch]

    def _counts(self, row: ComparisonFact, epoch: str) -> bool:
        is_current = row.epoch == epoch and row.judge_version == JUDGE_VERSION
        return is_current and row.outcome is not None and row.device_model == self.device_model

    # workers

    def _workers(self, board: Board | None, now_s: float) -> Iterable[WorkerFacts]:
        newest: dict[str, WorkBranch] = {}
        for branch in self.hub.branches():
            held = newest.get(branch.work.worker)
            if held is None or held.number < branch.work.number:
                newest[branch.work.worker] = branch.work
        signs = beats(self.paths)
        names = {path.parent.name for path in self.paths.agents.glob("*/status.md")}
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
            is_outdated=branch is not None and not self.hub.is_current(branch),
            assigned_s=assigned_s,
            exhausted=said is not None and said.state is WorkerState.EXHAUSTED and said.branch == branch,
        )


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
