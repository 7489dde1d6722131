from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from swarm.definition import DType
from swarm.device import Device
from swarm.errors import BadInput
from swarm.layout import find_root
from swarm.problem import Limits, load_problem, problem_from_files
from swarm.protocol import load_protocol
from swarm.settings import Distribution, DistributionKind, is_marked_weak, marked
from tests.problem_files import encoded, problem_files, workload

CPU = Device("cpu", "some-cpu-1-core", "cpu-x-1", (1,))
GPU = Device("cuda", "some-gpu", "GPU-1", ())
ROOT = find_root(Path(__file__).parent)


def test_each_device_has_its_workloads() -> None:
    problem = problem_from_files(problem_files(), "scale_rows")
    assert [w.axes["rows"] for w in problem.workloads_on(CPU)] == [4, 0]
    assert [w.axes["rows"] for w in problem.workloads_on(GPU)] == [4096]


def test_a_problem_without_workloads_for_a_device_says_which_file_it_needs() -> None:
    files = problem_files()
    del files["workload.cpu.jsonl"]
    with pytest.raises(
        BadInput, match=r"^p/workload.cpu.jsonl: problem 'p' has no workloads for a cpu; add the file$"
    ):
        problem_from_files(files, "p").workloads_on(CPU)


def test_a_branch_and_a_folder_hold_the_same_problem(tmp_path: Path) -> None:
    files = problem_files()
    seeds = {"seed/cpp/solution.toml": b"a", "seed/cpp/deep/kernel.cpp": b"b"}
    for name, data in {**files, **seeds}.items():
        path = tmp_path / "scale_rows" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    folder = load_problem(tmp_path / "scale_rows")
    assert folder.seeds == {"cpp": {"solution.toml": b"a", "deep/kernel.cpp": b"b"}}
    branch = problem_from_files(
        {**files, "COORDINATION.md": b"", "NOTES.md": b"", "solution/kernel.cpp": b""}, "scale_rows"
    )
    assert folder.files == branch.files == files
    assert folder.definition == branch.definition


@pytest.mark.parametrize(
    "text",
    [
        "",
        'family = "softmax"\n\n[tolerance]\nmax_atol = 1e-3\n',
        '# a remark\n[inputs]\nx = "normal"\n',
        "[tolerance]\nmax_rtol = 0.5",
        'family = "softmax"',
    ],
)
def test_a_mark_comes_and_goes_and_leaves_the_rest_as_it_was(text: str) -> None:
    with_mark = marked(text, is_weak=True)
    assert is_marked_weak(with_mark.encode(), "p") and not is_marked_weak(text.encode(), "p")
    assert marked(with_mark, is_weak=True) == with_mark
    assert marked(with_mark, is_weak=False) == text
    assert problem_from_files(problem_files(problem_toml=with_mark), "scale_rows").settings.weak


def test_settings_are_optional() -> None:
    files = problem_files()
    del files["problem.toml"]
    problem = problem_from_files(files, "p")
    assert problem.settings.family == "other" and problem.distribution("x", problem.workloads[0]) is None


def test_a_tolerance_comes_from_the_workload_then_the_problem_then_the_protocol() -> None:
    tests = load_protocol(ROOT.coordination.read_text()).tests
    own = encoded(workload(tolerance={"max_rtol": 0.0, "max_error_cap": 2.0}))
    files = problem_files(
        workload_jsonl=own,
        problem_toml="[tolerance]\nmax_rtol = 0.5\nmax_atol = 0.25\nallow_negative_inf = true\n",
    )
    problem = problem_from_files(files, "p")
    assert problem.limits(problem.workloads[0], tests) == Limits(
        atol=0.25,
        rtol=0.0,
        required_matched_ratio=tests.required_matched_ratio,
        max_error_cap=2.0,
        allow_negative_inf=True,
    )
    assert problem.limits(problem.cpu_workloads[0], tests).rtol == 0.5


def test_bytes_are_each_input_and_output_once_unless_given() -> None:
    problem = problem_from_files(problem_files(), "p")
    first = problem.cpu_workloads[0]
    assert problem.sol_bytes(first) == 2 * (4 * 64) * 2 + 64 * 2
    assert problem.sol_flops(first) is None
    given = problem_from_files(
        problem_files(problem_toml='[sol]\nflops = "2 * rows * width"\nbytes = "max(rows, 1) * scale"\n'), "p"
    )
    assert given.sol_flops(first) == 2 * 4 * 64
    assert given.sol_bytes(first) == 2.0


