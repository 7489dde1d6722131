"""Candidates on a real GPU: of every kind, called on every slot, timed truly, and alone when they fail."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm import sandbox
from swarm.device import Device
from swarm.judge.cuda.clocks import Clocks
from swarm.judge.cuda.pair import pair
from swarm.judge.cuda.runner import CudaControl
from swarm.judge.cuda.spares import Host
from swarm.languages.protocol import Failure, Kind
from swarm.verdict import Status
from tests.boxes import levels
from tests.judge.cuda.gpu_bench import KERNEL, LAUNCH, GpuBench, gpu_bench, native, plan, python

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

CALL = "scaled<<<(n + 255) / 256, 256{}>>>(x, y, float(scale), int(n), wait);"
TORCH = "import torch\ndef run(x, scale, y):\n    torch.mul(x, scale, out=y)\n"
TRITON = """import torch, triton, triton.language as tl
@triton.jit
def scaled(x, y, scale, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n) * scale, at < n)
def run(x, scale, y):
    scaled[(triton.cdiv(x.numel(), 256),)](x, y, scale, x.numel(), BLOCK=256)
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuBench]:
    with gpu_bench(gpu(), tmp_path_factory.mktemp("cache")) as made:
        yield made


def gpu() -> Device:
    from swarm.judge.cuda.devices import cuda_devices

    return cuda_devices()[0]


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(plan(), id="plan"),
        pytest.param(native(CALL.format(", 0, stream")), id="native"),
        pytest.param(native(CALL.format("")), id="native, default stream"),
        pytest.param(python(TORCH), id="torch"),
        pytest.param(python(TRITON, "triton"), id="triton"),
    ],
)
def test_every_kind_fills_every_slot_and_claims_a_time_for_each(
    bench: GpuBench, files: dict[str, bytes]
) -> None:
    with bench.runner(files) as runner:
        for _ in range(4):
            claims = bench.called(runner, 0)
            assert len(claims) == 4
            assert 300 < statistics.median(claims) < 20_000
        assert runner.clock == "CUPTI"
        assert all(claim.activities == 1 for claim in runner.claims)
        assert all(claim.blocks > 0 for claim in runner.claims)
        assert runner.late <= 2, "CUPTI is slow to come to speed, but not slower"


@levels
def test_every_level_of_the_sandbox_reaches_the_gpu(at: sandbox.Level, tmp_path: Path) -> None:
    with gpu_bench(gpu(), tmp_path, at) as bench, bench.runner(plan()) as runner:
        bench.called(runner, 0)


def test_only_the_nodes_of_its_gpu_are_in_the_box(bench: GpuBench) -> None:
    if not sandbox.level().is_at_least(sandbox.Level.NAMESPACES):
        pytest.skip("this machine has no user namespaces")
    source = (
        "import os, torch\ndef run(x, scale, y):\n"
        "    names = sorted(n for n in os.listdir('/dev') if 'nv' in n)\n"
        "    raise ValueError(f'{torch.cuda.device_count()} {names}')\n"
    )
    failure = bench.failure(python(source))
    assert failure.status is Status.RUNTIME_ERROR
    names = failure.reason.partition("[")[2].strip("]").replace("'", "").split(", ")
    assert failure.reason.startswith("ValueError: 1 [")
    assert [name.rstrip("0123456789") for name in names] == [
        "nvidia-uvm",
        "nvidia-uvm-tools",
        "nvidia",
        "nvidiactl",
    ]


@pytest.mark.parametrize("wait_us", [5, 50])
def test_claims_are_the_time_that_the_kernel_takes(bench: GpuBench, wait_us: int) -> None:
    """By CUPTI at 5 us, by events at 50; that it waits so long is known by its own clock."""
    with bench.runner(plan()) as runner:
        bench.called(runner, wait_us * 1000)
        claims = [ns for _ in range(10) for ns in bench.called(runner, wait_us * 1000)]
        assert runner.clock == ("CUPTI" if wait_us < 20 else "events")
        assert wait_us - 1.0 < statistics.median(claims) / 1e3 < wait_us + 2.5
        assert runner.late <= (1 if wait_us < 20 else 0)


