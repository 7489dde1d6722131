"""One thing that a machine can or cannot do, as `swarm doctor` tells it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from enum import StrEnum

PROBE_TIMEOUT_S = 20


class State(StrEnum):
    THERE = "there"
    LIMITED = "limited"
    """The run works without, and says what it loses."""
    MISSING = "missing"
    """The default run cannot start."""
    UNUSED = "unused"
    """Not there, and not needed for the default run."""


@dataclass(frozen=True, slots=True)
class Capability:
    name: str
    state: State
    found: str
    remedy: str = ""
    """A command, or a sentence where no command helps; empty if nothing has to be done."""


def output(*command: str) -> str | None:
    """Return what `command` prints, None if it fails or is not there."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=True, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
