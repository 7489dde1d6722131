"""SOL-ExecBench's solution.json becomes a tree and comes back as it was; what is wrong in one is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.cli import main as cli
from swarm.errors import BadInput
from swarm.hub import Hub
from swarm.languages.exchange import completed, export_tree, fill_contents, import_submission
from swarm.layout import find_root
from swarm.problem import load_problem
from swarm.protocol import load_protocol
from swarm.solution import Language, load_manifest, render_manifest, validate_tree
from swarm.submission import (
    CPP_LANGUAGES,
    HARDWARE,
    PYTHON_LANGUAGES,
    Exchange,
    Submission,
    parse_submission,
    submission_json,
)
from tests.problem_files import write_double
from tests.support import make_root

ROOT = find_root(Path(__file__).parent).path
PROTOCOL = load_protocol((ROOT / "COORDINATION.md").read_text())
ALLOWED = ("-O3", "--use_fast_math", "-lineinfo", "-lcublas")
NOTHING = Exchange()
KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def add_one(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n) + 1, at < n)


def run(x, y):
    add_one[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
"""
CUDA = """#include <torch/extension.h>

__global__ void add_one(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
}

void run(torch::Tensor x, torch::Tensor y) {
  const int n = x.numel();
  add_one<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""


def solution(languages: list[str] | None = None, **changes: Any) -> dict[str, Any]:
    """Return a solution.json with these fields replaced; `spec__x` replaces one of spec."""
    names = languages or ["triton"]
    is_python = names[0] in PYTHON_LANGUAGES
    path, content = ("kernel.py", KERNEL) if is_python else ("kernel.cu", CUDA)
    made: dict[str, Any] = {
        "name": "add_one_by_hand",
        "definition": "add_one",
        "author": "somebody",
        "description": 'Adds one, says "hello"\n\tand ends.',
        "spec": {
            "languages": names,
            "target_hardware": ["B200", "LOCAL"],
            "entry_point": f"{path}::run",
            "dependencies": ["torch >= 2.9"],
            "destination_passing_style": True,
            "binding": None if is_python else "torch",
            "compile_options": None,
        },
        "sources": [{"path": path, "content": content}],
    }
    for name, value in changes.items():
        if name.startswith("spec__"):
            made["spec"][name.removeprefix("spec__")] = value
        else:
            made[name] = value
    return made


def parsed(raw: dict[str, Any]) -> Submission:
    return parse_submission(json.dumps(raw).encode(), "solution.json")


def round_trip(submission: Submission) -> Submission:
    files = import_submission(submission, ALLOWED, "solution.json").files
    manifest = load_manifest(files)
    assert load_manifest({**files, "solution.toml": render_manifest(manifest)}) == manifest
    return export_tree(files, completed(manifest.exchange, NOTHING, Exchange(author="nobody")), "")


@pytest.mark.parametrize("language", [*PYTHON_LANGUAGES, *CPP_LANGUAGES])
def test_every_language_comes_back_as_it_was(language: str) -> None:
    raw = solution([language])
    assert json.loads(submission_json(round_trip(parsed(raw)))) == raw


def test_every_field_may_be_absent_or_null() -> None:
    raw = solution(spec__compile_options=None, description=None)
    for name in ("dependencies", "binding", "compile_options", "destination_passing_style"):
        del raw["spec"][name]
    del raw["description"]
    once = parsed(raw)
    assert round_trip(once) == once


def test_packages_of_newer_versions_come_back() -> None:
    raw = solution(["triton"], spec__pip_packages=["fbtriton"], spec__destination_passing_style=False)
    made = import_submission(parsed(raw), ALLOWED, "solution.json")
    said = "\n".join(made.remarks)
    assert "not installed: torch >= 2.9, fbtriton" in said
    assert "it returns its outputs: that is measured on GPUs only" in said
    assert json.loads(submission_json(round_trip(parsed(raw)))) == raw


def test_several_languages_several_files_and_what_is_not_built_come_back() -> None:
    raw = solution(
        ["cutlass", "cuda_cpp"],
        sources=[
            {"path": "README.md", "content": "# How it works\r\n"},
            {"path": "kernel.cu", "content": CUDA},
            {"path": "include/tile.inl", "content": "// tile\n"},
            {"path": "include/tile.cuh", "content": "#pragma once\n"},
        ],
        spec__compile_options={
            "cflags": ["-std=c++20", "-DTILE=64"],
            "cuda_cflags": [
                "-O3",
                "-gencode",
                "arch=compute_90a,code=sm_90a",
                "-DTILE=64",
                "--use_fast_math",
            ],
            "ld_flags": ["-lcuda", "-lcublas"],
        },
    )
    made = import_submission(parsed(raw), ALLOWED, "solution.json")
    manifest = load_manifest(made.files)
    assert manifest.language is Language.CUDA_CPP
    assert manifest.binding == "torch"
    assert manifest.sources == ("kernel.cu", "include/tile.cuh")
    assert manifest.compile.options == ("-O3", "--use_fast_math", "-lcublas")
    assert manifest.params == {"TILE": 64}
    assert made.files["README.md"] == b"# How it works\r\n"
    said = "\n".join(made.remarks)
    assert "cutlass needs the CUTLASS headers: without it" in said
    assert "not built: README.md, include/tile.inl" in said
    assert "not used here: -gencode arch=compute_90a,code=sm_90a -lcuda -std=c++20" in said
    assert json.loads(submission_json(round_trip(parsed(raw)))) == raw


def test_what_somebody_changes_in_the_tree_changes_in_the_submission_and_nothing_else() -> None:
    options = {"cflags": [], "cuda_cflags": ["-O3", "-w", "-DTILE=64"], "ld_flags": ["-lcuda"]}
    once = parsed(solution(["cuda_cpp"], spec__compile_options=options))
    files = import_submission(once, ALLOWED, "solution.json").files
    manifest = load_manifest(files)
    changed = manifest.model_copy(
        update={
            "params": {"TILE": 128, "WIDE": 1},
            "compile": manifest.compile.model_copy(update={"options": ("-lineinfo", "-lcublas")}),
            "sources": ("kernel.cu", "more.cuh"),
        }
    )
    files |= {"solution.toml": render_manifest(changed), "more.cuh": b"#pragma once\n"}
    assert changed.exchange is not None
    made = export_tree(files, changed.exchange, "")
    assert made.spec.compile_options is not None
    assert made.spec.compile_options.cuda_cflags == ("-w", "-DTILE=128", "-lineinfo", "-DWIDE=1")
    assert made.spec.compile_options.ld_flags == ("-lcuda", "-lcublas")
    assert [source.path for source in made.sources] == ["kernel.cu", "more.cuh"]
    assert (made.name, made.author, made.description) == (once.name, once.author, once.description)


def test_a_tree_that_was_never_a_submission_gets_what_is_missing() -> None:
    files = {
        "solution.toml": b'language = "triton"\nsources = ["kernel.py"]\nentry = "kernel.py::run"\n',
        "kernel.py": KERNEL.encode(),
    }
    defaults = Exchange(name="new", definition="add_one", author="us", target_hardware=("LOCAL",))
    made = export_tree(files, completed(None, Exchange(author="me"), defaults), "")
    assert (made.name, made.author, made.definition, made.description) == ("new", "me", "add_one", None)
    assert made.spec.languages == ("triton",)
    assert made.spec.compile_options is None
    assert parse_submission(submission_json(made), "again") == made


def test_parameters_of_python_leave_as_a_module_and_come_back_as_parameters() -> None:
    files = {
        "solution.toml": b'language = "triton"\nsources = ["kernel.py"]\nentry = "kernel.py::run"\n'
        b'[params]\nBLOCK = 1024\nSCALE = 0.5\nMODE = "fast"\n',
        "kernel.py": b"from params import BLOCK\n" + KERNEL.encode(),
    }
    defaults = Exchange(name="new", definition="add_one", author="us", target_hardware=("LOCAL",))
    made = export_tree(files, completed(None, NOTHING, defaults), "")
    assert [source.path for source in made.sources] == ["kernel.py", "params.py"]
    again = import_submission(made, (), "x")
    assert set(again.files) == set(files)
    manifest = load_manifest(again.files)
    assert manifest.params == {"BLOCK": 1024, "SCALE": 0.5, "MODE": "fast"}
    assert not any("params" in remark for remark in again.remarks)
    assert round_trip(made) == made
    changed = manifest.model_copy(update={"params": {**manifest.params, "BLOCK": 256}})
    assert changed.exchange is not None
    tree = {**again.files, "solution.toml": render_manifest(changed)}
    assert "BLOCK = 256\n" in export_tree(tree, changed.exchange, "").sources[1].content


def test_a_choice_wins_over_what_the_tree_keeps() -> None:
    kept = Exchange(name="old", definition="d", author="a", target_hardware=("B200",), languages=("triton",))
    found = completed(kept, Exchange(name="new", target_hardware=("LOCAL",)), Exchange(description="default"))
    assert found == kept.model_copy(update={"name": "new", "target_hardware": ("LOCAL",)})


def test_another_language_than_the_one_it_came_in_is_said() -> None:
    files = import_submission(parsed(solution(["cutile"])), ALLOWED, "x").files
    manifest = load_manifest(files).model_copy(update={"language": Language.TRITON})
    assert manifest.exchange is not None
    made = export_tree({**files, "solution.toml": render_manifest(manifest)}, manifest.exchange, "")
    assert made.spec.languages == ("triton",)


def test_kept_files_are_allowed_in_a_tree_and_others_are_not() -> None:
    raw = solution(
        ["pytorch"], sources=[{"path": "kernel.py", "content": "def run(x, y):\n    y.copy_(x)\n"}]
    )
    raw["sources"].append({"path": "README.md", "content": "text\n"})
    files = import_submission(parsed(raw), ALLOWED, "solution.json").files
    validate_tree(files, PROTOCOL)
    with pytest.raises(BadInput, match=r"solution/NEWS\.md: not among the sources"):
        validate_tree({**files, "NEWS.md": b"text\n"}, PROTOCOL)


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no sources": ({"sources": []}, "sources: .* is not allowed"),
    "no name": ({"name": ""}, "name: '' is not allowed"),
    "unknown language": ({"spec__languages": ["cuda"]}, r"spec\.languages\[0\]: language 'cuda' is unknown"),
    "mixed": (
        {"spec__languages": ["triton", "cuda_cpp"]},
        "spec.languages: Python and C\\+\\+ languages are mixed; make two",
    ),
    "no language": ({"spec__languages": []}, "spec.languages: "),
    "hardware": (
        {"spec__target_hardware": ["b200"]},
        r"spec\.target_hardware\[0\]: hardware 'b200' is unknown; did you mean 'B200'",
    ),
    "no hardware": ({"spec__target_hardware": []}, "spec.target_hardware: "),
    "entry without function": (
        {"spec__entry_point": "kernel.py"},
        "spec.entry_point: 'kernel.py' is not an entry; write file::function",
    ),
    "two colons too many": (
        {"spec__entry_point": "kernel.py::a::b"},
        "spec.entry_point: 'kernel.py::a::b' is not an",
    ),
    "entry suffix": (
        {"spec__entry_point": "kernel.cu::run"},
        r"spec\.entry_point: 'kernel.cu' is not a file of triton; its name must end in \.py",
    ),
    "entry not there": (
        {"spec__entry_point": "kernels.py::run"},
        "spec.entry_point: 'kernels.py' is not among the sources; did you mean 'kernel.py'",
    ),
    "absolute": ({"sources": [{"path": "/kernel.py", "content": "1"}]}, r"sources\[0\]\.path: path '/kernel"),
    "upwards": (
        {"sources": [{"path": "a/../../k.py", "content": "1"}]},
        r"sources\[0\]\.path: path 'a/../../k.py' is not",
    ),
    "twice": (
        {"sources": [{"path": "kernel.py", "content": "1"}, {"path": "kernel.py", "content": "2"}]},
        r"sources\[1\]\.path: 'kernel\.py' appears twice",
    ),
    "file and folder": (
        {"sources": [{"path": "kernel.py", "content": "1"}, {"path": "kernel.py/a.py", "content": "2"}]},
        r"sources\[1\]\.path: 'kernel\.py' is a file and a folder",
    ),
    "binding": ({"spec__binding": "ctypes"}, "spec.binding: 'ctypes' is not allowed"),
    "passing": ({"spec__destination_passing_style": "yes"}, "spec.destination_passing_style: 'yes' is not"),
    "options": ({"spec__compile_options": {"nvcc": []}}, "spec.compile_options.nvcc: unknown field"),
    "old form": ({"language": "triton"}, "language: unknown field"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_is_named(case: str) -> None:
    changes, message = BROKEN[case]
    with pytest.raises(BadInput, match=f"solution.json: {message}"):
        parsed(solution(**changes))


def test_half_a_surrogate_pair_is_no_text() -> None:
    for changes in ({"author": "\ud800"}, {"spec__dependencies": ["\udfff"]}):
        with pytest.raises(BadInput, match=r"solution\.json: a text holds half of a surrogate pair"):
            parsed(solution(**changes))


def test_unknown_fields_are_noted_where_that_is_asked_for() -> None:
    notes: list[str] = []
    raw = {**solution(), "licence": "MIT"}
    found = parse_submission(json.dumps(raw).encode(), "solution.json", warnings=notes)
    assert found == parsed(solution())
    assert notes == [
        "solution.json: licence: unknown field; remove it; known are name, definition, author, description, "
        "spec, sources"
    ]


def test_empty_content_comes_from_the_file_beside_it(tmp_path: Path) -> None:
    raw = solution(sources=[{"path": "src/kernel.py"}], spec__entry_point="src/kernel.py::run")
    with pytest.raises(
        BadInput, match=r"s: sources\[0\]\.content: empty, and there is no file 'src/kernel.py'"
    ):
        fill_contents(parsed(raw), tmp_path, "s")
    (tmp_path / "src").mkdir()
    path = tmp_path / "src" / "kernel.py"
    path.write_bytes(b"import torch\r\n")
    assert fill_contents(parsed(raw), tmp_path, "s").sources[0].content == "import torch\r\n"
    path.write_bytes(b"\xff")
    with pytest.raises(BadInput, match=r"byte 0 of 'src/kernel\.py' is not UTF-8"):
        fill_contents(parsed(raw), tmp_path, "s")
    path.write_bytes(b"")
    with pytest.raises(BadInput, match=r"'src/kernel\.py' is empty"):
        fill_contents(parsed(raw), tmp_path, "s")
    path.unlink()
    path.symlink_to("/etc/hostname")
    with pytest.raises(BadInput, match="there is no file"):
        fill_contents(parsed(raw), tmp_path, "s")


def test_a_source_that_has_our_manifests_name_is_refused() -> None:
    for path in ("solution.toml", "solution.toml/kernel.py"):
        raw = solution()
        raw["sources"].append({"path": path, "content": "x"})
        with pytest.raises(BadInput, match=r"solution\.json: a source is called solution\.toml"):
            import_submission(parsed(raw), (), "solution.json")


def test_an_empty_source_cannot_be_submitted() -> None:
    files = import_submission(parsed(solution()), (), "x").files
    manifest = load_manifest(files)
    assert manifest.exchange is not None
    with pytest.raises(BadInput, match=r"t/: sources\[0\]\.content: 'kernel\.py' is empty"):
        export_tree({**files, "kernel.py": b""}, manifest.exchange, "t/")


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
PART = st.text("abzA0_.- é", min_size=1, max_size=6).filter(lambda part: set(part) != {"."})
OPTION = st.one_of(
    st.sampled_from(["-O3", "--use_fast_math", "-lineinfo", "-lcuda", "-Xptxas", "-v", "-DA=1", "-DA=2"]),
    st.from_regex(r"-D[A-C]=(\d{1,3}|1e5|0\.5|1_0|\+1|word|00)", fullmatch=True),
    TEXT,
)
OPTIONS = st.lists(OPTION, max_size=6)


@st.composite
def submissions(draw: st.DrawFn) -> dict[str, Any]:
    is_python = draw(st.booleans())
    languages = PYTHON_LANGUAGES if is_python else CPP_LANGUAGES
    suffix = ".py" if is_python else draw(st.sampled_from([".cu", ".cpp", ".cc", ".cxx", ".c"]))
    entry = "/".join([*draw(st.lists(PART, max_size=2)), draw(PART) + suffix])
    others = draw(
        st.lists(
            st.builds(
                lambda parts, end: "/".join(parts) + end,
                st.lists(PART, min_size=1, max_size=2),
                st.sampled_from([".py", ".cu", ".h", ".cuh", ".inl", ".md", ""]),
            ),
            max_size=4,
        )
    )
    paths = draw(st.permutations([*dict.fromkeys([entry, *others])]))
    some_options = st.fixed_dictionaries({"cflags": OPTIONS, "cuda_cflags": OPTIONS, "ld_flags": OPTIONS})
    return {
        "name": draw(TEXT),
        "definition": draw(TEXT),
        "author": draw(TEXT),
        "description": draw(st.none() | TEXT | st.just("")),
        "spec": {
            "languages": draw(st.lists(st.sampled_from(languages), min_size=1, max_size=3)),
            "target_hardware": draw(st.lists(st.sampled_from(HARDWARE), min_size=1, max_size=2)),
            "entry_point": f"{entry}::{draw(st.sampled_from(['run', 'Kernel_2', 'été']))}",
            "dependencies": draw(st.lists(TEXT, max_size=2)),
            **draw(st.just({}) | st.just({"pip_packages": ["fbtriton", "é"]})),
            "destination_passing_style": draw(st.booleans()),
            "binding": draw(st.sampled_from([None, "torch"])),
            "compile_options": draw(st.none() | some_options),
        },
        "sources": [{"path": path, "content": draw(TEXT)} for path in paths],
    }


def is_a_tree(raw: dict[str, Any]) -> bool:
    paths = [source["path"] for source in raw["sources"]]
    return not any(path.startswith(f"{other}/") for path in paths for other in paths)


@settings(max_examples=300, deadline=None)
@given(submissions().filter(is_a_tree))
def test_any_submission_comes_back_as_it_was(raw: dict[str, Any]) -> None:
    assert json.loads(submission_json(round_trip(parsed(raw)))) == raw


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(["--root", str(ROOT), *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_commands_bring_a_file_in_and_out_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two kernels of one problem of ours: a Triton one beside its sources, a torch extension in one file."""
    for language, path, content in (("triton", "kernel.py", KERNEL), ("cuda_cpp", "kernel.cu", CUDA)):
        raw = solution([language], definition="swiglu", name=f"by hand / {language}")
        file = tmp_path / language / "solution.json"
        file.parent.mkdir()
        (file.parent / path).write_text(content)
        raw["sources"][0]["content"] = ""
        file.write_text(json.dumps(raw))
        folder, again = tmp_path / f"in-{language}", tmp_path / f"{language}.json"
        code, out, _ = command(capsys, "import-solution", str(file), "--into", str(folder), "--json")
        said = json.loads(out)
        assert (code, said["problem"], said["folder"]) == (0, "swiglu", str(folder))
        assert said["files"] == [path, "solution.toml"]
        assert (folder / path).read_text() == content
        arguments = ("export", "swiglu", "--solution", str(folder))
        code, _, err = command(capsys, *arguments, "--out", str(again))
        assert code == 0 and f"by hand / {language}, {language}, 1 file" in err
        raw["sources"][0]["content"] = content
        assert json.loads(again.read_text()) == raw
        code, out, _ = command(capsys, *arguments, "--author", "me", "--hardware", "b200")
        chosen = json.loads(out)
        assert (chosen["author"], chosen["spec"]["target_hardware"]) == ("me", ["B200"])


