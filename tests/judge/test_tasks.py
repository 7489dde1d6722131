"""What runs beside a candidate is found, whatever group or parent it has taken."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from swarm.judge import tasks

FAMILY = """
import os, sys, time
runner = os.fork()
if not runner:  # as a launcher's child is the runner
    helper = os.fork() if sys.argv[1] != "alone" else -1
    if not helper:
        os.setsid()
        if sys.argv[1] == "ended":
            os._exit(0)
    elif sys.argv[1] == "ended":
        os.waitid(os.P_PID, helper, os.WEXITED | os.WNOWAIT)
    if helper:
        print(os.getpid(), flush=True)
    time.sleep(60)
time.sleep(60)
"""


@contextmanager
def family(kind: str) -> Iterator[tuple[int, int]]:
    """Start a launcher and its runner; yield (the runner's id, the launcher's)."""
    command = [sys.executable, "-c", FAMILY, kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as launcher:
        assert launcher.stdout is not None
        runner = int(launcher.stdout.readline())
        try:
            yield runner, launcher.pid
        finally:
            for pid in [runner, *tasks.beside(runner, launcher.pid)]:
                subprocess.run(["kill", "-KILL", str(pid)], check=True)
            launcher.kill()


def test_a_runner_alone_has_nobody_beside_it() -> None:
    with family("alone") as (runner, launcher):
        assert tasks.beside(runner, launcher) == []


def test_a_child_in_a_session_of_its_own_is_found() -> None:
    with family("helper") as (runner, launcher):
        assert len(tasks.beside(runner, launcher)) == 1


def test_a_child_that_has_ended_is_found_until_somebody_asks_for_its_end() -> None:
    with family("ended") as (runner, launcher):
        assert len(tasks.beside(runner, launcher)) == 1
