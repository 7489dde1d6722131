"""Host and device code for nvcc: a plain shared object with a C entry `run`, or a torch extension.

The plain form takes about a second to build, a torch extension most of a minute. Sources are compiled for one
architecture; which options and constructs are allowed is for `solution` to say.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from swarm.device import Device
from swarm.errors import BadInput, Refused
from swarm.languages import cuda_toolkit, nvcc, toolchain
from swarm.languages.cuda_header import ENTRY, HEADER, PARAMS, SHIM, host_header, params_header, shim
from swarm.languages.protocol import Artifact, CompileLimits, Failure, KernelInfo, Kind
from swarm.languages.ptxas import without_figures
from swarm.problem import Problem
from swarm.solution import Language, Manifest
from swarm.verdict import Status

OPTIMISE, STANDARD, TORCH_STANDARD = "-O1", "-std=c++17", "-std=c++20"
"""-O is about host code, which only launches; device code is optimised fully without it."""
COMPLETE = "-Xlinker=--no-undefined"
"""A missing `run` is then the linker's error, with its name."""
MODULE = "benchmark_kernel"
"""What SOL-ExecBench calls the extension; sources say TORCH_EXTENSION_NAME."""
TORCH_FLAGS = (
    f"-DTORCH_EXTENSION_NAME={MODULE}",
    "-DTORCH_API_INCLUDE_EXTENSION_H",
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
    "--diag-suppress=3189",  # of torch's own headers: a name that is a keyword elsewhere
    "--cudart=none",  # it is the one that torch brings
)
"""As torch.utils.cpp_extension compiles."""
TORCH_LIBRARIES = ("c10", "c10_cuda", "torch_cpu", "torch_cuda", "torch", "torch_python")


class CudaCpp:
    """The language `cuda_cpp`."""

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
        if taken := {HEADER, SHIM, PARAMS} & set(sources):
            return Failure(Status.INVALID_SOLUTION, f"{taken.pop()} is made by the judge; rename the source")
        sources[HEADER] = host_header(problem.definition).encode()
        sources[PARAMS] = params_header(manifest.params).encode()
        options = [*manifest.compile.options, f"--pre-include={PARAMS}"]
        if not any(option.startswith(("-O", "--optimize")) for option in options):
            options.append(OPTIMISE)
        has_standard = any(option.startswith(("-std=", "--std=")) for option in options)
        arch, cores = cuda_toolkit.arch_of(device), toolchain.cores_beside(device)
        if manifest.binding == "torch":
            options += TORCH_FLAGS if has_standard else (*TORCH_FLAGS, TORCH_STANDARD)
            compiled = [name for name in _compiled(manifest) if "/" not in name]
            built = nvcc.build(sources, compiled, options, arch, cache, limits, cores, torch_parts())
            function = (manifest.entry or "").partition("::")[2]
            return _artifact(built, limits, Kind.TORCH_EXTENSION, f"{MODULE}::{function}")
        sources[SHIM] = shim(problem.definition).encode()
        options += [] if has_standard else [STANDARD]
        options += [] if "-lcuda" in options else [COMPLETE]
        compiled = [*_compiled(manifest), SHIM]
        built = nvcc.build(sources, compiled, options, arch, cache, limits, cores)
        return _artifact(built, limits, Kind.SHARED_OBJECT, ENTRY)


def torch_parts() -> nvcc.Extra:
    """Return where torch's headers and libraries are, and Python's."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise Refused("torch is not installed", remedy="pip install torch")
    folder = Path(found.origin).parent
    python = Path(sysconfig.get_paths()["include"])
    if not (python / "Python.h").is_file():
        raise Refused(f"no Python.h in {python}", remedy="apt-get install python3-dev")
    libraries = folder / "lib"
    link = [f"-L{libraries}", *(f"-l{n}" for n in TORCH_LIBRARIES if (libraries / f"lib{n}.so").is_file())]
    includes = (folder / "include", folder / "include" / "torch" / "csrc" / "api" / "include", python)
    return nvcc.Extra(
        includes=(*includes, *cuda_toolkit.all_headers()),  # torch's need cuBLAS, cuSPARSE and cuSOLVER
        link=(*link, *nvcc.library("cudart")),
        identity=f"torch {importlib.metadata.version('torch')}",
        readable=(folder, python),
    )


def _compiled(manifest: Manifest) -> list[str]:
    suffixes = Language.CUDA_CPP.compiled_suffixes
    return [name for name in manifest.sources if name.endswith(suffixes)]


def _artifact(
    built: toolchain.Built | toolchain.NotBuilt, limits: CompileLimits, kind: Kind, entry: str
) -> Artifact | Failure:
    if isinstance(built, toolchain.NotBuilt):
        return Failure(Status.COMPILE_ERROR, nvcc.reason(built, limits), without_figures(built.log))
    return Artifact(kind, built.path, entry, without_figures(built.log), _kernels(built))


def _kernels(built: toolchain.Built) -> tuple[KernelInfo, ...]:
    """Return the kernels' figures; an object that hides its device code has none to show."""
    try:
        return nvcc.kernels(built)
    except BadInput:
        return ()
