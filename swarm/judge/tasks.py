"""What the kernel tells of a candidate's processes: which there are, and how long they have run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from swarm.languages.protocol import Failure
from swarm.verdict import Status

PROC = Path("/proc")
CPUCLOCK_SCHED = 2
"""The clock of a process that counts what the scheduler gave it, to the nanosecond."""


def busy_ns(pid: int) -> int:
    """Return the processor time of all threads of a process; OSError if it is gone."""
    return time.clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED)


def company(others: Sequence[int], log: str) -> Failure | None:
    """Fail if there are other processes in a runner's box when it answers."""
    if not others:
        return None
    reason = f"{len(others)} other processes were in its box when it answered: nothing may run on"
    return Failure(Status.REWARD_HACK, reason, log)


def beside(pid: int, root: int) -> list[int]:
    """Return the processes below `root`, ended or not, but for `pid` and those that it comes from."""
    parents = _below(root)
    while pid in parents:
        pid = parents.pop(pid)
    return list(parents)


def _below(root: int) -> dict[int, int]:
    """Return every process below `root`, and its parent."""
    parents: dict[int, int] = {}
    todo = [root]
    while todo:
        parent = todo.pop()
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            for task in (PROC / str(parent) / "task").iterdir():
                for child in map(int, (task / "children").read_text().split()):
                    parents[child] = parent
                    todo.append(child)
    return parents
