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
    PLAN = "plan"
    """Cubins and the plan of their launches: no code of the candidate runs on the host."""
    TORCH_EXTENSION = "torch_extension"


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """What a compiled kernel needs, as its cubin says."""

    name: str
    """As the manifest writes it, for example `rmsnorm<8>`."""
    symbol: str
    """As the cubin names it."""
    variant: int
    registers: int
    """Per thread."""
    static_smem_bytes: int
    stack_bytes: int
    """Local memory per thread."""
    spill_store_bytes: int
    spill_load_bytes: int
    parameters: tuple[tuple[int, int], ...]
    """(offset, size) in bytes of each parameter."""
    max_threads: int = 0
    """Of a block, by __launch_bounds__; 0 if the source does not say."""
    cluster: tuple[int, int, int] | None = None
    """By __cluster_dims__: what every launch has."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """Something a runner can load; it lies in the cache under a name that follows from its content."""

    kind: Kind
    path: Path
    """The shared object; or the folder of Python sources, or of plan.json and 0.cubin, 1.cubin, ..."""
    entry: str
    """A symbol, or `file.py::function`; empty for a plan."""
    log: str = ""
    """What the compiler said: warnings."""
    kernels: tuple[KernelInfo, ...] = ()
    """What the compiler made, for languages that are compiled to cubins by us."""
    returns_outputs: bool = False
    """The entry returns its outputs instead of writing them; they are copied outside of its time."""
    converts_outputs: bool = False
    """What is returned may be of another type and anywhere: baselines only."""


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
