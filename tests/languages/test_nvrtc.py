"""Device code compiles for GPUs that are not here, and what cannot compile says why within its limits."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from swarm.errors import Refused
from swarm.languages import cuda_toolkit, nvrtc
from swarm.languages.nvrtc_headers import HEADERS
from swarm.languages.protocol import CompileLimits
from swarm.protocol import Protocol, read_protocol

ARCHES = ("sm_80", "sm_89", "sm_90a", "sm_100a")
LIMITS = CompileLimits(timeout_s=60, memory_bytes=4 << 30)
PLAIN = 'extern "C" __global__ void k(int* p) { *p = 1; }\n'
TOO_MUCH = (
    'extern "C" __global__ void k(int* p) {\n  __shared__ volatile char s[300000];\n'
    "  s[*p] = 1; __syncthreads(); *p = s[threadIdx.x];\n}\n"
)
WGMMA = Path(__file__).with_name("wgmma_tma.cu").read_text()
TCGEN05 = Path(__file__).with_name("tcgen05.cu").read_text()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def build(
    source: str,
    cache: Path,
    kernels: tuple[str, ...] = ("k",),
    options: tuple[str, ...] = (),
    arch: str = "sm_90a",
    limits: CompileLimits = LIMITS,
    more: dict[str, str] | None = None,
    variants: list[nvrtc.Variant] | None = None,
) -> list[nvrtc.Compiled] | nvrtc.NotCompiled:
    files = {name: text.encode() for name, text in {"kernel.cu": source, **(more or {})}.items()}
    units = [name for name in files if name.endswith(".cu")]
    wanted = variants or [nvrtc.Variant(options, kernels)]
    return nvrtc.compile_variants(files, units, wanted, arch, cache, limits, sorted(os.sched_getaffinity(0)))


def made(found: list[nvrtc.Compiled] | nvrtc.NotCompiled) -> list[nvrtc.Compiled]:
    assert isinstance(found, list), f"{found.reason}\n{found.log}"
    return found


def failed(found: list[nvrtc.Compiled] | nvrtc.NotCompiled) -> nvrtc.NotCompiled:
    assert isinstance(found, nvrtc.NotCompiled)
    assert found.reason
    return found


@pytest.mark.parametrize("arch", ARCHES)
def test_one_source_compiles_for_every_gpu(arch: str, cache: Path) -> None:
    [one] = made(build(f"static_assert(X == 4);\n{PLAIN}", cache, options=("-DX=4",), arch=arch))
    assert one.cubin.startswith(b"\x7fELF")
    assert [(info.name, info.symbol, info.parameters) for info in one.kernels] == [("k", "k", ((0, 8),))]


def test_wgmma_and_tma_compile_for_hopper_alone(cache: Path) -> None:
    [one] = made(build(WGMMA, cache, arch="sm_90a"))
    assert one.kernels[0].parameters[0][1] == 128 and one.kernels[0].max_threads == 128
    assert "ptxas" in failed(build(WGMMA, cache, arch="sm_100a")).reason


def test_tcgen05_compiles_for_blackwell_alone(cache: Path) -> None:
    made(build(TCGEN05, cache, arch="sm_100a"))
    assert "ptxas" in failed(build(TCGEN05, cache, arch="sm_90a")).reason


@pytest.mark.parametrize(
    "header",
    ["cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "cuda_fp4.h", "cuda.h", "cuda_runtime.h", "mma.h",
     "cuda/barrier", "cuda/ptx", "cooperative_groups.h", "cuda_pipeline.h", "cub/warp/warp_reduce.cuh"],
)  # fmt: skip
def test_headers_of_cuda_and_cccl_are_found(header: str, cache: Path) -> None:
    made(build(f"#include <{header}>\n#include <cstdint>\n{PLAIN}", cache))


def test_standard_headers_hold_what_device_code_uses(cache: Path) -> None:
    includes = "".join(f"#include <{name}>\n" for name in HEADERS)
    body = (
        'extern "C" __global__ void k(std::uint64_t* p, int64_t n, size_t m) {\n'
        "  static_assert(std::is_same_v<int32_t, int> && sizeof(int64_t) == 8 && CHAR_BIT == 8);\n"
        "  *p = std::numeric_limits<float>::max() > sqrtf(n) ? n : m;\n"
        '  assert(n > 0); printf("%d", int(n));\n}\n'
    )
    made(build(includes + body, cache))


def test_templates_namespaces_and_macros_name_kernels(cache: Path) -> None:
    source = (
        "template <int N, class T> __global__ void t(T* p) { *p = N; }\n"
        "namespace a { using F = float; __global__ void plain(int) {} }\n"
    )
    names = ("t<8, a::F>", "t<THREE, int>", "a::plain")
    [one] = made(build(source, cache, names, ("-DTHREE=3",)))
    assert [info.name for info in one.kernels] == list(names)
    assert [info.symbol for info in one.kernels] == ["_Z1tILi8EfEvPT0_", "_Z1tILi3EiEvPT0_", "_ZN1a5plainEi"]


def test_all_units_make_one_program_and_see_their_headers(cache: Path) -> None:
    more = {
        "deep/other.cu": '#include "beside.cuh"\n__device__ int twice(int x) { return x * TWO; }\n',
        "deep/beside.cuh": "#define TWO 2\n",
    }
    source = '__device__ int twice(int);\nextern "C" __global__ void k(int* p) { *p = twice(*p); }\n'
    made(build(source, cache, more=more))


def test_variants_are_compiled_together_and_kept_apart(cache: Path) -> None:
    wanted = [nvrtc.Variant((f"-DN={n}",), ("k",)) for n in (1, 2, 3, 4, 5)]
    source = 'extern "C" __global__ void k(int* p) { __shared__ int s[N]; s[0] = *p; *p = s[*p]; }\n'
    several = made(build(source, cache, variants=wanted))
    assert [one.kernels[0].static_smem_bytes for one in several] == [4, 8, 12, 16, 20]
    assert [one.kernels[0].variant for one in several] == [0, 1, 2, 3, 4]
    again = made(build(source, cache, variants=[wanted[3], nvrtc.Variant(("-DN=6",), ("k",))]))
    assert again[0].cubin == several[3].cubin and again[0].kernels[0].variant == 0
    broken = failed(build(source, cache, variants=[wanted[0], nvrtc.Variant(("-DN=-1",), ("k",))]))
    assert broken.variant == 1 and "kernel.cu:1" in broken.reason


def test_what_was_compiled_comes_from_the_cache(tmp_path: Path) -> None:
    first = made(build(PLAIN, tmp_path))
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.cubin")}
    assert made(build(PLAIN, tmp_path)) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.cubin")} == written
    made(build(PLAIN, tmp_path, arch="sm_80"))
    made(build(PLAIN, tmp_path, options=("--use_fast_math",)))
    assert len(list(tmp_path.rglob("*.cubin"))) == 3


@pytest.mark.parametrize(
    ("source", "kernels", "reason"),
    [
        ("\nint x y;\n", (), "kernel.cu:2"),
        ('#include "nowhere.h"\n', (), 'kernel.cu:1: cannot open source file "nowhere.h"'),
        ('#include "/etc/shadow"\n', (), "cannot open source file"),
        (PLAIN, ("nope<3>",), "kernel 'nope<3>': identifier \"nope\" is undefined"),
        ("template <int N> __global__ void t() {}\n", ("t",), "kernel 't': cannot determine which instance"),
        ("__device__ void f() {}\n", ("f",), "kernel 'f': Name expression cannot form address"),
        (PLAIN.replace("*p = 1", 'asm("foo.bar;")'), ("k",), "ptxas application ptx input, line"),
        (f"__device__ int f();\n{PLAIN.replace('1', 'f()')}", ("k",), "Unresolved extern function"),
        (TOO_MUCH, ("k",), "uses too much shared data"),
    ],
    ids=["syntax", "header", "secret", "unknown", "template", "device", "ptx", "undefined", "smem"],
)  # fmt: skip
def test_a_failure_names_the_place(source: str, kernels: tuple[str, ...], reason: str, cache: Path) -> None:
    found = failed(build(source, cache, kernels))
    assert reason in found.reason
    assert len(found.reason) <= 300 and "root:" not in found.log and "/tmp/" not in found.reason


TEMPLATES = (
    "template <int A, int B> struct T {\n"
    "  static constexpr long f() { return T<2 * A, B - 1>::f() + T<2 * A + 1, B - 1>::f(); }\n};\n"
    "template <int A> struct T<A, 0> { static constexpr long f() { return A; } };\n"
    'extern "C" __global__ void k(long* p) { *p = T<1, 26>::f(); }\n'
)
SPIN = (
    "constexpr int spin(int d) { return d == 0 ? 1 : spin(d - 1) + spin(d - 1); }\n"
    'extern "C" __global__ void k(int* p) { constexpr int x = spin(200); *p = x; }\n'
)
UNROLLED = (
    'extern "C" __global__ void k(float* p) {\n'
    "#pragma unroll\nfor (int i = 0; i < 300; i++)\n#pragma unroll\nfor (int j = 0; j < 300; j++)\n"
    "#pragma unroll\nfor (int l = 0; l < 300; l++) p[i * j + l] = sinf(p[i + j * l]);\n}\n"
)


@pytest.mark.parametrize("source", [TEMPLATES, SPIN, UNROLLED], ids=["templates", "constexpr", "unrolled"])
def test_a_compile_without_end_is_ended(source: str, cache: Path) -> None:
    started = time.monotonic()
    found = failed(build(source, cache, limits=CompileLimits(timeout_s=3, memory_bytes=4 << 30)))
    assert time.monotonic() - started < 60
    assert (
        "did not end within 3 s" in found.reason or "memory" in found.reason or "kernel.cu:" in found.reason
    )


def test_every_option_that_the_protocol_allows_is_one(cache: Path) -> None:
    allowed = protocol().rules.compile_options["cuda"]
    assert "--use_fast_math" in allowed
    variants = [nvrtc.Variant((option,), ("k",)) for option in allowed]
    assert len(made(build(PLAIN, cache, variants=variants))) == len(allowed)


def protocol() -> Protocol:
    path = Path(__file__).parent.parent.parent / "COORDINATION.md"
    return read_protocol(path.read_bytes(), path.name)


def test_a_compile_that_takes_too_much_memory_fails(cache: Path) -> None:
    limits = CompileLimits(timeout_s=30, memory_bytes=300 << 20)
    found = failed(build(TEMPLATES, cache, limits=limits))
    assert "memory" in found.reason or "did not end" in found.reason


def test_a_compiler_that_cannot_start_says_so(cache: Path) -> None:
    found = failed(build(f"// {time.time()}\n{PLAIN}", cache, limits=CompileLimits(30, 48 << 20)))
    assert "memory" in found.reason


def test_a_machine_without_nvrtc_is_told_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_toolkit, "roots", lambda: [tmp_path])
    cuda_toolkit.nvrtc.cache_clear()
    with pytest.raises(Refused, match=r"no NVRTC of CUDA 13 .*make install EXTRAS=cuda"):
        build(PLAIN, tmp_path)
    cuda_toolkit.nvrtc.cache_clear()
