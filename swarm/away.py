"""One sitting on a host without repository: every job of a bundle, and the comparisons that follow from it.

The planner's own policy decides what is compared, on facts that grow with the records made here. A merge is
only thought: at home the planner finds the same records, and merges for real without further measuring. The
records are all that is kept, so a sitting that was killed goes on where it was.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from swarm.bundle import Bundle, Part
from swarm.errors import BadInput, Refused
from swarm.job import Job, Purpose
from swarm.ledger import Ledger
from swarm.planner.decisions import Merge, RequestComparison
from swarm.planner.facts import Facts, Match, ProblemFacts, Rules, Trial
from swarm.planner.gather import rules_of
from swarm.planner.policy import decide
from swarm.pool.protocol import Done, Lost, Pool
from swarm.protocol import read_protocol
from swarm.verdict import JUDGE_VERSION, Comparison, Verdict, verdict_key

COORDINATION = "COORDINATION.md"
POLL_S = 0.5
TRIES = 3
"""Times that a job which the pool loses is given to it; then it stays pending, for the next sitting."""
RETRY_S, RETRY_FACTOR = 3.0, 10
"""Before the second try, and how much longer before each one after it: a busy device may be free by then."""

Tell = Callable[[Done | Lost], None]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a problem stands: its facts as if every merge had been made, and what comes next."""

    facts: ProblemFacts
    merges: tuple[Merge, ...]
    request: RequestComparison | None


def stand(facts: ProblemFacts, rules: Rules) -> Standing:
    """Follow the policy through all merges that the records allow."""
    merges: list[Merge] = []
    while True:
        # No worker is at work here, so nothing is waited for.
        decisions = decide(Facts((facts,), (), rules), float("inf"))
        merge = next((d for d in decisions if isinstance(d, Merge)), None)
        if merge is None:
            request = next((d for d in decisions if isinstance(d, RequestComparison)), None)
            return Standing(facts, tuple(merges), request)
        merges.append(merge)
        facts = _crowned(facts, merge)


def with_records(
    facts: ProblemFacts, verdicts: Iterable[Verdict], comparisons: Iterable[Comparison]
) -> ProblemFacts:
    """Return the facts that the planner would gather with these records on file."""
    judged = {verdict.tree: verdict for verdict in verdicts}
    trials = (_judged(trial, judged.get(trial.tree)) for trial in facts.trials)
    new = [one for one in comparisons if one.id not in facts.used_ids]
    used = facts.used_ids | {one.id for one in new}
    return replace(
        facts,
        trials=tuple(sorted(trials, key=lambda trial: (trial.at_s, trial.commit))),
        matches=(*facts.matches, *map(_match, new)),
        used_ids=used,
        requested=facts.requested - used,
    )


def _judged(trial: Trial, verdict: Verdict | None) -> Trial:
    if verdict is None:
        return trial
    at_s = max(verdict.created_s, trial.at_s)
    return trial._replace(at_s=at_s, status=verdict.status, time_us=verdict.time_us)


def _match(one: Comparison) -> Match:
    return Match(one.id, one.champion_tree, one.candidate_tree, one.outcome, one.ratio)


def _crowned(facts: ProblemFacts, merge: Merge) -> ProblemFacts:
    tree = next(trial.tree for trial in facts.trials if trial.commit == merge.candidate)
    return replace(
        facts,
        champion=merge.candidate,
        champion_tree=tree,
        former_champions=facts.former_champions | {facts.champion_tree},
    )


