"""What the planner knows: measured records, refs and who is at work. No claim by any agent counts.

The values are immutable, so that `policy.decide` is a function of them and the clock alone. `gather`
puts them together from the hub, the ledger and the board.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from swarm.layout import WorkBranch
from swarm.verdict import Outcome, Status


class Trial(NamedTuple):  # a tuple because ten thousand are built for one decision
    """One commit and what was measured of its tree in the problem's current epoch."""

    commit: str
    tree: str
    branch: WorkBranch | None
    """The work branch it was made on; None on the problem's own branch."""
    at_s: float
    """When it was judged; while it is pending, when it was committed."""
    status: Status | None = None
    """None while its verdict is pending."""
    time_us: float | None = None
    refused: bool = False
    """The commit breaks the protocol whatever its tree is worth: it can never be merged."""

    @property
    def is_pending(self) -> bool:
        """Whether a verdict will come; a refused commit need not get one."""
        return self.status is None and not self.refused


@dataclass(frozen=True, slots=True)
class Match:
    """One comparison on record in the current epoch."""

    id: str
    champion_tree: str
    candidate_tree: str
    outcome: Outcome
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class ProblemFacts:
    name: str
    champion: str
    champion_tree: str
    trials: tuple[Trial, ...]
    """Every commit since the epoch began, oldest result first; the champion's tree is among them."""
    matches: tuple[Match, ...] = ()
    used_ids: frozenset[str] = frozenset()
    """Ids of all comparisons ever recorded, stale ones included: a record is never written twice."""
    requested: frozenset[str] = frozenset()
    """Ids that were asked for and have no record yet."""
    former_champions: frozenset[str] = frozenset()
    """Trees that were champion before in this epoch."""
    t_sol_us: float | None = None
    exhausted: bool = False
    """A worker said that it has nothing left to try here, and nothing was measured since."""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    worker: str
    is_up: bool
    """It gave a sign of life lately and was not told to stop."""
    is_lost: bool = False
    """No sign of life for long, and no goodbye either: its place can be given away."""
    newest: WorkBranch | None = None
    """The newest branch it ever got; numbers only grow."""
    branch: WorkBranch | None = None
    """What it is assigned to now; None if it is free or retired."""
    is_outdated: bool = False
    """`branch` began in an earlier epoch: nothing more on it is measured."""
    assigned_s: float = 0.0
    exhausted: bool = False
    """It says that it has nothing left to try on `branch`."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The numbers of [tests] and [planner] that decisions depend on."""

    minimum_effect: tuple[tuple[float, float], ...] = ((5.0, 0.02), (50.0, 0.01), (float("inf"), 0.005))
    """Upper bound of a time in us -> the smallest relative gain that counts there."""
    confirmations: int = 1
    stall_verdicts: int = 8
    stall_minutes: float = 20.0
    settle_verdicts: int = 2
    """A new best is compared with the champion once so many later verdicts have not beaten it."""
    settle_s: float = 20.0
    """... or after this time, or at once where nobody is at work."""
    exploration: float = 0.5
    max_workers_per_problem: int = 4

    def effect(self, time_us: float) -> float:
        return next(effect for bound, effect in self.minimum_effect if time_us < bound)

    def to_beat(self, time_us: float) -> float:
        """Return the time below which another is better than `time_us` by the minimum effect."""
        return time_us * (1 - self.effect(time_us))


@dataclass(frozen=True, slots=True)
class Facts:
    problems: tuple[ProblemFacts, ...] = ()
    workers: tuple[WorkerFacts, ...] = ()
    rules: Rules = field(default_factory=Rules)
    board_fault: str | None = None
    """Why the board cannot be read; assignments stop until it can, measuring and merging do not."""
