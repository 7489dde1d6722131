"""What is exported and imported again, as a torch extension with generated host code, passes on a GPU."""

from __future__ import annotations

import pytest

from swarm.device import Device
from swarm.judge.judge import Judge
from swarm.languages.exchange import import_submission
from swarm.languages.export import export_solution
from swarm.protocol import load_protocol
from swarm.submission import Exchange, parse_submission, submission_json
from swarm.verdict import Status, Verdict
from tests.gpu import trees

pytestmark = pytest.mark.gpu

BUILD_S = 300
DEFAULTS = Exchange(name="n", definition="d", author="a", target_hardware=("LOCAL",))


@pytest.mark.timeout(BUILD_S)
@pytest.mark.parametrize(
    "name",
    [
        "gemm/cuda",
        "softmax/cuda",
        "smooth/cuda_repeat",
        "centre/cuda_cooperative",
        "row_sum/cuda_cluster",
        "pad_groups/cuda_map_array",
        "affine/cuda_scalars",
        "rmsnorm/cuda_cpp",
        "rmsnorm/triton",
        "rmsnorm/triton_returns",
    ],
)
def test_what_left_and_came_back_passes(name: str, judge: Judge, device: Device) -> None:
    problem = trees.problem(name.partition("/")[0])
    files = trees.solution(name)
    arch = None if "/triton" in name else device.arch
    submission, _ = export_solution(files, problem, Exchange(), DEFAULTS, arch, f"{name}/")
    again = parse_submission(submission_json(submission), name)
    options = load_protocol(trees.coordination()).rules.compile_options["cuda_cpp"]
    made = import_submission(again, options, name)
    work = trees.job(problem, made.files, name=f"exported {name}", compile_timeout_s=BUILD_S)
    verdict = judge.judge(work)
    assert isinstance(verdict, Verdict)
    print(name, f"built and measured in {verdict.total_s:.1f} s")
    assert verdict.status is Status.PASSED, f"{verdict.reason}\n{verdict.log}"
