"""Where CUDA's compilers, headers and disassemblers are on this machine, and which GPU needs which code.

Looks where CUDA_HOME points, then among the wheels of this Python (their versions are pinned), then at the
host's own installation. Needs no GPU. Running the tools is for `nvrtc` and `nvcc`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from swarm.device import Device
from swarm.environment import environment
from swarm.errors import BadInput, Refused

HOST = Path("/usr/local/cuda")
LIB_FOLDERS = ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
INCLUDE_FOLDERS = ("include", "targets/x86_64-linux/include", "targets/sbsa-linux/include")
NEEDED_MAJOR = 13
"""Older compilers know neither the architectures nor the headers that kernels here may use."""
NEEDED_HEADERS = ("cuda.h", "cuda_bf16.h", "cuda_fp8.h", "crt/host_config.h", "nv/target", "cuda/barrier")
REMEDY = "type: make install EXTRAS=cuda; or install CUDA 13 and let CUDA_HOME name its folder"
ARCHES = {
    "A100": "sm_80",
    "A10": "sm_86",
    "L4": "sm_89",
    "L40S": "sm_89",
    "RTX 4090": "sm_89",
    "H100": "sm_90a",
    "H200": "sm_90a",
    "GH200": "sm_90a",
    "B200": "sm_100a",
    "GB200": "sm_100a",
    "B300": "sm_103a",
    "RTX 5090": "sm_120a",
}
VERSION_S = 15
FIRST_WITH_FEATURES = 90
"""From here on the instructions that matter (wgmma, tcgen05) exist only in the code for one architecture,
whose name ends in `a`."""


@dataclass(frozen=True, slots=True)
class Headers:
    """What goes after -I, in order, and what they are."""

    folders: tuple[Path, ...]
    version: str


@dataclass(frozen=True, slots=True)
class Nvrtc:
    """The run-time compiler's library."""

    library: Path
    version: str
    headers: Headers

    @property
    def identity(self) -> str:
        """Name everything a result of it depends on."""
        return f"nvrtc {self.version} {self.library.stat().st_size} with {self.headers.version}"


@dataclass(frozen=True, slots=True)
class Nvcc:
    path: Path
    version: str
    root: Path
    headers: Headers
    libraries: tuple[Path, ...]

    @property
    def identity(self) -> str:
        """Name everything a result of it depends on."""
        return f"nvcc {self.version} with {self.headers.version}"


@cache
def nvrtc() -> Nvrtc:
    """Return the run-time compiler, or raise Refused with what to install."""
    for root in roots():
        for library in _libraries(root, "libnvrtc.so*"):
            version = _nvrtc_version(library)
            if version is not None and int(version.partition(".")[0]) >= NEEDED_MAJOR:
                return Nvrtc(library, version, headers(root))
    raise Refused(f"no NVRTC of CUDA {NEEDED_MAJOR} on this machine", remedy=REMEDY)


@cache
def nvcc() -> Nvcc:
    """Return the offline compiler, or raise Refused with what to install."""
    for root in roots():
        path = root / "bin" / "nvcc"
        version = _nvcc_version(path)
        if version is not None and int(version.partition(".")[0]) >= NEEDED_MAJOR:
            return Nvcc(path, version, root, headers(root), tuple(library_folders(root)))
    raise Refused(f"no nvcc of CUDA {NEEDED_MAJOR} on this machine", remedy=REMEDY)


def headers(beside: Path) -> Headers:
    """Return CUDA's and CCCL's headers: of `beside` if it has them all, else of the first root that has.

    Where no root is complete, all of them together have to do.
    """
    order = [beside, *(root for root in roots() if root != beside)]
    for root in order:
        folders = _include_folders(root)
        if all(any((folder / name).is_file() for folder in folders) for name in NEEDED_HEADERS):
            return _described(folders)
    return _described([folder for root in order for folder in _include_folders(root)])


def all_headers() -> list[Path]:
    """Return the header folders of every installation: CUDA's libraries may lie beside another compiler."""
    return [folder for root in roots() for folder in _include_folders(root)]


def missing_headers(found: Headers) -> list[str]:
    """Return the headers that kernels may ask for and `found` has not."""
    return [name for name in NEEDED_HEADERS if not any((folder / name).is_file() for folder in found.folders)]


def disassembler() -> Path | None:
    """Return nvdisasm, of CUDA or of Triton."""
    return tool("nvdisasm")


def tool(name: str) -> Path | None:
    """Return one of CUDA's programs: from a root, from PATH, or the one that Triton brings."""
    folders = [root / "bin" for root in roots()]
    if (triton := _package("triton")) is not None:
        folders.append(triton / "backends" / "nvidia" / "bin")
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            return folder / name
    found = shutil.which(name)
    return None if found is None else Path(found)


