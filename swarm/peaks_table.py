"""What NVIDIA publishes about the GPUs we know: peaks, sizes and clocks. Needs no device.

**Which path counts as the fastest for a dtype.** The rate is that of the fastest unit that may legally take
inputs of that dtype, dense, never the rate with structured sparsity:

- float64: the faster of the CUDA cores and the float64 tensor cores.
- float32: TF32 tensor cores. A float32 product may use them wherever the tolerance passes, so a limit from
  the CUDA cores alone (7 times slower on an H200) would call honest kernels faster than physics.
- float16 on a GeForce: accumulation in float16, which is twice as fast there as in float32.
- float8 without float8 units (A100): float16, which holds every float8 value.
- float4 without float4 units: the faster of float8 and int8; either holds every float4 value, times two.

**T_SOL is not quite the floor.** Three things let an honest kernel be faster than the published peaks say, so
quarantine uses `Peaks.ceiling_gflops` and `Peaks.cache_bytes` and the score does not:

- The chip may run above the clock at which its peaks are stated (`rated_mhz`, up to `max_mhz`).
- Inputs of 16 bits or more may be computed in float16 where the tolerance allows it: TF32 rounds no finer.
- Caches are cold, so inputs come from memory; but a kernel ends when its outputs are in the L2 cache, and up
  to its size they need not have reached memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from swarm.definition import DType
from swarm.errors import BadInput
from swarm.schema import suggest
from swarm.sol import Peaks

KIB, MIB = 1 << 10, 1 << 20
HOPPER_SMEM, AMPERE_SMEM, ADA_SMEM = 227 * KIB, 163 * KIB, 99 * KIB

Tflops = Mapping[str, float]
"""Path -> 10^12 dense operations per second: fp64 fp64_tensor fp32 tf32 bf16 fp16 fp8 fp4 int8."""

HOPPER_SXM: Tflops = {
    "fp64": 33.5,
    "fp64_tensor": 66.9,
    "fp32": 66.9,
    "tf32": 494.7,
    "bf16": 989.4,
    "fp16": 989.4,
    "fp8": 1978.9,
    "int8": 1978.9,
}
AMPERE: Tflops = {
    "fp64": 9.7,
    "fp64_tensor": 19.5,
    "fp32": 19.5,
    "tf32": 156.0,
    "bf16": 312.0,
    "fp16": 312.0,
    "int8": 624.0,
}


def model_of(nvml_name: str) -> str:
    """Return the slug under which a GPU's results are kept: 'NVIDIA H200' is nvidia-h200."""
    return re.sub(r"[^a-z0-9]+", "-", nvml_name.lower()).strip("-")


@dataclass(frozen=True, slots=True)
class Published:
    """One device model, as its data sheet and white paper have it."""

    names: tuple[str, ...]
    """As NVML spells them."""
    arch: str
    multiprocessors: int
    l2_bytes: int
    smem_per_block_bytes: int
    """Shared memory that one block can have after opting in."""
    bandwidth_gbps: float
    tflops: Tflops
    rated_mhz: int
    """The clock at which the tensor-core peaks are stated."""
    max_mhz: int
    """The highest clock that the driver lets the chip reach."""
    source: str

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(map(model_of, self.names))

    def peaks(self, model: str) -> Peaks:
        """Return the peaks per input dtype."""
        gflops = {dtype.value: rate * 1e3 for dtype, rate in _by_dtype(self.tflops).items()}
        half = gflops[DType.FLOAT16.value]
        faster = self.max_mhz / self.rated_mhz
        ceiling = {
            name: faster * (max(rate, half) if DType(name).is_float and DType(name).bits >= 16 else rate)
            for name, rate in gflops.items()
        }
        return Peaks(model, self.bandwidth_gbps, gflops, self.source, ceiling, self.l2_bytes)


