"""From a tree's files to something a runner can load, or to the status that says why not. Needs no device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from swarm import solution
from swarm.device import Device, runs_on
from swarm.errors import BadInput
from swarm.foreign import plain
from swarm.job import Job
from swarm.languages.cpp import Cpp
from swarm.languages.cuda import Cuda
from swarm.languages.cuda_cpp import CudaCpp
from swarm.languages.cute_dsl import CuteDsl
from swarm.languages.protocol import Artifact, CompileLimits, Failure, Language
from swarm.languages.pytorch import Pytorch
from swarm.languages.triton import Triton
from swarm.problem import Problem, problem_from_files
from swarm.protocol import Protocol, read_protocol
from swarm.sandbox import GIB
from swarm.solution import Manifest, load_manifest, validate_tree
from swarm.verdict import Status

COORDINATION = "COORDINATION.md"
OURS = "swarm_"
WHY = f"names that begin with {OURS} are the judge's own"


@dataclass(frozen=True, slots=True)
class Frozen:
    """What an epoch fixes."""

    problem: Problem
    protocol: Protocol


@dataclass(frozen=True, slots=True)
class Built:
    manifest: Manifest
    artifact: Artifact
    replay_of: Built | None = None
    """The tree whose calls were recorded, for what our own code launches in its place."""


def frozen(job: Job) -> Frozen:
    """Parse the frozen files of a job; BadInput if they are no problem."""
    if COORDINATION not in job.problem_files:
        raise BadInput(f"no {COORDINATION}", where=f"epoch {job.epoch} of {job.problem}", remedy="add it")
    return Frozen(
        problem_from_files(job.problem_files, job.problem),
        read_protocol(job.problem_files[COORDINATION], COORDINATION),
    )


def build(files: Mapping[str, bytes], rules: Frozen, device: Device, cache: Path) -> Built | Failure:
    """Validate and compile a tree; what was built before comes from the cache."""
    try:
        validate_tree(files, rules.protocol)
        manifest = load_manifest(files)
    except BadInput as error:
        return Failure(Status.INVALID_SOLUTION, str(error))
    if not runs_on(manifest.language, device.kind):
        return Failure(
            Status.INVALID_SOLUTION,
            f"language {manifest.language} does not run on a {device.kind}; the device is {device.model}",
        )
    if not manifest.destination_passing and device.kind == "cpu":
        reason = "destination_passing = false: on a CPU a solution writes into its outputs"
        return Failure(Status.INVALID_SOLUTION, reason)
    limits = CompileLimits(rules.protocol.rules.compile_timeout_s, int(rules.protocol.rules.memory_gib * GIB))
    made = language(manifest).compile(files, manifest, rules.problem, device, cache, limits)
    if isinstance(made, Failure):
        return replace(made, reason=plain(made.reason), log=plain(made.log))
    for kernel in made.kernels:
        if kernel.symbol.startswith(OURS):  # by a macro or an alias: the manifest cannot name it
            return Failure(
                Status.INVALID_SOLUTION, f"kernel {kernel.name!r} is called {kernel.symbol}: {WHY}"
            )
    passes = manifest.destination_passing
    return Built(manifest, replace(made, log=plain(made.log), returns_outputs=not passes))


def language(manifest: Manifest) -> Language:
    """Return the compiler of a manifest's language."""
    match manifest.language:
        case solution.Language.CPP:
            return Cpp()
        case solution.Language.CUDA:
            return Cuda()
        case solution.Language.CUDA_CPP:
            return CudaCpp()
        case solution.Language.TRITON:
            return Triton()
        case solution.Language.CUTE_DSL:
            return CuteDsl()
        case solution.Language.PYTORCH:
            return Pytorch()
