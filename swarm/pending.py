"""What is still to be measured in a run, put together for a host that only gets a file.

The watcher says which commits have no verdict and which comparisons are wanted, the planner's gatherer what
is known of each problem: a bundle is what the two would have worked on here. Refusals are put on file.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from swarm.away import stand
from swarm.bundle import Bundle, Part
from swarm.errors import BadInput
from swarm.hub import Hub
from swarm.job import Job, Purpose, Tree
from swarm.layout import RunPaths
from swarm.ledger import Ledger
from swarm.planner.facts import ProblemFacts, Rules, Trial
from swarm.planner.gather import Gatherer, rules_of
from swarm.pool.bundle import BundlePool
from swarm.protocol import Protocol
from swarm.requests import Request
from swarm.verdict import JUDGE_VERSION, Outcome, Status
from swarm.watcher import Watcher

NO_DEVICE = "no-device"
"""A model that nothing was ever measured on: everything is pending for it."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What is to be done, and what a person should know of beside it."""

    parts: tuple[Part, ...]
    faults: tuple[str, ...]

    @property
    def verdicts(self) -> int:
        return sum(len(part.pending) for part in self.parts)

    @property
    def comparisons(self) -> int:
        return sum(len(part.wanted) for part in self.parts)


def pending(
    paths: RunPaths,
    hub: Hub,
    ledger: Ledger,
    protocol: Protocol,
    device_model: str | None,
    problems: Sequence[str] | None = None,
    clock: Callable[[], float] = time.time,
) -> Pending:
    """Return what has not been measured on `device_model`; None: as if nothing had been measured at all."""
    model = device_model or NO_DEVICE
    jobs, faults = _jobs(paths, hub, ledger, protocol, model, problems)
    gatherer = Gatherer(paths, hub, ledger, model, problems)
    facts = gatherer.gather(None, None, protocol, clock())
    parts = []
    for problem in facts.problems:
        mine = [job for job in jobs if job.problem == problem.name]
        try:
            part = _part(hub, problem, mine, rules_of(protocol))
        except BadInput as error:  # a tree that somebody made with a git of his own
            faults.append(f"{problem.name} is left aside: {error}")
            continue
        if part is not None:
            parts.append(part)
    return Pending(tuple(parts), tuple(faults))


def bundle_of(
    run: str,
    found: Pending,
    device_model: str | None,
    baselines: Sequence[str],
    baseline_s: float,
    now_s: float,
) -> Bundle:
    return Bundle(run, JUDGE_VERSION, device_model, now_s, found.parts, tuple(baselines), baseline_s)


def _jobs(
    paths: RunPaths,
    hub: Hub,
    ledger: Ledger,
    protocol: Protocol,
    model: str,
    problems: Sequence[str] | None,
) -> tuple[list[Job], list[str]]:
    pool = BundlePool()
    watcher = Watcher(
        paths, hub, ledger, pool, model, protocol.output.editable, problems=problems, ahead=sys.maxsize
    )
    watcher.scan()
    return pool.jobs, watcher.faults()


def _part(hub: Hub, facts: ProblemFacts, jobs: Sequence[Job], rules: Rules) -> Part | None:
    """Return what is to be done for one problem; None if nothing is."""
    verdicts = [job for job in jobs if job.purpose is Purpose.VERDICT]
    wanted = {job.id: job for job in jobs if _is_of_champion(job, facts)}
    facts = replace(facts, requested=frozenset(wanted))
    if not verdicts and not wanted and stand(facts, rules).request is None:
        return None
    trees = {job.candidate.sha: job.candidate for job in (*verdicts, *wanted.values())}
    for trial in facts.trials:
        if trial.tree not in trees and _may_be_compared(trial, facts):
            trees[trial.tree] = Tree(trial.tree, trial.commit, hub.solution_files(trial.commit))
    epoch = hub.epoch(facts.name)
    return Part(
        facts,
        epoch.hash,
        hub.frozen_files(epoch.commit),
        trees,
        tuple(job.candidate.sha for job in verdicts),
        tuple(_request(job) for job in wanted.values()),
    )


def _is_of_champion(job: Job, facts: ProblemFacts) -> bool:
    """Say whether a comparison is with the champion as it is now; the planner withdraws all others."""
    return job.champion is not None and job.champion.commit == facts.champion


def _request(job: Job) -> Request:
    assert job.champion is not None, "only comparisons are asked for"
    return Request(job.id, job.problem, job.champion.commit, job.candidate.commit)


def _may_be_compared(trial: Trial, facts: ProblemFacts) -> bool:
    """Say whether the policy may want to have the tree compared, whoever wins before it."""
    if trial.tree == facts.champion_tree:
        return True
    if trial.status is not Status.PASSED or trial.refused or trial.tree in facts.former_champions:
        return False
    champion_us = next((t.time_us for t in facts.trials if t.tree == facts.champion_tree), None)
    proven = any(m.candidate_tree == trial.tree and m.outcome is Outcome.FASTER for m in facts.matches)
    return proven or champion_us is None or trial.time_us is None or trial.time_us < champion_us
