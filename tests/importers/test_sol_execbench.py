"""SOL-ExecBench's folders become problems, whole ones, and say what was not taken over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import importing
from swarm.cli.main import main
from swarm.definition import parse_definition
from swarm.importers.remarks import AS_OFFICIAL
from swarm.importers.tensors import MADE
from swarm.problem import load_problem
from swarm.protocol import read_protocol
from swarm.verdict import Status
from swarm.workload import parse_workloads
from tests.importers.conftest import Bench, Importer, write_problem
from tests.support import REPOSITORY

EXAMPLES = REPOSITORY.parent / "shared" / "sol_examples"
"""Twelve of the example problems in SOL-ExecBench's repository, which are no part of this one."""
with_examples = pytest.mark.skipif(not EXAMPLES.is_dir(), reason=f"there are no examples in {EXAMPLES}")
NAMES = {
    "custom_inputs_matmul": "custom_matmul",
    "flux_rope": "black_forest_labs_flux_1_schnell_flux_rope_apply_rotation",
    "gemm": "gemm_n4096_k4096",
    "gemma3_swiglu": "google_gemma_3_12b_it_gemma3_fused_gate_up_projection_with_swiglu",
    "gqa_paged_decode": "gqa_paged_decode_h32_kv8_d128_ps1",
    "jamba_attn_proj": "ai21labs_ai21_jamba_reasoning_3b_attention_output_projection_with_residual",
    "linear_backward": "linear_backward",
    "nemotron_rms_norm": "nvidia_llama_3_3_nemotron_70b_select_rms_norm",
    "olmo3_post_norm": "allenai_olmo_3_1025_7b_post_norm_residual",
    "rmsnorm": "rmsnorm_h4096",
    "softmax": "softmax_h4096",
    "triton_ref_vecadd": "triton_ref_vecadd",
}
FOR_A_GPU = ("gemm", "gemma3_swiglu", "jamba_attn_proj", "triton_ref_vecadd")
"""Those whose workloads are too large for a CPU, or whose reference needs a GPU."""
PROTOCOL = read_protocol((REPOSITORY / "COORDINATION.md").read_bytes(), "COORDINATION.md")
DEFINITION = {
    "name": "double",
    "axes": {"n": {"type": "var"}},
    "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
    "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
    "reference": "def run(x):\n    return x + x\n",
}
WORKLOAD = {"uuid": "w", "axes": {"n": 1024}, "inputs": {"x": {"type": "random"}}}


@with_examples
def test_all_examples_come_in_with_their_source_and_a_seed(into: Importer) -> None:
    said = into(EXAMPLES, "--licence", "Apache-2.0")
    assert said.code == 0, said.error
    assert said.outcomes == dict.fromkeys(NAMES.values(), "new")
    for folder, name in NAMES.items():
        problem = into.problem(name)
        assert problem.settings.source == f"SOL-ExecBench {folder}"
        assert problem.settings.licence == "Apache-2.0"
        assert list(problem.seeds) == ["triton" if folder == "triton_ref_vecadd" else "pytorch"]


@with_examples
def test_what_an_example_says_is_kept(into: Importer) -> None:
    into(EXAMPLES)
    for folder, name in NAMES.items():
        notes: list[str] = []
        text = (EXAMPLES / folder / "definition.json").read_bytes()
        definition = parse_definition(text, folder, warnings=notes)
        lines = (EXAMPLES / folder / "workload.jsonl").read_bytes()
        workloads = parse_workloads(lines, folder, definition, warnings=notes)
        problem = into.problem(name)
        end = {"reference": problem.definition.reference}
        assert problem.definition == definition.model_copy(update=end)
        assert problem.definition.reference.rstrip() == definition.reference.rstrip()
        assert problem.workloads == workloads
        assert bool(notes) == (folder == "gqa_paged_decode"), (
            "only that one has a field that means nothing here"
        )


@with_examples
@pytest.mark.parametrize("folder", [name for name in NAMES if name not in FOR_A_GPU])
def test_an_example_with_workloads_for_a_cpu_is_measured_on_one(
    folder: str, into: Importer, bench: Bench
) -> None:
    into(EXAMPLES / folder)
    verdict = bench(into.problem(NAMES[folder]))
    assert verdict.status is Status.PASSED, verdict.reason
    assert all(one.time_us for one in verdict.workloads)


@with_examples
@pytest.mark.parametrize("folder", FOR_A_GPU)
def test_the_others_have_no_workloads_for_a_cpu(folder: str, into: Importer) -> None:
    into(EXAMPLES / folder)
    problem = into.problem(NAMES[folder])
    assert problem.workloads
    assert not problem.cpu_workloads


