"""What the judge of one CPU device keeps between jobs: memory, warm references, empty candidates."""

from __future__ import annotations

import os
import platform
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from swarm import sandbox
from swarm.device import Device
from swarm.judge import sitting
from swarm.judge.arena import Arena
from swarm.judge.build import Built, Frozen, language
from swarm.judge.clock import CoreClock
from swarm.judge.compare import Quads, SideFailure, unseen_gain
from swarm.judge.reference import InvalidReference, Reference, References, input_specs
from swarm.judge.runner import Runner, Slot
from swarm.judge.sitting import Sitting
from swarm.judge.slots import Memory, room_for
from swarm.languages import native, toolchain
from swarm.languages.protocol import Artifact, CompileLimits, Failure, Kind
from swarm.problem import Problem, problem_from_files
from swarm.solution import load_manifest
from swarm.verdict import Trust
from swarm.workload import Workload

KEPT_FACTOR = 4
"""A larger arena is kept for smaller work up to this many times over: mapping it costs every runner time."""
COMPILE_S, CALL_S, MEMORY_GIB = 60.0, 10.0, 1.0
ARENA_BYTES = 8192

EMPTY_PROBLEM = {
    "definition.json": b"""{"name": "empty", "axes": {"n": {"type": "var"}},
      "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
      "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
      "reference": "def run(x):\\n    return x\\n"}""",
    "workload.jsonl": b'{"uuid": "one", "axes": {"n": 1}, "inputs": {"x": {"type": "random"}}}\n',
}
EMPTY_SOLUTIONS = {
    Kind.SHARED_OBJECT: {
        "solution.toml": b'language = "cpp"\nsources = ["kernel.cpp"]\n',
        "kernel.cpp": b'#include "problem.h"\n'
        b'extern "C" void run(const float* x, float* y, int64_t n) { y[0] = x[0]; }\n',
    },
    Kind.PYTHON: {
        "solution.toml": b'language = "pytorch"\nsources = ["kernel.py"]\nentry = "kernel.py::run"\n',
        "kernel.py": b"def run(x, y):\n    y.copy_(x)\n",
    },
}


class CpuDesk:
    """Made once per judge; the process is pinned to the device's cores from then on."""

    floor_noise = 0.05
    """Peaks are measured: T_SOL differs by some percent from one calibration to the next."""
    timer = "CLOCK_MONOTONIC in the runner, bounded by the judge's"

    def __init__(self, device: Device, cache: Path) -> None:
        os.sched_setaffinity(0, device.cores)
        torch.set_num_threads(len(device.cores))  # it counted the cores before we were pinned
        self.device = device
        self.cache = cache
        self.native = native.load(cache)
        self.references = References(device)
        self._rng = random.SystemRandom()
        self._shared: Memory | None = None
        self._private: Memory | None = None
        self._controls: dict[Kind, EmptyCandidate] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.references.close()
        for control in self._controls.values():
            control.close()
        self._controls.clear()
        for memory in (self._shared, self._private):
            if memory is not None:
                memory.arena.close()
        self._shared = self._private = None

    def warm_up(self) -> None:
        self.references.start()
        self.control(Kind.SHARED_OBJECT)

    def clock(self) -> CoreClock:
        return CoreClock(self.device)

    @contextmanager
    def table(
        self, epoch: str, rules: Frozen, workloads: Sequence[Workload], seed: str
    ) -> Iterator[CpuTable]:
        reference = self.reference(epoch, rules.problem)
        yield CpuTable(self, rules, reference, self.memories(rules.problem, workloads), seed)

    def rest(self) -> None:
        """Nothing: a runner on a CPU starts in milliseconds."""

    def drop(self, epoch: str, error: InvalidReference) -> None:
        self.references.drop(epoch, error)

    def trust(self, kind: Kind) -> Trust:
        """Return HOST: a CPU kernel's own code is called, so all rests on the doubts of the judge."""
        return Trust.HOST

    def versions(self) -> dict[str, str]:
        return versions()

    def memories(self, problem: Problem, workloads: Iterable[Workload]) -> tuple[Memory, Memory]:
        """Return (what runners see, what only the reference sees), large enough for `workloads`."""
        needs = list(workloads)
        with room_for(problem, needs):
            self._shared = self._sized(self._shared, max(sitting.shared_bytes(problem, w) for w in needs))
            self._private = self._sized(self._private, max(sitting.private_bytes(problem, w) for w in needs))
        return self._shared, self._private

    def reference(self, epoch: str, problem: Problem) -> Reference:
        return self.references.answering(epoch, problem)

    def runner(
        self, artifact: Artifact, problem: Problem, arena: Arena, *, memory_gib: float, timeout_s: float
    ) -> Runner:
        """Start a runner for a candidate; the caller closes it."""
        return Runner(
            artifact,
            problem,
            self.device,
            arena,
            self.native,
            memory_bytes=int(memory_gib * sandbox.GIB),
            timeout_s=timeout_s,
        )

    def control(self, kind: Kind) -> EmptyCandidate:
        """Return the empty candidate in a runner of this kind; started at first use."""
        if kind not in self._controls:
            self._controls[kind] = EmptyCandidate(kind, self)
        return self._controls[kind]

    def _sized(self, memory: Memory | None, size: int) -> Memory:
        if memory is not None and size <= memory.arena.size <= KEPT_FACTOR * size:
            return memory
        other = Memory(Arena(size), self.native, self._rng)  # if that is refused, the old one is still good
        if memory is not None:
            memory.arena.close()
        return other


