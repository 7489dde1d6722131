"""Kernels without host code leave as torch extensions: the generated C++ does what our launcher does.

What it does is checked without a GPU: the host code runs against a runtime that writes down what it is asked
for, and that must be what `resolve` says. That nvcc takes it, device code and all, is checked by building it.
"""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from swarm.definition import Definition, DType
from swarm.errors import BadInput
from swarm.languages import cuda_toolkit
from swarm.languages.exchange import import_submission
from swarm.languages.export import export_solution
from swarm.languages.plan import Plan, Scalar
from swarm.languages.plan_names import accessor
from swarm.languages.planning import make_plan
from swarm.languages.resolve import resolve
from swarm.languages.steps import Calls, Dim, KernelStep, Map, Pointer, Value
from swarm.problem import Problem, load_problem, problem_from_files
from swarm.protocol import load_protocol
from swarm.solution import load_manifest, validate_tree
from swarm.submission import Exchange, Submission, parse_submission, submission_json
from tests.problem_files import encoded
from tests.suite.shipped import SEVEN, shipped

ROOT = Path(__file__).parents[2]
GPU = ROOT / "tests" / "gpu"
SEEDS = [f"{name}/seed" for name in SEVEN]
PLANS = SEEDS + sorted(
    f"{folder.parent.name}/{folder.name}"
    for folder in GPU.glob("solutions/*/cuda*")
    if 'language = "cuda"\n' in (folder / "solution.toml").read_text()
)
RECORDER = Path(__file__).with_name("recorder.cpp")
CHOSEN = Exchange()
DEFAULTS = Exchange(name="n", definition="d", author="a", target_hardware=("LOCAL",))


def read(name: str) -> tuple[Problem, dict[str, bytes]]:
    """Return a problem and the files of a solution: the GPU tests', or the seed of one of ours."""
    if name in SEEDS:
        problem = shipped(name.partition("/")[0])
        return problem, problem.seeds["cuda"]
    folder = GPU / "solutions" / name
    problem = load_problem(GPU / "problems" / folder.parent.name)
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    return problem, files


def exported(name: str, arch: str | None = "sm_90a") -> Submission:
    problem, files = read(name)
    return export_solution(files, problem, CHOSEN, DEFAULTS, arch, f"{name}/")[0]


def lay_out(submission: Submission, folder: Path) -> None:
    for source in submission.sources:
        path = folder / source.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source.content)


