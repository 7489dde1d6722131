"""Device code alone: CUDA C++ compiled by NVRTC into one cubin per build, and the plan of its launches.

Nothing of the candidate runs on the host. All .cu files are one translation unit, in the order of `sources`;
what the plan may say is for `planning`, what the device allows for `dry_run`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from swarm.device import Device
from swarm.errors import BadInput
from swarm.languages import cuda_toolkit, nvrtc, toolchain
from swarm.languages.cuda_header import HEADER, device_header
from swarm.languages.dry_run import cases, check_plan, static_facts
from swarm.languages.kept import keep
from swarm.languages.plan import Plan
from swarm.languages.planning import make_plan
from swarm.languages.protocol import Artifact, CompileLimits, Failure, KernelInfo, Kind
from swarm.languages.ptxas import without_figures
from swarm.problem import Problem
from swarm.solution import Manifest
from swarm.verdict import Status

PLAN, KERNELS = "plan.json", "kernels.json"


class Cuda:
    """The language `cuda`."""

    def compile(
        self,
        files: Mapping[str, bytes],
        manifest: Manifest,
        problem: Problem,
        device: Device,
        cache: Path,
        limits: CompileLimits,
    ) -> Artifact | Failure:
        sources = {name: files[name] for name in manifest.sources}
        if HEADER in sources:
            return Failure(Status.INVALID_SOLUTION, f"{HEADER} is made by the judge; rename the source")
        sources[HEADER] = device_header(problem.definition).encode()
        arch = cuda_toolkit.arch_of(device)
        try:
            plan = make_plan(manifest, problem.definition)
            built = _compile(sources, manifest, plan, arch, cache, limits, device)
            if isinstance(built, Failure):
                return built
            kernels = tuple(info for made in built.values() for info in made.kernels)
            workloads = problem.workloads_on(device)
            check_plan(plan, cases(problem.definition, workloads), static_facts(device), kernels)
        except BadInput as error:
            return Failure(Status.INVALID_SOLUTION, str(error))
        folder = keep(_contents(plan, built), cache / "plans")
        log = "\n".join(filter(None, (without_figures(made.log) for made in built.values())))
        return Artifact(Kind.PLAN, folder, "", log, kernels)


def read_kernels(folder: Path) -> tuple[KernelInfo, ...]:
    """Return the kernels of a PLAN artifact, from its kernels.json."""
    return tuple(nvrtc.info_from_json(one) for one in json.loads((folder / KERNELS).read_bytes()))


def _compile(
    sources: Mapping[str, bytes],
    manifest: Manifest,
    plan: Plan,
    arch: str,
    cache: Path,
    limits: CompileLimits,
    device: Device,
) -> dict[int, nvrtc.Compiled] | Failure:
    """Return a cubin for each build that has kernels, by its number in the plan."""
    numbers = [number for number in range(len(plan.variants)) if plan.kernels(number)]
    variants = [
        nvrtc.Variant((*manifest.compile.options, *macros(plan.variants[number])), plan.kernels(number))
        for number in numbers
    ]
    units = [name for name in manifest.sources if name.endswith(".cu")]
    cores = toolchain.cores_beside(device)
    made = nvrtc.compile_variants(sources, units, variants, arch, cache, limits, cores)
    if isinstance(made, nvrtc.NotCompiled):
        build = numbers[made.variant]
        reason = made.reason if build == 0 else f"with {_told(plan, build)}: {made.reason}"
        return Failure(Status.COMPILE_ERROR, reason, without_figures(made.log))
    return {number: nvrtc.numbered(compiled, number) for number, compiled in zip(numbers, made, strict=True)}


def macros(params: Mapping[str, int | float | str]) -> list[str]:
    """Return the options that make [params] known to a compiler."""
    return [f"-D{name}={value}" for name, value in params.items()]


def _told(plan: Plan, build: int) -> str:
    """Say how a build differs from the manifest's own."""
    own = plan.variants[0]
    changed = (f"{name} = {value}" for name, value in plan.variants[build].items() if own[name] != value)
    return ", ".join(changed)


def _contents(plan: Plan, built: Mapping[int, nvrtc.Compiled]) -> dict[str, bytes]:
    kernels = [nvrtc.info_to_json(info) for made in built.values() for info in made.kernels]
    return {
        PLAN: json.dumps(plan.to_json()).encode(),
        KERNELS: json.dumps(kernels).encode(),
        **{f"{number}.cubin": made.cubin for number, made in built.items()},
    }
