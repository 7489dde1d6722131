"""The git program, so run that only its arguments and the repository's objects and refs decide what it does.

It gets a scrubbed environment, a time limit and a process group of its own. The repository's configuration is
put back first: every worktree shares it, so whoever works in one may have written it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from swarm.durable import write_atomic
from swarm.errors import GitFailed, Refused
from swarm.foreign import read_plain

CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"
SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.fsync=committed,reference",
    "core.logAllRefUpdates=always",
    "core.filesRefLockTimeout=1000",
    "core.packedRefsTimeout=1000",
    "gc.auto=0",
    "maintenance.auto=false",
)


def run_git(git_dir: Path, arguments: Sequence[str], stdin: bytes, timeout_s: float) -> bytes:
    """Run one git command and return what it printed; its whole process group dies at the limit."""
    settings = [part for setting in SETTINGS for part in ("-c", setting)]
    process = subprocess.Popen(
        ["git", f"--git-dir={git_dir}", *settings, *arguments],
        env=_environment(),
        cwd="/",
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            out, err = process.communicate(stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise GitFailed(f"git {arguments[0]} took more than {timeout_s:g} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode == 0:
        return out
    said = err.decode(errors="replace").strip()
    for reason in ("No space left on device", "Read-only file system", "Permission denied"):
        if reason in said:
            raise Refused(f"git {arguments[0]}: {said}", where=str(git_dir))
    raise GitFailed(f"git {arguments[0]} ended with {process.returncode}: {said}", where=str(git_dir))


def own_config(git_dir: Path) -> None:
    """Put back a bare repository's configuration if somebody changed it."""
    if git_dir.is_dir() and read_plain(git_dir / "config", len(CONFIG) + 1) != CONFIG:
        write_atomic(git_dir / "config", CONFIG)


def _environment() -> dict[str, str]:
    """Return everything git gets to see: nothing of GIT_*, no home, no configuration but ours."""
    identity = {
        f"GIT_{role}_{what}": "swarm" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    return identity | {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_GRAFT_FILE": "/dev/null",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }
