"""A launch plan as C++: its host code, and each build of its kernels as a unit of its own.

The result defines the C function `run` of a `cuda_cpp` solution. Device code stays as it is.
"""

from __future__ import annotations

import re

from swarm.definition import Definition
from swarm.languages.cpp_expressions import HELPERS
from swarm.languages.plan import Plan
from swarm.languages.plan_host import RUNTIME, host_code
from swarm.languages.plan_names import accessor
from swarm.languages.resolve import squeezed
from swarm.languages.units import Sources

LAUNCH_FILE = "swarm_launch.cu"
ATTRIBUTE = re.compile(r"__\w+__\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
KERNEL = re.compile(r"__global__\s+(?:[\w:<>,*&]+\s+)*?(\w+)\s*\(")


def plan_sources(plan: Plan, definition: Definition, sources: Sources, where: str) -> dict[str, str]:
    """Return the files that launch a plan whose sources are laid out already."""
    text = "\n".join(data.decode("utf-8", "replace") for data in sources.files.values())
    made = {
        HELPERS.name: HELPERS.read_text(),
        RUNTIME.name: RUNTIME.read_text(),
        LAUNCH_FILE: host_code(plan, definition, where),
    }
    builds = [variant for variant in range(len(plan.variants)) if plan.kernels(variant)]
    for variant in builds:
        macros: list[tuple[str, object]] = [*plan.variants[variant].items()]
        if variant != builds[0]:
            # The linker must not take one build's kernel for another's.
            macros += [(name, f"{name}_build{variant}") for name in _kernel_names(plan, text)]
        kernels = "".join(
            f"\nconst void* {accessor(variant, place)} {{\n  auto* kernel = &{kernel};\n"
            "  return reinterpret_cast<const void*>(kernel);\n}\n"
            for place, kernel in enumerate(plan.kernels(variant))
        )
        made[f"swarm_kernels_{variant}.cu"] = sources.unit(macros, rest=kernels)
    return made


def _kernel_names(plan: Plan, text: str) -> list[str]:
    """Return the identifiers of all kernels, whether the plan launches them or not."""
    launched = {squeezed(launch.kernel).partition("<")[0].rpartition(":")[2] for launch in plan.launches}
    return sorted(launched | set(KERNEL.findall(ATTRIBUTE.sub("", text))))
