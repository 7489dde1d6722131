"""Exit codes, the command table, and what each command prints."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from swarm.baseline import Baseline, Contender, save_baseline
from swarm.cli import main as cli
from swarm.contents import files_hash
from swarm.device import cpu_device
from swarm.errors import BadInput
from swarm.hub import Hub
from swarm.layout import RunRoot
from swarm.problem import load_problem
from swarm.verdict import JUDGE_VERSION
from tests.problem_files import write_double

ROOT = Path(__file__).parent.parent


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[BaseException]]:
    """A subcommand `probe` that raises what is put into the list; runs in an empty folder."""
    raised: list[BaseException] = []
    module = type(sys)("swarm_probe_command")

    @click.command("probe")
    def probe() -> None:
        raise raised.pop()

    module.probe = probe  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "swarm_probe_command", module)
    monkeypatch.setitem(cli.COMMANDS, "probe", ("swarm_probe_command:probe", "Raise."))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield raised


def test_bad_input_is_one_line_and_exit_code_1(
    command: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    command.append(BadInput("rtol is -1", where="problem.toml: rtol", remedy="make it\npositive"))
    assert cli.main(["probe"]) == 1
    assert capsys.readouterr().err == "swarm: problem.toml: rtol: rtol is -1; make it positive\n"


def test_a_wrong_option_is_exit_code_2(command: list[BaseException]) -> None:
    assert cli.main(["probe", "--no-such-option"]) == 2
    assert cli.main(["no-such-command"]) == 2


def test_a_fault_of_ours_is_exit_code_3_and_leaves_a_markdown_log(
    command: list[BaseException], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command.append(RuntimeError("two\nlines"))
    assert cli.main(["probe"]) == 3
    [log] = tmp_path.glob("fault-*.md")
    assert (
        capsys.readouterr().err
        == f"swarm: a fault of ours: RuntimeError: two lines; the details are in {log}\n"
    )
    text = log.read_text()
    assert text.startswith("# swarm: a fault of ours\n")
    assert "RuntimeError: two" in text
    assert "`swarm probe`" in text


def test_a_fault_inside_a_run_root_is_logged_there(command: list[BaseException], tmp_path: Path) -> None:
    (tmp_path / "COORDINATION.md").touch()
    (tmp_path / "swarm.toml").touch()
    command.append(RuntimeError("oops"))
    assert cli.main(["probe"]) == 3
    assert len(list((tmp_path / "workspace").rglob("fault-*.md"))) == 1


def test_an_interrupt_is_not_a_fault(command: list[BaseException], tmp_path: Path) -> None:
    command.append(KeyboardInterrupt())
    assert cli.main(["probe"]) == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_table_says_what_the_command_says(name: str) -> None:
    context = click.Context(cli.swarm)
    loaded = cli.swarm.get_command(context, name)
    assert loaded is not None
    assert loaded.get_short_help_str(200) == cli.COMMANDS[name][1]


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    assert f"Usage: swarm {name}" in capsys.readouterr().out


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in cli.COMMANDS)


def test_doctor_reports_each_capability_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    names = [c["name"] for c in report["capabilities"]]
    assert report["ready"] is True
    assert len(names) == len(set(names)) >= 10
    for capability in report["capabilities"]:
        assert capability["found"]
        assert capability["state"] in ("there", "unused") or capability["remedy"]


def test_doctor_names_the_command_that_fixes_a_missing_compiler(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.main(["doctor"]) == 1
    out, err = capsys.readouterr()
    assert "apt-get install g++" in out
    assert "git, compiler" in err
    assert err.endswith("type: apt-get install git\n")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run root with one small problem, as the current folder."""
    folder = tmp_path / "root"
    assert cli.main(["init", str(folder)]) == 0
    write_double(folder / "problems" / "double")
    monkeypatch.chdir(folder)
    return folder


def test_init_makes_a_run_root_and_refuses_to_make_it_twice(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (root / "COORDINATION.md").read_bytes() == (ROOT / "COORDINATION.md").read_bytes()
    assert (root / "swarm.toml").is_file()
    capsys.readouterr()
    assert cli.main(["init", str(root)]) == 1
    assert "is there already" in capsys.readouterr().err


def test_outside_a_run_root_a_command_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["problems", "list"]) == 1
    assert capsys.readouterr().err.endswith("; type: swarm init DIR\n")


