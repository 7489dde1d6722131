"""A hub survives SIGKILL at any moment: what was acknowledged is there, and the same steps go on."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.gitkit import git, make_hub

ROLE = """
import sys
from pathlib import Path
from swarm.hub import Hub
from tests.gitkit import FILES, SEED, make_hub
seed = int(sys.argv[2])
hub = make_hub(Path(sys.argv[1]), "p", "q")
print("up", flush=True)
for number in range(10**6):
    found = hub.assignment("w1")
    if found is None or not hub.is_current(found.work) or number % 3 == 2:
        hub.assign("pq"[number % 2], "w1")
        found = hub.assignment("w1")
    path = hub.worktree("w1", found.work)
    (path / "solution" / "kernel.cpp").write_text(f"{seed} {number}")
    handed = hub.read_worktree("w1")
    assert set(handed.solution) == set(SEED), handed
    commit = hub.submit("w1", found.work, handed.solution, b"n", f"Try {number}", {})
    print("commit", commit, flush=True)
    if number % 2:
        champion = hub.champions()[found.work.problem]
        merged = hub.merge(found.work.problem, commit, champion, "Merge\\n\\nWorker: w1\\n")
        print("merge", merged, flush=True)
    if number % 7 == 6:
        files = {**FILES, "reference.py": f"{seed} {number}".encode()}
        print("epoch", hub.ensure_epoch("p", files, SEED, "planner").commit, flush=True)
        hub.assign("p", "w1")
"""


@pytest.mark.parametrize("with_children", [False, True], ids=["role", "role and its git"])
def test_killed_hub_loses_nothing_and_goes_on(tmp_path: Path, with_children: bool) -> None:
    chance = random.Random(20 + with_children)
    acknowledged: set[str] = set()
    for round_ in range(8):
        role = subprocess.Popen(
            [sys.executable, "-c", ROLE, str(tmp_path), str(round_)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert role.stdout is not None
        assert role.stderr is not None
        if round_:  # the first may die while the hub is being made
            assert role.stdout.readline() == "up\n", role.stderr.read()
        time.sleep(chance.random() * 0.5)
        victims = psutil.Process(role.pid).children(recursive=True) if with_children else []
        assert role.poll() is None, role.stderr.read()
        role.kill()
        for victim in victims:
            if victim.is_running():
                victim.kill()
        out, errors = role.communicate(timeout=30)
        assert errors == ""
        acknowledged |= {line.split()[1] for line in out.splitlines() if line.count(" ") == 1}
    time.sleep(0.2)  # a git that outlived its role finishes
    with make_hub(tmp_path, "p", "q") as hub:
        reachable = set(git(hub.paths.hub, "rev-list", "--all").split())
        assert acknowledged
        assert acknowledged <= reachable
        complaints = git(hub.paths.hub, "fsck", "--strict", "--no-dangling")
        assert complaints == ""
        for problem in ("p", "q"):
            assert hub.commits(problem)[0].commit == hub.epoch(problem).commit