def test_events_and_cupti_agree_once_the_offset_is_off(bench: GpuBench) -> None:
    """What remains: the offset is that of kernels that write more, and CUPTI costs every block a little."""
    medians = []
    for name in ("events", "CUPTI"):
        clocks = Clocks()
        with bench.runner(plan(), clocks) as runner:
            bench.called(runner, 30_000)
            if name == "CUPTI":
                clocks.of({"n": 1 << 14, "wait": 30_000}).observe(0, 1000, 1)
            claims = [ns for _ in range(10) for ns in bench.called(runner, 30_000)]
            assert runner.clock == name
            medians.append(statistics.median(claims))
    assert abs(medians[0] - medians[1]) < 1500, medians


def test_events_read_the_same_after_cupti_was_on(bench: GpuBench) -> None:
    """The first request of a workload switches CUPTI on and off: those after it read what the first did."""
    with bench.runner(plan()) as runner:
        medians = []
        for wait_ns in (30_000, 30_001, 5_000, 30_002):
            bench.called(runner, wait_ns)
            claims = [ns for _ in range(10) for ns in bench.called(runner, wait_ns)]
            if wait_ns >= 30_000:
                assert runner.clock == "events"
                medians.append(statistics.median(claims))
        assert max(medians) - min(medians) < 300, medians


def test_two_plans_in_one_process_are_timed_by_one_clock(bench: GpuBench) -> None:
    artifacts = bench.artifact(plan()), bench.artifact(plan(KERNEL + "// the same again\n"))
    one, other = pair(
        artifacts, bench.problem, bench.arena, bench.spares, memory_bytes=8 << 30, timeout_s=10, dirty=False
    )
    with one, other:
        medians = []
        for runner in (one, other, one, other):
            bench.called(runner, 5_000)
            medians.append(statistics.median(ns for _ in range(10) for ns in bench.called(runner, 5_000)))
            assert runner.clock == "events"
        assert one.pid == other.pid
    assert abs(medians[0] + medians[2] - medians[1] - medians[3]) / 2 < 100, medians


def test_scratch_holds_nothing_of_an_earlier_call(bench: GpuBench) -> None:
    source = KERNEL.replace("float scale, int n", "float* kept, float scale, int n").replace(
        "y[i] = x[i] * scale;", "{ y[i] = kept[i] == 42.f ? 0.f : x[i] * scale; kept[i] = 42.f; }"
    )
    manifest = '[scratch.kept]\ndtype = "float32"\nshape = ["n"]\n' + LAUNCH.replace('"y", ', '"y", "kept", ')
    with bench.runner(plan(source, manifest)) as runner:
        for _ in range(3):
            bench.called(runner, 0)


def test_a_candidate_that_waits_for_the_gpu_itself_is_not_waited_for_ever_longer(bench: GpuBench) -> None:
    with bench.runner(native(CALL.format(", 0, stream") + "cudaStreamSynchronize(stream);")) as runner:
        for _ in range(6):
            started = time.monotonic()
            bench.called(runner, 0)
        assert time.monotonic() - started < 1


def test_a_host_candidate_is_stopped_between_calls_and_a_plan_is_not(bench: GpuBench) -> None:
    for files, is_stopped in ((native(CALL.format("")), True), (plan(), False)):
        with bench.runner(files) as runner:
            bench.called(runner, 0)
            assert runner.pid is not None
            time.sleep(0.2)
            state = Path(f"/proc/{runner.pid}/stat").read_text().rpartition(")")[2].split()[0]
            assert (state == "T") is is_stopped


