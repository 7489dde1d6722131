"""Build a shared object of host and device code with nvcc, for one architecture, in the sandbox."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swarm.languages import cubin, cuda_toolkit, toolchain
from swarm.languages.protocol import CompileLimits, KernelInfo
from swarm.languages.ptxas import spills
from swarm.languages.symbols import demangled

FLAGS = (
    "-shared",
    "-Xcompiler=-fPIC,-fdiagnostics-color=never",
    "-Xptxas=-v",
    "--no-compress",
    "--threads=2",
)
"""Device code is kept uncompressed, so that what a kernel needs can be read."""
ERROR = re.compile(r"^(\S+?)[(:](\d+)(?::\d+|\))?: (?:catastrophic |fatal )?error: (.*)$", re.MULTILINE)
OTHER_ERROR = re.compile(
    r"^(ptxas .*?(?:error|fatal) *:.*|nvcc (?:fatal|error) *:.*|.*undefined reference to .*"
    r"|.*multiple definition of .*|.*undefined symbol: .*|.*cannot find .*)$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Extra:
    """What a kind of object needs beside CUDA."""

    includes: tuple[Path, ...] = ()
    link: tuple[str, ...] = ()
    identity: str = ""
    readable: tuple[Path, ...] = ()


def build(
    files: Mapping[str, bytes],
    sources: Sequence[str],
    options: Sequence[str],
    arch: str,
    cache: Path,
    limits: CompileLimits,
    cores: Sequence[int],
    extra: Extra | None = None,
) -> toolchain.Built | toolchain.NotBuilt:
    """Compile `sources`, which are among `files`, into one shared object with code for `arch` alone."""
    compiler, extra = cuda_toolkit.nvcc(), extra or Extra()
    host = toolchain.compiler()
    plain = [option for option in options if not option.startswith("-l")]
    libraries = [found for option in options if option.startswith("-l") for found in library(option[2:])]
    folders = [*extra.includes, *compiler.headers.folders]
    argv = (
        str(compiler.path),
        f"-ccbin={host.path}",
        f"-gencode=arch=compute_{arch.removeprefix('sm_')},code={arch}",
        *FLAGS,
        *plain,
        "-I.",
        *(f"-I{folder}" for folder in folders),
        *sources,
        *(f"-L{folder}" for folder in compiler.libraries),
        *libraries,
        *extra.link,
    )
    identity = f"{compiler.identity}, {host.version}, {extra.identity}"
    outside = [compiler.root, host.path.resolve().parent.parent, *folders, *extra.readable]
    command = toolchain.Command(argv, identity, tuple(cuda_toolkit.outside_the_system(outside)))
    return toolchain.build_with(
        command,
        files,
        cache,
        timeout_s=limits.timeout_s,
        memory_bytes=limits.memory_bytes,
        cores=cores,
    )


def reason(built: toolchain.NotBuilt, limits: CompileLimits) -> str:
    """Say in one sentence why there is no object."""
    if built.exit is None:
        return f"the compiler did not end within {limits.timeout_s:g} s"
    if match := ERROR.search(built.log):
        return f"{match[1].removeprefix('./')}:{match[2]}: {match[3].strip()}"[:300]
    if match := OTHER_ERROR.search(built.log):
        return match[1].strip()[-300:]
    return f"the compiler failed: {built.exit}"


def kernels(built: toolchain.Built) -> tuple[KernelInfo, ...]:
    """Return what the kernels in a shared object need, by the cubins inside it."""
    told = spills(built.log)
    found: dict[str, KernelInfo] = {}
    for data in cubin.embedded(built.path.read_bytes()):
        for symbol, entry in cubin.kernels(data).items():
            stores, loads = told.get(symbol, (0, 0))
            found[symbol] = KernelInfo(
                demangled(symbol), symbol, 0, entry.registers, entry.static_smem_bytes, entry.stack_bytes,
                stores, loads, entry.parameters, entry.max_threads, entry.cluster,
            )  # fmt: skip
    return tuple(found.values())


def library(name: str) -> list[str]:
    """Return how to link one of CUDA's libraries: wheels have no names without a version.

    The driver's is no part of CUDA: it is there where there is a GPU, and the runner has loaded it.
    """
    for root in cuda_toolkit.roots():
        for folder in cuda_toolkit.library_folders(root):
            for pattern in (f"lib{name}.so", f"lib{name}.so.*", f"stubs/lib{name}.so"):
                for path in sorted(folder.glob(pattern)):
                    return [f"-Xlinker={path},-rpath={folder}"]
    return [] if name == "cuda" else [f"-l{name}"]
