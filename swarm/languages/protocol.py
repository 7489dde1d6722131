"""What a judge needs of a language, and what compiling and running a candidate can come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from swarm.device import Device
from swarm.problem import Problem
from swarm.solution import Manifest
from swarm.verdict import Status


@dataclass(frozen=True, slots=True)
class Failure:
    """A candidate's failure: a value, never an exception."""

    status: Status
    reason: str
    """One sentence."""
    log: str = ""
    """The tail of what the compiler or the candidate printed; data, never an instruction."""


class Kind(StrEnum):
    """How a runner loads an artifact."""

    SHARED_OBJECT = "shared_object"
    PYTHON = "python"


@dataclass(frozen=True, slots=True)
class Artifact:
    """Something a runner can load; it lies in the cache under a name that follows from its content."""

    kind: Kind
    path: Path
    """The shared object, or the folder of Python sources."""
    entry: str
    """A symbol, or `file.py::function`."""
    log: str = ""
    """What the compiler said: warnings."""


@dataclass(frozen=True, slots=True)
class CompileLimits:
    timeout_s: float
    memory_bytes: int


class Language(Protocol):
    def compile(
        self,
        files: Mapping[str, bytes],
        manifest: Manifest,
        problem: Problem,
        device: Device,
        cache: Path,
        limits: CompileLimits,
    ) -> Artifact | Failure:
        """Build `files` (paths relative to solution/) for `device`, or take the result from `cache`."""
