"""How strong a box is, what it may use, and how a program in it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

GIB = 1 << 30


class Level(StrEnum):
    """How a box is built, strongest first; recorded with every result."""

    BUBBLEWRAP = "bubblewrap"
    """Namespaces, made by the program of that name."""
    NAMESPACES = "namespaces"
    """The same, made by ourselves."""
    PROCESS_GROUP = "process-group"
    """On the host, with what a process can give up by itself."""

    def is_at_least(self, other: Level) -> bool:
        order = list(Level)
        return order.index(self) <= order.index(other)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one box may use. Memory is address space per process or, where a box has devices, what of it is
    private and writable: a GPU's driver reserves far more addresses than there is memory."""

    memory_bytes: int = 4 * GIB
    file_bytes: int = 0
    """Largest file that may be written; at 0 the first byte written to any file is fatal."""
    processes: int = 32
    """Processes and threads together."""
    open_files: int = 64
    cpu_s: int = 3600
    scratch_bytes: int = 64 << 20
    """Size of the private /tmp; where a box has no namespaces, only `file_bytes` bounds what lies there."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended: one of the two is set."""

    code: int | None
    signal: str | None

    def __str__(self) -> str:
        return f"exit code {self.code}" if self.signal is None else self.signal

    @property
    def succeeded(self) -> bool:
        return self.code == 0


@dataclass(frozen=True, slots=True)
class Completed:
    """What `run` saw; `exit` is None if the time limit ended it."""

    exit: Exit | None
    output: str
    """The last LOG_BYTES of stdout and stderr together."""
