"""Which user a boxed program runs as."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

UIDS = range(61_184, 65_520)
"""One of these, at random, for each box when we are root: root's own process count has no limit."""


def spare_uid(writable: Sequence[Path]) -> int | None:
    """Return a user to become if we are root, None if the box runs as ourselves.

    A folder that was writable in an earlier box keeps its user.
    """
    if os.geteuid() != 0:
        return None
    owners = [folder.stat().st_uid for folder in writable]
    return next((uid for uid in owners if uid in UIDS), random.SystemRandom().choice(UIDS))


def closed(paths: Sequence[Path]) -> Path | None:
    """Return what keeps other users from reading one of these; what is not there is nobody's secret."""
    for real in (path.resolve() for path in paths):
        for folder in reversed(real.parents):
            if folder.exists() and not folder.stat().st_mode & 0o001:
                return folder
        if real.exists() and not real.stat().st_mode & 0o004:
            return real
    return None


def own_tasks() -> int:
    """Count the tasks of our user: without a namespace or a user of its own, a box is counted with them."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if folder.stat().st_uid == os.geteuid():
                count += sum(1 for _ in (folder / "task").iterdir())
    return count
