"""Role processes die by SIGKILL at random moments; see benchmarks/kills.py for what must hold."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support import REPOSITORY


def test_sixty_kills_lose_nothing_and_have_nothing_judged_twice() -> None:
    # In a process of its own: it forks, which a process with pytest's threads must not.
    command = [sys.executable, "-m", "benchmarks.kills", "--kills", "60"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=280)
    assert done.stdout, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert found["violations"] == [], done.stderr[-4000:]
    assert done.returncode == 0
    assert sum(found["kills"].values()) >= 60
    assert set(found["kills"]) == {"watcher", "planner", "w1", "w2"}
    assert found["verdicts"] >= 72  # two problems, tried to the last point
    assert found["merges"] >= 2