class CpuTable:
    """One problem's reference and memory, while the device is held."""

    def __init__(
        self, desk: CpuDesk, rules: Frozen, reference: Reference, memories: tuple[Memory, Memory], seed: str
    ) -> None:
        self._desk = desk
        self._rules = rules
        self._reference = reference
        self._shared, self._private = memories
        self._seed = seed

    def sitting(self, workload: Workload) -> Sitting:
        tests = self._rules.protocol.tests
        return Sitting(
            self._rules.problem, workload, tests, self._reference, self._shared, self._private, self._seed
        )

    def prepare(self, built: Sequence[Built]) -> None:
        """Nothing: runners start beside each other by themselves."""

    def runner(self, built: Built) -> Runner:
        rules = self._rules.protocol.rules
        return self._desk.runner(
            built.artifact,
            self._rules.problem,
            self._shared.arena,
            memory_gib=rules.memory_gib,
            timeout_s=rules.run_timeout_s,
        )

    def replay(self, built: Built, workloads: Sequence[Workload]) -> str:
        """Return no reason: on a CPU all of a kernel is code on the host."""
        return ""

    def control(self, built: Built) -> EmptyCandidate:
        return self._desk.control(built.artifact.kind)

    def doubt(
        self, built: Sequence[Built], workload: Workload, quads: Quads, rng: random.Random
    ) -> str | SideFailure:
        """Ask the cores' clock about a gain: a lie too small for one call shows in the difference of many."""
        return unseen_gain(quads, one_core=len(self._desk.device.cores) == 1)

    def flops(self, workload: Workload) -> float:
        return sum(self._reference.flops(input_specs(self._rules.problem.definition, workload)).values())


@cache
def versions() -> dict[str, str]:
    """Return what a result depends on besides the device."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "compiler": toolchain.compiler().version,
        "kernel": platform.release(),
    }


class EmptyCandidate:
    """A warm runner whose candidate does nothing: what its requests take is what any request takes."""

    def __init__(self, kind: Kind, desk: CpuDesk) -> None:
        problem = problem_from_files(EMPTY_PROBLEM, "empty")
        files = EMPTY_SOLUTIONS[kind]
        manifest = load_manifest(files)
        limits = CompileLimits(COMPILE_S, 4 * sandbox.GIB)
        artifact = language(manifest).compile(files, manifest, problem, desk.device, desk.cache, limits)
        if isinstance(artifact, Failure):
            raise RuntimeError(f"the empty candidate does not compile: {artifact.reason} {artifact.log}")
        self.busy_us = 0.0
        self._arena = Arena(ARENA_BYTES)
        self._runner = desk.runner(artifact, problem, self._arena, memory_gib=MEMORY_GIB, timeout_s=CALL_S)
        self.overhead_us(())

    def overhead_us(self, slots: Sequence[Slot]) -> float:
        """Make one request of one call, whatever the candidate's is: slots cost a CPU's runner nothing."""
        claims = self._runner.call([Slot((0,), (ARENA_BYTES // 2,), {"n": 1})])
        if isinstance(claims, Failure):
            raise RuntimeError(f"the empty candidate failed: {claims.reason} {claims.log}")
        self.busy_us = (self._runner.busy_ns - sum(claims)) / 1e3
        return (self._runner.wall_ns - sum(claims)) / 1e3

    def close(self) -> None:
        self._runner.close()
        self._arena.close()
