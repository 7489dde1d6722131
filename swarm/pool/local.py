"""A pool of devices of this host, all of one model: a judge process each, and threads that compile ahead.

Judges are processes because they are pinned to their device's cores and may die; a job that killed three of
them is Lost. One that a device could not do is given to the others first. What is measured, and how, is the
judges' own. Nothing here imports torch.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from swarm.device import Device, cores_beside
from swarm.errors import BadInput
from swarm.job import Job, Purpose
from swarm.judge.build import build, frozen
from swarm.pool.judge_process import END_S, JudgeDied, JudgeProcess, NotStarted
from swarm.pool.protocol import DeviceState, Done, Lost

TRIES = 3
RESTART_S = 1.0
AHEAD = 4
"""Jobs compiled, per judge, before it is free for them."""
MAX_COMPILERS = 4
"""More would only make more of a disk's and a memory's work at a time."""
LOSSES, REST_S = 3, 30.0
"""A device that could not do so many jobs in a row rests, where others can do its work."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """A job that is ready to be judged."""

    job: Job
    tried: set[int] = field(default_factory=set)
    """The judges that could not do it."""


class LocalPool:
    """The devices of this host. Threads only wait: judges measure, compilers are processes."""

    def __init__(
        self, devices: Sequence[Device], cache: Path, peaks: Mapping[str, bytes], logs: Path
    ) -> None:
        """`peaks` by device model, as `judge.peaks` writes them; `logs` is the folder of the judges' logs."""
        _check_alike(devices)
        self._cache = cache
        self._changed = threading.Condition()
        """Guards the queues and the states."""
        self._uncompiled: deque[Job] = deque()
        self._compiling = 0
        self._comparisons: deque[_Waiting] = deque()
        self._verdicts: deque[_Waiting] = deque()
        self._finished: queue.SimpleQueue[Done | Lost] = queue.SimpleQueue()
        self._count = 0
        self._is_closing = False
        self._states = [DeviceState(device, None, 0, 0.0) for device in devices]
        self._judges = [
            JudgeProcess(device, cache, peaks[device.model], logs / f"judge-{device.uuid}.log")
            for device in devices
        ]
        self._spare = cores_beside(devices)
        self._threads = [
            # One model is one target: what is compiled for the first device runs on all of them.
            threading.Thread(target=self._compile_ahead, args=(devices[0],), daemon=True)
            for _ in range(compilers(devices))
        ]
        self._threads += [
            threading.Thread(target=self._serve, args=(index,), daemon=True) for index in range(len(devices))
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        with self._changed:
            if job.purpose is Purpose.COMPARISON:  # its trees have verdicts, so they are compiled already
                self._comparisons.append(_Waiting(job))
            else:
                self._uncompiled.append(job)
            self._count += 1
            self._changed.notify_all()

    def poll(self, timeout_s: float) -> list[Done | Lost]:
        found: list[Done | Lost] = []
        with suppress(queue.Empty):
            found.append(self._finished.get(timeout=timeout_s))
            while True:
                found.append(self._finished.get_nowait())
        with self._changed:
            self._count -= len(found)
        return found

    def queued(self) -> int:
        with self._changed:
            return self._count

    def devices(self) -> list[DeviceState]:
        with self._changed:
            return list(self._states)

    def close(self) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        for judge in self._judges:
            judge.end()
        for thread in self._threads:
            thread.join(END_S)

    def _compile_ahead(self, device: Device) -> None:
        """Put what a verdict needs into the cache; whether it failed is for the judge to find and record."""
        with suppress(OSError):  # a machine that does not let us has no cores to spare
            os.sched_setaffinity(0, self._spare)  # of this thread and of what it starts
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closing or (self._uncompiled and self._has_room()))
                if self._is_closing:
                    return
                job = self._uncompiled.popleft()
                self._compiling += 1
            with suppress(Exception):  # the judge meets it again and says so; this thread must go on
                build(job.candidate.files, frozen(job), device, self._cache)
            with self._changed:
                self._compiling -= 1
                self._verdicts.append(_Waiting(job))
                self._changed.notify_all()

    def _has_room(self) -> bool:
        return len(self._verdicts) + self._compiling < AHEAD * len(self._judges)

    def _serve(self, index: int) -> None:
        judge = self._judges[index]
        try:
            judge.start()
        except JudgeDied:  # the first job starts it again, and will say why
            judge.stop()
        losses = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closing or self._queue_for(index) is not None)
                waiting = self._take(index)
                if waiting is None:
                    break
                self._states[index] = replace(self._states[index], job_id=waiting.job.id)
                self._changed.notify_all()
            begun = time.monotonic()
            result, is_devices_fault = self._ask(judge, waiting.job)
            losses = losses + 1 if is_devices_fault else 0
            with self._changed:
                state = self._states[index]
                busy_s = state.busy_s + time.monotonic() - begun
                is_handed_on = is_devices_fault and self._hand_on(waiting, index)
                done = state.done + (not is_handed_on)
                self._states[index] = replace(state, job_id=None, done=done, busy_s=busy_s)
                if not is_handed_on:
                    self._finished.put(result)
                if losses >= LOSSES and len(self._judges) > 1:
                    self._changed.wait_for(lambda: self._is_closing, REST_S)
        judge.stop()

    def _queue_for(self, index: int) -> deque[_Waiting] | None:
        """Return the first queue with a job that this judge has not failed at."""
        for waiting in (self._comparisons, self._verdicts):
            if any(index not in one.tried for one in waiting):
                return waiting
        return None

    def _take(self, index: int) -> _Waiting | None:
        """Return the next job for a judge; None if the pool is closing."""
        source = self._queue_for(index)
        if self._is_closing or source is None:
            return None
        waiting = next(one for one in source if index not in one.tried)
        source.remove(waiting)
        return waiting

    def _hand_on(self, waiting: _Waiting, index: int) -> bool:
        """Leave a job to the other devices; False if all have tried it."""
        waiting.tried.add(index)
        if self._is_closing or len(waiting.tried) == len(self._judges):
            return False
        is_comparison = waiting.job.purpose is Purpose.COMPARISON
        (self._comparisons if is_comparison else self._verdicts).appendleft(waiting)
        self._changed.notify_all()
        return True

    def _ask(self, judge: JudgeProcess, job: Job) -> tuple[Done | Lost, bool]:
        """Have one job judged, by up to TRIES judges if they die of it; say whether another device may do."""
        reason, is_devices_fault = "", False
        for attempt in range(TRIES):
            try:
                result = judge.ask(job)
                return result, isinstance(result, Lost)
            except JudgeDied as error:
                judge.stop()
                reason, is_devices_fault = str(error), isinstance(error, NotStarted)
            with self._changed:
                if self._changed.wait_for(lambda: self._is_closing, RESTART_S * attempt):
                    break
        return Lost(job, reason), is_devices_fault


def compilers(devices: Sequence[Device], available: frozenset[int] | None = None) -> int:
    """Return how many threads compile: one per core that no device measures on, within reason."""
    return min(MAX_COMPILERS, len(cores_beside(devices, available)))


def _check_alike(devices: Sequence[Device]) -> None:
    """Raise BadInput unless the devices' times may be compared and their kernels be exchanged."""
    kinds = {(device.model, device.kind, device.arch): device for device in devices}
    if not kinds:
        raise BadInput("a pool needs a device", remedy="type: swarm doctor")
    if len(kinds) > 1:
        named = " and ".join(sorted(f"{device.model} ({device.uuid})" for device in kinds.values()))
        raise BadInput(
            f"times on {named} cannot be compared, so they cannot share a queue",
            remedy="choose devices of one model with --device, and run the others under a name of their own",
        )
    uuids = [device.uuid for device in devices]
    twice = next((uuid for uuid in uuids if uuids.count(uuid) > 1), None)
    if twice is not None:
        raise BadInput(f"device {twice} is named twice", remedy="name each once with --device")
