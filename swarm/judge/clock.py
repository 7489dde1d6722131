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

SHARED = 0.15
"""Of the cores' time: where others had more of it, the judge's clock proves nothing about a candidate."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
BUSY_COLUMNS = (1, 2, 3, 6, 7, 8)
"""Of a row of /proc/stat: user, nice, system, irq, softirq, and steal, which other guests took."""


class CoreClock:
    """Starts with a job; `facts` say what happened on the cores while it was measured."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._begun_s = self._measuring_s = time.monotonic()
        self._busy_s = self._own_s = 0.0
        self.measured_s = 0.0
        self.facts: dict[str, str | float | int] = {}

    @property
    def total_s(self) -> float:
        return time.monotonic() - self._begun_s

    @contextmanager
    def measuring(self) -> Iterator[None]:
        self._measuring_s = time.monotonic()
        self._busy_s, self._own_s = _busy_s(self._device), _own_s()
        try:
            yield
        finally:
            self.measured_s = time.monotonic() - self._measuring_s
            self.facts = {
                "load_1min": round(os.getloadavg()[0], 2),
                "foreign_share": round(self.foreign_share, 3),
                "cores": ",".join(map(str, self._device.cores)),
            }

    @property
    def foreign_share(self) -> float:
        """Return which part of the cores' time went to others than the judge's own since it measures."""
        foreign_s = _busy_s(self._device) - self._busy_s - (_own_s() - self._own_s)
        passed_s = (time.monotonic() - self._measuring_s) * len(self._device.cores)
        return max(0.0, foreign_s / max(passed_s, 1 / TICKS_PER_S))

    def check_alone(self, failure: Failure) -> None:
        """Raise Refused if `failure` may only mean that the cores were shared: that is nobody's lie."""
        if isinstance(failure, Contradicted) and (share := self.foreign_share) > SHARED:
            cores = ", ".join(map(str, self._device.cores))
            raise Refused(
                f"other work had {share:.0%} of the time of core {cores}, so no clock can be trusted there",
                remedy="stop what else runs there; the commit is measured again later",
            )


def _busy_s(device: Device) -> float:
    names = {f"cpu{core}" for core in device.cores}
    rows = (line.split() for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu"))
    return sum(int(row[column]) for row in rows if row[0] in names for column in BUSY_COLUMNS) / TICKS_PER_S


def _own_s() -> float:
    """Return the processor time of this process and all below it: references, controls and runners."""
    below: dict[int, list[int]] = {}
    spent: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()  # the name may hold spaces
        except OSError:  # it is gone: its time is in its parent's by now
            continue
        pid = int(stat.parent.name)
        below.setdefault(int(fields[1]), []).append(pid)
        spent[pid] = sum(map(int, fields[11:15]))  # user and system, its own and of children it waited for
    total, todo = 0, [os.getpid()]
    while todo:
        pid = todo.pop()
        total += spent.get(pid, 0)
        todo += below.get(pid, ())
    return total / TICKS_PER_S
