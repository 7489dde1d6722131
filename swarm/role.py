"""What every long-lived role shares: it is told to stop, and it says that it is alive."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from swarm.durable import write_atomic
from swarm.layout import RunPaths
from swarm.locks import start_token

SLICE_S = 0.1
"""Longest sleep between two looks for a reason to stop."""


class Stop:
    """Truth about whether this process should end: a signal came, or the run's stop file is there."""

    def __init__(self, stop_file: Path) -> None:
        self._stop_file = stop_file
        self._signalled = False

    def on_signals(self) -> Stop:
        """Take SIGTERM and SIGINT as requests; for a process that is a role and nothing else."""
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGINT, self._note)
        return self

    def __call__(self) -> bool:
        return self._signalled or self._stop_file.exists()

    def sleep(self, seconds: float) -> None:
        """Sleep, but not on after a request to stop."""
        end_s = time.monotonic() + seconds
        while not self() and (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(SLICE_S, left_s))

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True


@dataclass(frozen=True, slots=True)
class Beat:
    """The last sign of life of one role."""

    role: str
    pid: int
    start: str
    at_s: float
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def is_alive(self) -> bool:
        """Say whether that very process still exists on this host."""
        return start_token(self.pid) == self.start


def worker_role(worker: str) -> str:
    """Name the role of one worker; the others are called `watcher` and `planner`."""
    return f"worker-{worker}"


def beat(paths: RunPaths, role: str, now_s: float, **facts: Any) -> None:
    """Leave a sign of life of this process, with whatever a person wants to know about `role`."""
    pid = os.getpid()
    record = {"role": role, "pid": pid, "start": start_token(pid) or "", "at_s": now_s, "facts": facts}
    write_atomic(paths.heartbeats / f"{role}.json", json.dumps(record, indent=1).encode())


def beats(paths: RunPaths) -> dict[str, Beat]:
    """Return the last beat of each role; a file that is none is not a sign of life."""
    found = {}
    for path in sorted(paths.heartbeats.glob("*.json")):
        try:
            raw = json.loads(path.read_bytes())
            record = Beat(
                str(raw["role"]), int(raw["pid"]), str(raw["start"]), float(raw["at_s"]), dict(raw["facts"])
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue
        found[record.role] = record
    return found
