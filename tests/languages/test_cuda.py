"""A tree of device code becomes cubins and a plan, or says which table, file or kernel is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from swarm.device import Device, cpu_device
from swarm.errors import Refused
from swarm.judge.build import Built, Frozen, build
from swarm.languages import cubin, nvrtc
from swarm.languages.cuda import Cuda, read_kernels
from swarm.languages.cuda_header import device_header
from swarm.languages.plan import Plan
from swarm.languages.protocol import Artifact, CompileLimits, Failure, Kind
from swarm.problem import Problem, load_problem, problem_from_files
from swarm.protocol import read_protocol
from swarm.solution import load_manifest
from swarm.verdict import Status
from tests.problem_files import definition, encoded, problem_files

ROOT = Path(__file__).parent.parent.parent
SOLUTIONS = ROOT / "tests" / "gpu" / "solutions"
FAILED, INVALID = Status.COMPILE_ERROR, Status.INVALID_SOLUTION
DTYPES = (
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1",
    "float4_e2m1fn_x2", "int64", "int32", "int16", "int8", "bool",
)  # fmt: skip
LIMITS = CompileLimits(timeout_s=60, memory_bytes=4 << 30)
MANIFEST = """\
language = "cuda"
sources = ["kernel.cu", "scaled.cuh"]
[params]
BLOCK = 64
TYPE = "float"
[scratch.sums]
dtype = "float32"
shape = ["rows"]
[[launch]]
kernel = "scale<BLOCK>"
when = "rows < 100"
grid = ["rows"]
block = ["BLOCK"]
args = ["x", "weight", "y", "scale:f32", "rows:i64"]
[[launch]]
kernel = "scale<BLOCK>"
when = "rows >= 100"
params = { BLOCK = 32 }
grid = ["rows"]
block = ["BLOCK"]
args = ["x", "weight", "y", "scale:f32", "rows:i64"]
[[launch]]
kernel = "nothing"
grid = [1]
block = [32]
args = ["sums"]
"""
KERNEL = """\
#include "problem.h"
#include "scaled.cuh"
static_assert(width == 64 && problem::half == 32 && sizeof(__nv_bfloat16) == 2, "");
template <int N> __global__ void scale(const __nv_bfloat16* x, const __nv_bfloat16* weight, __nv_bfloat16* y,
                                       float scale, int64_t rows) {
  __shared__ TYPE held[N];
  for (int i = threadIdx.x; i < width; i += N) {
    held[threadIdx.x] = scaled(x[blockIdx.x * width + i], weight[i], scale);
    y[blockIdx.x * width + i] = __float2bfloat16(held[threadIdx.x]);
  }
}
extern "C" __global__ void nothing(float* sums) { sums[0] = 0; }
"""
SCALED = """\
#pragma once
__device__ float scaled(__nv_bfloat16 x, __nv_bfloat16 w, float s) {
  return __bfloat162float(x) * __bfloat162float(w) * s;
}
"""
FILES = {"solution.toml": MANIFEST, "kernel.cu": KERNEL, "scaled.cuh": SCALED}


def gpu(arch: str = "sm_90a") -> Device:
    """A GPU that need not be there."""
    return Device("cuda", f"gpu-{arch}", "GPU-0", cpu_device().cores, arch, 80 << 30, 132)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def problem() -> Problem:
    return problem_from_files(problem_files(), "scale_rows")


def compiled(
    cache: Path,
    files: Mapping[str, str] = FILES,
    device: Device | None = None,
    limits: CompileLimits = LIMITS,
) -> Artifact | Failure:
    tree = {name: text.encode() for name, text in files.items()}
    return Cuda().compile(tree, load_manifest(tree), problem(), device or gpu(), cache, limits)


def made(found: Artifact | Failure) -> Artifact:
    assert isinstance(found, Artifact), found
    return found


def test_the_artifact_holds_a_plan_its_kernels_and_a_cubin_for_each_build(cache: Path) -> None:
    artifact = made(compiled(cache))
    assert (artifact.kind, artifact.entry, artifact.log) == (Kind.PLAN, "", "")
    names = sorted(path.name for path in artifact.path.iterdir())
    assert names == ["0.cubin", "1.cubin", "kernels.json", "plan.json"]
    plan = Plan.from_json(json.loads((artifact.path / "plan.json").read_bytes()))
    assert plan.variants == ({"BLOCK": 64, "TYPE": "float"}, {"BLOCK": 32, "TYPE": "float"})
    assert read_kernels(artifact.path) == artifact.kernels
    told = [(info.variant, info.name, info.static_smem_bytes) for info in artifact.kernels]
    assert told == [(0, "scale<BLOCK>", 256), (0, "nothing", 0), (1, "scale<BLOCK>", 128)]
    for info in artifact.kernels:
        found = cubin.kernels((artifact.path / f"{info.variant}.cubin").read_bytes())
        assert found[info.symbol].parameters == info.parameters


def test_a_changed_plan_compiles_nothing_and_is_another_artifact(tmp_path: Path) -> None:
    first = made(compiled(tmp_path))
    changed = FILES | {"solution.toml": MANIFEST.replace("grid = [1]", "grid = [2]")}
    written = len(list((tmp_path / "cubins").iterdir()))
    second = made(compiled(tmp_path, changed))
    assert second.path != first.path and second.kernels == first.kernels
    assert len(list((tmp_path / "cubins").iterdir())) == written
    assert made(compiled(tmp_path)) == first


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_100a", "sm_120a"])
def test_it_compiles_for_a_gpu_that_is_not_here(arch: str, cache: Path) -> None:
    assert len(made(compiled(cache, device=gpu(arch))).kernels) == 3


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        (("kernel.cu", "scaled(x", "scaled(z"), FAILED, 'kernel.cu:8: identifier "z" is undefined'),
        (("scaled.cuh", "* s;", "* t;"), FAILED, "scaled.cuh:3: "),
        (("solution.toml", 'kernel = "nothing"', 'kernel = "other"'), FAILED, "kernel 'other'"),
        (("kernel.cu", "held[N]", "held[N - 33]"), FAILED, "with BLOCK = 32: kernel.cu:6"),
        (("solution.toml", '"sums"]', '"sums", "x"]'), INVALID, "launch[2].args: 2 arguments"),
        (("solution.toml", "rows:i64", "rows:i32"), INVALID, "launch[1].args[4]"),
        (("solution.toml", 'block = ["BLOCK"]', 'block = ["4096"]'), INVALID, "launch[1].block"),
        (("solution.toml", 'args = ["sums"]', 'args = ["sum"]'), INVALID, "no memory 'sum'"),
    ],
    ids=["source", "header", "kernel", "variant", "count", "type", "block", "memory"],
)  # fmt: skip
def test_a_failure_names_the_place(
    change: tuple[str, str, str], status: Status, reason: str, cache: Path
) -> None:
    file, old, new = change
    assert old in FILES[file]
    found = compiled(cache, FILES | {file: FILES[file].replace(old, new)})
    assert isinstance(found, Failure)
    assert found.status is status
    assert reason in found.reason


def test_a_source_may_not_take_the_name_of_ours(cache: Path) -> None:
    files = FILES | {"solution.toml": MANIFEST.replace("scaled.cuh", "problem.h"), "problem.h": SCALED}
    found = compiled(cache, files)
    assert isinstance(found, Failure) and found.status is Status.INVALID_SOLUTION


def test_warnings_are_told_and_figures_are_not(cache: Path) -> None:
    artifact = made(
        compiled(cache, FILES | {"kernel.cu": KERNEL.replace("{ sums[0]", "{ int idle; sums[0]")})
    )
    assert "idle" in artifact.log and "ptxas info" not in artifact.log and "stack frame" not in artifact.log


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_of_the_schema_has_a_type(dtype: str, cache: Path) -> None:
    text = device_header(typed_problem([dtype]).definition)
    kind = text.split("i0: const ")[1].split("*")[0]
    source = (
        f'#include "problem.h"\nextern "C" __global__ void k(const {kind}* x, {kind}* y) {{ y[0] = x[0]; }}\n'
    )
    variants = [nvrtc.Variant((), ("k",))]
    files = {"problem.h": text.encode(), "kernel.cu": source.encode()}
    found = nvrtc.compile_variants(
        files, ["kernel.cu"], variants, "sm_90a", cache, LIMITS, cpu_device().cores
    )
    assert isinstance(found, list), found


def typed_problem(dtypes: Sequence[str]) -> Problem:
    """Return a problem with a tensor and a scalar of each type, and a tensor of each as its outputs."""
    inputs: dict[str, dict[str, Any]] = {
        f"i{n}": {"shape": ["rows", "width"], "dtype": name} for n, name in enumerate(dtypes)
    }
    inputs |= {f"s{n}": {"shape": None, "dtype": name} for n, name in enumerate(dtypes)}
    outputs = {f"o{n}": {"shape": ["rows", "width"], "dtype": name} for n, name in enumerate(dtypes)}
    reference = f"def run({', '.join(inputs)}):\n    return ()\n"
    drawn = {
        name: {"type": "scalar", "value": scalar_of(spec["dtype"])}
        if spec["shape"] is None
        else {"type": "random"}
        for name, spec in inputs.items()
    }
    files = {
        "definition.json": encoded(definition(inputs=inputs, outputs=outputs, reference=reference)),
        "workload.jsonl": encoded({"uuid": "w", "axes": {"rows": 4}, "inputs": drawn}),
    }
    return problem_from_files(files, "typed")


def scalar_of(dtype: str) -> bool | int | float:
    return True if dtype == "bool" else 1.0 if "float" in dtype else 1


def test_a_language_is_refused_on_the_wrong_kind_of_device(cache: Path) -> None:
    rules = Frozen(problem(), read_protocol((ROOT / "COORDINATION.md").read_bytes(), "COORDINATION.md"))
    tree = {name: text.encode() for name, text in FILES.items()}
    found = build(tree, rules, cpu_device(), cache)
    assert isinstance(found, Failure)
    assert found.status is Status.INVALID_SOLUTION and "language cuda does not run on a cpu" in found.reason
    assert isinstance(build(tree, rules, gpu(), cache), Built)
    with pytest.raises(Refused, match="no GPU to compile for"):
        compiled(cache, device=cpu_device())


@pytest.mark.parametrize(
    "trick", ["#define nothing swarm_close\n", "constexpr auto nothing = swarm_close;\n"]
)
def test_a_kernel_cannot_take_a_name_of_ours(trick: str, cache: Path) -> None:
    kernel = KERNEL.replace("void nothing", "void swarm_close") + trick
    found = built(FILES | {"kernel.cu": kernel}, cache)
    assert isinstance(found, Failure)
    assert found.status is Status.INVALID_SOLUTION
    assert found.reason.startswith("kernel 'nothing' is called swarm_close")


def test_what_a_source_makes_the_compiler_print_steers_no_terminal(cache: Path) -> None:
    kernel = KERNEL + "#error \x1b[31m red \x07 and \u202e back\n"
    found = built(FILES | {"kernel.cu": kernel}, cache)
    assert isinstance(found, Failure)
    assert "red" in found.reason and "red" in found.log
    assert not {"\x1b", "\x07", "\u202e"} & set(found.reason + found.log)


def built(files: Mapping[str, str], cache: Path) -> Built | Failure:
    """Return what the judge makes of a tree."""
    rules = Frozen(problem(), read_protocol((ROOT / "COORDINATION.md").read_bytes(), "COORDINATION.md"))
    return build({name: text.encode() for name, text in files.items()}, rules, gpu(), cache)


@pytest.mark.parametrize(
    "folder",
    sorted(path.parent for path in SOLUTIONS.rglob("solution.toml") if path.parent.name.startswith("cuda")
           and path.parent.name not in ("cuda_torch",)),
    ids=lambda path: f"{path.parent.name}-{path.name}",
)  # fmt: skip
def test_every_kernel_of_the_gpu_tests_compiles_for_hopper(folder: Path, cache: Path) -> None:
    found = load_problem(ROOT / "tests" / "gpu" / "problems" / folder.parent.name)
    rules = Frozen(found, read_protocol((ROOT / "COORDINATION.md").read_bytes(), "COORDINATION.md"))
    tree = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    built = build(tree, rules, gpu(), cache)
    assert isinstance(built, Built), built
    assert built.artifact.kernels
    assert all(info.spill_store_bytes == 0 for info in built.artifact.kernels)
