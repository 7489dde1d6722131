"""What the GPU benchmarks measure: jobs made of the trees in tests/gpu, and a problem with a time to choose.

Everything is judged by the product; nothing here takes a time of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swarm.device import Device
from swarm.judge import peaks
from swarm.judge.judge import Judge
from swarm.problem import Problem, problem_from_files
from swarm.verdict import Comparison, Status, Verdict
from tests.gpu import trees

ARITHMETIC_KERNEL = b"""// Copies, after ROUNDS multiplications by one that the compiler knows nothing of.
extern "C" __global__ void __launch_bounds__(256) rounds(const float *x, float *y, int n,
                                                             float one, float zero) {
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
    float value = x[i];
#pragma unroll 16
    for (int r = 0; r < ROUNDS; r++) value = value * one + zero;
    y[i] = value;
  }
}
"""
ARITHMETIC_ELEMENTS = 132 * 1024


@dataclass(slots=True)
class Bench:
    """A warm judge of one GPU, and until when the part of the benchmark that runs may take."""

    device: Device
    judge: Judge
    folder: Path
    deadline_s: float = 0.0

    def begin(self, seconds: float) -> None:
        self.deadline_s = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        return self.deadline_s - time.monotonic()

    def until_s(self, done: int, of: int) -> float:
        """Return when the next of some steps has to end, if `done` of them are over."""
        return time.monotonic() + self.left_s / (of - done)

    def verdict(
        self, of: Problem, tree: Mapping[str, bytes], name: str, **changes: object
    ) -> tuple[Verdict, float]:
        """Return a verdict that passed, and the seconds from handing the tree in."""
        begun_s = time.monotonic()
        made = self.judge.judge(trees.job(of, tree, None, name, **changes))
        took_s = time.monotonic() - begun_s
        assert isinstance(made, Verdict)
        if made.status is not Status.PASSED:
            raise RuntimeError(f"{name}: {made.status}: {made.reason}\n{made.log}")
        return made, took_s

    def comparison(
        self,
        of: Problem,
        champion: Mapping[str, bytes],
        candidate: Mapping[str, bytes],
        name: str,
        **changes: object,
    ) -> Comparison:
        made = self.judge.judge(trees.job(of, candidate, champion, name, **changes))
        assert isinstance(made, Comparison)
        if made.ratio is None:
            raise RuntimeError(f"{name}: {made.reason}")
        return made


@contextmanager
def open_bench(device: Device, folder: Path) -> Iterator[Bench]:
    cache = folder / "cache"
    with Judge(device, cache, peaks.load(folder / "peaks.json", device, cache)) as judge:
        judge.warm_up()
        yield Bench(device, judge, folder)


def with_workloads(
    of: Problem, sizes: Sequence[Mapping[str, int]], scalars: Mapping[str, int | float | bool] | None = None
) -> Problem:
    """Return a problem with other sizes of axes and scalar inputs; those not given are as in `scalars`.

    Everything else is drawn as before.
    """
    inputs = of.definition.inputs
    drawn = {"type": "custom" if of.workloads[0].is_custom else "random"}
    lines = [
        {
            "uuid": "-".join(f"{name}-{size}" for name, size in one.items()).replace("_", "-"),
            "axes": {name: size for name, size in one.items() if name not in inputs},
            "inputs": dict.fromkeys(inputs, drawn)
            | {
                name: {"type": "scalar", "value": value}
                for name, value in {**(scalars or {}), **one}.items()
                if name in inputs
            },
        }
        for one in sizes
    ]
    files = {**of.files, "workload.jsonl": "".join(json.dumps(line) + "\n" for line in lines).encode()}
    return problem_from_files(files, of.name)


def arithmetic() -> Problem:
    """Return a problem whose kernel takes as long as one likes, without a byte more to move."""
    definition = {
        "name": "rounds",
        "axes": {"n": {"type": "var"}},
        "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
        "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
        "reference": "def run(x):\n    return x.clone()\n",
    }
    line = {"uuid": "all", "axes": {"n": ARITHMETIC_ELEMENTS}, "inputs": {"x": {"type": "random"}}}
    files = {"definition.json": json.dumps(definition).encode(), "workload.jsonl": json.dumps(line).encode()}
    return problem_from_files(files, "rounds")


def rounds(count: int) -> dict[str, bytes]:
    manifest = f"""language = "cuda"
sources = ["kernel.cu"]
[params]
ROUNDS = {count}
[[launch]]
kernel = "rounds"
grid = ["ceildiv(n, 256)"]
block = [256]
args = ["x", "y", "n:i32", "1:f32", "0:f32"]
"""
    return {"solution.toml": manifest.encode(), "kernel.cu": ARITHMETIC_KERNEL}


def large(rows: int, cols: int) -> tuple[Problem, dict[str, bytes]]:
    """Return a problem of one large bf16 input, and a kernel for it."""
    definition = {
        "name": "large",
        "axes": {"rows": {"type": "var"}, "cols": {"type": "var"}},
        "inputs": {"x": {"shape": ["rows", "cols"], "dtype": "bfloat16"}},
        "outputs": {"y": {"shape": ["rows"], "dtype": "float32"}},
        "reference": "import torch\n\n\ndef run(x):\n    return x.sum(-1, dtype=torch.float32)\n",
    }
    line = {"uuid": "all", "axes": {"rows": rows, "cols": cols}, "inputs": {"x": {"type": "random"}}}
    settings = b"[tolerance]\nmax_atol = 2.0\nmax_rtol = 1e-3\nrequired_matched_ratio = 1.0\n"
    files = {
        "definition.json": json.dumps(definition).encode(),
        "workload.jsonl": json.dumps(line).encode(),
        "problem.toml": settings,
    }
    kernel = b"""#include <cuda_bf16.h>

extern "C" __global__ void __launch_bounds__(512) row_sum(const uint4 *x, float *y, long long cols) {
  __shared__ float of_warp[16];
  const uint4 *row = x + blockIdx.x * (cols / 8);
  float sum = 0;
#pragma unroll 8
  for (long long i = threadIdx.x; i < cols / 8; i += 512) {
    const uint4 bits = row[i];
    for (unsigned word : {bits.x, bits.y, bits.z, bits.w})
      sum += __uint_as_float(word << 16) + __uint_as_float(word & 0xffff0000);
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int warp = 1; warp < 16; warp++) sum += of_warp[warp];
  y[blockIdx.x] = sum;
}
"""
    manifest = b"""language = "cuda"
sources = ["kernel.cu"]
[[launch]]
kernel = "row_sum"
grid = ["rows"]
block = [512]
args = ["x", "y", "cols:i64"]
"""
    return problem_from_files(files, "large"), {"solution.toml": manifest, "kernel.cu": kernel}


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile, interpolated between its neighbours."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


Row = tuple[str, str, str, bool | None]
"""What was measured, what is wanted, what was seen, and whether that is enough (None: only told)."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one part of the benchmark found."""

    rows: list[Row]
    figures: dict[str, Any]
