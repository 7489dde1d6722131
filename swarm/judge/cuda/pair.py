"""Two candidates in one process, for what CUPTI may not be believed: short kernels of very unlike grids."""

from __future__ import annotations

from swarm.judge.cuda.clocks import Clocks
from swarm.judge.cuda.memory import DeviceArena
from swarm.judge.cuda.process import Host
from swarm.judge.cuda.runner import CudaRunner
from swarm.judge.cuda.spares import Spares
from swarm.judge.cuda.wire import Clock
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
