"""One small problem, its arena and its slots, for tests that run real candidates."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from swarm import sandbox
from swarm.device import Device, cpu_device
from swarm.judge.arena import Arena, place
from swarm.judge.runner import Runner, Slot
from swarm.languages import native
from swarm.languages.cpp import Cpp
from swarm.languages.protocol import Artifact, CompileLimits, Failure
from swarm.languages.pytorch import Pytorch
from swarm.problem import Problem, problem_from_files
from swarm.solution import load_manifest

GIB = 1 << 30
ROWS, COLUMNS = 768, 64
LIMITS = CompileLimits(timeout_s=60, memory_bytes=4 * GIB)
DEFINITION = {
    "name": "axpy",
    "axes": {
        "rows": {"type": "var"},
        "columns": {"type": "const", "value": COLUMNS},
        "twice": {"type": "expr", "expression": "columns * 2"},
        "count": {"type": "expr", "expression": "rows * columns"},
    },
    "inputs": {
        "x": {"shape": ["rows", "columns"], "dtype": "float32"},
        "scale": {"shape": None, "dtype": "float32"},
        "shift": {"shape": None, "dtype": "int64"},
        "negate": {"shape": None, "dtype": "bool"},
    },
    "outputs": {"y": {"shape": ["rows", "columns"], "dtype": "float32"}},
    "reference": (
        "def run(x, scale, shift, negate):\n    return (-1 if negate else 1) * (x * scale + shift)\n"
    ),
}
KERNEL = """\
#include "problem.h"
extern "C" void run(const float* x, double scale, int64_t shift, bool negate, float* y, int64_t rows,
                    int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = x[i] * float(scale) + float(shift);
    y[i] = negate ? -value : value;
  }
}
"""


def problem(**changes: object) -> Problem:
    workload = {
        "uuid": "w1",
        "axes": {"rows": ROWS},
        "inputs": {
            "x": {"type": "random"},
            "scale": {"type": "scalar", "value": 2.5},
            "shift": {"type": "scalar", "value": -3},
            "negate": {"type": "scalar", "value": True},
        },
    }
    line = json.dumps(workload).encode()
    files = {
        "definition.json": json.dumps(DEFINITION | changes).encode(),
        "workload.jsonl": line,
        "workload.cpu.jsonl": line,
    }
    return problem_from_files(files, "axpy")


def cpp(body: str, cache: Path, manifest: str = "") -> Artifact | Failure:
    """Compile one C++ source."""
    head = f'language = "cpp"\nsources = ["kernel.cpp"]\n{manifest}'
    files = {"solution.toml": head.encode(), "kernel.cpp": body.encode()}
    return Cpp().compile(files, load_manifest(files), problem(), cpu_device(), cache, LIMITS)


def pytorch(body: str, cache: Path, manifest: str = "") -> Artifact | Failure:
    head = f'language = "pytorch"\nsources = ["kernel.py"]\nentry = "kernel.py::run"\n{manifest}'
    files = {"solution.toml": head.encode(), "kernel.py": body.encode()}
    return Pytorch().compile(files, load_manifest(files), problem(), cpu_device(), cache, LIMITS)


class Bench:
    """A runner over an arena with `slots` slots of fresh inputs."""

    def __init__(self, runner: Runner, arena: Arena, slots: int = 3) -> None:
        self.runner = runner
        size = ROWS * COLUMNS * 4
        offsets = place([size] * 2 * slots, arena.size, 4096, random.Random(7))
        self._tensors = [
            torch.frombuffer(arena.memory, dtype=torch.float32, count=ROWS * COLUMNS, offset=offset)
            for offset in offsets
        ]
        axes = {"rows": ROWS, "columns": COLUMNS, "twice": 2 * COLUMNS, "count": ROWS * COLUMNS}
        self.slots = [
            Slot((offsets[2 * i], 2.5, -3, True), (offsets[2 * i + 1],), axes) for i in range(slots)
        ]

    def call(self) -> list[int] | Failure:
        """Poison the outputs, renew the inputs, call."""
        for index, tensor in enumerate(self._tensors):
            tensor.fill_(float("nan")) if index % 2 else tensor.normal_()
        return self.runner.call(self.slots)

    @property
    def wrote_anything(self) -> bool:
        return not all(bool(y.isnan().all()) for y in self._tensors[1::2])

    @property
    def is_right(self) -> bool:
        pairs = zip(self._tensors[::2], self._tensors[1::2], strict=True)
        return all(torch.allclose(y, -(x * 2.5 - 3), atol=1e-5) for x, y in pairs)


@contextmanager
def bench(
    artifact: Artifact | Failure,
    cache: Path,
    *,
    timeout_s: float = 20,
    memory_bytes: int = GIB,
    at: sandbox.Level | None = None,
) -> Iterator[Bench]:
    assert isinstance(artifact, Artifact), artifact
    device: Device = cpu_device()
    with (
        Arena(4 << 20) as arena,
        Runner(
            artifact,
            problem(),
            device,
            arena,
            native.load(cache),
            memory_bytes=memory_bytes,
            timeout_s=timeout_s,
            at=at,
        ) as runner,
    ):
        yield Bench(runner, arena)
