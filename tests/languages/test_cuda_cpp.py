"""nvcc builds host and device code into one object; its kernels can be read from it without a GPU."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
from pathlib import Path

import pytest

from swarm.errors import Refused
from swarm.languages import cuda_toolkit
from swarm.languages.cuda_cpp import CudaCpp
from swarm.languages.cuda_header import host_header
from swarm.languages.protocol import Artifact, CompileLimits, Failure, Kind
from swarm.problem import Problem, problem_from_files
from swarm.solution import load_manifest
from swarm.verdict import Status
from tests.languages import test_nvrtc
from tests.languages.test_cuda import DTYPES, gpu, typed_problem
from tests.problem_files import problem_files

LIMITS = CompileLimits(timeout_s=120, memory_bytes=8 << 30)
HEAD = 'language = "cuda_cpp"\nsources = ["kernel.cu"]\n'
RUN = (
    'extern "C" void run(const __nv_bfloat16* x, const __nv_bfloat16* weight, double scale,\n'
    "                    __nv_bfloat16* y, int64_t rows, int64_t cells, cudaStream_t stream)"
)
KERNEL = f"""\
#include "problem.h"
template <int N> __global__ void __launch_bounds__(N)
scaled(const __nv_bfloat16* x, const __nv_bfloat16* w, __nv_bfloat16* y, float scale) {{
  __shared__ float held[N];
  held[threadIdx.x] = __bfloat162float(x[blockIdx.x * width + threadIdx.x]) * scale;
  const float y_wide = held[threadIdx.x] * __bfloat162float(w[threadIdx.x]);
  y[blockIdx.x * width + threadIdx.x] = __float2bfloat16(y_wide);
}}
{RUN} {{
  scaled<BLOCK><<<rows, BLOCK, 0, stream>>>(x, weight, y, scale);
}}
"""
EXTENSION = """\
// As pybind11 would make it, for whose headers a compiler takes a quarter of a minute.
#include <Python.h>
#include "twice.h"
#if !__has_include(<pybind11/pybind11.h>) || !__has_include(<torch/extension.h>)
#error "torch's headers are not to be found"
#endif
static PyObject* run(PyObject*, PyObject* x) { return PyLong_FromLong(twice(PyLong_AsLong(x))); }
static PyMethodDef methods[] = {{"run", run, METH_O, nullptr}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "twice", nullptr, -1, methods};
#define JOINED(a, b) a##b
#define INIT(name) JOINED(PyInit_, name)
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&module); }
"""
TWICE = '#include "twice.h"\n__global__ void idle(int* p) { *p = 1; }\nint twice(int x) { return 2 * x; }\n'


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def problem() -> Problem:
    return problem_from_files(problem_files(), "scale_rows")


def compiled(
    cache: Path,
    kernel: str = KERNEL,
    head: str = HEAD,
    limits: CompileLimits = LIMITS,
    arch: str = "sm_90a",
    **more: str,
) -> Artifact | Failure:
    tree = {"solution.toml": (head + "[params]\nBLOCK = 64\n").encode(), "kernel.cu": kernel.encode()}
    tree |= {name.replace("__", "."): text.encode() for name, text in more.items()}
    return CudaCpp().compile(tree, load_manifest(tree), problem(), gpu(arch), cache, limits)


def test_an_object_has_our_entry_and_its_kernels_can_be_read(cache: Path) -> None:
    artifact = compiled(cache)
    assert isinstance(artifact, Artifact), artifact
    assert (artifact.kind, artifact.entry, artifact.log) == (Kind.SHARED_OBJECT, "swarm_entry", "")
    library = ctypes.CDLL(str(artifact.path))
    assert all(hasattr(library, name) for name in ("swarm_entry", "swarm_error", "swarm_error_text", "run"))
    library.swarm_error_text.restype = ctypes.c_char_p
    assert library.swarm_error_text(1) == b"invalid argument"
    [info] = artifact.kernels
    assert info.name.startswith("void scaled<64>(__nv_bfloat16 const*")
    assert info.static_smem_bytes == 256 and info.max_threads == 64 and len(info.parameters) == 4
    written = artifact.path.stat().st_mtime_ns
    assert compiled(cache) == artifact
    assert artifact.path.stat().st_mtime_ns == written


def test_it_compiles_for_a_gpu_that_is_not_here(cache: Path) -> None:
    artifact = compiled(cache, arch="sm_100a")
    assert isinstance(artifact, Artifact), artifact
    assert len(artifact.kernels) == 1


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (KERNEL.replace("scaled<BLOCK>", "scald<BLOCK>"), "kernel.cu:11: "),
        ('#include "problem.h"\n', "undefined reference to `run'"),
        (f'#include "problem.h"\n{RUN.replace("double", "float")} {{}}\n', "kernel.cu:2: "),
        (KERNEL.replace("held[N]", "held[N * 1000]"), "uses too much shared data"),
        ('#include "/etc/shadow"\n', "/etc/shadow"),
        (f"{KERNEL}extern \"C\" void swarm_entry() {{}}\n", "multiple definition of `swarm_entry'"),
    ],
    ids=["source", "no-run", "signature", "smem", "secret", "own-entry"],
)  # fmt: skip
def test_a_failure_names_the_place(kernel: str, reason: str, cache: Path) -> None:
    found = compiled(cache, kernel)
    assert isinstance(found, Failure)
    assert found.status is Status.COMPILE_ERROR
    assert reason in found.reason
    assert "root:" not in found.log


def test_a_compile_without_end_is_ended(cache: Path) -> None:
    endless = KERNEL + (
        "template <int A, int B> struct T {\n"
        "  static constexpr long f() { return T<2 * A, B - 1>::f() + T<2 * A + 1, B - 1>::f(); }\n};\n"
        "template <int A> struct T<A, 0> { static constexpr long f() { return A; } };\n"
        "long x = T<1, 26>::f();\n"
    )
    found = compiled(cache, endless, limits=CompileLimits(timeout_s=3, memory_bytes=4 << 30))
    assert isinstance(found, Failure)
    assert "did not end within 3 s" in found.reason


def test_options_and_libraries_are_passed_on(cache: Path) -> None:
    head = f'{HEAD}[compile]\noptions = ["-std=c++20", "--use_fast_math", "-lcuda"]\n'
    more = "static_assert(__cplusplus > 201703L); CUcontext c; cuCtxGetCurrent(&c);"
    body = KERNEL.replace("{\n  scaled", f"{{\n  {more}\n  scaled")
    found = compiled(cache, f"#include <cuda.h>\n{body}", head)
    assert isinstance(found, Artifact), found


def test_a_parameter_is_a_macro_and_a_constant(cache: Path) -> None:
    body = KERNEL.replace(
        "__shared__", "\n#pragma unroll BLOCK\n  for (int i = 0; i < BLOCK; i++) y[i] = x[i];\n  __shared__"
    )
    found = compiled(cache, f"#if BLOCK != 64\n#error\n#endif\n{body}")
    assert isinstance(found, Artifact), found
    assert "unroll" not in found.log


def test_every_option_that_the_protocol_allows_is_one(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text("")
    allowed = test_nvrtc.protocol().rules.compile_options["cuda_cpp"]
    assert "--use_fast_math" in allowed
    for option in allowed:
        command = [cuda_toolkit.nvcc().path, "--dryrun", "-shared", option, "kernel.cu"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_a_torch_extension_is_a_module_with_its_function(cache: Path) -> None:
    head = (
        'language = "cuda_cpp"\nbinding = "torch"\nentry = "kernel.cu::run"\n'
        'sources = ["kernel.cu", "bind.cpp", "twice.h"]\n'
    )
    artifact = compiled(cache, TWICE, head, bind__cpp=EXTENSION, twice__h="int twice(int x);\n")
    assert isinstance(artifact, Artifact), artifact
    assert (artifact.kind, artifact.entry) == (Kind.TORCH_EXTENSION, "benchmark_kernel::run")
    assert [info.name for info in artifact.kernels] == ["idle(int*)"]
    spec = importlib.util.spec_from_file_location("benchmark_kernel", artifact.path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.run(21) == 42


def test_the_header_declares_every_dtype_of_the_schema(cache: Path) -> None:
    types = typed_problem(DTYPES)
    declaration = host_header(types.definition).partition('extern "C"')[2]
    body = f'#include "problem.h"\nextern "C"{declaration.replace(";", " {}")}'
    tree = {"solution.toml": HEAD.encode(), "kernel.cu": body.encode()}
    built = CudaCpp().compile(tree, load_manifest(tree), types, gpu(), cache, LIMITS)
    assert isinstance(built, Artifact), built


def test_a_machine_without_nvcc_is_told_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_toolkit, "roots", lambda: [tmp_path])
    cuda_toolkit.nvcc.cache_clear()
    with pytest.raises(Refused, match="no nvcc of CUDA 13 on this machine; type: make install EXTRAS=cuda"):
        compiled(tmp_path)
    cuda_toolkit.nvcc.cache_clear()
