"""What takes code on the host cannot be said in `cuda` at all: not in the manifest, not in the sources.

Tricks A3 to A9, C2 and C5 need a thread, an object or a process of their own beside the kernel. What device
code alone can still try is in the corpus.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest

from swarm.device import Device
from swarm.errors import BadInput
from swarm.judge.build import Built, build, frozen
from swarm.judge.cuda.process import Host
from swarm.languages import cubin
from swarm.languages.plan import Plan
from swarm.languages.protocol import Failure, Kind
from swarm.languages.resolve import resolve
from swarm.languages.steps import CopyStep, KernelStep, MemsetStep, Pointer, Step, Value
from swarm.launch import Launch, Memset, Scratch, TensorMap
from swarm.solution import Manifest, load_manifest
from swarm.verdict import Status
from tests.corpus.cases import cases
from tests.corpus.device_rows import LAUNCH, device
from tests.corpus.judged import job
from tests.languages.plans import Card

H200 = Device("cuda", "NVIDIA H200", "GPU-0", (0, 1), "sm_90a", 150 << 30, 132)
SCRATCH = '[scratch.part]\ndtype = "float32"\nshape = ["rows"]\n'
FILLED = SCRATCH + "fill = 0.0\n"
MEMSET = '[[memset]]\ntarget = "y"\n'
MAP = '[tensormap.map]\nof = "x"\ndims = ["columns", "rows"]\nbox = [64, 1]\n'
HONEST = "honest(x, w, y, row);"
SAYABLE = {
    Manifest: {
        "language", "sources", "entry", "destination_passing", "binding", "compile", "params", "tune",
        "scratch", "tensormap", "launch", "memset", "exchange",
    },
    Launch: {
        "kernel", "when", "params", "grid", "block", "smem", "cluster", "cooperative", "pdl", "repeat",
        "index", "args",
    },
    Memset: {"target", "value", "offset", "bytes", "when", "before"},
    Scratch: {"dtype", "shape", "fill"},
    TensorMap: {
        "of", "dtype", "dims", "strides", "box", "element_strides", "swizzle", "interleave", "l2", "fill",
        "place", "count", "index", "offset",
    },
}  # fmt: skip
"""All that a manifest can say. A new word here is a new thing for an attacker: think what it lets code do."""

ON_THE_HOST = {
    "A3 a thread": ("int pthread_create(void*, void*, void*, void*);", "pthread_create(0, 0, 0, 0);"),
    "A5 the clock": ("int cudaEventElapsedTime(float*, void*, void*);", "cudaEventElapsedTime(0, 0, 0);"),
    "A6 memory of the driver": ("int mprotect(void*, long, int);", "mprotect(0, 4096, 7);"),
    "A7 a descriptor": ("long write(int, const void*, long);", "write(3, x, 8);"),
    "A8 another stream": ("int cudaStreamCreate(void*);", "cudaStreamCreate(0);"),
    "A9 the environment": ("char* getenv(const char*);", 'getenv("HOME");'),
    "C2 a file": ("void* fopen(const char*, const char*);", 'fopen("torch.py", "w");'),
    "C5 a process": ("int fork();", "fork();"),
}


@pytest.mark.parametrize("table", list(SAYABLE), ids=lambda table: table.__name__)
def test_a_manifest_can_say_this_and_no_more(table: type) -> None:
    assert set(table.model_fields) == SAYABLE[table]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "tables",
    [
        LAUNCH + 'stream = "side"\n',
        LAUNCH + 'host = "setup.py"\n',
        LAUNCH + "threads = 2\n",
        LAUNCH + SCRATCH + "keep = true\n",
        LAUNCH + SCRATCH + 'file = "memo.bin"\n',
        LAUNCH + MEMSET + "times = 3\n",
        LAUNCH + MAP + 'address = "0"\n',
        LAUNCH + '[environment]\nLD_PRELOAD = "x.so"\n',
        LAUNCH + '[[callback]]\nafter = "kernel"\n',
    ],
)
def test_a_word_that_is_not_known_is_refused_in_every_table(tables: str) -> None:
    with pytest.raises(BadInput, match=r"unknown|not known|Extra|no such"):
        load_manifest(device(HONEST, tables=tables))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('entry = "kernel.py::run"', "entry"),
        ('binding = "torch"', "binding"),
        ("destination_passing = false", "destination_passing"),
        ('[compile]\noptions = ["-rdc=true"]', "rdc"),
        ('[compile]\noptions = ["-I/"]', "-I/"),
        ('[compile]\noptions = ["--pre-include=/etc/passwd"]', "pre-include"),
    ],
)
def test_no_entry_point_and_no_path_can_be_named(line: str, reason: str, tmp_path: Path) -> None:
    files = device(HONEST)
    head, launch = files["solution.toml"].split(b"\n[[launch]]")
    manifest = head + b"\n" + line.encode() + b"\n[[launch]]" + launch
    made = built(files | {"solution.toml": manifest}, tmp_path)
    assert isinstance(made, Failure)
    assert made.status is Status.INVALID_SOLUTION
    assert reason in made.reason


@pytest.mark.parametrize(
    "name", ["kernel.py", "sitecustomize.py", "torch.pth", "kernel.so", "kernel.cpp", "Makefile"]
)
def test_no_file_but_device_code_belongs_to_a_tree(name: str, tmp_path: Path) -> None:
    files = device(HONEST)
    manifest = files["solution.toml"].replace(b'["kernel.cu"]', f'["kernel.cu", "{name}"]'.encode())
    for tree in ({**files, name: b"\n"}, {**files, name: b"\n", "solution.toml": manifest}):
        made = built(tree, tmp_path)
        assert isinstance(made, Failure)
        assert made.status is Status.INVALID_SOLUTION


@pytest.mark.parametrize("trick", list(ON_THE_HOST))
def test_device_code_cannot_call_what_the_host_has(trick: str, tmp_path: Path) -> None:
    declared, called = ON_THE_HOST[trick]
    for space in ("", "__device__ "):
        made = built(device(HONEST + called, f'extern "C" {space}{declared}\n'), tmp_path)
        assert isinstance(made, Failure), f"{trick}: {called}"
        assert made.status is Status.COMPILE_ERROR


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("__global__ void child() {}\n", "child<<<1, 1>>>();"),
        ("", "cudaDeviceSynchronize();"),
        ('extern "C" __device__ int cudaGetLastError();\n', "cudaGetLastError();"),
        ("__device__ int first() { return 1; }\nstruct Made { int n; __device__ Made() : n(first()) {} };\n"
         "__device__ Made made;\n", "y[0] = made.n;"),
    ],
    ids=["a launch", "a wait", "the runtime", "code before the first call"],
)  # fmt: skip
def test_a_kernel_starts_nothing_and_nothing_runs_before_it(head: str, body: str, tmp_path: Path) -> None:
    made = built(device(HONEST + body, head), tmp_path)
    assert isinstance(made, Failure)
    assert made.status is Status.COMPILE_ERROR


def test_host_code_in_a_source_is_not_in_what_is_run(tmp_path: Path) -> None:
    head = """
    extern "C" int fork();
    int beside() { return fork(); }
    struct Before { int n; Before() : n(fork()) {} };
    static int started = 0;
    """
    made = built(device(HONEST, head), tmp_path)
    assert isinstance(made, Built)
    assert made.artifact.kind is Kind.PLAN
    assert Host.of(made.artifact.kind) is Host.BARE, "its runner imports no torch and compiles nothing"
    found = {path.name: path.read_bytes() for path in made.artifact.path.iterdir()}
    assert set(found) == {"plan.json", "kernels.json", "0.cubin"}
    assert set(cubin.kernels(found["0.cubin"])) == {"kernel"}, "an object for the GPU, as its header says"
    for word in (b"fork", b"beside", b"Before"):
        assert word not in found["0.cubin"]


def test_all_that_a_plan_comes_to_is_launches_and_memsets(tmp_path: Path) -> None:
    assert set(get_args(Step)) == {KernelStep, MemsetStep, CopyStep}, "and copies, which recordings have"
    made = built(device(HONEST, tables=LAUNCH + MEMSET + FILLED), tmp_path)
    assert isinstance(made, Built)
    plan = Plan.from_json(json.loads((made.artifact.path / "plan.json").read_bytes()))
    calls = resolve(plan, {"rows": 5, "columns": 512}, {}, Card())
    assert [type(step) for step in calls.steps] == [MemsetStep, MemsetStep, KernelStep]
    [launch] = [step for step in calls.steps if isinstance(step, KernelStep)]
    assert [type(argument) for argument in launch.args] == [Pointer, Pointer, Pointer, Value]
    assert calls.maps == {}


def test_what_device_code_can_still_try_is_in_the_corpus() -> None:
    families = {case.family for case in cases("attack", "gpu") if case.language == "cuda"}
    assert families >= {"A9", "A15", "B1", "B2", "B3", "B4", "B5", "B8", "B9", "B10", "B11", "B13", "C1"}
    assert not families & {"A3", "A4", "A5", "A7", "A8", "C2", "C5"}, "or this page is wrong"


def built(files: Mapping[str, bytes], cache: Path) -> Built | Failure:
    [case] = [case for case in cases("attack", "gpu") if case.name == "cuda.leaves_the_output_as_it_was"]
    return build(files, frozen(job(case)), H200, cache)
