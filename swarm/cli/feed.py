"""What is new in a run since the last look: verdicts, comparisons, champions. Reads git and files only."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from swarm.errors import BadInput
from swarm.hub import Hub, Submission
from swarm.ledger import Ledger
from swarm.verdict import Outcome, Status


class Kind(StrEnum):
    VERDICT = "verdict"
    COMPARISON = "comparison"
    CHAMPION = "champion"


@dataclass(frozen=True, slots=True)
class News:
    kind: Kind
    problem: str
    worker: str
    what: str
    """The subject of the commit that it is about."""
    result: str
    time_us: float | None = None
    is_good: bool = False


class Feed:
    """Remembers what it has told; what is on record when it is made is not news."""

    def __init__(self, hub: Hub, ledger: Ledger, problems: Sequence[str]) -> None:
        self._hub = hub
        self._ledger = ledger
        self._problems = tuple(problems)
        self._champions = dict(hub.champions())
        self._verdicts = {fact.key for name in self._problems for fact in ledger.facts(name)}
        self._comparisons = {fact.id for name in self._problems for fact in ledger.comparison_facts(name)}
        self.measured = 0
        """Verdicts told so far."""

    def take(self) -> list[News]:
        """Return what is new, oldest first within each problem."""
        champions = self._hub.champions()
        found: list[News] = []
        for name in self._problems:
            if name in champions:
                # One whose branch cannot be read has no news; the watcher says why.
                with suppress(BadInput):
                    found += self._of(name, champions[name])
        return found

    def _of(self, problem: str, champion: str) -> list[News]:
        verdicts = [f for f in self._ledger.facts(problem) if f.key not in self._verdicts]
        comparisons = [f for f in self._ledger.comparison_facts(problem) if f.id not in self._comparisons]
        is_crowned = self._champions.get(problem) != champion
        if not (verdicts or comparisons or is_crowned):
            return []
        by_commit = {s.commit: s for s in self._hub.commits(problem)}
        by_tree = {s.tree: s for s in reversed(by_commit.values())}
        news = []
        for verdict in verdicts:
            self._verdicts.add(verdict.key)
            self.measured += 1
            result = verdict.status.value if verdict.status else "unreadable"
            is_good = verdict.status is Status.PASSED
            about = by_commit.get(verdict.commit)
            news.append(_news(Kind.VERDICT, problem, about, result, verdict.time_us, is_good))
        for comparison in comparisons:
            self._comparisons.add(comparison.id)
            outcome = comparison.outcome.value if comparison.outcome else "unreadable"
            ratio = f" {comparison.ratio:.3f}×" if comparison.ratio else ""
            about = by_tree.get(comparison.candidate_tree)
            is_good = comparison.outcome is Outcome.FASTER
            news.append(_news(Kind.COMPARISON, problem, about, f"{outcome}{ratio}", None, is_good))
        if is_crowned:
            self._champions[problem] = champion
            about = by_commit.get(champion)
            gain = f", {about.trailers['Speedup']}×" if about and about.trailers.get("Speedup") else ""
            news.append(_news(Kind.CHAMPION, problem, about, f"champion {champion[:10]}{gain}", None, True))
        return news


def _news(
    kind: Kind, problem: str, about: Submission | None, result: str, time_us: float | None, is_good: bool
) -> News:
    worker = ""
    if about is not None:
        worker = about.branch.worker if about.branch else about.trailers.get("Worker", "")
    return News(kind, problem, worker, about.subject if about else "", result, time_us, is_good)
