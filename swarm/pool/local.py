"""A pool of the devices of this host: one judge process per device, and one thread that compiles ahead.

Judges are processes because they are pinned to their device's cores and may die; a job that killed three of
them is Lost. What is measured, and how, is theirs. Nothing here imports torch.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from swarm import job as jobs
from swarm.device import Device
from swarm.job import Job, Purpose
from swarm.judge.build import build, frozen
from swarm.judge.wire import COMPARISON, READY, VERDICT, Closed, receive, send
from swarm.pool.protocol import DeviceState, Done, Lost
from swarm.verdict import comparison_from_json, verdict_from_json

ROOT = Path(__file__).resolve().parents[2]
START_S, JOB_S = 120.0, 1800.0
TRIES = 3
RESTART_S = 1.0
END_S = 5.0
AHEAD = 4
"""Jobs compiled before a judge is free for them."""


class JudgeDied(Exception):
    """The process ended or hung; the text says how."""


class JudgeProcess:
    """One judge, started when first asked. One thread asks; any may end it."""

    def __init__(self, device: Device, cache: Path, peaks: bytes, log: Path) -> None:
        self._arguments = (str(cache), json.dumps(asdict(device)), peaks.decode())
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._peer: socket.socket | None = None
        self._ending = threading.Lock()
        self._is_over = False

    def start(self) -> None:
        """Start the process and wait until it can judge."""
        self._peer, theirs = socket.socketpair()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with theirs, self._log.open("ab") as log, self._ending:
            if self._is_over:
                raise JudgeDied("the pool is closed")
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "swarm.judge.main", str(theirs.fileno()), *self._arguments],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=os.environ | {"PYTHONPATH": _python_path()},
                    start_new_session=True,
                )
            except OSError as error:
                raise JudgeDied(f"the judge cannot be started: {error}") from error
        if self._receive(START_S) != READY:
            raise JudgeDied("the judge did not say that it is ready")

    def ask(self, job: Job) -> Done | Lost:
        if self._process is None:
            self.start()
        assert self._peer is not None
        self._peer.settimeout(JOB_S)
        try:
            send(self._peer, jobs.to_bytes(job))
        except (Closed, TimeoutError):
            raise JudgeDied(self._epitaph()) from None
        answer = self._receive(JOB_S)
        kind, body = answer[:1], answer[1:]
        if kind == VERDICT:
            return Done(job, verdict_from_json(body, "the judge's answer"))
        if kind == COMPARISON:
            return Done(job, comparison_from_json(body, "the judge's answer"))
        return Lost(job, body.decode("utf-8", "replace"))

    def stop(self) -> None:
        """End the process, so that the next job starts another; for the thread that asks."""
        self._kill()
        if self._peer is not None:
            self._peer.close()
            self._peer = None
        self._process = None

    def end(self) -> None:
        """End the process for ever; whoever waits for its answer then finds it dead."""
        with self._ending:
            self._is_over = True
        self._kill()

    def _kill(self) -> None:
        """Kill the judge; its runners and references die with it, as they hang on its pipes."""
        process = self._process
        if process is not None:
            process.kill()
            with suppress(subprocess.TimeoutExpired):  # it waits for a disk; it will not come back
                process.wait(END_S)

    def _receive(self, timeout_s: float) -> bytes:
        assert self._peer is not None
        self._peer.settimeout(timeout_s)
        try:
            return receive(self._peer)[0]
        except Closed:
            raise JudgeDied(self._epitaph()) from None
        except TimeoutError:
            raise JudgeDied(f"the judge said nothing for {timeout_s:g} s") from None

    def _epitaph(self) -> str:
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        return f"the judge ended with code {self._process.returncode}; see {self._log}"


class LocalPool:
    """The devices of this host. Threads only wait: judges measure, compilers are processes."""

    def __init__(
        self, devices: Sequence[Device], cache: Path, peaks: Mapping[str, bytes], logs: Path
    ) -> None:
        """`peaks` by device model, as `judge.peaks` writes them; `logs` is the folder of the judges' logs."""
        self._cache = cache
        self._changed = threading.Condition()
        """Guards the queues and the states."""
        self._uncompiled: deque[Job] = deque()
        self._comparisons: deque[Job] = deque()
        self._verdicts: deque[Job] = deque()
        self._finished: queue.SimpleQueue[Done | Lost] = queue.SimpleQueue()
        self._count = 0
        self._is_closing = False
        self._states = [DeviceState(device, None, 0, 0.0) for device in devices]
        self._judges = [
            JudgeProcess(device, cache, peaks[device.model], logs / f"judge-{device.uuid}.log")
            for device in devices
        ]
        self._threads = [threading.Thread(target=self._compile_ahead, args=(devices[0],), daemon=True)]
        self._threads += [
            threading.Thread(target=self._serve, args=(index,), daemon=True) for index in range(len(devices))
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        with self._changed:
            # The trees of a comparison have verdicts, so they are compiled already.
            (self._comparisons if job.purpose is Purpose.COMPARISON else self._uncompiled).append(job)
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
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closing or (self._uncompiled and self._has_room()))
                if self._is_closing:
                    return
                job = self._uncompiled[0]
            with suppress(Exception):  # the judge meets it again and says so; this thread must go on
                build(job.candidate.files, frozen(job), device, self._cache)
            with self._changed:
                self._verdicts.append(self._uncompiled.popleft())
                self._changed.notify_all()

    def _has_room(self) -> bool:
        return len(self._verdicts) < AHEAD * len(self._judges)

    def _serve(self, index: int) -> None:
        judge = self._judges[index]
        try:
            judge.start()
        except JudgeDied:  # the first job starts it again, and will say why
            judge.stop()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closing or self._comparisons or self._verdicts)
                if self._is_closing:
                    break
                job = (self._comparisons or self._verdicts).popleft()
                self._states[index] = replace(self._states[index], job_id=job.id)
                self._changed.notify_all()
            begun = time.monotonic()
            result = self._ask(judge, job)
            with self._changed:
                state = self._states[index]
                busy_s = state.busy_s + time.monotonic() - begun
                self._states[index] = replace(state, job_id=None, done=state.done + 1, busy_s=busy_s)
            self._finished.put(result)
        judge.stop()

    def _ask(self, judge: JudgeProcess, job: Job) -> Done | Lost:
        """Have one job judged, by up to TRIES judges if they die of it."""
        reason = ""
        for attempt in range(TRIES):
            try:
                return judge.ask(job)
            except JudgeDied as error:
                judge.stop()
                reason = str(error)
            with self._changed:
                if self._changed.wait_for(lambda: self._is_closing, RESTART_S * attempt):
                    break
        return Lost(job, reason)


def _python_path() -> str:
    """Let a child find this very package, installed or not."""
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
