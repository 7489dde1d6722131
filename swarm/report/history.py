"""What the report needs to know about one problem of a run, as plain data.

Collecting it from hub, ledger and baselines is `collect`'s work; here is only what follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from swarm.settings import labelled
from swarm.verdict import Status, Verdict


@dataclass(frozen=True, slots=True)
class Reign:
    """A commit that was at the head of problem/<name> from `since_s` on."""

    commit: str
    tree: str
    since_s: float
    subject: str


@dataclass(frozen=True, slots=True)
class History:
    """One problem in its current epoch on one device; the first reign is the seed's."""

    name: str
    reigns: tuple[Reign, ...]
    verdicts: tuple[Verdict, ...]
    """Every verdict of the epoch, judge version and device, oldest first."""
    baseline_us: Mapping[str, float]
    """T_b by workload uuid; empty if none was measured."""
    missing: str = ""
    """Why there is no champion to show, when there is none."""
    is_weak: bool = False
    """A wrong answer passes: it is shown, but counts in no figure over problems."""

    @property
    def label(self) -> str:
        return labelled(self.name, self.is_weak)

    @property
    def seed(self) -> Verdict | None:
        return self.verdict_of(self.reigns[0].tree) if self.reigns else None

    @property
    def champion(self) -> Verdict | None:
        return self.verdict_of(self.reigns[-1].tree) if self.reigns else None

    def verdict_of(self, tree: str) -> Verdict | None:
        return next((v for v in self.verdicts if v.tree == tree), None)

    @property
    def passed(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if v.status is Status.PASSED)
