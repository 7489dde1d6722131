"""The C++ contract: what problem.h promises, and what a compiler's failure says."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path

import pytest
import torch

from swarm.device import cpu_device
from swarm.languages import toolchain
from swarm.languages.cpp import C_TYPES, ENTRY, Cpp, problem_header
from swarm.languages.protocol import Artifact, CompileLimits, Failure
from swarm.problem import problem_from_files
from swarm.solution import load_manifest
from swarm.verdict import Status
from tests.judge.bench import COLUMNS, KERNEL, LIMITS, cpp, problem

RUN = 'extern "C" void run(const float*, double, int64_t, bool, float*, int64_t, int64_t)'


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def failed(result: Artifact | Failure) -> Failure:
    assert isinstance(result, Failure), result
    assert result.status is Status.COMPILE_ERROR
    return result


def test_header_has_constants_and_their_expressions_and_the_declaration() -> None:
    header = problem_header(problem().definition, cores=3)
    assert f"constexpr int64_t columns = {COLUMNS};" in header
    assert f"constexpr int64_t twice = {2 * COLUMNS};" in header
    assert "#define SWARM_CORES 3" in header
    assert "rows" in header and "constexpr int64_t rows" not in header
    words = " ".join(header[header.index('extern "C"') :].split())
    assert words == (
        'extern "C" void run(const float* /* x */, double /* scale */, int64_t /* shift */, '
        "bool /* negate */, float* /* y */, int64_t /* rows */, int64_t /* count */);"
    )


def test_every_element_type_compiles(cache: Path) -> None:
    inputs = {f"in_{dtype}": {"shape": ["rows"], "dtype": dtype} for dtype in C_TYPES}
    inputs |= {f"one_{dtype}": {"shape": None, "dtype": dtype} for dtype in ("float64", "int32", "bool")}
    definition = {
        "name": "types",
        "axes": {"rows": {"type": "var"}},
        "inputs": inputs,
        "outputs": {"y": {"shape": [], "dtype": "float16"}},
        "reference": f"def run({', '.join(inputs)}):\n    return 0\n",
    }
    workload = {"uuid": "w", "axes": {"rows": 1}, "inputs": {name: {"type": "random"} for name in inputs}}
    types = problem_from_files(
        {
            "definition.json": json.dumps(definition).encode(),
            "workload.jsonl": json.dumps(workload).encode(),
        },
        "types",
    )
    declaration = problem_header(types.definition, 1).partition('extern "C"')[2]
    body = f'#include "problem.h"\nextern "C"{declaration.replace(";", " {}")}'
    files = {"solution.toml": b'language = "cpp"\nsources = ["kernel.cpp"]\n', "kernel.cpp": body.encode()}
    built = Cpp().compile(files, load_manifest(files), types, cpu_device(), cache, LIMITS)
    assert isinstance(built, Artifact), built
    assert hasattr(ctypes.CDLL(str(built.path)), ENTRY)


def test_bf16_rounds_as_torch_does(cache: Path) -> None:
    body = (
        f'#include "problem.h"\n{RUN} {{}}\n'
        'extern "C" void there(const float* x, bf16* y, int64_t n) { while (n--) y[n] = x[n]; }\n'
        'extern "C" void back(const bf16* x, float* y, int64_t n) { while (n--) y[n] = x[n]; }\n'
    )
    built = cpp(body, cache)
    assert isinstance(built, Artifact), built
    library = ctypes.CDLL(str(built.path))
    bits = torch.randint(-(2**31), 2**31, (100_000,), dtype=torch.int64).to(torch.int32)
    special = [
        float("inf"),
        float("-inf"),
        float("nan"),
        0.0,
        -0.0,
        3.4e38,
        1.0 + 2**-8,
        1.0 + 3 * 2**-8,
        1e-45,
    ]
    x = torch.cat([bits.view(torch.float32), torch.tensor(special)])
    y, z = torch.empty_like(x, dtype=torch.bfloat16), torch.empty_like(x)
    library.there(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_int64(x.numel()))
    library.back(ctypes.c_void_p(y.data_ptr()), ctypes.c_void_p(z.data_ptr()), ctypes.c_int64(x.numel()))
    assert torch.equal(y.isnan(), x.isnan())
    numbers = ~x.isnan()
    assert torch.equal(y[numbers].view(torch.int16), x.to(torch.bfloat16)[numbers].view(torch.int16))
    assert torch.equal(z[numbers], y[numbers].float())


def test_params_are_macros_and_change_the_artifact(cache: Path) -> None:
    body = f'#include "problem.h"\nstatic_assert(BLOCK == 8 || BLOCK == 16, "");\n{RUN} {{}}\n'
    built = [cpp(body, cache, f"[params]\nBLOCK = {value}\n") for value in (8, 16)]
    assert all(isinstance(one, Artifact) for one in built)
    assert built[0] != built[1]
    assert "static assertion" in failed(cpp(body, cache, "[params]\nBLOCK = 9\n")).reason


def test_the_second_time_nothing_is_compiled(cache: Path, tmp_path: Path) -> None:
    first = cpp(KERNEL, tmp_path)
    assert isinstance(first, Artifact)
    written = first.path.stat().st_mtime_ns
    assert cpp(KERNEL, tmp_path) == first
    assert first.path.stat().st_mtime_ns == written
    assert len(list(first.path.parent.iterdir())) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("int main( {", "kernel.cpp:1"),
        ('#include "problem.h"\n', "undefined reference to `run'"),
        (f'#include "problem.h"\n{RUN} {{}}\nextern "C" void swarm_entry() {{}}\n', "multiple definition"),
        (f'#include "problem.h"\n{RUN.replace("double", "float")} {{}}\n', "kernel.cpp:2"),
        (f'#include "problem.h"\nvoid other();\n{RUN} {{ other(); }}\n', "other()"),
        ('#include "/etc/shadow"\n', "shadow"),
    ],
    ids=["syntax", "no-run", "own-entry", "signature", "undefined", "secret"],
)
def test_a_failure_names_the_place(cache: Path, body: str, reason: str) -> None:
    found = failed(cpp(body, cache))
    assert reason in found.reason
    assert "root:" not in found.log


def test_a_source_may_not_take_the_name_of_ours(cache: Path) -> None:
    files = {
        "solution.toml": b'language = "cpp"\nsources = ["kernel.cpp", "problem.h"]\n',
        "kernel.cpp": KERNEL.encode(),
        "problem.h": b"",
    }
    found = Cpp().compile(files, load_manifest(files), problem(), cpu_device(), cache, LIMITS)
    assert isinstance(found, Failure)
    assert found.status is Status.INVALID_SOLUTION


def test_a_compiler_without_end_is_ended(cache: Path) -> None:
    body = (
        "template <unsigned long n> struct Deep { static constexpr unsigned long value = "
        "Deep<n / 2>::value + Deep<n / 2 + 1>::value + Deep<n - 1>::value; };\n"
        "template <> struct Deep<0> { static constexpr unsigned long value = 1; };\n"
        "unsigned long x = Deep<800>::value;\n"
        "constexpr int spin() { int n = 0; for (int i = 0; i < 30000000; ++i) n ^= i; return n; }\n"
        "constexpr int y = spin();\n"
    )
    files = {
        "solution.toml": b'language = "cpp"\nsources = ["kernel.cpp"]\n[compile]\n'
        b'options = ["-fconstexpr-ops-limit=1000000000", "-fconstexpr-loop-limit=1000000000"]\n',
        "kernel.cpp": body.encode(),
    }
    limits = CompileLimits(timeout_s=1, memory_bytes=4 << 30)
    found = failed(Cpp().compile(files, load_manifest(files), problem(), cpu_device(), cache, limits))
    assert "within 1 s" in found.reason


def test_a_compiler_that_takes_too_much_memory_fails(cache: Path) -> None:
    limits = CompileLimits(timeout_s=30, memory_bytes=64 << 20)
    files = {
        "solution.toml": b'language = "cpp"\nsources = ["kernel.cpp"]\n',
        "kernel.cpp": b"#include <regex>\n" + KERNEL.encode(),
    }
    failed(Cpp().compile(files, load_manifest(files), problem(), cpu_device(), cache, limits))


def test_a_build_is_named_by_the_machine_it_is_for() -> None:
    assert len(toolchain.machine()) == 16
    assert os.uname().machine not in toolchain.machine()
    assert toolchain.compiler().path.exists()