def test_an_import_says_what_to_type_next_and_never_overwrites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("solution.json").write_text(json.dumps({**solution(["cutile"]), "extra": 1}))
    code, out, _ = command(capsys, "import-solution", "solution.json")
    assert code == 0
    assert out.startswith("add_one_by_hand is in add_one_by_hand\n")
    assert "extra: unknown field" in out
    assert "cutile needs NVIDIA's cuda.tile package: without it, it cannot be built or run here" in out
    assert "as it stands it would be refused here: " in out
    assert "no problem here computes 'add_one'" in out
    code, _, err = command(capsys, "import-solution", "solution.json")
    assert (code, err) == (1, "swarm: add_one_by_hand is not empty; name another folder with --into\n")


def test_what_a_disk_does_not_take_and_a_folder_without_a_solution_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = solution()
    raw["sources"].append({"path": "x" * 300 + ".py", "content": "x = 1\n"})
    file = tmp_path / "solution.json"
    file.write_text(json.dumps(raw))
    code, _, err = command(capsys, "import-solution", str(file), "--into", str(tmp_path / "in"))
    assert code == 1 and "cannot be written: File name too long; shorten its name" in err
    code, _, err = command(capsys, "export", "swiglu", "--solution", str(ROOT / "docs"))
    assert code == 1 and "docs: no solution.toml; name the folder that holds it" in err


