"""The process of one judge, as its pool sees it: started when needed, asked one job at a time, ended.

What it measures is `swarm.judge`'s; what is done with a job that it died of is the pool's.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from swarm import job as jobs
from swarm.device import Device
from swarm.environment import environment
from swarm.job import Job
from swarm.judge.wire import COMPARISON, READY, VERDICT, Closed, receive, send
from swarm.pool.protocol import Done, Lost
from swarm.verdict import comparison_from_json, verdict_from_json

ROOT = Path(__file__).resolve().parents[2]
START_S, JOB_S = 120.0, 1800.0
END_S = 5.0


class JudgeDied(Exception):
    """The process ended or hung; the text says how."""


class NotStarted(JudgeDied):
    """It never was ready for a job: that is the device's fault or the machine's."""


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
        """Start the process and wait until it can judge; NotStarted if it never can."""
        try:
            self._start()
        except JudgeDied as error:
            raise NotStarted(str(error)) from error.__cause__

    def _start(self) -> None:
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
                    env=environment(PYTHONPATH=_python_path()),
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


def _python_path() -> str:
    """Let a child find this very package, installed or not."""
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
