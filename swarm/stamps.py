"""Tell whether anything was added to, renamed in or removed from a folder, without listing it."""

from __future__ import annotations

import time
from pathlib import Path

TICK_S = 0.02
"""File times come from a clock that ticks every 1 to 10 ms; two changes in one tick look like one."""


def stamp(path: Path) -> int:
    """Return a number that changes when the folder (or file) `path` does; 0 if it is not there."""
    try:
        return path.stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return 0


def settled_stamp(path: Path) -> int:
    """Return a stamp that no later change can repeat; what is listed after this call is at least as new.

    Waits for the end of the tick if the last change is that fresh.
    """
    found = stamp(path)
    while 0 <= time.time_ns() - found < TICK_S * 1e9:
        time.sleep(TICK_S)
        found = stamp(path)
    return found
