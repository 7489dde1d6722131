"""What a watcher needs of a pool. A job that we failed is Lost and stays pending; never a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from swarm.device import Device
from swarm.job import Job
from swarm.verdict import Comparison, Verdict


@dataclass(frozen=True, slots=True)
class Done:
    job: Job
    record: Verdict | Comparison


@dataclass(frozen=True, slots=True)
class Lost:
    """Our own failure: the judge died, the device is unhealthy, the disk is full."""

    job: Job
    reason: str


@dataclass(frozen=True, slots=True)
class DeviceState:
    device: Device
    job_id: str | None
    """What it measures now."""
    done: int
    busy_s: float


class Pool(Protocol):
    def submit(self, job: Job) -> None:
        """Queue `job`; comparisons go before verdicts. Never blocks on a device."""

    def poll(self, timeout_s: float) -> list[Done | Lost]:
        """Return what has finished, waiting at most `timeout_s` for the first."""

    def queued(self) -> int:
        """Count the jobs submitted and not yet returned by poll."""

    def devices(self) -> list[DeviceState]: ...

    def close(self) -> None:
        """Stop every process this pool started; jobs in flight are dropped and stay pending."""