def test_root_option_serves_from_anywhere(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(["--root", str(root / "problems"), "problems", "show", "double", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "double"


def test_problems_list_shows_the_good_ones_and_names_the_broken_one(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_double(root / "problems" / "broken")
    (root / "problems" / "broken" / "workload.jsonl").write_text('{"uuid": 1}\n')
    capsys.readouterr()
    assert cli.main(["problems", "list"]) == 1
    out, err = capsys.readouterr()
    assert "double" in out and "Twice its input" in out
    assert err.startswith("swarm: broken/workload.jsonl:1: uuid")
    assert err.count("\n") == 1


def test_lint_takes_a_sound_problem_and_names_a_weak_one(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_double(root / "problems" / "zero")
    write_double(root / "problems" / "broken")
    (root / "problems" / "broken" / "seed" / "cpp" / "kernel.cpp").write_text('#include "problem.h"\nint x\n')
    (root / "problems" / "zero" / "reference.py").write_text("def run(x):\n    return 0 * x\n")
    write_double(root / "problems" / "marked")
    settings = root / "problems" / "marked" / "problem.toml"
    settings.write_text("weak = true\n" + settings.read_text())
    capsys.readouterr()
    done = subprocess.run(
        [sys.executable, "-m", "swarm.cli.main", "problems", "lint", "--json"],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 1
    found = {report["name"]: report for report in json.loads(done.stdout)}
    assert {name: report["state"] for name, report in found.items()} == {
        "broken": "broken", "double": "sound", "marked": "marked weak, but sound", "zero": "weak",
    }  # fmt: skip
    assert any("zeros" in text for text in found["zero"]["weak"])
    assert any("no tolerance rejects" in text for text in found["zero"]["mend"])
    assert any("broken/seed/cpp: kernel.cpp:" in text for text in found["broken"]["faults"])
    assert "not sound: broken, marked, zero" in done.stderr


def test_lint_marks_what_is_weak_and_nothing_else(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_double(root / "problems" / "zero")
    (root / "problems" / "zero" / "reference.py").write_text("def run(x):\n    return 0 * x\n")
    settings = root / "problems" / "double" / "problem.toml"
    before = settings.read_text()
    settings.write_text("weak = true\n" + before)
    done = swarm("problems", "lint", "--mark")
    assert done.returncode == 0, done.stderr
    assert "double: sound" in done.stdout and "zero: weak, as marked" in done.stdout
    assert settings.read_text() == before
    assert load_problem(root / "problems" / "zero").settings.weak
    capsys.readouterr()
    assert cli.main(["problems", "list"]) == 0
    assert "zero (weak)" in capsys.readouterr().out
    assert cli.main(["problems", "show", "zero"]) == 0
    assert "no headline figure counts it" in capsys.readouterr().out


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_full_or_read_only_disk_is_no_fault_of_ours(
    command: list[BaseException], capsys: pytest.CaptureFixture[str], number: int
) -> None:
    command.append(OSError(number, os.strerror(number), "/somewhere/file"))
    assert cli.main(["probe"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"swarm: /somewhere/file: cannot go on: {os.strerror(number)}; ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "words", [["run", "--minutes"], ["baseline", "--budget-min"], ["submit", "-m", "x", "--timeout"]]
)
@pytest.mark.parametrize("number", ["nan", "inf", "0", "-1"])
def test_a_time_to_wait_is_a_finite_number(words: list[str], number: str) -> None:
    assert cli.main([*words, number]) == 2


@pytest.mark.parametrize("words", [["run"], ["problems", "lint"], ["watch"], ["plan"], ["worker", "w1"]])
def test_a_protocol_that_is_not_text_is_one_line(words: list[str], root: Path) -> None:
    with Hub(RunRoot(root).run("local")) as hub:
        hub.ensure()
    protocol = root / "COORDINATION.md"
    protocol.write_bytes(protocol.read_bytes() + b"\xff\n")
    done = swarm(*words)
    assert done.returncode == 1, done.stderr
    assert "COORDINATION.md:" in done.stderr and "is not UTF-8" in done.stderr


def test_a_broken_problem_does_not_keep_the_limits_of_the_others_back(root: Path) -> None:
    write_double(root / "problems" / "broken")
    (root / "problems" / "broken" / "definition.json").write_text("{")
    write_double(root / "problems" / "raising")
    (root / "problems" / "raising" / "reference.py").write_text("def run(x):\n    raise KeyError('no')\n")
    done = swarm("sol", "--json")
    assert done.returncode == 1
    assert {limit["problem"] for limit in json.loads(done.stdout)["limits"]} == {"double"}
    assert "broken/definition.json:1: not JSON" in done.stderr
    assert "raising/reference.py line 2: KeyError: 'no'" in done.stderr


@pytest.mark.parametrize(
    ("kernel", "code", "status"),
    [(None, 0, "PASSED"), ("int x\n", 1, "COMPILE_ERROR"), ("#include <fstream>\n", 1, "INVALID_SOLUTION")],
)
def test_bench_says_by_its_exit_code_whether_the_candidate_held(
    root: Path, kernel: str | None, code: int, status: str
) -> None:
    solution = root / "problems" / "double" / "seed" / "cpp"
    if kernel is not None:
        (solution / "kernel.cpp").write_text(kernel)
    done = swarm("bench", "double", "--solution", str(solution), "--json")
    if "no clock can be trusted" in done.stderr:  # other work is on the core: there is no verdict at all
        assert (done.returncode, done.stdout) == (1, "")
        return
    assert done.returncode == code, done.stderr + done.stdout
    said = json.loads(done.stdout)
    assert said["status"] == status
    assert (said["kernels"], len(said["achieved"])) == ([], 1 if code == 0 else 0)
    assert "on the CPU (" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("bench double --language cuda", "cuda runs on a GPU only, and CUDA_VISIBLE_DEVICES hides every GPU"),
        ("bench double --device cuda", "CUDA_VISIBLE_DEVICES hides every GPU; `swarm doctor`"),
        ("bench double --device tpu", "--device: no device 'tpu'; there is only cpu: CUDA_VISIBLE_DEVICES"),
        ("bench double --language cuba", "--language: no language 'cuba'; did you mean 'cuda'?"),
        (
            "bench double --sass",
            "--sass: cpp has no machine code before it runs; it is for cuda and cuda_cpp",
        ),
        ("bench double --solution /", "/: no solution.toml; name the folder that holds it"),
        ("run --device-model /", "--device-model: '/' is no device model; name one, for example nvidia-h200"),
        (
            "sol --device-model ..",
            "--device-model: '..' is no device model; name one, for example nvidia-h200",
        ),
        ("run --language triton", "triton runs on a GPU only, and CUDA_VISIBLE_DEVICES hides every GPU"),
        ("run --device cuda:0", "CUDA_VISIBLE_DEVICES hides every GPU; `swarm doctor`"),
        ("run --device cpu --language cuda", "device cpu: cuda does not run on the CPU; give --device cuda"),
        ("baseline --device cuda", "CUDA_VISIBLE_DEVICES hides every GPU; `swarm doctor`"),
        ("sol --device cuda", "CUDA_VISIBLE_DEVICES hides every GPU; `swarm doctor`"),
    ],
)
def test_a_device_that_is_not_there_is_one_line(
    root: Path, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    capsys.readouterr()
    assert cli.main(words.split()) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"swarm: {message}") and said.count("\n") == 1


def test_bench_without_workloads_for_the_device_names_the_file_and_nothing_else(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "problems" / "double" / "workload.cpu.jsonl").unlink()
    capsys.readouterr()
    assert cli.main(["bench", "double"]) == 1
    said = capsys.readouterr().err
    assert said == (
        "swarm: double/workload.cpu.jsonl: problem 'double' has no workloads for a cpu; add the file\n"
    )


def test_no_name_among_the_problems_of_a_run_is_said(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(["run", "--problems", ","]) == 1
    said = capsys.readouterr().err
    assert said == "swarm: --problems: no problem is named; name some, or leave it out for all\n"


def test_a_broken_problem_is_not_told_of_the_mark_for_weak_ones(root: Path) -> None:
    (root / "problems" / "double" / "seed" / "cpp" / "kernel.cpp").write_text("int x\n")
    done = swarm("problems", "lint", "double")
    assert done.returncode == 1
    assert "double: broken" in done.stdout and "--mark" not in done.stderr


def test_baselines_that_are_on_file_are_measured_again_only_by_name(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = load_problem(root / "problems" / "double")
    contender = Contender("eager", {"w1": 12.5}, {})
    model = cpu_device().model
    stored = Baseline("double", model, files_hash(problem.files), JUDGE_VERSION, 7.0, (contender,))
    save_baseline(RunRoot(root), stored)
    capsys.readouterr()
    assert cli.main(["baseline", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["created_s"] == 7.0
    done = swarm("baseline", "double", "--budget-min", "0.05", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["created_s"] > 7.0


def test_a_folder_that_is_no_solution_is_not_read_to_its_end(
    root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    (folder / "solution.toml").touch()
    for number in range(1001):
        (folder / str(number)).touch()
    capsys.readouterr()
    assert cli.main(["bench", "double", "--solution", str(folder)]) == 1
    assert "many: more than 1000 files, or one above 16 MiB; name a folder" in capsys.readouterr().err


def test_the_device_of_swarm_toml_is_what_the_option_overrides(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "swarm.toml").write_text('[run]\ndevice = "cuda"\n')
    capsys.readouterr()
    assert cli.main(["sol", "--json"]) == 1
    assert "hides every GPU" in capsys.readouterr().err
    assert cli.main(["sol", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["peaks"]["device_model"].endswith("core")
    monkeypatch.setenv("SWARM_DEVICE", "cpu")
    assert cli.main(["sol", "--json"]) == 0


def swarm(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own: some of them change theirs."""
    return subprocess.run(
        [sys.executable, "-m", "swarm.cli.main", *words],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=120,
    )  # fmt: skip