@pytest.mark.parametrize(
    ("text", "distribution"),
    [
        ("normal", Distribution(DistributionKind.NORMAL)),
        ("normal(0, 1 / width)", Distribution(DistributionKind.NORMAL, (0.0, 1 / 64))),
        ("uniform(-1, max(1, rows))", Distribution(DistributionKind.UNIFORM, (-1.0, 4.0))),
        ("int(0, rows)", Distribution(DistributionKind.INT, (0.0, 4.0))),
        ("bernoulli(0.9)", Distribution(DistributionKind.BERNOULLI, (0.9,))),
        ("ones", Distribution(DistributionKind.ONES)),
        ("zeros()", Distribution(DistributionKind.ZEROS)),
    ],
)
def test_inputs_are_drawn_as_the_settings_say(text: str, distribution: Distribution) -> None:
    problem = problem_from_files(
        problem_files(
            problem_toml=f'[inputs]\nx = "{text}"\n',
            workload_jsonl=encoded(workload()),
            workload_cpu_jsonl=encoded(workload()),
        ),
        "p",
    )
    assert problem.distribution("x", problem.workloads[0]) == distribution
    assert problem.distribution("weight", problem.workloads[0]) is None


BROKEN_SETTINGS = {
    "syntax": ("family = \n", "p/problem.toml:1: not TOML: Invalid value; correct the syntax there"),
    "misspelt key": (
        '\nfamliy = "x"\n',
        "p/problem.toml:2: famliy: unknown field; did you mean 'family'?",
    ),
    "misspelt key in a table": (
        "[tolerance]\n# closer\natol = 1\n",
        "p/problem.toml:3: tolerance.atol: unknown field; did you mean 'max_atol'?",
    ),
    "negative tolerance": (
        "[tolerance]\nmax_rtol = -1\n",
        "p/problem.toml:2: tolerance.max_rtol: -1 is not allowed; it must be greater than or equal to 0",
    ),
    "unknown input": (
        '[inputs]\nwieght = "ones"\n',
        "p/problem.toml:2: inputs.wieght: 'wieght' is not an input; did you mean 'weight'?",
    ),
    "scalar input": (
        '[inputs]\nscale = "ones"\n',
        "p/problem.toml:2: inputs.scale: 'scale' is a scalar; give its value in the workloads",
    ),
    "unknown distribution": (
        '[inputs]\nx = "gauss"\n',
        "p/problem.toml:2: inputs.x: 'gauss' is not a distribution; write normal(mean, deviation), "
        "uniform(low, high), int(low, high), bernoulli(probability), ones, zeros",
    ),
    "too few arguments": (
        '[inputs]\nx = "uniform(1)"\n',
        "p/problem.toml:2: inputs.x: 'uniform(1)' has 1 arguments, not 2; write normal(mean, deviation), "
        "uniform(low, high), int(low, high), bernoulli(probability), ones, zeros",
    ),
    "argument needs an unknown name": (
        '[inputs]\nx = "int(0, vocab)"\n',
        "p/problem.toml: inputs.x: expression 'vocab' needs 'vocab', which has no value; "
        "the names are cells, half, rows, scale, width",
    ),
    "sol needs an unknown name": (
        '[sol]\nflops = "2 * M"\n',
        "p/problem.toml: sol.flops: expression '2 * M' needs 'M', which has no value; "
        "the names are cells, half, rows, scale, width",
    ),
    "negative work": (
        '[sol]\nbytes = "0 - width"\n',
        "p/problem.toml: sol.bytes: expression '0 - width' is -64.0; it must not be negative",
    ),
    "unknown class": (
        'op_class = "matmull"\n',
        "p/problem.toml:1: op_class: 'matmull' is not allowed; it must be 'matmul', 'convolution', "
        "'attention', 'normalisation', 'elementwise', 'reduction' or 'gather'",
    ),
}


@pytest.mark.parametrize("case", BROKEN_SETTINGS)
def test_broken_settings_are_one_line_with_file_line_and_remedy(case: str) -> None:
    text, message = BROKEN_SETTINGS[case]
    with pytest.raises(BadInput) as caught:
        problem_from_files(problem_files(problem_toml=text), "p")
    assert str(caught.value) == message