def test_an_import_needs_no_run_root(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SWARM_ROOT", raising=False)
    Path("solution.json").write_text(json.dumps(solution()))
    assert cli.main(["import-solution", "solution.json"]) == 0
    assert (tmp_path / "add_one_by_hand" / "solution.toml").is_file()
    capsys.readouterr()


def test_a_kernel_for_cpus_and_a_problem_that_is_not_meant_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = ROOT / "problems" / "swiglu" / "seed" / "cpp"
    code, _, err = command(capsys, "export", "swiglu", "--solution", str(seed))
    assert code == 1 and "language cpp is for CPUs; SOL-ExecBench takes kernels for GPUs only" in err
    made = import_submission(parsed(solution()), (), "x").files
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    code, _, err = command(capsys, "export", "swiglu", "--solution", str(tmp_path))
    assert code == 0 and "it is for 'add_one', while swiglu defines 'swiglu'" in err


def test_the_champion_of_a_run_leaves_unless_a_commit_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_root(tmp_path)
    write_double(root.problems / "double")
    problem = load_problem(root.problem("double"))
    files = {
        "solution.toml": b'language = "triton"\nsources = ["kernel.py"]\nentry = "kernel.py::run"\n',
        "kernel.py": KERNEL.encode(),
    }
    frozen = {**problem.files, "COORDINATION.md": root.coordination.read_bytes()}
    with Hub(root.run("r")) as hub:
        hub.ensure()
        hub.ensure_epoch("double", frozen, files, "planner")
        champion = hub.champions()["double"]

    def export(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(["--root", str(root.path), "export", "double", "--run", "r", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    code, out, _ = export()
    made = json.loads(out)
    assert code == 0
    assert (made["name"], made["definition"]) == (f"double-{champion[:10]}", problem.definition.name)
    assert (made["author"], made["spec"]["target_hardware"]) == ("kernel-swarm", ["LOCAL"])
    assert made["sources"] == [{"path": "kernel.py", "content": KERNEL}]
    assert export("--commit", champion[:12])[1] == out
    code, _, err = export("--commit", "0000")
    assert (code, err) == (1, "swarm: no commit of double '0000'; `swarm log double` lists them\n")
    code, _, err = export("--commit", champion, "--solution", str(tmp_path))
    assert code == 2 and "exclude each other" in err
    code, _, err = export("--arch", "sm_90a")
    assert code == 1 and "language triton names no architecture; leave --arch out" in err