class RecordedFacts:
    """The device that recorder.cpp plays."""

    num_sms, smem_per_block_max, l2_bytes, arch = 132, 232448, 60 << 20, 90

    def max_active_blocks(self, kernel: str, variant: int, threads: int, smem: int) -> int:
        return max(1, min(32, 2048 // threads))

    def max_active_clusters(self, kernel: str, variant: int, threads: int, smem: int, cluster: Dim) -> int:
        return 132 * self.max_active_blocks(kernel, variant, threads, smem) // math.prod(cluster)

    def cooperative_blocks(self, kernel: str, variant: int, threads: int, smem: int) -> int:
        return 132 * self.max_active_blocks(kernel, variant, threads, smem)


def headers() -> list[str]:
    return [f"-I{folder}" for folder in cuda_toolkit.nvcc().headers.folders]


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runtime that writes down, compiled."""
    made = tmp_path_factory.mktemp("recorder") / "recorder.o"
    command = ["g++", "-std=c++17", "-O0", "-w", "-fPIC", "-c", *headers(), "-o", str(made), str(RECORDER)]
    subprocess.run(command, check=True)
    return made


def host_library(submission: Submission, plan: Plan, recorder: Path, folder: Path) -> ctypes.CDLL:
    """Build the host code alone: a kernel's address is that of its name."""
    lay_out(submission, folder)
    text = ""
    for variant in range(len(plan.variants)):
        for place, _ in enumerate(plan.kernels(variant)):
            symbol = _kernel_symbol(variant, place)
            text += f'extern "C" {{ extern const char {symbol}[]; '
            text += f'const char {symbol}[] = "{variant}.{place}"; }}\n'
            text += f"const void* {accessor(variant, place)} {{ return {symbol}; }}\n"
    (folder / "kernels.cpp").write_text(text)
    library = folder / "host.so"
    sources = [str(recorder), str(folder / "kernels.cpp"), "-x", "c++", str(folder / "swarm_launch.cu")]
    command = ["g++", "-std=c++17", "-O0", "-w", "-shared", "-fPIC", "-Wl,-Bsymbolic", *headers()]
    done = subprocess.run([*command, "-o", str(library), *sources], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library), mode=os.RTLD_LOCAL | os.RTLD_NOW)


def _kernel_symbol(variant: int, place: int) -> str:
    return f"name_of_{variant}_{place}"


def play(
    library: ctypes.CDLL,
    plan: Plan,
    definition: Definition,
    axes: Mapping[str, int],
    scalars: Mapping[str, Scalar],
) -> list[list[str]]:
    """Call `run` with made-up addresses and return the words of each thing it did."""
    library.recorder_text.restype = ctypes.c_char_p
    for launch in plan.launches:
        place = plan.kernels(launch.variant).index(launch.kernel)
        symbol = ctypes.c_char.in_dll(library, _kernel_symbol(launch.variant, place))
        library.recorder_arguments(ctypes.byref(symbol), len(launch.args))
    library.recorder_start()
    arguments: list[Any] = []
    for name, spec in definition.inputs.items():
        if not spec.is_scalar:
            arguments.append(ctypes.c_void_p(address_of(f"input:{name}")))
        elif spec.dtype.is_float:
            arguments.append(ctypes.c_double(scalars[name]))
        elif spec.dtype is DType.BOOL:
            arguments.append(ctypes.c_bool(scalars[name]))
        else:
            arguments.append(ctypes.c_int64(int(scalars[name])))
    arguments += [ctypes.c_void_p(address_of(f"output:{name}")) for name in definition.outputs]
    arguments += [ctypes.c_int64(axes[name]) for name in definition.runtime_axes]
    library.run(*arguments, ctypes.c_void_p(None))
    return [line.split() for line in library.recorder_text().decode().splitlines()]


def address_of(buffer: str) -> int:
    """Return an address that nobody reads: another one for each buffer."""
    return (1 << 40) + (int.from_bytes(buffer.encode(), "big") % 9973 << 20)


class Replay:
    """Compares what was recorded with what a call comes to, step by step."""

    def __init__(self, plan: Plan, calls: Calls, recorded: list[list[str]]) -> None:
        self.plan = plan
        self.calls = calls
        self.lines = [line for line in recorded if line[0] != "attribute"]
        self.scratch: dict[str, int] = {}
        self.map_numbers: dict[str, int] = {}

    def check(self) -> None:
        maps = [line for line in self.lines if line[0] == "map"]
        self._check_maps(maps)
        copies = [line for line in self.lines if line[0] == "copy"]
        in_memory = [name for name in self.calls.maps if f"map:{name}" in self.calls.scratch]
        assert len(copies) == len(in_memory)
        for line, name in zip(copies, in_memory, strict=True):
            assert int(line[2]) == self.calls.scratch[f"map:{name}"]
            self._same_buffer(f"map:{name}", int(line[1]))
            assert int.from_bytes(bytes.fromhex(line[3]), "little") == self.map_numbers[name]
        steps = [line for line in self.lines if line[0] in ("launch", "memset")]
        assert len(steps) == len(self.calls.steps)
        for line, step in zip(steps, self.calls.steps, strict=True):
            if isinstance(step, KernelStep):
                self._check_launch(line, step)
            else:
                assert line[:1] == ["memset"]
                assert [int(word) for word in line[1:4]] == [step.width, step.value, step.nbytes]
                self._same_buffer(step.buffer, int(line[4]) - step.offset)

    def _check_launch(self, line: list[str], step: KernelStep) -> None:
        place = self.plan.kernels(step.variant).index(step.kernel)
        assert line[:2] == ["launch", f"{step.variant}.{place}"]
        wanted = [*step.grid, *step.block, step.smem, *(step.cluster or (0, 0, 0))]
        assert [int(word) for word in line[2:14]] == [*wanted, int(step.cooperative), int(step.pdl)]
        assert len(line[14:]) == len(step.args)
        for word, argument in zip(line[14:], step.args, strict=True):
            data = bytes.fromhex(word)
            match argument:
                case Pointer(buffer):
                    self._same_buffer(buffer, int.from_bytes(data, "little"))
                case Value(wanted_data):
                    assert data[: len(wanted_data)] == wanted_data
                case Map(name):
                    assert int.from_bytes(data[:4], "little") == self.map_numbers[name]

    def _check_maps(self, lines: list[list[str]]) -> None:
        from cuda.bindings import driver

        for name, spec in self.calls.maps.items():
            self.map_numbers[name] = 1 + sum(
                len(s.offsets) for s in list(self.calls.maps.values())[: len(self.map_numbers)]
            )
            for offset in spec.offsets:
                line = [int(word) for word in lines.pop(0)[1:]]
                wanted = [
                    int(getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{spec.type}")),
                    len(spec.dims),
                    *spec.dims,
                    *spec.strides,
                    *spec.box,
                    *spec.element_strides,
                    int(getattr(driver.CUtensorMapInterleave, f"CU_TENSOR_MAP_{spec.interleave}")),
                    int(getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_{spec.swizzle}")),
                    int(getattr(driver.CUtensorMapL2promotion, f"CU_TENSOR_MAP_{spec.l2}")),
                    int(getattr(driver.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_{spec.oob}")),
                ]
                address = line.pop(1)
                assert line == wanted, name
                self._same_buffer(spec.buffer, address - offset)
        assert lines == []

    def _same_buffer(self, buffer: str, address: int) -> None:
        if buffer.startswith(("input:", "output:")):
            assert address == address_of(buffer)
            return
        assert address % 256 == 0
        assert self.scratch.setdefault(buffer, address) == address
        size = self.calls.scratch[buffer]
        for other, start in self.scratch.items():
            if other != buffer:
                assert address + size <= start or start + self.calls.scratch[other] <= address


@pytest.mark.parametrize("name", PLANS)
def test_the_host_code_does_what_the_plan_comes_to(name: str, recorder: Path, tmp_path: Path) -> None:
    problem, files = read(name)
    plan = make_plan(load_manifest(files), problem.definition)
    library = host_library(exported(name), plan, recorder, tmp_path)
    for workload in problem.workloads:
        axes = problem.definition.resolve(workload)
        calls = resolve(plan, axes, workload.scalars, RecordedFacts())
        Replay(plan, calls, play(library, plan, problem.definition, axes, workload.scalars)).check()


@pytest.mark.parametrize(
    "name",
    [
        "affine/cuda_scalars",
        "gemm/cuda",
        "pad_groups/cuda_map_array",
        "masked_softmax/seed",
        "rmsnorm/cuda_cpp",
    ],
)
def test_nvcc_builds_it_with_torchs_macros(name: str, tmp_path: Path) -> None:
    """Two builds of one kernel, TMA and its maps in memory, and a C function that was there before."""
    submission = exported(name)
    lay_out(submission, tmp_path)
    options = submission.spec.compile_options
    assert options is not None
    macros = ["-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__"]
    units = sorted(path.name for path in tmp_path.glob("*.cu"))
    command = [str(cuda_toolkit.nvcc().path), "-std=c++17", *macros, *options.cuda_cflags, "-shared"]
    command += ["--cudart=none", "-Xcompiler", "-fPIC", *headers(), "-I.", "-o", "all.so", *units]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stderr
    symbols = subprocess.run(["nm", "-D", "all.so"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert " T run\n" in symbols.stdout


def test_the_binding_is_what_torchs_headers_want(tmp_path: Path) -> None:
    import torch

    lay_out(exported("affine/cuda_scalars"), tmp_path)
    folder = Path(torch.__file__).parent / "include"
    generated = tmp_path / "c10" / "cuda" / "impl"
    generated.mkdir(parents=True)
    (generated / "cuda_cmake_macros.h").touch()  # a build for CPUs has all headers but this one
    includes = [f"-I{path}" for path in (".", folder, sysconfig.get_paths()["include"])]
    command = ["g++", "-std=c++20", "-fsyntax-only", "-w", "-DTORCH_EXTENSION_NAME=kernel", *includes]
    command += [*headers(), "swarm_binding.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_it_is_a_submission_that_names_its_files() -> None:
    made = exported("gemm/cuda")
    assert made.spec.entry_point == "swarm_binding.cpp::run"
    assert (made.spec.languages, made.spec.binding) == (("cuda_cpp",), "torch")
    assert made.spec.compile_options is not None
    assert made.spec.compile_options.cuda_cflags == ("-O3", "-gencode=arch=compute_90a,code=sm_90a")
    assert made.spec.compile_options.ld_flags == ("-lcuda",)
    paths = [source.path for source in made.sources]
    assert {"kernel.cu.cuh", "tma.cuh", "wgmma.cuh", "swarm_kernels_0.cu", "swarm_launch.cu"} < set(paths)
    assert parse_submission(submission_json(made), "again") == made


@pytest.mark.parametrize("name", [*PLANS, "rmsnorm/cuda_cpp"])
def test_what_left_may_come_back_and_be_measured(name: str) -> None:
    protocol = load_protocol((ROOT / "COORDINATION.md").read_text())
    made = import_submission(exported(name), protocol.rules.compile_options["cuda_cpp"], name)
    validate_tree(made.files, protocol)
    assert load_manifest(made.files).compile.options == ("-O3", "-lcuda")


def test_the_architecture_is_asked_for_where_it_matters() -> None:
    problem, files = read("gemm/cuda")
    _, remarks = export_solution(files, problem, CHOSEN, DEFAULTS, None, "x/")
    assert any("--arch sm_90a" in remark for remark in remarks)
    b200 = Exchange(target_hardware=("B200",), definition=problem.definition.name)
    made, remarks = export_solution(files, problem, b200, DEFAULTS, None, "x/")
    assert (made.spec.target_hardware, remarks) == (("B200",), ())
    with pytest.raises(BadInput, match="--arch: 'hopper' is not an architecture; write sm_90a or the like"):
        export_solution(files, problem, CHOSEN, DEFAULTS, "hopper", "x/")


def test_sources_keep_their_meaning_under_their_new_names() -> None:
    problem, files = read("rmsnorm/cuda_cpp")
    files |= {
        "solution.toml": b'language = "cuda_cpp"\nsources = ["kernel.cu", "lib/more.cu", "a.cpp"]\n'
        b"[params]\nBLOCK = 64\n",
        "lib/more.cu": b'#include "problem.h"\n#  include "a.cpp"\n',
        "a.cpp": b"// nothing\n",
    }
    made = export_solution(files, problem, CHOSEN, DEFAULTS, None, "x/")[0]
    text = {source.path: source.content for source in made.sources}
    assert text["lib/more.cu"] == '#include "swarm_problem.h"\n#  include "a.cpp.hpp"\n'
    units = {path: content for path, content in text.items() if path.startswith("swarm_unit")}
    assert sorted(units) == ["swarm_unit_0.cu", "swarm_unit_1.cu", "swarm_unit_2.cpp"]
    assert units["swarm_unit_1.cu"].endswith('#define BLOCK 64\n#include "lib/more.cu"\n')
    assert 'extern "C" void run(' in text["swarm_problem.h"]


def test_a_parameter_in_a_pragma_is_a_constant_too() -> None:
    problem, files = read("rmsnorm/cuda_cpp")
    files["solution.toml"] += b"[params]\nUNROLL = 4\nWIDE = 2\n"
    files["kernel.cu"] += b"#pragma unroll (UNROLL * 2)\n"
    made = export_solution(files, problem, CHOSEN, DEFAULTS, None, "x/")[0]
    [unit] = [source.content for source in made.sources if source.path == "swarm_unit_0.cu"]
    assert "constexpr int UNROLL = 4;" in unit and unit.count("constexpr") == 1
    assert unit.endswith('#define UNROLL 4\n#define WIDE 2\n#include "kernel.cu.cuh"\n')


def packed_problem(axes: dict[str, Any], shape: list[str], output: list[str]) -> Problem:
    definition = {
        "name": "packed",
        "axes": axes,
        "inputs": {"x": {"shape": shape, "dtype": "float4_e2m1fn_x2"}},
        "outputs": {"int": {"shape": output, "dtype": "float32"}},
        "reference": "def run(x):\n    return x\n",
    }
    sizes = {name: 4 for name, axis in axes.items() if axis["type"] == "var"}
    workload = {"uuid": "w", "axes": sizes, "inputs": {"x": {"type": "random"}}}
    return problem_from_files(
        {"definition.json": encoded(definition), "workload.jsonl": encoded(workload)}, "packed"
    )


CPP_FILES = {
    "solution.toml": b'language = "cuda_cpp"\nsources = ["k.cu"]\n',
    "k.cu": b'#include "problem.h"\n',
}


def test_sizes_come_from_shapes_and_names_may_be_words_of_cpp() -> None:
    axes = {
        "n": {"type": "var"},
        "twice": {"type": "expr", "expression": "2 * n"},
        "c": {"type": "const", "value": 3},
    }
    problem = packed_problem(axes, ["c", "n"], ["twice"])
    made = export_solution(CPP_FILES, problem, CHOSEN, DEFAULTS, None, "x/")[0]
    binding = next(source.content for source in made.sources if source.path == "swarm_binding.cpp")
    assert "const int64_t n = 2 * x.size(1);" in binding
    assert "const int64_t twice = name_int.size(0);" in binding


def test_a_size_that_no_tensor_tells_is_named() -> None:
    axes = {"n": {"type": "var"}, "half": {"type": "expr", "expression": "n // 2"}}
    with pytest.raises(BadInput, match="x/: axis 'n' is no dimension of any tensor"):
        export_solution(CPP_FILES, packed_problem(axes, ["half"], ["half"]), CHOSEN, DEFAULTS, None, "x/")
