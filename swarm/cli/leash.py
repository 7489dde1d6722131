"""A child that does not outlive its parent: the kernel sends it SIGTERM when the parent is gone.

The child asks for it itself, so that nothing has to run between fork and exec in a parent with threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable

PARENT_VARIABLE = "SWARM_PARENT"
CORES_VARIABLE = "SWARM_PARENT_CORES"
PR_SET_PDEATHSIG = 1


def leash_environment(cores: Iterable[int]) -> dict[str, str]:
    """Return what to add to a child's environment so that `take_leash` in it refers to this process.

    `cores` are those that the child may use: the parent may have confined itself to fewer.
    """
    return {PARENT_VARIABLE: str(os.getpid()), CORES_VARIABLE: ",".join(map(str, sorted(cores)))}


def take_leash() -> None:
    """Be sent SIGTERM when the parent named in the environment dies, or now if it has died already."""
    parent = os.environ.pop(PARENT_VARIABLE, None)
    cores = os.environ.pop(CORES_VARIABLE, "")
    if parent is None:
        return  # started by a person, who may close the terminal and keep the role
    os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != int(parent):  # it died before the request: no signal will ever come
        os.kill(os.getpid(), signal.SIGTERM)