@with_examples
@pytest.mark.gpu
@pytest.mark.parametrize("folder", NAMES)
def test_every_example_is_measured_on_a_gpu(folder: str, into: Importer) -> None:
    into(EXAMPLES / folder)
    assert main(["--root", str(into.root.path), "bench", NAMES[folder], "--device", "cuda"]) == 0


@with_examples
def test_importing_twice_changes_nothing(into: Importer) -> None:
    into(EXAMPLES)
    before = into.content()
    times = {path: path.stat().st_mtime_ns for path in into.root.problems.rglob("*")}
    again = into(EXAMPLES)
    assert again.outcomes == dict.fromkeys(NAMES.values(), "unchanged")
    assert into.content() == before
    assert {path: path.stat().st_mtime_ns for path in into.root.problems.rglob("*")} == times


def test_one_folder_alone_makes_the_same_problem_as_the_tree_that_it_is_in(
    into: Importer, tmp_path: Path
) -> None:
    folder = tmp_path / "data/L1/007_double"
    write_problem(folder, DEFINITION, [WORKLOAD])
    assert into(tmp_path / "data").outcomes == {"double": "new"}
    assert into(folder).outcomes == {"double": "unchanged"}
    assert into.problem("double").settings.source == "SOL-ExecBench L1/007_double"


def test_what_differs_is_not_overwritten_unless_forced(into: Importer, tmp_path: Path) -> None:
    folder = tmp_path / "double"
    write_problem(folder, DEFINITION, [WORKLOAD])
    into(folder)
    settings = into.root.problem("double") / "problem.toml"
    settings.write_text(settings.read_text().replace("0.99", "0.5"))
    before = into.content()
    said = into(folder)
    assert said.code == 1
    assert said.left_out["double"] == (
        "problems/double: is there already, and problem.toml differs; --force replaces it; files of yours "
        "beside it stay"
    )
    assert into.content() == before
    assert into(folder, "--force").outcomes == {"double": "replaced"}
    assert into.problem("double").settings.tolerance.required_matched_ratio == 0.99
    assert [path.name for path in into.root.problems.iterdir()] == ["double"]


