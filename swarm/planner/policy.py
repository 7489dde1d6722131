"""The default policy: facts and a clock in, decisions out. Nothing is read or written here.

Promotion follows records alone: a tree that passed and looks faster is compared with the champion, a FASTER
is confirmed by fresh comparisons, and only then merged. Workers go where the next improvement is likeliest
and worth most; every problem is tried once before any is tried for long.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from swarm.planner.decisions import Assign, Decision, Merge, Reassign, RequestComparison, Retire, Wait
from swarm.planner.facts import Facts, Match, ProblemFacts, Rules, Trial, WorkerFacts
from swarm.verdict import Outcome, Status, geometric_mean

RECENT_TRIALS = 20
"""How far back the improvement rate looks: what worked long ago says little about the next trial."""
SURVEY = 2
"""While problems are unvisited, a line is left after 1 / SURVEY of the verdicts that would stall it."""
UNKNOWN_HEADROOM = math.log(2)
"""Assumed where no limit or no time is known yet: as if a factor of two were left."""
LEAST_HEADROOM = 0.01
"""A problem at its limit still differs from none: limits are estimates."""


def decide(facts: Facts, now_s: float) -> list[Decision]:
    """Return what to do now; the same facts and time give the same decisions in the same order."""
    decisions = [*_promotions(facts, now_s), *_assignments(facts, now_s)]
    return decisions or [Wait(_what_is_awaited(facts))]


def is_finished(facts: Facts) -> bool:
    """Say whether nobody can go on: all is judged and compared, and no worker has anything left to try."""
    return (
        not any(worker.branch for worker in facts.workers)
        and all(problem.exhausted for problem in facts.problems)
        and not any(problem.requested for problem in facts.problems)
        and not any(trial.is_pending for problem in facts.problems for trial in problem.trials)
    )


def line_of(problem: ProblemFacts, worker: WorkerFacts) -> list[Trial]:
    """Return the judged trials of the worker's present branch, oldest first."""
    return [trial for trial in problem.trials if trial.branch == worker.branch and trial.status is not None]


def stall_reason(problem: ProblemFacts, worker: WorkerFacts, rules: Rules, now_s: float) -> str | None:
    """Say why the worker's line is stalled, or None: being busy is not the same as improving."""
    line = line_of(problem, worker)
    improved_s = _last_improvement_s(problem, worker, rules)
    since = [trial for trial in line if improved_s is None or trial.at_s > improved_s]
    if len(since) >= rules.stall_verdicts:
        return f"{len(since)} verdicts without an improvement"
    idle_s = now_s - max(worker.assigned_s, improved_s or 0.0)
    if idle_s >= rules.stall_minutes * 60:
        return f"{idle_s / 60:.0f} minutes without an improvement"
    return None


# --- promotion -------------------------------------------------------------------------------------------


def _promotions(facts: Facts, now_s: float) -> Iterator[Decision]:
    attended = {w.branch.problem for w in facts.workers if w.is_up and w.branch is not None}
    for problem in facts.problems:
        decision = _promote(problem, facts.rules, problem.name in attended, now_s)
        if decision is not None:
            yield decision


def _promote(
    problem: ProblemFacts, rules: Rules, is_attended: bool, now_s: float
) -> Merge | RequestComparison | None:
    champion = next((t for t in problem.trials if t.tree == problem.champion_tree), None)
    if champion is None or champion.status is None:
        return None  # nothing can be said until the champion itself is measured
    if champion.time_us is None:
        return _replace_failed(problem, champion)
    needed = 1 + rules.confirmations
    waiting: list[tuple[Trial, list[Match]]] = []
    for candidate in _candidates(problem, champion.time_us, rules):
        matches = _matches(problem, candidate)
        if any(match.outcome is not Outcome.FASTER for match in matches):
            continue  # settled against this champion
        if len(matches) >= needed:
            return _merge(problem, candidate, matches)
        waiting.append((candidate, matches))
    if problem.requested or not waiting:
        return None  # one candidate at a time: its result decides what the others are measured against
    candidate, matches = max(waiting, key=lambda item: len(item[1]))  # finish what was begun; else the best
    if matches or _is_settled(problem, candidate, rules, is_attended, now_s):
        return _request(problem, candidate, len(matches) + 1, needed)
    return None


