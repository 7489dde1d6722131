"""Python sources are laid out to be imported, with their parameters beside them."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from swarm.errors import Refused
from swarm.judge.build import language
from swarm.languages import python_host
from swarm.languages.cute_dsl import CuteDsl
from swarm.languages.protocol import Artifact, CompileLimits, Failure, Kind
from swarm.languages.triton import Triton
from swarm.problem import problem_from_files
from swarm.solution import load_manifest
from swarm.verdict import Status
from tests.languages.test_cuda import gpu
from tests.problem_files import problem_files

LIMITS = CompileLimits(timeout_s=1, memory_bytes=1)
PARAMS = '[params]\nBLOCK = 64\nSCALE = 0.5\nKIND = "fast"\n'


def laid_out(cache: Path, name: str, source: str, params: str = PARAMS) -> Artifact | Failure:
    manifest = (
        f'language = "{name}"\nsources = ["kernel.py", "deep/part.py"]\nentry = "kernel.py::run"\n{params}'
    )
    tree = {"solution.toml": manifest.encode(), "kernel.py": source.encode(), "deep/part.py": b"X = 1\n"}
    parsed = load_manifest(tree)
    some = problem_from_files(problem_files(), "scale_rows")
    return language(parsed).compile(tree, parsed, some, gpu(), cache, LIMITS)


@pytest.mark.parametrize("name", ["pytorch", "triton", "cute_dsl"])
def test_the_sources_lie_beside_their_parameters(name: str, tmp_path: Path) -> None:
    artifact = laid_out(tmp_path, name, "from params import BLOCK\n")
    assert isinstance(artifact, Artifact)
    assert (artifact.kind, artifact.entry, artifact.kernels) == (Kind.PYTHON, "kernel.py::run", ())
    files = sorted(p.relative_to(artifact.path).as_posix() for p in artifact.path.rglob("*") if p.is_file())
    assert files == ["deep/part.py", "kernel.py", "params.py"]
    given = runpy.run_path(str(artifact.path / "params.py"))
    assert (given["BLOCK"], given["SCALE"], given["KIND"]) == (64, 0.5, "fast")


def test_other_parameters_are_another_artifact(tmp_path: Path) -> None:
    found = [
        laid_out(tmp_path, "triton", "", params)
        for params in (PARAMS, PARAMS.replace("64", "32"), "", PARAMS)
    ]
    paths = [one.path for one in found if isinstance(one, Artifact)]
    assert len(paths) == 4 and len(set(paths)) == 3 and paths[0] == paths[3]


@pytest.mark.parametrize(
    ("source", "reason"),
    [("x = 1\ndef run(:\n", "kernel.py:2: "), ("(" * 5000, "kernel.py:"), ("x = 1\0", "kernel.py: ")],
    ids=["syntax", "deep", "zero"],
)
def test_what_is_no_python_is_a_compile_error(source: str, reason: str, tmp_path: Path) -> None:
    found = laid_out(tmp_path, "triton", source)
    assert isinstance(found, Failure)
    assert found.status is Status.COMPILE_ERROR and found.reason.startswith(reason)


@pytest.mark.parametrize("name", ["triton", "cute_dsl"])
def test_a_machine_without_the_language_is_told_where_kernels_are_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Triton, "module", "a_module_that_is_not_there")
    monkeypatch.setattr(CuteDsl, "module", "a_module_that_is_not_there")
    assert isinstance(laid_out(tmp_path, name, ""), Artifact)
    monkeypatch.setattr(python_host, "why_no_gpu", lambda: "")
    with pytest.raises(Refused, match="is not installed; pip install"):
        laid_out(tmp_path, name, "")
    assert isinstance(laid_out(tmp_path, name, "(\n"), Failure)
