"""Run programs that are not trusted, in the strongest box that this machine can build.

A box has no network, no environment, an empty home, the system read-only, and nothing else of the host
but what the caller lists. Every wait here is bounded, and when a Process is closed all that it started is
gone. docs/trust.md says what each level holds. Left to others: what a kernel exploit can reach (a GPU's
driver is a part of the kernel), and the memory of a GPU.
"""

from swarm.sandbox.advice import remedy
from swarm.sandbox.boxes import lack, level, require, run, spawn, standing
from swarm.sandbox.limits import GIB, Completed, Exit, Level, Limits
from swarm.sandbox.process import LOG_BYTES, Process

__all__ = [
    "GIB",
    "LOG_BYTES",
    "Completed",
    "Exit",
    "Level",
    "Limits",
    "Process",
    "lack",
    "level",
    "remedy",
    "require",
    "run",
    "spawn",
    "standing",
]
