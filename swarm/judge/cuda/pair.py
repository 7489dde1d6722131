"""Two candidates in one process, for what CUPTI may not be believed: short kernels of very unlike grids."""

from __future__ import annotations

import math
import random
from typing import Any

from swarm.judge import compare
from swarm.judge.compare import Quads, SideFailure
from swarm.judge.cuda.clocks import Clocks
from swarm.judge.cuda.memory import DeviceArena
from swarm.judge.cuda.process import Host
from swarm.judge.cuda.runner import CudaRunner
from swarm.judge.cuda.spares import Spares
from swarm.judge.cuda.wire import Clock
from swarm.judge.protocol import Caller, Sitting
from swarm.judge.timing import trimmed
from swarm.languages.protocol import Artifact
from swarm.problem import Problem


def pair(
    artifacts: tuple[Artifact, Artifact],
    problem: Problem,
    arena: DeviceArena,
    spares: Spares,
    *,
    memory_bytes: int,
    timeout_s: float,
    dirty: bool,
) -> tuple[CudaRunner, CudaRunner]:
    """Return runners of two plans in one process, timed by events: what these read too much is one offset."""
    shared = spares.take(Host.BARE)
    clocks = Clocks(Clock.EVENTS)
    one, other = (
        CudaRunner(
            artifact,
            problem,
            arena,
            spares,
            clocks,
            memory_bytes=memory_bytes,
            timeout_s=timeout_s,
            dirty=dirty,
            side=side,
            process=shared,
            place=side,
        )
        for side, artifact in enumerate(artifacts)
    )
    return one, other


def disagreement(
    sitting: Sitting[Any], callers: tuple[Caller, Caller], quads: Quads, rng: random.Random
) -> str | SideFailure:
    """Compare by the clock of `callers`, too; say how it contradicts `quads`, or nothing if it does not.

    What one clock finds to be more than the least effect that counts, the other one must find on that side.
    """
    champion, candidate = ([caller] for caller in callers)
    again = compare.sit(sitting, (champion, candidate), (None, None), rng)
    if isinstance(again, SideFailure):
        return again
    effect = sitting.tests.effect_at(trimmed(quads.sides[0].claimed_us)[0])
    return contradiction(trimmed(quads.log_ratios)[0], trimmed(again.log_ratios)[0], effect)


def contradiction(found: float, again: float, effect: float) -> str:
    """Say how two log ratios contradict each other, or nothing if they do not."""
    if abs(found) <= math.log1p(effect) or found * again > 0:
        return ""
    return f"the ratio is {math.exp(found):.4f} by CUPTI but {math.exp(again):.4f} by events in one process"