def _without(name: str) -> dict[str, bytes]:
    return {path: data for path, data in problem_files().items() if path != name}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (_without("definition.json"), "p/: no definition.json; add it"),
        (_without("workload.jsonl"), "p/: no workload.jsonl; add it"),
        (
            {**problem_files(), "workloads.jsonl": b""},
            "p/workloads.jsonl: unknown file; did you mean 'workload.jsonl'?",
        ),
        (
            {**problem_files(), "seed/kernel.cpp": b""},
            "p/seed/kernel.cpp: a seed is a folder; move it to seed/<language>/",
        ),
        (
            {**problem_files(), "fast_reference.py": b"import torch\ndef run(x, w, scale): ...\n"},
            "p/fast_reference.py: line 2: run takes (x, w, scale); "
            "it must take the inputs in order: (x, weight, scale)",
        ),
        (
            {**problem_files(), "baseline.py": b"\xff"},
            "p/baseline.py:1: byte 0xff is not UTF-8; save the file as UTF-8",
        ),
        (
            {**problem_files(), "reference.py": b"# caf\xe9\n"},
            "p/reference.py:1: byte 0xe9 is not UTF-8; save the file as UTF-8",
        ),
        (
            problem_files(workload_cpu_jsonl=b"\n{}"),
            "p/workload.cpu.jsonl:2: uuid: required field is missing; add it",
        ),
    ],
)
def test_broken_files_are_one_line(files: dict[str, bytes], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        problem_from_files(files, "p")
    assert str(caught.value) == message


def test_an_unknown_file_of_others_is_noted() -> None:
    warnings: list[str] = []
    problem_from_files({**problem_files(), "solutions.jsonl": b""}, "p", warnings=warnings)
    assert len(warnings) == 1 and "solutions.jsonl" in warnings[0]


def test_a_name_that_cannot_be_a_branch_is_refused() -> None:
    with pytest.raises(BadInput, match="problem name 'Scale Rows' is not allowed"):
        problem_from_files(problem_files(), "Scale Rows")


def test_a_missing_problem_names_the_near_miss(tmp_path: Path) -> None:
    (tmp_path / "rmsnorm").mkdir()
    with pytest.raises(BadInput, match=r"no problem 'rmsnrom'; did you mean 'rmsnorm'\?"):
        load_problem(tmp_path / "rmsnrom")
    with pytest.raises(BadInput, match="no problem 'attention'; `swarm problems list` shows which there are"):
        load_problem(tmp_path / "attention")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("normal(0, -1)", "its deviation is negative"),
        ("uniform(1, 0)", "its low end is above its high end"),
        ("int(5, 5)", "it is empty"),
        ("int(0, 2.5)", "its ends are not integers"),
        ("bernoulli(2)", "its probability is not between 0 and 1"),
    ],
)
def test_a_distribution_that_nothing_can_be_drawn_from_is_named(text: str, what: str) -> None:
    files = problem_files(problem_toml=f'[inputs]\nx = "{text}"\n')
    with pytest.raises(BadInput, match=rf"^p/problem.toml: inputs.x: .*{what}.*; correct its arguments"):
        problem_from_files(files, "p")


def test_integers_that_their_type_cannot_hold_are_not_drawn() -> None:
    assert Distribution(DistributionKind.INT, (0.0, 128.0)).fault(DType.INT8) == ""
    assert "-128 to 127 only" in Distribution(DistributionKind.INT, (0.0, 129.0)).fault(DType.INT8)
    assert Distribution(DistributionKind.INT, (0.0, 129.0)).fault(DType.FLOAT32) == ""


def tensor_file(**entry: object) -> bytes:
    described = {"dtype": "BF16", "shape": [4, 64], "data_offsets": [0, 512], **entry}
    header = json.dumps({"t": described}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(512)


def with_tensor(path: str = "x.safetensors", key: str = "t") -> dict[str, bytes]:
    given = {"type": "safetensors", "path": path, "tensor_key": key}
    inputs = {**workload()["inputs"], "x": given}
    return problem_files(
        workload_jsonl=encoded(workload(inputs=inputs)), workload_cpu_jsonl=encoded(workload(inputs=inputs))
    )


def test_a_tensor_file_is_found_without_its_leading_folders() -> None:
    files = {**with_tensor("blob/x.safetensors"), "x.safetensors": tensor_file()}
    assert problem_from_files(files, "p").name == "p"


@pytest.mark.parametrize(
    ("data", "key", "what"),
    [
        (None, "t", "no file 'x.safetensors' in the problem's folder; put it there"),
        (b"\xff" * 100, "t", "x.safetensors: not a safetensors file"),
        (tensor_file(), "u", "x.safetensors: no tensor 'u'; .*known are t"),
        (tensor_file(shape=[5, 64]), "t", r"of shape \[5, 64\], not \[4, 64\]"),
        (tensor_file(dtype="F32"), "t", "of type F32, not bfloat16"),
        (tensor_file(data_offsets=[0, 100]), "t", "has 100 bytes, not 512"),
        (tensor_file(data_offsets="x"), "t", "is not described"),
    ],
)
def test_a_tensor_that_is_not_there_is_named_before_anything_is_measured(
    data: bytes | None, key: str, what: str
) -> None:
    files = with_tensor(key=key) | ({} if data is None else {"x.safetensors": data})
    with pytest.raises(BadInput, match=rf"^p: workload w1: inputs.x: .*({what})"):
        problem_from_files(files, "p")