DEEP = """
__device__ __noinline__ float deep(const float* x, int n) {
  volatile float kept[64];
  kept[n % 64] = x[n % 7];
  return n < -(1 << 30) ? kept[3] : deep(x, n - 1) + kept[n % 64 < 0 ? 0 : n % 64];
}
"""
BAD = {
    "illegal address": ("y[1ll << 40] = 0;", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    "misaligned": ("*(float4*)(y + 1) = make_float4(0, 0, 0, 0);", "CUDA_ERROR_MISALIGNED_ADDRESS"),
    "trap": ("__trap();", "CUDA_ERROR_"),
    "endless": ('while (true) asm volatile("");', "did not answer within 3 s"),
    "stack": ("y[i] = deep(x, n);", "CUDA_ERROR_"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_failure_has_cuda_s_name_and_the_next_candidate_passes(bench: GpuBench, name: str) -> None:
    code, words = BAD[name]
    source = DEEP + KERNEL.replace("y[i] = x[i] * scale;", code)
    started = time.monotonic()
    with bench.runner(plan(source), timeout_s=3) as runner:
        claims = runner.call(bench.fill(1000))
        assert isinstance(claims, Failure)
        assert claims.status is (Status.TIMEOUT if name == "endless" else Status.RUNTIME_ERROR)
        assert words in claims.reason
        assert runner.call(bench.fill(1000)) == claims
    assert time.monotonic() - started < 20
    with bench.runner(plan()) as runner:
        bench.called(runner, 1000)


def test_more_memory_than_there_is_is_a_failure_of_the_candidate(bench: GpuBench) -> None:
    manifest = '[scratch.kept]\ndtype = "float32"\nshape = [1099511627776]\n' + LAUNCH
    failure = bench.failure(plan(KERNEL, manifest))
    assert failure.status is Status.RUNTIME_ERROR
    assert "CUDA_ERROR_OUT_OF_MEMORY" in failure.reason


def test_a_launch_that_the_runtime_refuses_is_told_by_name(bench: GpuBench) -> None:
    failure = bench.failure(native("scaled<<<1, 2048, 0, stream>>>(x, y, 1.f, int(n), wait);"))
    assert "cudaErrorInvalid" in failure.reason


def test_what_python_raises_is_told_with_cuda_s_name(bench: GpuBench) -> None:
    source = (
        "import torch\ndef run(x, scale, y):\n"
        "    y.copy_(x[torch.full((x.numel(),), 1 << 20, device='cuda')])\n    torch.cuda.synchronize()\n"
    )
    failure = bench.failure(python(source))
    assert failure.status is Status.RUNTIME_ERROR
    assert "CUDA_ERROR_ASSERT" in failure.reason


SIDE = "static cudaStream_t side; if (!side) cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);\n"


@pytest.mark.parametrize(
    ("body", "wait_ns"),
    [
        pytest.param(CALL.format(", 0, side"), 15_000, id="all of it"),
        pytest.param(
            CALL.format(", 0, stream") + "scaled<<<1, 32, 0, side>>>(x, y, float(scale), 32, 20 * wait);",
            30_000,
            id="more of it",
        ),
    ],
)
def test_work_that_nobody_waits_for_is_a_hack(bench: GpuBench, body: str, wait_ns: int) -> None:
    with bench.runner(native(SIDE + body)) as runner:
        failure = runner.call(bench.fill(wait_ns))
        assert isinstance(failure, Failure), failure
        assert failure.status is Status.REWARD_HACK
        assert re.search("was at work|changed after its call was over", failure.reason)


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        pytest.param(Kind.SHARED_OBJECT, native(CALL.format(", 0, stream")), id="native"),
        pytest.param(Kind.PYTHON, python(TORCH), id="torch"),
    ],
)
def test_an_honest_candidate_hides_no_time(bench: GpuBench, kind: Kind, files: dict[str, bytes]) -> None:
    clocks = Clocks()
    control = CudaControl(kind, bench.spares)
    hidden_us = []
    with bench.runner(files, clocks) as runner:
        control.at(bench.problem, bench.arena, clocks, dirty=False, timeout_s=30)
        for _ in range(20):
            claims = bench.called(runner, 0)
            overhead_us = control.overhead_us(bench.fill(0))
            hidden_us.append((runner.wall_ns - sum(claims)) / 1e3 - overhead_us)
    control.leave()
    control.close()
    assert -1000 < statistics.median(hidden_us[2:]) < 50, hidden_us


def test_a_spare_is_ready_at_once(bench: GpuBench) -> None:
    bench.spares.refill(Host.BARE, 1)
    time.sleep(3)
    started = time.monotonic()
    with bench.runner(plan()) as runner:
        assert runner.ready() is None
    assert time.monotonic() - started < 0.5
