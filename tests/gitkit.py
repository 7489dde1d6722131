"""Builders for tests that need a real hub."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from swarm.hub import Hub
from swarm.layout import RunPaths, WorkBranch

COORDINATION = b"""# Protocol
```toml
[output]
editable = ["solution/**", "NOTES.md"]
```
```toml
[rules]
[tests]
rounds = 4
[board]
[planner]
stall_minutes = 5
```
"""
FILES = {
    "definition.json": b"{}",
    "workload.jsonl": b"{}\n",
    "reference.py": b"def run(): ...\n",
    "COORDINATION.md": COORDINATION,
}
SEED = {"kernel.cpp": b"int x = 0;\n", "solution.toml": b'language = "cpp"\n'}


def make_hub(root: Path, *problems: str) -> Hub:
    hub = Hub(RunPaths(root, "local"))
    hub.ensure()
    for problem in problems:
        hub.ensure_epoch(problem, FILES, SEED, "planner")
    return hub


def hand_in(hub: Hub, branch: WorkBranch, text: str, subject: str = "Try something") -> str:
    files = {**SEED, "kernel.cpp": text.encode()}
    return hub.submit(branch.worker, branch, files, None, subject, {"Agent": "test"})


def git(git_dir: Path, *arguments: str, cwd: Path | None = None, check: bool = True) -> str:
    """Run the user's git, with none of the product's guards."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_AUTHOR_NAME": "mallory",
        "GIT_AUTHOR_EMAIL": "m@example.invalid",
        "GIT_COMMITTER_NAME": "mallory",
        "GIT_COMMITTER_EMAIL": "m@example.invalid",
    }
    done = subprocess.run(
        ["git", f"--git-dir={git_dir}", *arguments],
        env=environment,
        cwd=cwd,
        check=check,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.strip()