@dataclass(slots=True)
class Sitting:
    """Works a bundle off; `ledger` is of a folder of its own, for the records of such sittings alone."""

    bundle: Bundle
    ledger: Ledger
    pool: Pool
    device_model: str
    tell: Tell
    retry_s: float = RETRY_S
    clock: Callable[[], float] = time.monotonic
    expected: int = 0
    """Jobs known so far, those on file included."""
    finished: int = 0
    """... of which are on file."""
    _open: Counter[str] = field(default_factory=Counter)
    """Problem -> jobs in flight or to be tried again."""
    _later: list[tuple[float, Job]] = field(default_factory=list)
    """Jobs to be given to the pool again, and when."""
    _lost: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Job -> how often it was lost, and why the last time."""
    _gaps: dict[str, str] = field(default_factory=dict)
    """Problem -> what cannot be compared here."""
    _parts: dict[str, Part] = field(default_factory=dict)
    _rules: dict[str, Rules] = field(default_factory=dict)

    def run(self) -> None:
        """Judge and compare until nothing is left that can be done here."""
        for part in self.bundle.parts:
            try:
                self._rules[part.facts.name] = _rules_of(part)
            except BadInput as error:  # whose problem it is, the judge could not tell either
                self._gaps[part.facts.name] = str(error)
            else:
                self._parts[part.facts.name] = part
        for part in self._parts.values():
            for job in self._given(part):
                self.expected += 1
                if self._is_on_file(job):
                    self.finished += 1
                else:
                    self._submit(job)
        for part in self._parts.values():
            self._advance(part)
        while self.pool.queued() or self._later:
            self._try_again()
            for outcome in self.pool.poll(POLL_S):
                self._take(outcome)

    def standing(self, part: Part) -> Standing:
        """Return where a problem stands by the records made so far."""
        name = part.facts.name
        if name not in self._rules:
            return Standing(part.facts, (), None)
        keys = {verdict_key(tree, part.epoch, self.device_model) for tree in part.pending}
        verdicts = [verdict for verdict in self.ledger.verdicts(name) if verdict.key in keys]
        return stand(with_records(part.facts, verdicts, self._comparisons(part)), self._rules[name])

    def _comparisons(self, part: Part) -> list[Comparison]:
        made = self.ledger.comparisons(part.facts.name)
        return [
            one
            for one in made
            if (one.epoch, one.judge_version) == (part.epoch, JUDGE_VERSION)
            and one.environment.device_model == self.device_model
        ]

    def left(self) -> dict[str, str]:
        """Return what could not be done, by job or by problem, and why."""
        return {job: reason for job, (times, reason) in self._lost.items() if times >= TRIES} | self._gaps

    def _given(self, part: Part) -> Iterable[Job]:
        trees = {trial.commit: trial.tree for trial in part.facts.trials}
        for request in part.wanted:
            try:
                yield part.comparison_job(request.id, trees[request.champion], trees[request.candidate])
            except KeyError:
                self._gaps[request.id] = "the files of one of its trees are not in the bundle"
        for tree in part.pending:
            yield part.verdict_job(tree, self.device_model)

    def _is_on_file(self, job: Job) -> bool:
        if job.purpose is Purpose.VERDICT:
            return self.ledger.verdict(job.problem, job.id) is not None
        return self.ledger.comparison(job.problem, job.id) is not None

    def _submit(self, job: Job) -> None:
        self._open[job.problem] += 1
        self.pool.submit(job)

    def _try_again(self) -> None:
        now = self.clock()
        due = [job for at, job in self._later if at <= now]
        self._later = [(at, job) for at, job in self._later if at > now]
        for job in due:
            self.pool.submit(job)

    def _take(self, outcome: Done | Lost) -> None:
        job = outcome.job
        if isinstance(outcome, Done):
            self.ledger.record(outcome.record)
            self._lost.pop(job.id, None)
            self.finished += 1
        elif self._may_try_again(outcome):
            self.tell(outcome)
            return
        self._open[job.problem] -= 1
        self.tell(outcome)
        self._advance(self._parts[job.problem])

    def _may_try_again(self, lost: Lost) -> bool:
        """Note the loss; say whether the job will be given to the pool once more."""
        times, _ = self._lost.get(lost.job.id, (0, ""))
        self._lost[lost.job.id] = times + 1, lost.reason
        if times + 1 == TRIES:
            return False
        self._later.append((self.clock() + self.retry_s * RETRY_FACTOR**times, lost.job))
        return True

    def _advance(self, part: Part) -> None:
        """Ask for the next comparison of a problem once all of its trees have been judged."""
        name = part.facts.name
        if self._open[name]:
            return
        request = self.standing(part).request
        if request is None or request.id in self._lost:
            return
        trees = {trial.commit: trial.tree for trial in part.facts.trials}
        try:
            job = part.comparison_job(request.id, trees[request.champion], trees[request.candidate])
        except KeyError:
            self._gaps[name] = f"comparison {request.id}: the files of a tree are not in the bundle"
            return
        self.expected += 1
        self._submit(job)


def _rules_of(part: Part) -> Rules:
    if COORDINATION not in part.problem_files:
        raise BadInput(f"no {COORDINATION}", where=part.facts.name, remedy="make the bundle again")
    return rules_of(read_protocol(part.problem_files[COORDINATION], f"{part.facts.name}/{COORDINATION}"))


def check_fits(bundle: Bundle, device_model: str) -> None:
    """Raise Refused, saying why, if this host cannot work `bundle` off."""
    if bundle.judge_version != JUDGE_VERSION:
        raise Refused(
            f"the bundle wants judge version {bundle.judge_version}, and this swarm has {JUDGE_VERSION}",
            remedy="use the same version of swarm on both hosts",
        )
    if bundle.device_model not in (None, device_model):
        raise Refused(
            f"the bundle is for {bundle.device_model}, and this device is {device_model}",
            remedy=f"make one with: swarm pending --device-model {device_model}",
        )
