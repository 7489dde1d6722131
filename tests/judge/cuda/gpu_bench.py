"""One small problem on a GPU, its arena and its slots, for tests that run real candidates.

y = x * scale, taking at least `wait` nanoseconds by the GPU's own clock.
"""

from __future__ import annotations

import array
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from swarm import sandbox
from swarm.device import Device
from swarm.judge.build import language
from swarm.judge.cuda import cubins
from swarm.judge.cuda.clocks import Clocks
from swarm.judge.cuda.driver import Context, Stream
from swarm.judge.cuda.memory import DeviceArena
from swarm.judge.cuda.runner import CudaRunner
from swarm.judge.cuda.spares import Spares
from swarm.judge.runner import Slot
from swarm.languages.protocol import Artifact, CompileLimits, Failure
from swarm.problem import Problem, problem_from_files
from swarm.solution import load_manifest

N = 1 << 14
BYTES = 4 * N
SLOTS = 4
LIMITS = CompileLimits(timeout_s=300, memory_bytes=32 << 30)
PROBLEM = {
    "definition.json": b"""{"name": "waiting", "axes": {"n": {"type": "var"}, "wait": {"type": "var"}},
      "inputs": {"x": {"shape": ["n"], "dtype": "float32"}, "scale": {"shape": null, "dtype": "float32"}},
      "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
      "reference": "def run(x, scale):\\n    return x * scale\\n"}""",
    "workload.jsonl": b'{"uuid": "w", "axes": {"n": 16384, "wait": 1000}, "inputs": {"x": {"type": "random"},'
    b'"scale": {"type": "scalar", "value": 2.0}}}\n',
}
WAIT = """
__device__ unsigned long long now() {
  unsigned long long ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}
"""
KERNEL = (
    WAIT
    + """
extern "C" __global__ void scaled(const float* x, float* y, float scale, int n, long long wait) {
  const unsigned long long begun = now();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * scale;
  while (now() - begun < wait) {
  }
}
"""
)
LAUNCH = """
[[launch]]
kernel = "scaled"
grid = ["ceildiv(n, 256)", 1, 1]
block = [256, 1, 1]
args = ["x", "y", "scale:f32", "n:i32", "wait:i64"]
"""


def plan(source: str = KERNEL, manifest: str = LAUNCH) -> dict[str, bytes]:
    """Return the tree of a `cuda` solution."""
    head = 'language = "cuda"\nsources = ["kernel.cu"]\n'
    return {"solution.toml": (head + manifest).encode(), "kernel.cu": source.encode()}


def native(body: str) -> dict[str, bytes]:
    """Return the tree of a `cuda_cpp` solution whose `run` has this body."""
    source = f'#include "problem.h"\n{KERNEL}\nextern "C" void run(const float* x, double scale, float* y, '
    source += f"int64_t n, int64_t wait, cudaStream_t stream) {{\n{body}\n}}\n"
    return {
        "solution.toml": b'language = "cuda_cpp"\nsources = ["kernel.cu"]\n',
        "kernel.cu": source.encode(),
    }


def python(source: str, name: str = "pytorch") -> dict[str, bytes]:
    """Return the tree of a solution in Python."""
    head = f'language = "{name}"\nsources = ["kernel.py"]\nentry = "kernel.py::run"\n'
    return {"solution.toml": head.encode(), "kernel.py": source.encode()}


@dataclass
class GpuBench:
    """A GPU as a desk holds it."""

    device: Device
    cache: Path
    context: Context
    stream: Stream
    arena: DeviceArena
    spares: Spares
    problem: Problem = field(default_factory=lambda: problem_from_files(PROBLEM, "waiting"))
    rng: random.Random = field(default_factory=random.Random)

    def artifact(self, files: dict[str, bytes]) -> Artifact:
        manifest = load_manifest(files)
        made = language(manifest).compile(files, manifest, self.problem, self.device, self.cache, LIMITS)
        assert isinstance(made, Artifact), (made.reason, made.log)
        return made

    def runner(
        self, files: dict[str, bytes], clocks: Clocks | None = None, *, timeout_s: float = 10.0, side: int = 0
    ) -> CudaRunner:
        return CudaRunner(
            self.artifact(files),
            self.problem,
            self.arena,
            self.spares,
            clocks or Clocks(),
            memory_bytes=8 << 30,
            timeout_s=timeout_s,
            side=side,
        )

    def fill(self, wait_ns: int, count: int = SLOTS) -> list[Slot]:
        """Write new contents; return the slots."""
        slots = []
        for index in range(count):
            x, y = 2 * index * BYTES, (2 * index + 1) * BYTES
            values = array.array("f", (self.rng.uniform(-4, 4) for _ in range(N)))
            self.stream.write(self.arena.address + x, values.tobytes())
            self.stream.write(self.arena.address + y, b"\xff" * BYTES)
            slots.append(Slot((x, 1.5), (y,), {"n": N, "wait": wait_ns}))
        return slots

    def is_right(self, slots: list[Slot]) -> bool:
        for slot in slots:
            x, y = (
                array.array("f", self.stream.read(self.arena.address + int(offset), BYTES))
                for offset in (slot.inputs[0], slot.outputs[0])
            )
            if any(abs(1.5 * a - b) > 1e-5 for a, b in zip(x, y, strict=True)):
                return False
        return True

    def called(self, runner: CudaRunner, wait_ns: int, count: int = SLOTS) -> list[int]:
        """Make one request that must do right; return its claims."""
        slots = self.fill(wait_ns, count)
        claims = runner.call(slots)
        assert not isinstance(claims, Failure), (claims.reason, claims.log)
        assert self.is_right(slots)
        return claims

    def failure(self, files: dict[str, bytes], *, timeout_s: float = 10.0) -> Failure:
        """Run a candidate that must fail."""
        with self.runner(files, timeout_s=timeout_s) as runner:
            claims = runner.call(self.fill(1000))
            assert isinstance(claims, Failure), claims
            return claims


@contextmanager
def gpu_bench(device: Device, cache: Path, at: sandbox.Level | None = None) -> Iterator[GpuBench]:
    context = Context(device.uuid)
    cubin = cubins.cubin(cubins.Source.RUNNER, context.facts.arch, cache)
    with DeviceArena(context, 2 * SLOTS * BYTES) as arena:
        spares = Spares(device, cubin, at=at)
        try:
            yield GpuBench(device, cache, context, Stream(), arena, spares)
        finally:
            spares.close()
