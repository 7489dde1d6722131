"""What an agent is to the worker that runs it, and what the worker offers to it.

The unit of progress is a commit and its verdict. An agent never sees git, the hub or another worktree: it
reads and hands in through its Desk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from swarm.layout import WorkBranch
from swarm.verdict import Status


class Progress(StrEnum):
    SUBMITTED = "submitted"
    """A commit was handed in; step again at once."""
    WAITING = "waiting"
    """Nothing to do before something is measured or the world moves."""
    EXHAUSTED = "exhausted"
    """Nothing left to try on this branch."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One commit of the assigned problem in its current epoch, by whomever, and its verdict."""

    commit: str
    tree: str
    branch: WorkBranch | None
    subject: str
    status: Status | None = None
    """None while the verdict is pending."""
    time_us: float | None = None


class Desk(Protocol):
    """One assignment as its agent sees it."""

    @property
    def branch(self) -> WorkBranch: ...

    @property
    def worktree(self) -> Path: ...

    def champion(self) -> Mapping[str, bytes]:
        """Return the files below solution/ of the problem's champion."""

    def solution(self, attempt: Attempt) -> Mapping[str, bytes]:
        """Return the files below solution/ of an attempt; BadInput if they cannot be files."""

    def attempts(self) -> list[Attempt]:
        """Return every attempt at this problem, oldest first."""

    def submit(self, files: Mapping[str, bytes], subject: str, body: str = "") -> str:
        """Commit `files` as the whole of solution/ and return the commit."""

    def wants_stop(self) -> bool:
        """Say whether to leave the step as soon as possible: within 5 s."""


class Agent(Protocol):
    name: str

    def step(self, desk: Desk) -> Progress:
        """Do one bounded piece of work; what it needs to remember follows from the desk's attempts."""
