"""status.md: what a worker says about itself, for people and for the planner.

Written by the trusted worker process alone. The planner believes the state and the branch, nothing else;
whatever an agent wrote is in the last line, cut to one line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from swarm.durable import write_if_new
from swarm.foreign import one_line, read_plain
from swarm.layout import WorkBranch, parse_ref

BRANCH_PREFIX = "refs/heads/"
NOTE_CHARS = 200
MAX_BYTES = 4096


class WorkerState(StrEnum):
    IDLE = "idle"
    """No assignment."""
    WORKING = "working"
    EXHAUSTED = "exhausted"
    """Nothing left to try on its branch."""
    STOPPED = "stopped"
    """It was told to stop, and did."""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    worker: str
    state: WorkerState
    agent: str
    branch: WorkBranch | None = None
    commits: int = 0
    """On its branch."""
    waiting: int = 0
    """Of these, without a verdict yet."""
    note: str = ""


def write(path: Path, status: WorkerStatus) -> None:
    """Replace status.md, unless it already says the same."""
    write_if_new(path, render(status).encode())


def read(path: Path) -> WorkerStatus | None:
    """Return the status at `path`; None if there is none or it is not one."""
    data = read_plain(path, MAX_BYTES)
    return parse(data.decode(errors="replace")) if data is not None else None


def render(status: WorkerStatus) -> str:
    branch = status.branch.ref.removeprefix(BRANCH_PREFIX) if status.branch else "-"
    lines = {
        "state": status.state,
        "agent": status.agent,
        "branch": branch,
        "commits": status.commits,
        "waiting": status.waiting,
        "note": one_line(status.note, NOTE_CHARS) or "-",
    }
    return "\n".join([f"# {status.worker}", "", *(f"- {key}: {value}" for key, value in lines.items()), ""])


def parse(text: str) -> WorkerStatus | None:
    title = re.match(r"# (\S+)\n", text)
    lines = dict(re.findall(r"^- (\w+): (.*)$", text, re.MULTILINE))
    branch = parse_ref(BRANCH_PREFIX + lines.get("branch", ""))
    try:
        assert title is not None
        return WorkerStatus(
            title[1],
            WorkerState(lines["state"]),
            lines["agent"],
            branch if isinstance(branch, WorkBranch) else None,
            int(lines["commits"]),
            int(lines["waiting"]),
            "" if lines["note"] == "-" else lines["note"],
        )
    except (AssertionError, KeyError, ValueError):
        return None
