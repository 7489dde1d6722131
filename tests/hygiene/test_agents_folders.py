"""What an agent can leave in its worktree and beside it: the worker takes plain files of solution/, no more.

Most tests end with the same worker at work: nothing that its agent leaves takes it away from that.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swarm.agents import mailbox
from swarm.agents.mailbox import ANSWER, REQUEST, AnswerState
from swarm.layout import AgentPaths
from tests.gitkit import git
from tests.hygiene.test_hub_of_others import script
from tests.support import Swarm, solution
from tests.test_worker import at_work, write_solution

FINAL = frozenset((AnswerState.JUDGED, AnswerState.REFUSED))
ID = "0" * 32


@pytest.fixture
def swarm(tmp_path: Path) -> Iterator[Swarm]:
    with at_work(tmp_path / "root") as swarm:
        yield swarm


def hand_in(swarm: Swarm, message: str = "Double the block") -> mailbox.Answer:
    ticket = mailbox.leave(swarm.paths.agent("w1"), message)
    swarm.crew[0].step()
    return mailbox.wait(swarm.paths.agent("w1"), ticket, 1.0, frozenset(AnswerState))


def assert_still_at_work(swarm: Swarm) -> None:
    write_solution(swarm, solution(BLOCK=2, UNROLL=1))
    answer = hand_in(swarm)
    assert answer.state is AnswerState.COMMITTED, answer.reason
    assert swarm.hub.solution_files(answer.commit) == solution(BLOCK=2, UNROLL=1)


# the worktree


def submodule(worktree: Path, payload: Path) -> None:
    """A submodule by git's own command, from a repository beside it; only its top is looked at."""
    other = worktree / "other"
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    git(other / ".git", "commit", "-q", "--allow-empty", "-m", "x", cwd=other)
    words = ("-c", "protocol.file.allow=always", "submodule", "add", "-q", "./other", "sub")
    git(worktree / ".git", *words, cwd=worktree, check=False)
    (worktree / ".gitmodules").write_text(
        f'[submodule "s"]\n\tpath = s\n\turl = ext::{payload}\n\tupdate = !{payload}\n'
    )


def pointer(worktree: Path, payload: Path) -> None:
    """A .git file that names a repository of the agent's own, which runs a program at every look."""
    evil = worktree / "evil"
    subprocess.run(["git", "init", "-q", str(evil)], check=True)
    git(evil / ".git", "config", "core.fsmonitor", str(payload))
    git(evil / ".git", "config", "core.worktree", "/")
    (worktree / ".git").write_text(f"gitdir: {evil}/.git\n")


def attributes(worktree: Path, payload: Path) -> None:
    """Filters at the top and inside; the hub's configuration, which every worktree shares, defines them."""
    for key in ("clean", "smudge", "process"):
        git(worktree / ".git", "config", f"filter.evil.{key}", str(payload), cwd=worktree)
    (worktree / ".gitattributes").write_text("* filter=evil\n")


def no_more_git(worktree: Path, payload: Path) -> None:
    git(worktree / ".git", "config", "core.repositoryformatversion", "99", cwd=worktree)
    (worktree / ".git").unlink()
    (worktree / ".git").symlink_to("/")


def names_at_the_top(worktree: Path, payload: Path) -> None:
    for name in (
        "--upload-pack=touch it-ran",
        "ext::sh -c touch% it-ran",
        "a\nb",
        "$(touch it-ran)",
        "\udcff",
    ):
        (worktree / name).write_text("x")
    (worktree / "Notes.md").write_text("x")
    (worktree / "SOLUTION").mkdir()


@pytest.mark.parametrize("plant", [submodule, pointer, attributes, no_more_git, names_at_the_top])
def test_what_lies_outside_the_solution_is_neither_asked_nor_taken(
    swarm: Swarm, tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    payload, mark = script(tmp_path)
    worktree = swarm.paths.worktree("w1")
    plant(worktree, payload)
    assert_still_at_work(swarm)
    head = git(swarm.paths.hub, "ls-tree", "-r", "--name-only", "refs/heads/work/rope/w1-1").splitlines()
    before = git(swarm.paths.hub, "ls-tree", "-r", "--name-only", "refs/heads/problem/rope").splitlines()
    assert head == before
    swarm.start("norm")
    swarm.hub.worktree("w1", swarm.hub.assign("norm", "w1"))
    assert not mark.exists() and not (worktree / "it-ran").exists()
    assert sorted(path.name for path in worktree.iterdir()) == sorted(
        [".git", *(name for name in {path.split("/")[0] for path in before})]
    )


def too_many(folder: Path) -> None:
    for number in range(40):
        (folder / f"f{number}.h").write_text("x")


def clash(folder: Path) -> None:
    (folder / "Kernel.cpp").write_text("x")


def option(folder: Path) -> None:
    (folder / "--upload-pack=touch it-ran").write_text("x")


def transport(folder: Path) -> None:
    (folder / "ext::sh -c touch% it-ran").write_text("x")


def line_break(folder: Path) -> None:
    (folder / "a\nb\x1b[2J").write_text("x")


def repository(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder / "nested")], check=True)


def up_and_away(folder: Path) -> None:
    (folder / "up").symlink_to("../../../../..")


def holes(folder: Path) -> None:
    with (folder / "huge.h").open("wb") as file:
        file.truncate(1 << 40)


def notes(folder: Path) -> None:
    (folder.parent / "NOTES.md").write_text("x" * 300_000)


