"""What the ELF of a cubin says of its kernels is what ptxas says of them."""

from __future__ import annotations

import os
import re
import struct
import time
from pathlib import Path

import pytest

from swarm.errors import BadInput
from swarm.languages import cubin, nvrtc
from swarm.languages.protocol import CompileLimits

SOURCE = r"""
struct Large { char bytes[20000]; };
struct alignas(64) Map { unsigned long long words[16]; };
extern "C" __global__ void large(Large from, int* to) { *to = from.bytes[3]; }
extern "C" __global__ void mixed(char a, double b, const __grid_constant__ Map map, short c, float* to) {
  *to = a + b + c + map.words[threadIdx.x];
}
template <int N> __global__ void rows(const float* x, float* y, int n) {
  __shared__ float row[64 * N];
  float kept[200];
  for (int i = 0; i < 200; i++) kept[i] = x[i * n + threadIdx.x];
  row[threadIdx.x] = kept[n];
  __syncthreads();
  for (int i = 0; i < 200; i++) y[i * n] = kept[(i * 7 + n) % 200] + row[i];
}
template __global__ void rows<2>(const float*, float*, int);
template __global__ void rows<40>(const float*, float*, int);
extern "C" __global__ void __launch_bounds__(256, 4) spills(float* p) {
  float a[64];
  for (int i = 0; i < 64; i++) a[i] = p[i * threadIdx.x];
#pragma unroll
  for (int i = 0; i < 64; i++)
    for (int j = 0; j < 64; j++) a[i] = a[i] * a[j];
  for (int i = 0; i < 64; i++) p[i * threadIdx.x] = a[i];
}
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128) clustered(int* p) { *p = 1; }
#endif
"""
LIMITS = CompileLimits(timeout_s=60, memory_bytes=4 << 30)
PROPERTIES = re.compile(
    r"Compiling entry function '(?P<symbol>\w+)'(?:.*\n)*?"
    r".*?(?P<frame>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads\n"
    r".*?Used (?P<registers>\d+) registers(?:, used \d+ barriers)?"
    r"(?:, (?P<stack>\d+) bytes cumulative stack size)?"
    r"(?:, (?P<smem>\d+) bytes smem)?"
)


def compiled(arch: str, cache: Path) -> nvrtc.Compiled:
    names = ("large", "mixed", "rows<2>", "rows<40>", "spills")
    names += ("clustered",) if arch not in ("sm_80", "sm_89") else ()
    made = nvrtc.compile_variants(
        {"kernel.cu": SOURCE.encode()}, ["kernel.cu"], [nvrtc.Variant((), names)], arch, cache, LIMITS,
        sorted(os.sched_getaffinity(0)),
    )  # fmt: skip
    assert isinstance(made, list), made
    return made[0]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
def test_a_cubin_says_what_ptxas_says(arch: str, cache: Path) -> None:
    made = compiled(arch, cache)
    found = cubin.kernels(made.cubin)
    told = {match["symbol"]: match for match in PROPERTIES.finditer(made.log)}
    assert set(found) == set(told) == {info.symbol for info in made.kernels}
    for info in made.kernels:
        entry, said = found[info.symbol], told[info.symbol]
        assert entry.registers == info.registers == int(said["registers"])
        assert entry.static_smem_bytes == info.static_smem_bytes == int(said["smem"] or 0)
        assert entry.frame_bytes == int(said["frame"])
        assert entry.stack_bytes == info.stack_bytes == int(said["stack"] or 0)
        assert (info.spill_store_bytes, info.spill_load_bytes) == (int(said["stores"]), int(said["loads"]))
    by_name = {info.name: info for info in made.kernels}
    assert by_name["spills"].spill_store_bytes > 0 and by_name["spills"].max_threads == 256
    assert by_name["rows<40>"].static_smem_bytes == 64 * 40 * 4


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_the_parameter_table_has_every_offset_and_size(arch: str, cache: Path) -> None:
    by_name = {info.name: info.parameters for info in compiled(arch, cache).kernels}
    assert by_name["rows<2>"] == ((0, 8), (8, 8), (16, 4))
    assert by_name["large"] == ((0, 20000), (20000, 8))
    offsets, sizes = zip(*by_name["mixed"], strict=True)
    assert sizes == (1, 8, 128, 2, 8)
    assert offsets[:2] == (0, 8) and offsets[2] >= 16 and offsets[3] == offsets[2] + 128


def test_launch_limits_of_the_source_are_in_the_cubin(cache: Path) -> None:
    made = compiled("sm_90a", cache)
    found = cubin.kernels(made.cubin)
    assert found["clustered"].cluster == (2, 1, 1)
    assert found["clustered"].max_threads == 128
    assert {info.name: info.cluster for info in made.kernels}["clustered"] == (2, 1, 1)
    assert found["large"].cluster is None and found["large"].max_threads == 0


@pytest.mark.parametrize("damage", [b"", b"\x7fELF", b"no cubin at all" * 20])
def test_what_is_no_cubin_is_refused(damage: bytes) -> None:
    with pytest.raises(BadInput, match="no whole cubin"):
        cubin.kernels(damage)


def test_a_cut_cubin_is_refused_or_read_but_never_crashes(cache: Path) -> None:
    whole = compiled("sm_90a", cache).cubin
    for size in range(0, len(whole), 997):
        try:
            cubin.kernels(whole[:size])
        except BadInput:
            continue


def test_what_is_no_object_is_refused_and_a_hostile_one_is_read_in_no_time() -> None:
    with pytest.raises(BadInput, match="no whole object"):
        cubin.embedded(b"no object")
    started = time.monotonic()
    assert cubin.embedded(object_with_section(b".nv_fatbin", b"\x7fELF\x02\x01" * 500_000)) == []
    container = struct.pack("<IHHQ", cubin.FATBIN_MAGIC, 1, 16, 1 << 60)
    entry = struct.pack("<HHIQ", cubin.FATBIN_ELF, 0, 0, 0)
    assert cubin.embedded(object_with_section(b".nv_fatbin", container + entry * 100_000)) == []
    assert time.monotonic() - started < 20


def object_with_section(name: bytes, data: bytes) -> bytes:
    """Return the least ELF file that has one named section."""
    names = b"\0" + name + b"\0.names\0"
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHIQQQ", 3, 62, 1, 0, 0, 64)
    header += struct.pack("<IHHHHHH", 0, 64, 0, 0, 64, 3, 2)
    begin = 64 + 3 * 64
    section = "<IIQQQQIIQQ"
    table = struct.pack(section, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    table += struct.pack(section, 1, 1, 0, 0, begin, len(data), 0, 0, 1, 0)
    table += struct.pack(section, 2 + len(name), 3, 0, 0, begin + len(data), len(names), 0, 0, 1, 0)
    return header + table + data + names