def test_seeds_that_were_added_and_the_mark_of_a_weak_problem_stay(into: Importer, tmp_path: Path) -> None:
    folder = tmp_path / "double"
    write_problem(folder, DEFINITION, [WORKLOAD])
    into(folder)
    place = into.root.problem("double")
    (place / "seed/cpp").mkdir()
    (place / "seed/cpp/kernel.cpp").write_text("// mine\n")
    settings = place / "problem.toml"
    settings.write_text(f"weak = true  # a wrong answer passes (swarm problems lint)\n{settings.read_text()}")
    before = into.content()
    assert into(folder).outcomes == {"double": "unchanged"}
    assert into.content() == before
    (folder / "workload.jsonl").write_text(json.dumps(WORKLOAD | {"uuid": "other"}))
    assert into(folder, "--force").outcomes == {"double": "replaced"}
    assert into.content()["double/seed/cpp/kernel.cpp"] == b"// mine\n"
    assert [w.uuid for w in into.problem("double").workloads] == ["other"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "SOL-ExecBench"
    importing.make_tree(folder)
    return folder


def test_the_made_up_tree_has_the_sizes_and_faults_that_were_counted(tree: Path) -> None:
    lines = {path.parent: path.read_text().splitlines() for path in tree.rglob("workload.jsonl")}
    counts = [len(found) for found in lines.values()]
    assert (len(counts), sum(counts), counts.count(16)) == (235, 3957, 191)
    assert (min(counts), max(counts)) == (4, 48)
    workloads = [json.loads(line) for found in lines.values() for line in found]
    keys = [key for workload in workloads for key in workload.get("tolerance", {})]
    assert (keys.count("required_match_ratio"), keys.count("required_matched_ratio")) == (1299, 518)
    assert sum("tolerance" not in workload for workload in workloads) == 375
    misspelt = [
        path for path, found in lines.items() if any("required_match_ratio" in line for line in found)
    ]
    assert len(misspelt) == 82
    custom = [path for path, found in lines.items() if '"custom"' in found[0]]
    blobs = [path for path, found in lines.items() if '"safetensors"' in found[0]]
    assert (len(custom), len(blobs)) == (87, 9)


def test_all_235_come_in_and_say_what_was_made_of_their_faults(tree: Path, into: Importer) -> None:
    said = into(tree)
    assert said.code == 0, said.error
    assert list(said.outcomes.values()) == ["new"] * 235
    assert said.remarks[AS_OFFICIAL] == (82, 1299)
    assert said.remarks[MADE][0] == 9
    first = into.problem("acme_model_0_5b_gate_backward_1")
    limits = first.limits(first.workloads[5], PROTOCOL.tests)
    assert (limits.atol, limits.required_matched_ratio) == (0.02, 0.99)
    ratios = {
        problem.limits(workload, PROTOCOL.tests).required_matched_ratio
        for problem in map(load_problem, into.root.problems.iterdir())
        for workload in problem.workloads
    }
    assert ratios == {0.99, 0.95}, "what is misspelt counts for nothing, what is not does"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_whoever_is_stopped_in_the_middle_leaves_whole_problems(
    how: signal.Signals, tree: Path, tmp_path: Path
) -> None:
    for attempt in range(5):  # beside other work an import can be over before it is stopped
        into = Importer(tmp_path / f"root-{attempt}")
        code = stopped(tree, into.root.path, how)
        left = [path.name for path in into.root.problems.glob("[!.]*")]
        assert all(load_problem(into.root.problem(name)).workloads for name in left)
        if code:
            break
    assert code == (130 if how is signal.SIGINT else -how)
    assert 0 < len(left) < 235
    assert how is signal.SIGKILL or len(list(into.root.problems.iterdir())) == len(left)
    outcomes = list(into(tree).outcomes.values())
    assert (outcomes.count("unchanged"), outcomes.count("new")) == (len(left), 235 - len(left))


def stopped(tree: Path, root: Path, how: signal.Signals) -> int:
    """Import `tree` in a process that is stopped once there is a first problem; return how it ended."""
    command = [sys.executable, "-m", "swarm.cli.main", "problems", "import", str(tree)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None and not any((root / "problems").glob("[!.]*")):
            time.sleep(0.001)
        process.send_signal(how)
        return process.wait(timeout=120)


def broken(**changes: object) -> dict[str, object]:
    return {**DEFINITION, "name": "broken", **changes}


WRONG: dict[str, tuple[object, object, str]] = {
    "no reference": (
        broken(reference=""),
        WORKLOAD,
        "definition.json: reference: no top-level function 'run'; define run(x)",
    ),
    "other parameters": (
        broken(reference="def run(a, b):\n    return a\n"),
        WORKLOAD,
        "definition.json: reference: line 1: run takes (a, b); it must take the inputs in order: (x)",
    ),
    "not Python": (broken(reference="def run(x:\n"), WORKLOAD, "definition.json: reference: line 1: "),
    "unknown dtype": (
        broken(inputs={"x": {"shape": ["n"], "dtype": "complex64"}}),
        WORKLOAD,
        "definition.json: inputs.x.dtype: dtype 'complex64' is unknown; ",
    ),
    "unknown axis": (
        broken(outputs={"y": {"shape": ["m"], "dtype": "float32"}}),
        WORKLOAD,
        "definition.json: outputs.y.shape: 'm' is neither a number nor an axis; ",
    ),
    "no entry point": (
        broken(custom_inputs_entrypoint="make"),
        WORKLOAD,
        "definition.json: custom_inputs_entrypoint: the reference has no top-level function 'make'; ",
    ),
    "no ref's name": (
        broken(name="???"),
        WORKLOAD,
        "definition.json: name: problem name '' is not allowed as a problem's; use lower-case letters",
    ),
    "half a character": (
        broken(reference='def run(x):\n    return x + len("\ud800")\n'),
        WORKLOAD,
        "definition.json: reference: 'utf-8' codec can't encode character ",
    ),
    "missing axis": (
        DEFINITION,
        WORKLOAD | {"axes": {}},
        "workload.jsonl:1: axes: var axis 'n' is missing; ",
    ),
    "mixed inputs": (
        DEFINITION,
        WORKLOAD | {"inputs": {"x": {"type": "custom"}}},
        "workload.jsonl:1: inputs.x: it is custom, but the definition has no custom_inputs_entrypoint; ",
    ),
    "leaves the folder": (
        DEFINITION,
        WORKLOAD | {"inputs": {"x": {"type": "safetensors", "path": "../../etc/x", "tensor_key": "x"}}},
        "workload.jsonl:1: inputs.x: path '../../etc/x' leaves the folder; ",
    ),
    "no blob": (
        broken(inputs={"x": {"shape": ["n"], "dtype": "int32"}}),
        WORKLOAD | {"inputs": {"x": {"type": "safetensors", "path": "x.safetensors", "tensor_key": "x"}}},
        "workload.jsonl: workload w: no file 'x.safetensors', and no rule makes 'x' (int32) up; give --blobs",
    ),
    "a blob that cannot be": (
        DEFINITION,
        WORKLOAD
        | {"inputs": {"x": {"type": "safetensors", "path": f"{'x' * 999}.safetensors", "tensor_key": "x"}}},
        "workload.jsonl: inputs: 'xxxx",
    ),
    "too much to make": (
        broken(inputs={"x_indices": {"shape": ["n"], "dtype": "int64"}}, reference="def run(x_indices): ..."),
        WORKLOAD
        | {
            "axes": {"n": 1 << 50},
            "inputs": {"x_indices": {"type": "safetensors", "path": "x.safetensors", "tensor_key": "x"}},
        },
        f"workload.jsonl: workload w: no file 'x.safetensors', and {1 << 50} integers for 'x_indices' are",
    ),
    "a blob that is none": (
        DEFINITION,
        WORKLOAD | {"inputs": {"x": {"type": "safetensors", "path": "definition.json", "tensor_key": "x"}}},
        "workload.jsonl: inputs: 'definition.json' is no path of a safetensors file; correct it",
    ),
}


def test_what_is_wrong_is_said_in_a_line_each_and_stops_no_other(into: Importer, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name, (definition, workload, _) in WRONG.items():
        write_problem(data / name, definition, [workload])
    write_problem(data / "right", DEFINITION, [WORKLOAD])
    (data / "cut").mkdir()
    (data / "cut/definition.json").write_text('{"name": ')
    write_problem(data / "cut workloads", DEFINITION, [])
    for name, make in (("pipe", os.mkfifo), ("circle", lambda path: path.symlink_to(path))):
        (data / name).mkdir()
        make(data / name / "definition.json")
    said = into(data)
    assert said.code == 1
    assert said.outcomes == {"double": "new"}
    expected = {name: f"{name}/{line}" for name, (_, _, line) in WRONG.items()}
    expected |= {name: f"{name}/definition.json: no such file; add it" for name in ("pipe", "circle")}
    expected["cut"] = "cut/workload.jsonl: no such file; add it"
    expected["cut workloads"] = "cut workloads/workload.jsonl: no workload; write one JSON object per line"
    assert said.left_out.keys() == expected.keys()
    for name, line in said.left_out.items():
        assert line.startswith(expected[name]), line
        assert "\n" not in line
    assert said.error.count("\n") == 1


def test_names_of_strangers_do_not_steer_a_terminal(into: Importer, tmp_path: Path) -> None:
    write_problem(tmp_path / "a\x1b[2Jb", DEFINITION | {"\x1b[31mred": 1}, [WORKLOAD])
    said = into.text(tmp_path / "a\x1b[2Jb")
    assert "\x1b" not in said
    assert "[31mred is not kept: it has no meaning here" in said


def test_problems_of_one_name_are_told_apart_by_their_folders(into: Importer, tmp_path: Path) -> None:
    for folder in ("L1/001_a", "L2/002_b"):
        write_problem(tmp_path / "data" / folder, DEFINITION, [WORKLOAD])
    write_problem(tmp_path / "data/Quant/002_b", DEFINITION, [WORKLOAD])
    said = into(tmp_path / "data")
    assert said.outcomes == {"double": "new", "double_002_b": "new"}
    assert said.left_out == {
        "Quant/002_b": "Quant/002_b: problem 'double_002_b' was imported from L2/002_b just now; "
        "rename one of them"
    }


def test_a_reference_that_rules_forbid_as_a_solution_makes_a_problem_without_a_seed(
    into: Importer, tmp_path: Path
) -> None:
    reference = "import os\n\ndef run(x):\n    return x + x\n"
    write_problem(tmp_path / "double", DEFINITION | {"reference": reference}, [WORKLOAD])
    said = into(tmp_path / "double")
    assert said.outcomes == {"double": "new"}
    assert into.problem("double").seeds == {}
    assert said.remarks == {"no seed, for its reference breaks [rules]: 'os' may not be imported": (1, 1)}


def test_a_source_without_problems_says_what_was_looked_for(into: Importer, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    said = into(tmp_path / "empty")
    assert said.code == 1
    assert said.error.startswith(
        f"swarm: {tmp_path / 'empty'}: holds no problem of a known format; name a folder"
    )


def test_the_licence_is_what_the_data_sets_own_page_says(into: Importer, tmp_path: Path) -> None:
    write_problem(tmp_path / "data/L1/double", DEFINITION, [WORKLOAD])
    (tmp_path / "data/README.md").write_text("---\nlicense: other\nlicense_name: some-licence\n---\n# Data\n")
    said = into.text(tmp_path / "data")
    assert "licence: other, some-licence (recorded in problem.toml); whether it lets you use them" in said
    assert into.problem("double").settings.licence == "other, some-licence"


def test_without_word_of_a_licence_that_is_recorded(into: Importer, tmp_path: Path) -> None:
    write_problem(tmp_path / "double", DEFINITION, [WORKLOAD])
    assert "licence: not stated by its source" in into.text(tmp_path / "double")
    assert into.problem("double").settings.licence == "not stated by its source"