@pytest.mark.parametrize(
    ("plant", "named"),
    [
        (too_many, "42 files"),
        (clash, "only in case"),
        (option, "path '--upload-pack=touch it-ran' is not allowed"),
        (transport, "ext::sh"),
        (line_break, "not allowed"),
        (repository, "nested/.git' is not allowed"),
        (up_and_away, "solution/up is a symbolic link"),
        (holes, "solution/huge.h is too large (1099511627776 bytes)"),
        (notes, "NOTES.md: 300000 bytes"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_lies_in_the_solution_and_may_not_is_refused_by_name(
    swarm: Swarm, plant: Callable[[Path], None], named: str
) -> None:
    plant(swarm.paths.worktree("w1") / "solution")
    answer = hand_in(swarm)
    assert answer.state is AnswerState.REFUSED
    assert named in answer.reason
    assert answer.reason.isprintable() and len(answer.reason) <= 500
    assert len(swarm.hub.commits("rope")) == 1
    swarm.start("norm")
    swarm.hub.worktree("w1", swarm.hub.assign("norm", "w1"))


def test_folders_deeper_than_any_stack_are_removed(swarm: Swarm) -> None:
    here = Path.cwd()
    os.chdir(swarm.paths.worktree("w1"))
    for _ in range(3_000):
        os.mkdir("d")  # noqa: PTH102  the whole path would be too long for a Path
        os.chdir("d")
    os.chdir(here)
    swarm.start("norm")
    try:
        path = swarm.hub.worktree("w1", swarm.hub.assign("norm", "w1"))
        assert not (path / "d").exists()
    finally:  # pytest could not remove them either
        subprocess.run(["rm", "-rf", str(swarm.paths.worktree("w1") / "d")], check=True)


# beside the worktree: requests and answers


def folder_of(agent: AgentPaths) -> Path:
    agent.submit_requests.mkdir(parents=True, exist_ok=True)
    return agent.submit_requests


def answer_pipe(folder: Path) -> None:
    os.mkfifo(folder / f"{ID}{ANSWER}")


def answer_folder(folder: Path) -> None:
    (folder / f"{ID}{ANSWER}").mkdir()


def answer_endless(folder: Path) -> None:
    (folder / f"{ID}{ANSWER}").symlink_to("/dev/zero")


def answer_deep(folder: Path) -> None:
    (folder / f"{ID}{ANSWER}").write_text("[" * 50_000)


def answer_lies(folder: Path) -> None:
    """Answers that would be completed, if they were believed, where their id or their problem says."""
    [record] = (folder.parents[4] / "results").glob("test/verdicts/rope/*.json")
    said = {
        "id": ID,
        "state": "committed",
        "problem": "rope",
        "commit": "x",
        "verdict": record.stem,
        "reason": "",
    }
    lies = [
        {"id": "../../../it-ran"},
        {"problem": "../../x"},
        {"verdict": "../../../../etc/passwd"},
        {"state": 7},
    ]
    for number, lie in enumerate(lies):
        (folder / f"{number:032x}{ANSWER}").write_text(json.dumps(said | lie))


def request_folder(folder: Path) -> None:
    (folder / f"{ID}{REQUEST}").mkdir()


def request_names(folder: Path) -> None:
    for name in ("--upload-pack=x", "ext::sh", "a\nb", "\udcff", "F" * 32, ""):
        (folder / f"{name}{REQUEST}").write_text('{"message": "x"}')


def many_requests(folder: Path) -> None:
    for number in range(300):
        (folder / f"{number:032x}{REQUEST}").write_text("{}")


def no_folder(folder: Path) -> None:
    folder.rmdir()
    folder.write_text("a file")


@pytest.mark.parametrize(
    "plant",
    [
        answer_pipe,
        answer_folder,
        answer_endless,
        answer_deep,
        answer_lies,
        request_folder,
        request_names,
        many_requests,
        no_folder,
    ],
)
def test_requests_and_answers_that_are_none_stop_nobody(
    swarm: Swarm, tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    folder = folder_of(swarm.paths.agent("w1"))
    plant(folder)
    for _ in range(3):
        swarm.round()
    if folder.is_file():
        folder.unlink()
    assert len(swarm.hub.commits("rope")) == 1
    for path in folder.glob(f"*{REQUEST}"):
        subprocess.run(["rm", "-rf", "--", str(path)], check=True)
    assert_still_at_work(swarm)
    assert not [path for path in tmp_path.rglob("*") if "it-ran" in path.name]


# the planner's view of the workers


def status_pipe(agents: Path) -> None:
    (agents / "w7").mkdir()
    os.mkfifo(agents / "w7" / "status.md")


def status_folder(agents: Path) -> None:
    (agents / "w7" / "status.md").mkdir(parents=True)


def status_endless(agents: Path) -> None:
    (agents / "w7").mkdir()
    (agents / "w7" / "status.md").symlink_to("/dev/zero")


def status_names(agents: Path) -> None:
    for name in ("x | y\n| z", "--upload-pack=x", "W7", "\udcff", "w7\x1b[2J"):
        (agents / name).mkdir()
        (agents / name / "status.md").write_text("# w7\n\n- state: working\n")


@pytest.mark.parametrize("plant", [status_pipe, status_folder, status_endless, status_names])
def test_a_status_that_is_none_stops_no_planner(swarm: Swarm, plant: Callable[[Path], None]) -> None:
    plant(swarm.paths.agents)
    for _ in range(3):
        swarm.round()
    rows = [line for line in swarm.paths.board.read_text().splitlines() if line.startswith("| w")]
    assert [row.split(" | ")[0] for row in rows if "worker" not in row] in (["| w1"], ["| w1", "| w7"])
    assert_still_at_work(swarm)
