"""Boxes for tests: at every level that this machine offers, with Python in them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from swarm import sandbox
from swarm.sandbox import Completed, Level, Limits

CORES = sorted(os.sched_getaffinity(0))
PYTHON = os.path.realpath(sys.executable)

HERE = Path(sandbox.__file__).parts
GIVEN = {HERE[2]} if HERE[:2] == ("/", "tmp") else set()
"""What a box holds in its /tmp besides its own, if this package happens to lie there."""


def offered(at: Level) -> object:
    """Return a level as a parameter, which is left out where the machine cannot build it."""
    return pytest.param(at, marks=pytest.mark.skipif(bool(sandbox.lack(at)), reason=sandbox.lack(at)))


levels = pytest.mark.parametrize("at", [offered(at) for at in Level])
isolated = pytest.mark.parametrize("at", [offered(Level.BUBBLEWRAP), offered(Level.NAMESPACES)])
"""Levels at which a box has a root folder and a network of its own."""


def python(
    code: str,
    at: Level | None = None,
    timeout_s: float = 20,
    readable: Sequence[Path] = (),
    writable: Sequence[Path] = (),
    **limits: int,
) -> Completed:
    return sandbox.run(
        [PYTHON, "-I", "-S", "-c", code],
        timeout_s=timeout_s,
        limits=Limits(**limits),
        cores=CORES,
        readable=readable,
        writable=writable,
        at=at,
    )