def _candidates(problem: ProblemFacts, champion_us: float, rules: Rules) -> list[Trial]:
    """Return mergeable trees that look faster, or were FASTER than an earlier champion, best first."""
    proven = {match.candidate_tree for match in problem.matches if match.outcome is Outcome.FASTER}
    excluded = problem.former_champions | {problem.champion_tree}
    limit_us = rules.to_beat(champion_us)
    best: dict[str, Trial] = {}
    for trial in problem.trials:  # the cheapest test first: most of ten thousand are no candidates
        if trial.time_us is None or (trial.time_us >= limit_us and trial.tree not in proven):
            continue
        if trial.status is Status.PASSED and not trial.refused and trial.tree not in excluded:
            best.setdefault(trial.tree, trial)
    return sorted(best.values(), key=lambda trial: (trial.time_us, trial.commit))


def _matches(problem: ProblemFacts, candidate: Trial) -> list[Match]:
    pair = (problem.champion_tree, candidate.tree)
    return [m for m in problem.matches if (m.champion_tree, m.candidate_tree) == pair]


def _is_settled(
    problem: ProblemFacts, candidate: Trial, rules: Rules, is_attended: bool, now_s: float
) -> bool:
    """Say whether a comparison pays now: while a line improves with every verdict, the next one is better."""
    if not is_attended or now_s - candidate.at_s >= rules.settle_s:
        return True
    later = sum(1 for trial in problem.trials if trial.status is not None and trial.at_s > candidate.at_s)
    return later >= rules.settle_verdicts


def _request(problem: ProblemFacts, candidate: Trial, turn: int, needed: int) -> RequestComparison:
    pair = f"{problem.champion_tree[:8]}-{candidate.tree[:8]}"
    number = 1
    while f"{pair}-{number}" in problem.used_ids:
        number += 1
    reason = f"{candidate.time_us:.4g} us, comparison {turn} of {needed}"
    return RequestComparison(f"{pair}-{number}", problem.name, problem.champion, candidate.commit, reason)


def _merge(problem: ProblemFacts, candidate: Trial, matches: list[Match]) -> Merge:
    ratios = [match.ratio for match in matches if match.ratio is not None]
    return Merge(
        problem.name,
        problem.champion,
        candidate.commit,
        tuple(match.id for match in matches),
        geometric_mean(ratios) if ratios else None,
        f"FASTER in {len(matches)} comparisons",
    )


def _replace_failed(problem: ProblemFacts, champion: Trial) -> Merge | None:
    """A champion that fails in this epoch cannot be compared with: the best tree that passes follows it."""
    passed = [t for t in problem.trials if t.status is Status.PASSED and t.time_us and not t.refused]
    if not passed:
        return None
    best = min(passed, key=lambda trial: (trial.time_us, trial.commit))
    reason = f"the champion is {champion.status} in this epoch"
    return Merge(problem.name, problem.champion, best.commit, (), None, reason)


# --- assignments -----------------------------------------------------------------------------------------


def _assignments(facts: Facts, now_s: float) -> Iterator[Decision]:
    if facts.board_fault is not None:
        return
    problems = {problem.name: problem for problem in facts.problems}
    closed = {name for name, problem in problems.items() if problem.exhausted}
    closed |= {w.branch.problem for w in facts.workers if w.branch is not None and w.exhausted}
    load = Counter(w.branch.problem for w in facts.workers if w.is_up and w.branch is not None)
    scores = _scores(facts)

    def best(current: str | None) -> str | None:
        """Return where a worker is worth most; an unvisited problem before all others."""
        room = [
            name
            for name in problems
            if name != current and name not in closed and load[name] < facts.rules.max_workers_per_problem
        ]
        return max(sorted(room), key=lambda n: (n in unvisited, scores[n] / (1 + load[n])), default=None)

    unvisited = {name for name, problem in problems.items() if not load[name] and not _is_visited(problem)}
    free = [w for w in facts.workers if w.is_up and w.branch is None]
    for worker in sorted(free, key=lambda w: w.worker):
        target = best(None)
        if target is not None:
            load[target] += 1
            unvisited.discard(target)
            yield Assign(worker.worker, target, worker.newest, _why(target, problems, scores))

    for worker in _longest_line_first(facts, problems):
        assert worker.branch is not None  # _longest_line_first gives only these
        current = worker.branch.problem
        if worker.is_lost:
            yield Retire(worker.worker, worker.branch, "no sign of life")
        if not worker.is_up:
            continue
        reason = _reason_to_leave(worker, problems.get(current), facts.rules, bool(unvisited), now_s)
        if reason is None:
            continue
        target = best(None if worker.is_outdated else current)
        if target is not None:
            load[current] -= 1
            load[target] += 1
            unvisited.discard(target)
            yield Reassign(worker.worker, target, worker.branch, reason)
        elif current in closed or current not in problems:
            load[current] -= 1
            yield Retire(worker.worker, worker.branch, reason)


