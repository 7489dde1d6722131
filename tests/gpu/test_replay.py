"""Trees with code on the host are replayed without it on a GPU, or their records say why they cannot be."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from benchmarks.gpu_jobs import with_workloads
from swarm.judge.cuda.desk import CudaTable
from swarm.judge.judge import Judge
from swarm.verdict import Comparison, Outcome, Status, Trust, Verdict
from tests.gpu import trees
from tests.gpu.test_solutions import BUILD_S, needs

pytestmark = pytest.mark.gpu

SIZES = [{"batch_size": 64}, {"batch_size": 2048}]
Files = Mapping[str, bytes]


def judged(judge: Judge, tree: Files, name: str) -> Verdict:
    problem = with_workloads(trees.problem("rmsnorm"), SIZES)
    verdict = judge.judge(trees.job(problem, tree, name=name, compile_timeout_s=BUILD_S))
    assert isinstance(verdict, Verdict)
    assert verdict.status is Status.PASSED, f"{verdict.reason}\n{verdict.log}"
    return verdict


def native(call: str, head: str = "") -> Files:
    """Return the native solution with another body of `run`; `launch(rows, count, stream)` is its kernel."""
    files = dict(trees.solution("rmsnorm/cuda_cpp"))
    source = files["kernel.cu"].decode()
    kernel, _, _ = source.partition('extern "C" void run')
    files["kernel.cu"] = f"""{kernel}