def roots() -> list[Path]:
    """Return the folders that hold a CUDA installation, or a part of one; best first."""
    named = [Path(text) for name in ("CUDA_HOME", "CUDA_PATH") if (text := os.environ.get(name))]
    candidates = [*named, *_wheels(), HOST]
    if (found := shutil.which("nvcc")) is not None:
        candidates.append(Path(found).resolve().parent.parent)
    kept: dict[Path, None] = {}
    for root in candidates:
        if root.is_dir():
            kept.setdefault(root.resolve())
    return list(kept)


def library_folders(root: Path) -> list[Path]:
    """Return where an installation keeps its libraries."""
    return list(dict.fromkeys((root / name).resolve() for name in LIB_FOLDERS if (root / name).is_dir()))


def outside_the_system(paths: Sequence[Path]) -> list[Path]:
    """Return what a sandbox must be shown besides /usr, so that it can read `paths`."""
    return [path for path in paths if not str(path).startswith("/usr/")]


def arch_for(major: int, minor: int) -> str:
    """Return the architecture to compile for on a GPU of this compute capability: 9.0 is `sm_90a`."""
    number = 10 * major + minor
    return f"sm_{number}{'a' if number >= FIRST_WITH_FEATURES else ''}"


def arch_of(device: Device | str) -> str:
    """Return the architecture of a device, or of a name: `B200`, `NVIDIA H200`, `sm_80`."""
    if isinstance(device, Device):
        if not device.arch:
            raise Refused(f"{device.model} is no GPU to compile for", remedy="name a GPU")
        return device.arch
    if re.fullmatch(r"sm_\d{2,3}[af]?", device):
        return device
    words = re.sub(r"[^a-z0-9]+", " ", device.lower()).split()
    for name, arch in sorted(ARCHES.items(), key=lambda item: -len(item[0])):
        if name.lower().split() == [word for word in words if word in name.lower().split()]:
            return arch
    raise BadInput(
        f"no architecture is known for {device!r}", remedy=f"name one of {', '.join(ARCHES)}, or sm_90a"
    )


def _described(folders: Sequence[Path]) -> Headers:
    for folder in folders:
        with_version = folder / "cuda.h"
        if with_version.is_file():
            match = re.search(r"#define CUDA_VERSION (\d+)", with_version.read_text(errors="replace"))
            version = "unknown" if match is None else match[1]
            return Headers(tuple(folders), f"headers {version} in {':'.join(map(str, folders))}")
    return Headers(tuple(folders), f"headers in {':'.join(map(str, folders))}")


def _include_folders(root: Path) -> list[Path]:
    """Return a root's header folders; since CUDA 13 CCCL's are in one of their own."""
    found: dict[Path, None] = {}
    for name in INCLUDE_FOLDERS:
        for folder in (root / name, root / name / "cccl"):
            if folder.is_dir():
                found.setdefault(folder.resolve())
    return list(found)


def _libraries(root: Path, pattern: str) -> Iterator[Path]:
    for folder in library_folders(root):
        for path in sorted(folder.glob(pattern)):
            yield path.resolve()


def _nvrtc_version(library: Path) -> str | None:
    """Read the version off the file names, for loading the library would cost 100 MB of address space."""
    match = re.fullmatch(r"libnvrtc\.so\.(\d+\.\d+(\.\d+)*)", library.name)
    if match is not None:
        return match[1]
    for builtins in sorted(library.parent.glob("libnvrtc-builtins.so.*")):
        if match := re.fullmatch(r"libnvrtc-builtins\.so\.(\d+\.\d+(\.\d+)*)", builtins.resolve().name):
            return match[1]
    return None


def _nvcc_version(path: Path) -> str | None:
    if not os.access(path, os.X_OK):
        return None
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=VERSION_S,
            check=True,
            env=environment(),
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\bV(\d+\.\d+\.\d+)", done.stdout)
    return None if match is None else match[1]


def _wheels() -> list[Path]:
    """Return the folders that NVIDIA's wheels share: site-packages/nvidia/cu13 and the like."""
    found = importlib.util.find_spec("nvidia")
    places = [] if found is None else list(found.submodule_search_locations or ())
    return [path for place in places for path in sorted(Path(place).glob("cu[0-9]*"), reverse=True)]


def _package(name: str) -> Path | None:
    found = importlib.util.find_spec(name)
    return None if found is None or found.origin is None else Path(found.origin).parent
