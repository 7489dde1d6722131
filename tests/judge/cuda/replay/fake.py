"""A driver without a GPU for both ends of a replay: what is recorded, and what our own launcher calls."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from swarm.judge.cuda import replay
from swarm.judge.cuda.replay_tape import Place, Recording, read
from swarm.languages.cuda_toolkit import all_headers
from tests.judge.cuda import emulated

FOLDER = Path(__file__).parent
FLAGS = ("-std=c++17", "-O1", "-Wall", "-Werror", "-shared", "-fPIC")
OURS = "fake_driver.so"
"""The driver by another name, for this process: NVRTC would take it for a GPU's."""
ARENA_BYTES = 1 << 16
COUNT = 48
BYTES = 4 * COUNT
PLACES = ((4096, 8192), (512, 1024), (20480, 2048), (1536, 40960))
"""Of x and y in the arena, for each recorded call."""


@dataclass(frozen=True)
class Fake:
    """The fake driver, candidates for it, and the shim."""

    folder: Path
    shim: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return what a process that records is started with."""
        return {"LD_LIBRARY_PATH": str(self.folder), "LD_PRELOAD": str(self.shim)}

    def command(self, entry: str, code: bytes = b"// code\n\0") -> list[str]:
        """Return what records an entry of candidate.cpp, once at each of PLACES."""
        path = self.folder / "code"
        path.write_bytes(code)
        spec = {
            "site": str(FOLDER.parents[3]),
            "arena_bytes": ARENA_BYTES,
            "candidate": str(self.folder / "candidate.so"),
            "code": str(path),
            "entry": entry,
            "shim": str(self.shim),
            "places": PLACES,
            "count": COUNT,
        }
        return [os.path.realpath(sys.executable), str(FOLDER / "recorded.py"), json.dumps(spec)]

    def record(self, entry: str, code: bytes = b"// code\n\0") -> Recording:
        """Have an entry of candidate.cpp recorded."""
        done = subprocess.run(
            self.command(entry, code), env=self.environment, stdout=subprocess.PIPE, timeout=60, check=True
        )
        return read(done.stdout)


def build(folder: Path, cache: Path) -> Fake:
    folder.chmod(0o755)  # a box's user is another one
    includes = [f"-I{path}" for path in all_headers()]
    made = ("g++", *FLAGS, *includes)
    library = folder / "libcuda.so.1"
    for path in (library, folder / OURS):
        named = f"-Wl,-soname,{path.name}"
        subprocess.run([*made, FOLDER / "fake_driver.cpp", "-o", path, named, "-ldl"], check=True)
    subprocess.run(
        [*made, FOLDER / "candidate.cpp", "-o", folder / "candidate.so", library, "-ldl"], check=True
    )
    return Fake(folder, replay.shim(cache))


def places(count: int = len(PLACES)) -> list[list[Place]]:
    return [[Place("input:x", x, BYTES), Place("output:y", y, BYTES)] for x, y in PLACES[:count]]


def bindings(folder: Path, launched: list[Any]) -> ModuleType:
    """Return CUDA's bindings over the fake driver; `launched` takes the configuration of every launch."""
    driver = ctypes.CDLL(str(folder / OURS))
    module: Any = emulated.bindings(driver)

    def launch(config: Any, function: bytes, parameters: int, extra: int) -> tuple[int]:
        block = ctypes.cast(extra, ctypes.POINTER(ctypes.c_void_p))[1]
        driver.run_kernel(ctypes.c_char_p(function), ctypes.c_void_p(block))
        launched.append(config)
        return (0,)

    def fill(to: int, value: int, count: int, stream: object) -> tuple[int]:
        return (driver.cuMemsetD32Async(ctypes.c_uint64(to), value, ctypes.c_size_t(count), None),)

    def replace(tensor_map: Any, address: int) -> tuple[int]:
        return (
            driver.cuTensorMapReplaceAddress(ctypes.c_void_p(tensor_map.getPtr()), ctypes.c_void_p(address)),
        )

    module.cuLaunchKernelEx = launch
    module.cuMemsetD32Async = fill
    module.cuTensorMapReplaceAddress = replace
    module.cuFuncLoad = module.cuFuncSetAttribute = lambda *arguments: (0,)
    module.CUtensorMap = _TensorMap
    module.CUlaunchConfig = SimpleNamespace
    module.CUlaunchAttribute = lambda: SimpleNamespace(value=SimpleNamespace(clusterDim=SimpleNamespace()))
    module.CUlaunchAttributeID = module.CUfunction_attribute = emulated.names()
    return module


class _TensorMap:
    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(128)

    def getPtr(self) -> int:  # noqa: N802
        return ctypes.addressof(self._memory)


def floats(values: Sequence[float]) -> bytes:
    return bytes((ctypes.c_float * len(values))(*values))