TABLE = (
    Published(
        names=("NVIDIA B200",),
        arch="sm_100a",
        multiprocessors=148,
        l2_bytes=253 * MIB // 2,
        smem_per_block_bytes=HOPPER_SMEM,
        bandwidth_gbps=8000.0,
        tflops={
            "fp64": 40.0,
            "fp64_tensor": 40.0,
            "fp32": 80.0,
            "tf32": 1125.0,
            "bf16": 2250.0,
            "fp16": 2250.0,
            "fp8": 4500.0,
            "fp4": 9000.0,
            "int8": 4500.0,
        },
        rated_mhz=1856,
        max_mhz=1965,
        source="NVIDIA HGX B200 and DGX B200 data sheets (2024-2025), halved to dense; a bus of 7,680 bits"
        " at 3,996 MHz would give 7,672 GB/s; the rated clock follows from 148 multiprocessors",
    ),
    Published(
        names=("NVIDIA H200",),
        arch="sm_90a",
        multiprocessors=132,
        l2_bytes=60 * MIB,
        smem_per_block_bytes=HOPPER_SMEM,
        bandwidth_gbps=4800.0,
        tflops=HOPPER_SXM,
        rated_mhz=1830,
        max_mhz=1980,
        source="NVIDIA H200 data sheet (2024), SXM; dense figures of the same chip: H100 white paper (2023)",
    ),
    Published(
        names=("NVIDIA H100 80GB HBM3",),
        arch="sm_90a",
        multiprocessors=132,
        l2_bytes=50 * MIB,
        smem_per_block_bytes=HOPPER_SMEM,
        bandwidth_gbps=3352.0,
        tflops=HOPPER_SXM,
        rated_mhz=1830,
        max_mhz=1980,
        source="NVIDIA H100 white paper v1.04 (2023), SXM5: tensor at 1,830 MHz, CUDA cores at 1,980 MHz",
    ),
    Published(
        names=("NVIDIA H100 PCIe",),
        arch="sm_90a",
        multiprocessors=114,
        l2_bytes=50 * MIB,
        smem_per_block_bytes=HOPPER_SMEM,
        bandwidth_gbps=2039.0,
        tflops={
            "fp64": 25.6,
            "fp64_tensor": 51.2,
            "fp32": 51.2,
            "tf32": 378.0,
            "bf16": 756.0,
            "fp16": 756.0,
            "fp8": 1513.0,
            "int8": 1513.0,
        },
        rated_mhz=1620,
        max_mhz=1755,
        source="NVIDIA H100 white paper v1.04 (2023), PCIe: tensor at 1,620 MHz, CUDA cores at 1,755 MHz",
    ),
    Published(
        names=("NVIDIA H100 NVL",),
        arch="sm_90a",
        multiprocessors=132,
        l2_bytes=60 * MIB,
        smem_per_block_bytes=HOPPER_SMEM,
        bandwidth_gbps=3938.0,
        tflops={
            "fp64": 30.0,
            "fp64_tensor": 60.0,
            "fp32": 60.0,
            "tf32": 417.5,
            "bf16": 835.5,
            "fp16": 835.5,
            "fp8": 1670.5,
            "int8": 1670.5,
        },
        rated_mhz=1545,
        max_mhz=1785,
        source="NVIDIA H100 data sheet (2024), NVL, halved to dense; its rated clock follows from them",
    ),
    Published(
        names=("NVIDIA A100-SXM4-80GB",),
        arch="sm_80",
        multiprocessors=108,
        l2_bytes=40 * MIB,
        smem_per_block_bytes=AMPERE_SMEM,
        bandwidth_gbps=2039.0,
        tflops=AMPERE,
        rated_mhz=1410,
        max_mhz=1410,
        source="NVIDIA A100 data sheet (2021), 80GB SXM; clock from the A100 white paper (2020)",
    ),
    Published(
        names=("NVIDIA A100 80GB PCIe",),
        arch="sm_80",
        multiprocessors=108,
        l2_bytes=40 * MIB,
        smem_per_block_bytes=AMPERE_SMEM,
        bandwidth_gbps=1935.0,
        tflops=AMPERE,
        rated_mhz=1410,
        max_mhz=1410,
        source="NVIDIA A100 data sheet (2021), 80GB PCIe; clock from the A100 white paper (2020)",
    ),
    Published(
        names=("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"),
        arch="sm_80",
        multiprocessors=108,
        l2_bytes=40 * MIB,
        smem_per_block_bytes=AMPERE_SMEM,
        bandwidth_gbps=1555.0,
        tflops=AMPERE,
        rated_mhz=1410,
        max_mhz=1410,
        source="NVIDIA A100 white paper (2020), 40GB SXM and PCIe",
    ),
    Published(
        names=("NVIDIA L40S",),
        arch="sm_89",
        multiprocessors=142,
        l2_bytes=96 * MIB,
        smem_per_block_bytes=ADA_SMEM,
        bandwidth_gbps=864.0,
        tflops={
            "fp64": 1.4,
            "fp32": 91.6,
            "tf32": 183.0,
            "bf16": 366.5,
            "fp16": 366.5,
            "fp8": 733.0,
            "int8": 733.0,
        },
        rated_mhz=2520,
        max_mhz=2520,
        source="NVIDIA L40S data sheet (2023), half of those with sparsity; float64 is 1/64 of float32",
    ),
    Published(
        names=("NVIDIA GeForce RTX 4090",),
        arch="sm_89",
        multiprocessors=128,
        l2_bytes=72 * MIB,
        smem_per_block_bytes=ADA_SMEM,
        bandwidth_gbps=1008.0,
        tflops={
            "fp64": 1.3,
            "fp32": 82.6,
            "tf32": 82.6,
            "bf16": 165.2,
            "fp16": 330.3,
            "fp8": 660.6,
            "int8": 660.6,
        },
        rated_mhz=2520,
        max_mhz=3105,
        source="NVIDIA Ada architecture white paper v2.1 (2023), dense; float16 and float8 with float16 sums",
    ),
)
"""Dense figures. Where two documents differ the higher one stands: a limit must not be beaten."""

