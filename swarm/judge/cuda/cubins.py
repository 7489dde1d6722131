"""The device code that we trust (kernels.cu, runner.cu), compiled once per architecture.

It is our own source, so NVRTC compiles it in this process; a cubin is kept under a name that follows from
sources, options, architecture and NVRTC's version.
"""

from __future__ import annotations

import hashlib
import importlib
from enum import StrEnum
from pathlib import Path
from typing import Any

from swarm.durable import write_atomic
from swarm.errors import Refused

FOLDER = Path(__file__).parent
HEADERS = ("elements.h", "contents.h", "compare.h", "veil.h")
OPTIONS = ("--std=c++17", "--fmad=false")
"""Without contraction the same contents come out of every kernel that makes them."""


class Source(StrEnum):
    """Who loads it."""

    JUDGE = "kernels.cu"
    """Fill, inspect, compare."""
    RUNNER = "runner.cu"
    """Spin, flush, poison, marks, veil."""


def cubin(source: Source, arch: int, cache: Path) -> bytes:
    """Return the cubin for a compute capability (90 for 9.0), from `cache` if it is there."""
    code = (FOLDER / source).read_text()
    headers = {name: (FOLDER / name).read_text() for name in HEADERS}
    options = (*OPTIONS, f"--gpu-architecture=sm_{arch}")
    parts = [code, *headers.values(), *options, repr(_nvrtc().nvrtcVersion())]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    path = cache / f"{key}.cubin"
    if path.is_file():
        return path.read_bytes()
    built = compile_cubin(code, options, headers)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, built)
    return built


def compile_cubin(code: str, options: tuple[str, ...], headers: dict[str, str] | None = None) -> bytes:
    """Compile trusted CUDA C++; RuntimeError with the compiler's log if it does not compile."""
    nvrtc = _nvrtc()
    names = headers or {}

    def call(name: str, *arguments: Any) -> Any:
        error, *rest = getattr(nvrtc, name)(*arguments)
        if error != 0:
            raise RuntimeError(f"{name}: {nvrtc.nvrtcGetErrorString(error)[1].decode()}\n{log()}")
        return rest[0] if rest else None

    def log() -> str:
        text = bytes(nvrtc.nvrtcGetProgramLogSize(program)[1])
        nvrtc.nvrtcGetProgramLog(program, text)
        return text.rstrip(b"\0 ").decode()

    program = None
    program = call(
        "nvrtcCreateProgram",
        code.encode(),
        b"swarm.cu",
        len(names),
        [text.encode() for text in names.values()],
        [name.encode() for name in names],
    )
    call("nvrtcCompileProgram", program, len(options), [option.encode() for option in options])
    built = bytes(call("nvrtcGetCUBINSize", program))
    call("nvrtcGetCUBIN", program, built)
    call("nvrtcDestroyProgram", program)
    return built


def _nvrtc() -> Any:
    try:
        module = importlib.import_module("cuda.bindings.nvrtc")
        module.nvrtcVersion()
    except (ImportError, RuntimeError) as missing:
        raise Refused(
            f"no NVRTC: {missing}", remedy="install NVIDIA's CUDA toolkit or nvidia-cuda-nvrtc"
        ) from None
    return module
