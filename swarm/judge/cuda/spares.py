"""Runner processes that wait for a candidate: imports, context and our own kernels are behind them.

Each is used for one candidate and then killed. They are started while nothing is measured, since to make a
context disturbs what else runs on the GPU.
"""

from __future__ import annotations

import statistics
from collections import defaultdict

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
        """Start what is missing to `count` spares, without waiting for them."""
        while len(self._idle[host]) < count:
            self._idle[host].append(Process(self._shelf, host))

    def take(self, host: Host) -> Process:
        """Return a spare, or a runner started now; it is the caller's to close, and not waited for."""
        while self._idle[host] and self._idle[host][0].has_ended():
            self._idle[host].pop(0).close()
        return self._idle[host].pop(0) if self._idle[host] else Process(self._shelf, host)

    def wait_for(self, process: Process) -> None:
        """Wait until a runner can take a candidate."""
        process.wait_idle()
        if len(self._offsets_ns) < KEPT_OFFSETS:
            self._offsets_ns.append(process.offset_ns)

    def close(self) -> None:
        for processes in self._idle.values():
            while processes:
                processes.pop().close()