BY_MODEL: Mapping[str, Published] = {model: entry for entry in TABLE for model in entry.models}
EXAMPLE = (
    '{"device_model": "...", "bandwidth_gbps": 4800, "gflops": {"float32": 494700, "bfloat16": 989400, ...},'
    ' "source": "data sheet, date"}'
)


def published(model: str) -> Published | None:
    """Return what is published about a device model, if we have it."""
    return BY_MODEL.get(model)


def peaks_of_model(model: str, file: Path) -> Peaks:
    """Return the published peaks of a GPU; for an unknown one say how to add it in `file`."""
    entry = published(model)
    if entry is None:
        near = suggest(model, BY_MODEL)
        near = f"{near}; or " if near.startswith("did you mean") else ""
        raise BadInput(
            f"no peaks are known for the GPU {model!r}",
            where=str(file),
            remedy=f"{near}write this file from its data sheet, dense rates: {EXAMPLE}",
        )
    return entry.peaks(model)


def _by_dtype(tflops: Tflops) -> dict[DType, float]:
    fp8 = tflops.get("fp8", tflops["fp16"])
    fp4 = tflops.get("fp4", max(fp8, tflops["int8"]))
    return {
        DType.FLOAT64: max(tflops["fp64"], tflops.get("fp64_tensor", 0.0)),
        DType.FLOAT32: max(tflops["fp32"], tflops["tf32"]),
        DType.BFLOAT16: tflops["bf16"],
        DType.FLOAT16: tflops["fp16"],
        DType.FLOAT8_E4M3FN: fp8,
        DType.FLOAT8_E5M2: fp8,
        DType.FLOAT4_E2M1: fp4,
        DType.FLOAT4_E2M1FN_X2: fp4,
        DType.INT8: tflops["int8"],
    }
