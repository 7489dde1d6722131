"""The seconds of one job, and whether the cores were the judge's own meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swarm.device import Device
from swarm.errors import Refused
from swarm.judge.timing import Contradicted
from swarm.languages.protocol import Failure

SHARED = 0.03
"""Of the judge's time: above it the cores are not its own, and its clock proves nothing about a candidate."""


class Clock:
    """The seconds of one job, and what else the cores did while it was measured."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self.measured_s = 0.0
        self._scheduled = (0, 0)
        self.facts: dict[str, str | float | int] = {}

    @property
    def total_s(self) -> float:
        return time.monotonic() - self._begun

    @property
    def waited_share(self) -> float:
        """Return which part of its time the judge waited for other work on its cores since it began."""
        ran_ns, waited_ns = (now - then for now, then in zip(_scheduled(), self._scheduled, strict=True))
        return waited_ns / max(1, ran_ns + waited_ns)

    def check_alone(self, failure: Failure, device: Device) -> None:
        """Raise Refused if `failure` may only mean that the cores were shared: that is nobody's lie."""
        share = self.waited_share
        if isinstance(failure, Contradicted) and share > SHARED:
            cores = ", ".join(map(str, device.cores))
            raise Refused(
                f"core {cores} is busy with other work: the judge had to wait {share:.0%} of its time",
                remedy="stop what else runs there; the commit is measured again later",
            )

    @contextmanager
    def measuring(self, device: Device) -> Iterator[None]:
        begun, steal = time.monotonic(), _steal_ticks(device)
        self._scheduled = _scheduled()
        try:
            yield
        finally:
            self.measured_s = time.monotonic() - begun
            self.facts = {
                "load_1min": round(os.getloadavg()[0], 2),
                "steal_ms": (_steal_ticks(device) - steal) * 1000 // os.sysconf("SC_CLK_TCK"),
                "waited_share": round(self.waited_share, 4),
                "cores": ",".join(map(str, device.cores)),
            }


def _steal_ticks(device: Device) -> int:
    """Return the time other guests of the host took from the cores, in clock ticks."""
    names = {f"cpu{core}" for core in device.cores}
    rows = (line.split() for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu"))
    return sum(int(row[8]) for row in rows if row[0] in names)


def _scheduled() -> tuple[int, int]:
    """Return the nanoseconds this process ran and waited for a core (Linux' schedstat)."""
    ran_ns, waited_ns, _ = Path("/proc/self/schedstat").read_text().split()
    return int(ran_ns), int(waited_ns)
