"""Names that are options, transports, paths or lines of text: no command takes one for what it looks like."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm.cli import main as cli
from tests.problem_files import write_double
from tests.support import Swarm, make_root

NAMES = (
    "--upload-pack=touch it-ran",
    "ext::sh -c touch% it-ran",
    "../../it-ran",
    "/tmp/../it-ran",
    "a\nb",
    "a\x1b[2Jb",
    "$(touch it-ran)",
    "a b",
    ".git",
    "rope.lock",
    "HEAD~1",
    "@{upstream}",
    "refs/heads/problem/rope",
    "x" * 300,
    "",
)
COMMANDS = {
    "worker": ["worker", "--", "NAME"],
    "run of a role": ["plan", "--run", "NAME"],
    "run of a report": ["report", "--run", "NAME"],
    "run of an import": ["results", "import", "--run", "NAME", "."],
    "log": ["log", "--", "NAME"],
    "problem": ["problems", "show", "--", "NAME"],
    "problem of a bundle": ["pending", "--bundle", "b", "--", "NAME"],
    "bench": ["bench", "--device", "cpu", "--", "NAME"],
    "commit": ["bench", "rope", "--device", "cpu", "--commit=NAME"],
    "opponent": ["bench", "rope", "--device", "cpu", "--against=NAME"],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("a") / "b"
    root = make_root(folder / "root")
    write_double(root.problem("rope"))
    with Swarm(root) as swarm:
        swarm.start("rope")
        yield root.path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_hostile_name_is_refused_in_one_line(
    run: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(run)
    monkeypatch.setenv("SWARM_RUN", "test")
    before = sorted(run.parent.parent.rglob("*"))
    for name in NAMES:
        code = cli.main([word.replace("NAME", name) for word in COMMANDS[command]])
        told = capsys.readouterr()
        assert code in (1, 2), f"{name!r}: {code} {told}"
        lines = [line for line in told.err.splitlines() if line.startswith("swarm: ")]
        assert code == 2 or len(lines) == 1, told.err
        assert "\x1b[2J" not in told.err + told.out
    assert sorted(run.parent.parent.rglob("*")) == before


def test_folders_beside_the_problems_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_root(tmp_path)
    write_double(root.problem("rope"))
    (root.problems / "away").symlink_to("/etc")
    for name in NAMES:
        if name and "/" not in name and len(name) < 200:
            (root.problems / name).mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path)
    cli.main(["problems", "list", "--json"])
    told = capsys.readouterr()
    assert '"rope"' in told.out and "it-ran" not in [path.name for path in tmp_path.rglob("*")]
    assert "\x1b[2J" not in told.out + told.err


def test_a_link_in_a_folder_to_be_measured_is_not_followed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An agent's folder may be measured by a person, whose files a compiler would print."""
    (tmp_path / "solution.toml").write_text('language = "cpp"\nsources = ["kernel.cpp"]\n')
    (tmp_path / "kernel.cpp").symlink_to("/etc/hostname")
    monkeypatch.chdir(run)
    assert cli.main(["bench", "rope", "--device", "cpu", "--solution", str(tmp_path)]) == 1
    assert "kernel.cpp: is a symbolic link" in capsys.readouterr().err
