"""What a device can do at best: bytes to and from memory with cold caches, and multiply-adds per second.

A GPU's peaks are published, or in a file that somebody wrote; a CPU's are measured here.

A limit must not be beaten, so each measured peak is the best of many patterns and repetitions. Where a dtype
has instructions of its own, its peak is a multiple of float32's that no implementation exceeds.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from swarm.definition import DType
from swarm.device import Device
from swarm.durable import write_atomic
from swarm.judge.arena import Arena
from swarm.languages import native
from swarm.languages.native import Native, Pattern
from swarm.peaks_table import peaks_of_model
from swarm.schema import Float, Frozen, Int, json_fields, parse, read_json, shown, suggest, wrong
from swarm.sol import Peaks

SIZES = (512 << 10, 2 << 20, 8 << 20)
REPEATS = 15
FMA_ROUNDS, FMA_REPEATS = 200_000, 7
MULTIPLES: dict[str, dict[DType, float]] = {
    "amx_bf16": {DType.BFLOAT16: 32.0},
    "amx_int8": {DType.INT8: 64.0},
    "amx_fp16": {DType.FLOAT16: 32.0},
    "avx512_bf16": {DType.BFLOAT16: 2.0},
    "avx512_fp16": {DType.FLOAT16: 2.0},
    "avx512_vnni": {DType.INT8: 4.0},
    "avx_vnni": {DType.INT8: 4.0},
    "bf16": {DType.BFLOAT16: 4.0},
    "i8mm": {DType.INT8: 8.0},
    "asimddp": {DType.INT8: 4.0},
    "fphp": {DType.FLOAT16: 2.0},
}
"""CPU flag -> how much faster than float32 a dtype's instructions are, per cycle, at most."""


Rates = dict[str, Annotated[Float, Field(gt=0, allow_inf_nan=False)]]


class _PeaksFile(Frozen):
    """peaks.json; the fields are those of Peaks."""

    device_model: str = Field(min_length=1)
    bandwidth_gbps: Float = Field(gt=0, allow_inf_nan=False)
    gflops: Rates
    source: str = Field(min_length=1)
    ceiling_gflops: Rates = Field(default_factory=dict)
    cache_bytes: Int = Field(default=0, ge=0)

    @field_validator("gflops", "ceiling_gflops")
    @classmethod
    def _of_dtypes(cls, rates: dict[str, float]) -> dict[str, float]:
        for name in rates:
            if name not in tuple(DType):
                raise wrong(name, f"dtype {shown(name)} is unknown", suggest(name, DType))
        return rates


def load(path: Path, device: Device, cache: Path) -> Peaks:
    """Return the peaks kept at `path`, or a GPU's published ones, or calibrate a CPU and keep them.

    Calibrating measures: call it with the device held. The peaks of a GPU need no device at all.
    """
    if path.exists():
        return from_json(path.read_bytes(), str(path))
    if device.kind == "cuda":
        return peaks_of_model(device.model, path)
    peaks = calibrate(device, native.load(cache))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, to_json(peaks))
    return peaks


def calibrate(device: Device, tools: Native) -> Peaks:
    """Measure the device; takes about a second, pinned to its cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, device.cores)
    try:
        bandwidth = _bandwidth_gbps(tools, len(device.cores))
        float32 = _float32_gflops(tools, len(device.cores))
    finally:
        os.sched_setaffinity(0, before)
    flags = _flags()
    gflops = {DType.FLOAT32: float32, DType.FLOAT64: float32 / 2}
    for dtype in (DType.BFLOAT16, DType.FLOAT16, DType.INT8):
        known = [
            multiples[dtype] for flag, multiples in MULTIPLES.items() if flag in flags and dtype in multiples
        ]
        gflops[dtype] = float32 * max(known, default=1.0)
    return Peaks(
        device.model,
        round(bandwidth, 3),
        {dtype.value: round(value, 2) for dtype, value in gflops.items()},
        "calibrated: cold reads, writes and copies; float32 multiply-adds; other dtypes by instruction set",
    )


def to_json(peaks: Peaks) -> bytes:
    return (json.dumps(asdict(peaks), indent=1) + "\n").encode()


def from_json(data: bytes, where: str = "peaks") -> Peaks:
    """Read peaks that were calibrated, or that somebody wrote from a data sheet."""
    known = parse(_PeaksFile, read_json(data, where), json_fields(where))
    return Peaks(**known.model_dump())


def _bandwidth_gbps(tools: Native, threads: int) -> float:
    best = 0.0
    largest = max(SIZES)
    with Arena(2 * largest) as arena:
        to, source = arena.address, arena.address + largest
        for pattern in Pattern:
            moved = 2 if pattern in (Pattern.COPY, Pattern.STREAMED_COPY) else 1
            for size in SIZES:
                for _ in range(REPEATS):
                    tools.flush(to, size)
                    tools.flush(source, size)
                    ns = tools.bandwidth_ns(pattern, to, source, size, threads)
                    best = max(best, moved * size / ns)
    return best


def _float32_gflops(tools: Native, threads: int) -> float:
    best = 0.0
    for _ in range(FMA_REPEATS):
        ns, flops = tools.fma_float32(FMA_ROUNDS, threads)
        best = max(best, flops / ns)
    return best


def _flags() -> frozenset[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("flags", "Features")):
            return frozenset(line.split(":", 1)[1].split())
    return frozenset()
