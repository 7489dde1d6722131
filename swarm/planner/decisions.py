"""What the planner can decide. Plain values: `policy` makes them, `swarm.apply` carries them out."""

from __future__ import annotations

from dataclasses import dataclass

from swarm.layout import WorkBranch


@dataclass(frozen=True, slots=True)
class Assign:
    """Give a free worker a problem. `previous` is its newest branch, so that a repeat changes nothing."""

    worker: str
    problem: str
    previous: WorkBranch | None
    reason: str


@dataclass(frozen=True, slots=True)
class Reassign:
    """Move a worker off `previous`; the branch and everything on it stay."""

    worker: str
    problem: str
    previous: WorkBranch
    reason: str


@dataclass(frozen=True, slots=True)
class Retire:
    """Take a worker off its problem without another one."""

    worker: str
    previous: WorkBranch
    reason: str


@dataclass(frozen=True, slots=True)
class RequestComparison:
    """Have the candidate measured against the champion; `id` follows from the pair and what is on record."""

    id: str
    problem: str
    champion: str
    candidate: str
    reason: str


@dataclass(frozen=True, slots=True)
class Merge:
    """Make the candidate champion. `comparisons` are the records that allow it."""

    problem: str
    champion: str
    candidate: str
    comparisons: tuple[str, ...]
    speedup: float | None
    """Geometric mean over `comparisons`; None where the old champion does not pass in this epoch."""
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until something is measured or committed."""

    reason: str


Decision = Assign | Reassign | Retire | RequestComparison | Merge | Wait
