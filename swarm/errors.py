"""The errors a person can act on; a candidate's failure is never one of them (that is a Status).

SwarmError
├── BadInput      a file, field or argument that somebody wrote is wrong
├── Refused       the state does not allow it: a held lock, a full disk, another run in progress
├── Raced         a compare-and-swap lost; re-read and try again
└── GitFailed     a git command failed that should not have

Anything else that escapes is a fault of ours: exit code 3, with a log file.
"""

from __future__ import annotations

from swarm.foreign import one_line

MAX_CHARS = 4_000
"""More than anybody reads: a name or a program's last words are in some of them."""


class SwarmError(Exception):
    """Say in one line what is wrong, where, and what to do about it."""

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        super().__init__(what)

    def __str__(self) -> str:
        line = f"{self.where}: {self.what}" if self.where else self.what
        line = f"{line}; {self.remedy}" if self.remedy else line
        return one_line(line, MAX_CHARS)


class BadInput(SwarmError):
    """A definition, workload, toml block, board row, tree or argument does not say what it must."""


class Refused(SwarmError):
    """The request is well formed but cannot be done now."""


class Raced(SwarmError):
    """Another writer moved the ref first; nothing was written."""


class GitFailed(SwarmError):
    """A git command ended with an error; the message holds the command and what it printed."""
