"""Runner processes that wait for a candidate: imports, context and our own kernels are behind them.

Each is used for one candidate and then killed. They turn to the GPU while nothing is measured there, since
to make a context disturbs what else runs.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path

from swarm import sandbox
from swarm.device import Device
from swarm.judge.cuda import nodes
from swarm.judge.cuda.process import LIMITS as LIMITS
from swarm.judge.cuda.process import Host as Host
from swarm.judge.cuda.process import Process, Shelf

KEPT_OFFSETS = 5


class Spares:
    """The idle runners of one GPU."""

    def __init__(self, device: Device, cubin: bytes, *, at: sandbox.Level | None = None) -> None:
        """`cubin` holds the judge's own kernels, compiled for the device."""
        self._shelf = Shelf(device, cubin, tuple(nodes.nodes(device.uuid)), at)
        self._idle: dict[Host, list[Process]] = defaultdict(list)
        self._offsets_ns: list[float] = []

    @property
    def offset_ns(self) -> float:
        """What events read too much on this GPU, as its first runners measured it."""
        return statistics.median(self._offsets_ns) if self._offsets_ns else 0.0

    def refill(self, host: Host, count: int) -> None:
        """Start what is missing to `count` spares, without waiting for them; nothing is measured now."""
        while len(self._idle[host]) < count:
            self._idle[host].append(Process(self._shelf, host))
        for process in self._idle[host]:
            process.go()

    def take(self, host: Host) -> Process:
        """Return a spare, or a runner started now; it is the caller's to close, and not waited for.

        Where it was the last one that takes seconds to import, another one begins with its imports.
        """
        idle = self._idle[host]
        while idle and idle[0].has_ended():
            idle.pop(0).close()
        taken = idle.pop(0) if idle else Process(self._shelf, host)
        taken.go()
        if host is Host.TORCH and not idle:
            idle.append(Process(self._shelf, host))
        return taken

    def recorder(self, host: Host, shim: Path) -> Process:
        """Return a runner that records, started now; it is the caller's to close, and not waited for."""
        process = Process(self._shelf, host, shim)
        process.go()
        return process

    def wait_for(self, process: Process) -> None:
        """Wait until a runner can take a candidate."""
        process.wait_idle()
        if len(self._offsets_ns) < KEPT_OFFSETS:
            self._offsets_ns.append(process.offset_ns)

    def close(self) -> None:
        for processes in self._idle.values():
            while processes:
                processes.pop().close()