def _longest_line_first(facts: Facts, problems: dict[str, ProblemFacts]) -> list[WorkerFacts]:
    """Order the assigned workers: when one has to make the survey go on, it is who has tried most."""

    def length(worker: WorkerFacts) -> int:
        problem = problems.get(worker.branch.problem) if worker.branch else None
        return len(line_of(problem, worker)) if problem else 0

    assigned = [worker for worker in facts.workers if worker.branch is not None]
    return sorted(assigned, key=lambda worker: (-length(worker), worker.worker))


def _reason_to_leave(
    worker: WorkerFacts, problem: ProblemFacts | None, rules: Rules, has_unvisited: bool, now_s: float
) -> str | None:
    if problem is None:
        return "the problem is gone"
    if worker.is_outdated:
        return "the problem has a new epoch"
    if worker.exhausted:
        return "nothing left to try"
    stalled = stall_reason(problem, worker, rules, now_s)
    if stalled is not None:
        return stalled
    if has_unvisited and len(line_of(problem, worker)) * SURVEY >= rules.stall_verdicts:
        return "other problems have not been visited yet"
    return None


def _scores(facts: Facts) -> dict[str, float]:
    """Return expected worth of one more trial: (posterior improvement rate + exploration) x headroom."""
    tried = {problem.name: _tried(problem) for problem in facts.problems}
    total = sum(map(len, tried.values()))
    scores = {}
    for problem in facts.problems:
        trials = tried[problem.name]
        recent = trials[-RECENT_TRIALS:]
        wins = len(_improvements(problem, facts.rules) & {trial.commit for trial in recent})
        rate = (wins + 1) / (len(recent) + 2)  # the mean of a Beta(1 + wins, 1 + losses)
        bonus = facts.rules.exploration * math.sqrt(math.log1p(total) / (1 + len(trials)))
        scores[problem.name] = (rate + bonus) * _headroom(problem)
    return scores


def _headroom(problem: ProblemFacts) -> float:
    times = [t.time_us for t in problem.trials if t.time_us is not None and t.status is Status.PASSED]
    if not times or not problem.t_sol_us:
        return UNKNOWN_HEADROOM
    return max(LEAST_HEADROOM, math.log(min(times) / problem.t_sol_us))


def _improvements(problem: ProblemFacts, rules: Rules) -> set[str]:
    """Return the commits that beat everything judged before them by the minimum effect."""
    best_us = limit_us = math.inf
    found = set()
    for trial in problem.trials:
        if trial.time_us is None or trial.time_us >= best_us or trial.status is not Status.PASSED:
            continue
        if trial.time_us < limit_us:
            found.add(trial.commit)
        best_us = trial.time_us
        limit_us = rules.to_beat(best_us)
    return found


def _last_improvement_s(problem: ProblemFacts, worker: WorkerFacts, rules: Rules) -> float | None:
    found = _improvements(problem, rules)
    return max((t.at_s for t in line_of(problem, worker) if t.commit in found), default=None)


def _tried(problem: ProblemFacts) -> list[Trial]:
    return [trial for trial in problem.trials if trial.branch is not None and trial.status is not None]


def _is_visited(problem: ProblemFacts) -> bool:
    return any(trial.branch is not None for trial in problem.trials)


def _why(name: str, problems: dict[str, ProblemFacts], scores: dict[str, float]) -> str:
    return f"expected worth {scores[name]:.3g}" if _is_visited(problems[name]) else "not visited yet"


def _what_is_awaited(facts: Facts) -> str:
    pending = sum(1 for p in facts.problems for t in p.trials if t.is_pending)
    requested = sum(len(p.requested) for p in facts.problems)
    return f"{pending} verdicts and {requested} comparisons awaited"
