"""Which user a boxed program runs as."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from swarm.errors import Refused

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
TRUNCATE_SINCE = 3
"""The version of Landlock that keeps files from being cut."""
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


def right_to_read(needed: Sequence[Path], landlock: int) -> int | None:
    """Return the capability by which root's box reads what is closed to its user, None if all is open.

    Nothing that is not trusted runs as root, and a capability is only given where a version of Landlock
    bounds what it is good for; else Refused. Docker's root has but the right to read and write.
    """
    private = closed(needed)
    if private is None:
        return None
    held = _capabilities()
    if landlock and held >> CAP_DAC_READ_SEARCH & 1:
        return CAP_DAC_READ_SEARCH
    if landlock >= TRUNCATE_SINCE and held >> CAP_DAC_OVERRIDE & 1:
        return CAP_DAC_OVERRIDE
    raise Refused(
        "a box needs this, but its user cannot reach it without namespaces or Landlock",
        where=str(private),
        remedy=f"chmod o+rx {private}",
    )


def _capabilities() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("CapPrm:"))


def own_tasks() -> int:
    """Count the tasks of our user: without a namespace or a user of its own, a box is counted with them."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if folder.stat().st_uid == os.geteuid():
                count += sum(1 for _ in (folder / "task").iterdir())
    return count
