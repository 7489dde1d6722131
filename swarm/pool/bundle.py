"""A pool that measures nothing: it keeps the jobs, to be carried to a host out of reach."""

from __future__ import annotations

from dataclasses import dataclass, field

from swarm.job import Job
from swarm.pool.protocol import DeviceState, Done, Lost


@dataclass(slots=True)
class BundlePool:
    """Takes every job at once and gives none back: records come home by `swarm.intake`."""

    jobs: list[Job] = field(default_factory=list)

    def submit(self, job: Job) -> None:
        self.jobs.append(job)

    def poll(self, timeout_s: float) -> list[Done | Lost]:
        return []

    def queued(self) -> int:
        return len(self.jobs)

    def devices(self) -> list[DeviceState]:
        return []

    def close(self) -> None:
        self.jobs.clear()
