"""`swarm problems extract`, on small models of three kinds: what it finds is sound, and can be worked on."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from swarm.cli import main as cli
from swarm.device import cpu_device
from swarm.errors import BadInput, Refused
from swarm.extract import folder
from swarm.extract.found import parse_findings
from swarm.extract.process import Wanted
from swarm.judge import peaks as calibration
from swarm.judge.build import Frozen, build
from swarm.judge.lint import lint
from swarm.judge.reference import References, input_specs
from swarm.languages.protocol import Failure
from swarm.layout import RunRoot
from swarm.problem import Problem, load_problem
from swarm.protocol import read_protocol
from swarm.sol import Peaks

ZOO = Path(__file__).with_name("zoo.py")
DEVICE = cpu_device()
PEAKS = Peaks(DEVICE.model, 10.0, {"float32": 100.0, "bfloat16": 100.0}, "made up")
GB_US, GFLOP_US = 1e4, 1e5
"""Bytes and FLOPs in a microsecond at these peaks."""
TOP = 40

pytestmark = pytest.mark.timeout(1200)


def extract(root: RunRoot, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "swarm.cli.main", "--root", str(root.path), "problems", "extract"]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, cwd=ZOO.parents[2]
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> RunRoot:
    folder = tmp_path_factory.mktemp("extract") / "root"
    assert cli.main(["init", str(folder)]) == 0
    made = RunRoot(folder)
    path = made.peaks(DEVICE.model)
    path.parent.mkdir(parents=True)
    path.write_bytes(calibration.to_json(PEAKS))
    return made


@pytest.fixture(scope="module")
def said(root: RunRoot) -> dict[str, Any]:
    done = extract(
        root, f"{ZOO}:build", "--inputs", f"{ZOO}:example",
        "--device", "cpu", "--backward", "--top", str(TOP), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def problems(root: RunRoot, said: dict[str, Any]) -> dict[str, Problem]:
    return {row["name"]: load_problem(root.problem(row["name"])) for row in said["problems"]}


@pytest.fixture(scope="module")
def rows(said: dict[str, Any]) -> dict[str, Any]:
    return {row["name"]: row for row in said["problems"]}


@pytest.fixture(scope="module")
def references() -> Iterator[References]:
    with References(DEVICE) as opened:
        yield opened


def test_each_kind_of_layer_becomes_a_problem_forward_and_backward(rows: dict[str, Any]) -> None:
    expected = {
        "zoo_rmsnorm": "llama.layers.0.input_layernorm",
        "zoo_linear_rope": "llama.layers.0.self_attn.q_proj",
        "zoo_attention": "llama.layers.0.self_attn",
        "zoo_conv2d_batchnorm_relu": "resnet.conv1",
        "zoo_conv2d_batchnorm_relu_add": "resnet.conv2",
        "zoo_linear_softmax_topk": "moe.router",
    }
    for name, place in expected.items():
        assert place in rows[name]["places"], name
        found = {row["direction"] for row in rows.values() if place in row["places"]}
        assert found == {"forward", "backward"}, name


def test_layers_that_repeat_are_one_problem_with_a_workload_for_each_size(
    rows: dict[str, Any], problems: dict[str, Problem]
) -> None:
    assert rows["zoo_rmsnorm"]["count"] == 4
    assert len(problems["zoo_rmsnorm"].workloads) == 1
    rope = problems["zoo_linear_rope"]  # four query heads, two key heads, in two layers
    assert rows["zoo_linear_rope"]["count"] == 4
    assert sorted(tuple(w.axes.values()) for w in rope.workloads) == [(32, 2), (64, 4)]
    assert rope.cpu_workloads == rope.workloads


def test_a_reference_reads_as_a_person_would_have_written_it(problems: dict[str, Problem]) -> None:
    assert problems["zoo_rmsnorm"].reference == (
        "import torch\n\n\ndef run(x, weight):\n"
        "    return weight * (x * ((x ** 2).mean(dim=[-1], keepdim=True) + 1e-06).rsqrt())\n"
    )
    attention = problems["zoo_attention"]
    assert list(attention.definition.inputs) == ["query", "key", "value"]
    assert "is_causal=True, enable_gqa=True)" in attention.reference
    assert "F.batch_norm(conv2d, running_mean, running_var" in problems["zoo_conv2d_batchnorm_relu"].reference


def test_every_problem_is_sound(problems: dict[str, Problem], root: RunRoot, references: References) -> None:
    tests = read_protocol(root.coordination.read_bytes(), "COORDINATION.md").tests
    findings = [str(f) for p in problems.values() for f in lint(p, tests, references).findings]
    assert findings == []
    assert len(problems) > 20


def test_every_seed_builds_and_computes_what_the_reference_does(
    problems: dict[str, Problem], root: RunRoot
) -> None:
    protocol = read_protocol(root.coordination.read_bytes(), "COORDINATION.md")
    for problem in problems.values():
        seed = problem.seeds["pytorch"]
        built = build(seed, Frozen(problem, protocol), DEVICE, root.build_cache)
        assert not isinstance(built, Failure), built
        workload = problem.workloads[0]
        axes = problem.definition.resolve(workload)
        inputs = [drawn(problem, name, axes) for name in problem.definition.inputs]
        right = run(problem.reference)(*inputs)
        right = right if isinstance(right, tuple) else (right,)
        outputs = [torch.full_like(x, math.nan) for x in right]
        run(seed["kernel.py"].decode())(*inputs, *outputs)
        for got, wanted, name in zip(outputs, right, problem.definition.outputs, strict=True):
            assert tuple(wanted.shape) == problem.definition.shape(name, axes), problem.name
            assert torch.equal(got, wanted), problem.name


def drawn(problem: Problem, name: str, axes: dict[str, int]) -> torch.Tensor:
    distribution = problem.distribution(name, problem.workloads[0])
    assert distribution is not None
    shape, (a, b) = problem.definition.shape(name, axes), distribution.arguments
    assert shape is not None
    made = torch.rand(shape) * (b - a) + a if distribution.kind == "uniform" else torch.randn(shape) * b + a
    return made.to(getattr(torch, problem.definition.inputs[name].dtype))


def run(source: str) -> Any:
    space: dict[str, Any] = {}
    exec(source, space)
    return space["run"]


def test_the_table_adds_up(said: dict[str, Any]) -> None:
    shares = [row["share"] for row in said["problems"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)  # 40 are all there are
    assert said["model_us"] > 0
    for row in said["problems"]:
        assert row["share"] == pytest.approx(row["total_us"] / said["regions_us"])
        assert row["headroom"] == pytest.approx(row["total_us"] / row["t_sol_us"])


def test_t_sol_is_that_of_a_hand_count(rows: dict[str, Any]) -> None:
    tokens, hidden, pairs = 2 * 32, 64, 2 * 4 * (32 * 33 // 2)
    norm = 2 * tokens * hidden + hidden
    assert rows["zoo_rmsnorm"]["t_sol_us"] == pytest.approx(4 * norm * 4 / GB_US)
    linear = 2 * tokens * hidden * 160
    assert rows["zoo_linear_silu_backward"]["t_sol_us"] == pytest.approx(2 * 2 * linear / GFLOP_US)
    attention_bytes = (2 * tokens * 64 + 2 * tokens * 32) * 4
    attention = max(2 * 2 * pairs * 16 / GFLOP_US, attention_bytes / GB_US)
    assert rows["zoo_attention"]["t_sol_us"] == pytest.approx(2 * attention)


def test_flops_that_are_not_stated_are_what_the_judge_counts(
    problems: dict[str, Problem], references: References
) -> None:
    problem = problems["zoo_conv2d_batchnorm_relu_add"]
    assert problem.settings.sol.flops is None
    reference = references.get(problem.name, problem.name, problem.definition, is_wider=False)
    counted = reference.flops(input_specs(problem.definition, problem.workloads[0]))
    assert counted == {"aten.convolution": 2 * 2 * 12 * 12 * 16 * 16 * 9}


def test_what_cannot_be_exported_is_named_and_its_parts_are_not_lost(
    said: dict[str, Any], rows: dict[str, Any]
) -> None:
    left = {row["where"]: row["what"] for row in said["left_out"]}
    assert left["sparse"].startswith("Sparse cannot be exported (GuardOnDataDependentSymNode")
    assert any(row["places"] == ["sparse.inner"] for row in rows.values())


def test_a_problem_that_is_there_stays(root: RunRoot, problems: dict[str, Problem], tmp_path: Path) -> None:
    problem = problems["zoo_attention"]
    assert not folder.write(root.problem(problem.name), problem)
    assert folder.write(tmp_path / "other", problem)
    assert load_problem(tmp_path / "other").files == problem.files
    changed = replace(problem, files=problem.files | {"problem.toml": b"weak = true\n"})
    with pytest.raises(Refused, match="another problem of this name is there; give another --name"):
        folder.write(tmp_path / "other", changed)


def test_what_the_models_process_claims_must_hold_together() -> None:
    tensor = {"name": "x", "dtype": "float32", "drawn": "normal(0, 1)"}
    case = {"count": 1, "time_us": 1.0, "places": [], "atol": 0.1, "rtol": 0.1, "flops": 0}
    found = {
        "direction": "forward", "label": "add", "op_class": "elementwise", "module": "", "path": "",
        "inputs": [tensor], "outputs": [tensor | {"name": "y"}], "reference": "", "is_wider": True,
        "is_irregular": False, "ratio": 1.0, "is_counted": True, "bytes": None,
    }  # fmt: skip
    whole = {"regions_us": 1.0, "model_us": 1.0, "left": []}
    for shapes, message in (
        ([[[1]]], "there is not one shape for each input and output"),
        ([[[1], [1]], [[1], [1, 1]]], "their shapes differ in rank"),
    ):
        cases = [case | {"shapes": shape} for shape in shapes]
        data = json.dumps(whole | {"found": [found | {"cases": cases}]}).encode()
        with pytest.raises(BadInput, match=message):
            parse_findings(data)


@pytest.mark.parametrize(
    ("build", "inputs", "message"),
    [
        ("zoo", f"{ZOO}:example", "MODEL: 'zoo' names no function; write file.py:function"),
        (f"{ZOO}:build", f"{ZOO}:two words", "--inputs: .* names no function"),
        ("missing.py:build", f"{ZOO}:example", "MODEL: no file 'missing.py'"),
    ],
)
def test_what_names_no_function_is_refused(build: str, inputs: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Wanted(build, inputs, 1)


def test_a_models_code_runs_in_a_box_and_its_error_is_one_line(root: RunRoot) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o777)  # what keeps the box from writing there is the box
        file = folder / "greedy.py"
        file.write_text(
            "from pathlib import Path\n\ndef build():\n    Path(__file__).with_name('out').write_text('x')\n"
            "\ndef example():\n    return ()\n"
        )
        done = extract(root, f"{file}:build", "--inputs", f"{file}:example", "--device", "cpu")
        assert done.returncode == 1
        assert done.stderr.strip().splitlines()[-1].startswith(f"swarm: {file}:build: it raised ")
        assert not (folder / "out").exists()


@pytest.mark.gpu
def test_on_a_gpu_problems_are_for_gpus(root: RunRoot) -> None:
    done = extract(
        root, f"{ZOO}:build", "--inputs", f"{ZOO}:example",
        "--name", "on_gpu", "--device", "cuda", "--backward", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["device"].startswith("nvidia")
    for row in found["problems"]:
        problem = load_problem(root.problem(row["name"]))
        assert problem.workloads and not problem.cpu_workloads
        assert row["total_us"] > 0