#include <cuda_runtime.h>
{head}
extern "C" void run(const __nv_bfloat16 *hidden_states, const __nv_bfloat16 *weight, __nv_bfloat16 *output,
                    int64_t batch_size, cudaStream_t stream) {{
  auto launch = [&](int64_t row, int64_t count, cudaStream_t on) {{
    if (count > 0) rmsnorm<<<count, THREADS, 0, on>>>((const uint4 *)hidden_states + row * THREADS,
        (const uint4 *)weight, (uint4 *)output + row * THREADS);
  }};
  {call}
}}
""".encode()
    return files


@pytest.mark.timeout(BUILD_S)
@pytest.mark.parametrize("language", ["triton", "cuda_cpp", "cute_dsl", "cuda_torch"])
def test_a_tree_that_only_launches_is_replayed(language: str, judge: Judge) -> None:
    needs(f"rmsnorm/{language}")
    verdict = judged(judge, trees.solution(f"rmsnorm/{language}"), f"replayed-{language}")
    assert verdict.environment.trust_reason == ""
    assert verdict.environment.trust is Trust.REPLAYED


@pytest.mark.parametrize("language", ["triton", "cuda_cpp"])
def test_a_replay_takes_as_long_as_what_it_replays(
    language: str, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(f"rmsnorm/{language}")
    tree = trees.solution(f"rmsnorm/{language}")
    replayed = judged(judge, tree, f"same-{language}")
    monkeypatch.setattr(CudaTable, "replay", lambda *given: "not now")
    claimed = judged(judge, tree, f"same-{language}")
    assert claimed.environment.trust_reason == "not now"
    for ours, theirs in zip(
        sorted(replayed.workloads, key=lambda w: w.uuid),
        sorted(claimed.workloads, key=lambda w: w.uuid),
        strict=True,
    ):
        assert ours.time_us is not None
        assert theirs.time_us is not None
        print(language, ours.uuid, ours.time_us, theirs.time_us)
        assert abs(ours.time_us - theirs.time_us) < max(1.0, 0.05 * theirs.time_us)


@pytest.mark.parametrize(
    ("call", "head", "reason"),
    [
        (
            """static cudaStream_t other = [] { cudaStream_t made; cudaStreamCreate(&made); return made; }();
            launch(0, batch_size / 2, stream);
            launch(batch_size / 2, batch_size - batch_size / 2, other);""",
            "",
            "works on 2 streams",
        ),
        (
            """static float *zeros = [] { float *made; cudaMalloc(&made, 4096); return made; }();
            static const float some[4] = {};
            cudaMemcpyAsync(zeros, some, 16, cudaMemcpyHostToDevice, stream);
            launch(0, batch_size, stream);""",
            "",
            "copy between the GPU and the host|cuMemcpyHtoD",
        ),
        ("static int calls = 0; counted<<<1, 1, 0, stream>>>(++calls); launch(0, batch_size, stream);",
         "__global__ void counted(int call) {}", "parameter 0 of .*counted.* changes"),
    ],
    ids=["streams", "upload", "counter"],
)  # fmt: skip
def test_an_honest_tree_that_cannot_be_replayed_passes_and_says_why(
    judge: Judge, call: str, head: str, reason: str
) -> None:
    environment = judged(judge, native(call, head), "not-replayed").environment
    assert environment.trust is Trust.HOST
    assert re.search(reason, environment.trust_reason), environment.trust_reason


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("launch(0, batch_size, stream);", id="once"),
        pytest.param(
            "launch(0, batch_size / 2, stream); launch(batch_size / 2, batch_size - batch_size / 2, stream);",
            id="twice",
        ),
        pytest.param(
            """cudaMemsetAsync(output, 0, 2 * batch_size * hidden_size, stream);
            launch(0, batch_size, stream);""",
            id="filled",
        ),
        pytest.param(
            """void *copy; const size_t bytes = 2 * batch_size * hidden_size;
            cudaMallocAsync(&copy, bytes, stream);
            cudaMemcpyAsync(copy, hidden_states, bytes, cudaMemcpyDeviceToDevice, stream);
            rmsnorm<<<batch_size, THREADS, 0, stream>>>((const uint4 *)copy, (const uint4 *)weight,
                                                        (uint4 *)output);
            cudaFreeAsync(copy, stream);""",
            id="scratch",
        ),
    ],
)
def test_launches_fills_copies_and_memory_of_its_own_are_replayed(judge: Judge, call: str) -> None:
    environment = judged(judge, native(call), "replayed").environment
    assert environment.trust_reason == ""
    assert environment.trust is Trust.REPLAYED


def test_what_an_earlier_call_left_behind_is_not_replayed(judge: Judge) -> None:
    """The weights are copied once; the sum of the copy and the rest would be right in the tree alone."""
    call = """static float *ones = [] {
      float *made, host[32]; for (float &one : host) one = 1;
      cudaMalloc(&made, sizeof host);
      return cudaMemcpy(made, host, sizeof host, cudaMemcpyHostToDevice), made;
    }();
    if (batch_size) scaled_by<<<batch_size, THREADS, 0, stream>>>((const uint4 *)hidden_states,
        (const uint4 *)weight, (uint4 *)output, ones);"""
    source = trees.solution("rmsnorm/cuda_cpp")["kernel.cu"].decode()
    kernel = source[source.index("__global__ void __launch_bounds__") : source.index('extern "C" void run')]
    head = kernel.replace("rmsnorm(", "scaled_by(").replace("uint4 *y)", "uint4 *y, const float *by)")
    head = head.replace("const float scale = ", "const float scale = by[threadIdx.x % 32] * ")
    environment = judged(judge, native(call, head), "left-behind").environment
    assert environment.trust is Trust.HOST
    assert environment.trust_reason.startswith("its replay failed: INCORRECT_NUMERICAL")


def test_trees_are_compared_by_their_replays_on_a_gpu(judge: Judge) -> None:
    problem = with_workloads(trees.problem("rmsnorm"), SIZES)
    tree = trees.solution("rmsnorm/cuda_cpp")
    comparison = judge.judge(trees.job(problem, tree, trees.solution("rmsnorm/triton"), name="both"))
    assert isinstance(comparison, Comparison)
    assert comparison.environment.trust_reason == ""
    assert comparison.environment.trust is Trust.REPLAYED
    same = judge.judge(trees.job(problem, tree, tree, name="same"))
    assert isinstance(same, Comparison)
    assert same.outcome in (Outcome.SAME, Outcome.UNDECIDED), same.reason
