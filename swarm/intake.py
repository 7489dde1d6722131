"""Takes in records that were made elsewhere: each is checked as a stranger's, and put on file if it holds.

What is on file stays. A record that is not taken is named with the reason and remains where it came from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TypeVar

from swarm.baseline import Baseline, load_baseline, parse_baseline, save_baseline
from swarm.contents import files_hash
from swarm.errors import BadInput, Refused
from swarm.hub import Hub
from swarm.layout import RunPaths, RunRoot
from swarm.ledger import Ledger
from swarm.parcel import Parcel, origin_of
from swarm.problem import Problem, problem_from_files
from swarm.records import comparison_fault, is_time, verdict_fault
from swarm.requests import ID
from swarm.verdict import JUDGE_VERSION, Comparison, Verdict, comparison_from_json, verdict_from_json

R = TypeVar("R", Verdict, Comparison)
BASELINE = re.compile(r"results/baselines/[^/]+/(?!peaks\.json)[^/]+\.json")


@dataclass(slots=True)
class Taken:
    """What became of a parcel."""

    verdicts: int = 0
    comparisons: int = 0
    baselines: int = 0
    known: int = 0
    """Records that were on file already."""
    renumbered: list[str] = field(default_factory=list)
    """Comparisons whose number another one has here."""
    faults: list[BadInput] = field(default_factory=list)
    """Why records were not taken; they stay where they are."""


@dataclass(frozen=True, slots=True)
class _Home:
    """What a record of one problem must fit."""

    epoch: str
    trees: dict[str, set[str]]
    """Solution tree -> the commits that have it."""
    problem: Problem
    seeds: set[str]
    """Of the comparisons on file: no two sittings have the same, so each is known by it."""


def take_in(
    parcel: Parcel, where: str, root: RunRoot, paths: RunPaths, hub: Hub, ledger: Ledger, now_s: float
) -> Taken:
    """Put the records of a parcel on file; Refused or BadInput if none of it can be meant for this run."""
    _check_origin(parcel, where, paths.run)
    intake = _Intake(parcel, where, root, paths.run, hub, ledger, now_s)
    # Comparisons first: a verdict without its comparisons would make the planner ask for them again.
    for place, comparison in intake.records("comparisons", comparison_from_json):
        intake.take_comparison(place, comparison)
    for place, verdict in intake.records("verdicts", verdict_from_json):
        intake.take_verdict(place, verdict)
    for name in filter(BASELINE.fullmatch, parcel.names):
        intake.take_baseline(name)
    return intake.taken


def _check_origin(parcel: Parcel, where: str, run: str) -> None:
    origin = origin_of(parcel, where)
    if origin.run != run:
        raise BadInput(
            f"these are results of run {origin.run!r}, not {run!r}",
            where=where,
            remedy=f"type: swarm results import --run {origin.run}",
        )
    if origin.judge_version != JUDGE_VERSION:
        raise Refused(
            f"judge version {origin.judge_version} made these results, and this swarm has {JUDGE_VERSION}",
            where=where,
            remedy="use the same version of swarm on both hosts; the commits stay pending",
        )


@dataclass(slots=True)
class _Intake:
    parcel: Parcel
    where: str
    root: RunRoot
    run: str
    hub: Hub
    ledger: Ledger
    now_s: float
    taken: Taken = field(default_factory=Taken)
    _homes: dict[str, _Home | str] = field(default_factory=dict)

    def records(self, kind: str, parse: Callable[[bytes, str], R]) -> Iterator[tuple[str, R]]:
        """Yield the records of one kind that can be read and belong to this run, oldest first."""
        found: list[tuple[str, R]] = []
        for name in self.parcel.names:
            if not re.fullmatch(rf"results/{self.run}/{kind}/[^/]+/[^/]+\.json", name):
                continue
            place, path = f"{self.where}/{name}", PurePosixPath(name)
            try:
                record = parse(self.parcel.read(name), place)
            except BadInput as error:
                self.taken.faults.append(error)
                continue
            fault = self._belonging_fault(record, path)
            if fault:
                self._leave(place, fault)
            else:
                # The clock of that host may be ahead, and nothing is judged in the future.
                found.append((place, replace(record, created_s=min(record.created_s, self.now_s))))
        yield from sorted(found, key=lambda item: item[1].created_s)

    def take_verdict(self, place: str, verdict: Verdict) -> None:
        home = self._home(verdict.problem)
        assert isinstance(home, _Home), "it belongs to this run"
        fault = verdict_fault(verdict, home.problem)
        if not fault and verdict.commit not in home.trees.get(verdict.tree, ()):
            fault = f"no commit {verdict.commit[:12]!r} of this epoch holds the tree {verdict.tree[:12]!r}"
        if fault:
            self._leave(place, fault)
        elif self.ledger.record(verdict):
            self.taken.verdicts += 1
        else:
            self.taken.known += 1

    def take_comparison(self, place: str, comparison: Comparison) -> None:
        home = self._home(comparison.problem)
        assert isinstance(home, _Home), "it belongs to this run"
        fault = comparison_fault(comparison, home.problem)
        if not fault and not {comparison.champion_tree, comparison.candidate_tree} <= home.trees.keys():
            fault = "one of its trees is in no commit of this epoch"
        if fault:
            self._leave(place, fault)
        elif comparison.seed in home.seeds:
            self.taken.known += 1
        else:
            self._number(comparison)
            home.seeds.add(comparison.seed)
            self.taken.comparisons += 1

    def take_baseline(self, name: str) -> None:
        place, path = f"{self.where}/{name}", PurePosixPath(name)
        try:
            baseline = parse_baseline(self.parcel.read(name), place)
        except BadInput as error:
            self.taken.faults.append(error)
            return
        fault = self._baseline_fault(baseline, path)
        if fault:
            self._leave(place, fault)
        elif self._has_as_good(baseline):
            self.taken.known += 1
        else:
            save_baseline(self.root, baseline)
            self.taken.baselines += 1

    def _number(self, comparison: Comparison) -> None:
        """Put it on file; another sitting may have given its number away, and both are facts."""
        pair, _, number = comparison.id.rpartition("-")
        new = comparison
        while not self.ledger.record(new):
            number = str(int(number) + 1)
            new = replace(comparison, id=f"{pair}-{number}")
        if new.id != comparison.id:
            self.taken.renumbered.append(f"{comparison.id} is {new.id} here")

    def _belonging_fault(self, record: Verdict | Comparison, path: PurePosixPath) -> str:
        own = record.key if isinstance(record, Verdict) else record.id
        if (record.problem, own) != (path.parent.name, path.stem):
            return "its file is named for another record"
        if isinstance(record, Comparison) and not ID.fullmatch(record.id):
            return f"{record.id[:40]!r} is not the id of a comparison"
        home = self._home(record.problem)
        if isinstance(home, str):
            return home
        if record.judge_version != JUDGE_VERSION:
            return f"judge version {record.judge_version} made it, and this swarm has {JUDGE_VERSION}"
        if record.epoch != home.epoch:
            return f"it is of epoch {record.epoch[:12]!r}, and {record.problem} is in {home.epoch[:12]}"
        return ""

    def _baseline_fault(self, baseline: Baseline, path: PurePosixPath) -> str:
        if (baseline.problem, baseline.device_model) != (path.stem, path.parent.name):
            return "its file is named for another one"
        home = self._home(baseline.problem)
        if isinstance(home, str):
            return home
        if baseline.judge_version != JUDGE_VERSION:
            return f"judge version {baseline.judge_version} made it, and this swarm has {JUDGE_VERSION}"
        if baseline.files != files_hash(home.problem.files):
            return "it was measured for other files of the problem"
        known = {one.uuid for one in (*home.problem.workloads, *home.problem.cpu_workloads)}
        for contender in baseline.contenders:
            if not contender.times_us.keys() <= known or not all(map(is_time, contender.times_us.values())):
                return f"the times of {contender.name[:40]!r} are none"
        return ""

    def _has_as_good(self, baseline: Baseline) -> bool:
        try:
            stored = load_baseline(self.root, baseline.device_model, baseline.problem)
        except BadInput:
            return False
        if stored is None or (stored.files, stored.judge_version) != (baseline.files, JUDGE_VERSION):
            return False
        return stored.is_complete or not baseline.is_complete

    def _home(self, problem: str) -> _Home | str:
        """Return what a record of `problem` must fit, or why none of it can be taken."""
        if problem not in self._homes:
            self._homes[problem] = self._find_home(problem)
        return self._homes[problem]

    def _find_home(self, problem: str) -> _Home | str:
        if problem not in self.hub.champions():
            return f"there is no problem {problem[:60]!r} in this run"
        try:
            epoch = self.hub.epoch(problem)
            trees: dict[str, set[str]] = {}
            for submission in self.hub.commits(problem):
                trees.setdefault(submission.tree, set()).add(submission.commit)
            frozen = problem_from_files(self.hub.frozen_files(epoch.commit), problem)
        except BadInput as error:
            return str(error)
        seeds = {one.seed for one in self.ledger.comparisons(problem)}
        return _Home(epoch.hash, trees, frozen, seeds)

    def _leave(self, place: str, why: str) -> None:
        self.taken.faults.append(BadInput(f"not taken: {why}", where=place, remedy="it stays where it is"))
