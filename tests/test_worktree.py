"""Worktrees of agents that may be hostile: nothing planted runs, nothing outside is read, no work is lost."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm.errors import BadInput
from swarm.hub import Hub, worktree
from swarm.hub.worktree import MAX_FILE_BYTES, MAX_FILES
from swarm.layout import WorkBranch
from tests.gitkit import FILES, SEED, git, hand_in, make_hub


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return make_hub(tmp_path, "p", "q")


@pytest.fixture
def branch(hub: Hub) -> WorkBranch:
    return hub.assign("p", "w1")


def files_in(path: Path) -> dict[str, bytes]:
    return {
        found.relative_to(path).as_posix(): found.read_bytes()
        for found in path.rglob("*")
        if found.is_file() and found.name != ".git"
    }


def salvaged(hub: Hub) -> dict[str, str]:
    out = git(hub.paths.hub, "for-each-ref", "--format=%(refname) %(objectname)", "refs/salvage/")
    return dict(line.split(" ") for line in out.splitlines())


# making and keeping


def test_new_worktree_holds_the_branch_and_is_clean_for_git(hub: Hub, branch: WorkBranch) -> None:
    path = hub.worktree("w1", branch)
    assert files_in(path) == {**FILES, **{f"solution/{name}": data for name, data in SEED.items()}}
    status = git(path / ".git", "status", "--porcelain", "--branch", cwd=path)
    assert status == "## work/p/w1-1"


def test_asking_again_keeps_unsaved_work(hub: Hub, branch: WorkBranch) -> None:
    path = hub.worktree("w1", branch)
    (path / "solution" / "kernel.cpp").write_bytes(b"in progress")
    with Hub(hub.paths) as restarted:
        assert restarted.worktree("w1", branch) == path
    assert (path / "solution" / "kernel.cpp").read_bytes() == b"in progress"
    assert salvaged(hub) == {}


def test_hand_in_leaves_the_worktree_clean_for_git(hub: Hub, branch: WorkBranch) -> None:
    path = hub.worktree("w1", branch)
    (path / "solution" / "kernel.cpp").write_bytes(b"faster")
    (path / "NOTES.md").write_bytes(b"why")
    handed = hub.read_worktree("w1")
    assert handed.notes == b"why"
    assert handed.solution == {**SEED, "kernel.cpp": b"faster"}
    hub.submit("w1", branch, handed.solution, handed.notes, "Try", {})
    assert git(path / ".git", "status", "--porcelain", cwd=path) == ""


def test_next_assignment_replaces_the_files_and_salvages_unsaved_work(hub: Hub, branch: WorkBranch) -> None:
    path = hub.worktree("w1", branch)
    head = hand_in(hub, branch, "saved")
    (path / "solution" / "kernel.cpp").write_bytes(b"not saved")
    (path / "NOTES.md").write_bytes(b"thoughts")
    (path / "junk").write_bytes(b"x")
    following = hub.assign("q", "w1")
    assert hub.worktree("w1", following) == path
    assert files_in(path) == {**FILES, **{f"solution/{name}": data for name, data in SEED.items()}}
    ((ref, commit),) = salvaged(hub).items()
    assert ref.startswith("refs/salvage/w1/")
    assert hub.commit(commit).parents == (head,)
    assert hub.solution_files(commit)["kernel.cpp"] == b"not saved"
    assert git(hub.paths.hub, "show", f"{commit}:NOTES.md") == "thoughts"


def test_clean_worktree_leaves_no_salvage(hub: Hub, branch: WorkBranch) -> None:
    hub.worktree("w1", branch)
    hub.worktree("w1", hub.assign("q", "w1"))
    assert salvaged(hub) == {}


def test_salvage_takes_what_it_can_and_names_the_rest(hub: Hub, branch: WorkBranch) -> None:
    path = hub.worktree("w1", branch)
    (path / "solution" / "link").symlink_to("/etc/passwd")
    (path / "solution" / "good.h").write_bytes(b"keep")
    hub.worktree("w1", hub.assign("q", "w1"))
    (commit,) = salvaged(hub).values()
    assert hub.solution_files(commit) == {**SEED, "good.h": b"keep"}
    assert "solution/link is a symbolic link" in hub.commit(commit).message.body


def test_unknown_branch_is_named(hub: Hub) -> None:
    with pytest.raises(BadInput, match="no branch refs/heads/work/p/w1-5"):
        hub.worktree("w1", WorkBranch("p", "w1", 5))


# states a kill can leave


def half_removed(hub: Hub, path: Path) -> None:
    (hub.paths.hub / "worktrees" / "w1" / "index").unlink()
    shutil.rmtree(path / "solution")


def folder_only(hub: Hub, path: Path) -> None:
    shutil.rmtree(hub.paths.hub / "worktrees" / "w1")


def registration_only(hub: Hub, path: Path) -> None:
    shutil.rmtree(path)


def half_registered(hub: Hub, path: Path) -> None:
    shutil.rmtree(path)
    (hub.paths.hub / "worktrees" / "w1" / "gitdir").write_bytes(b"")


def stale_index_lock(hub: Hub, path: Path) -> None:
    (hub.paths.hub / "worktrees" / "w1" / "index.lock").write_bytes(b"")


@pytest.mark.parametrize(
    "damage", [half_removed, folder_only, registration_only, half_registered, stale_index_lock]
)
@pytest.mark.parametrize("move", [False, True], ids=["same branch", "next branch"])
def test_worktree_is_made_whole_again(
    hub: Hub, branch: WorkBranch, damage: Callable[[Hub, Path], None], move: bool
) -> None:
    path = hub.worktree("w1", branch)
    damage(hub, path)
    wanted = hub.assign("q", "w1") if move else branch
    hub.worktree("w1", wanted)
    assert files_in(path) == {**FILES, **{f"solution/{name}": data for name, data in SEED.items()}}
    commit = hand_in(hub, wanted, "works")
    assert git(path / ".git", "rev-parse", "HEAD", cwd=path) == commit
    listed = git(hub.paths.hub, "worktree", "list", "--porcelain")
    assert listed.count("branch refs/heads/work/") == 1


# hostile agents


@pytest.fixture
def canary(tmp_path: Path) -> tuple[Path, Path]:
    """A script that leaves a file when it runs."""
    mark, script = tmp_path / "it-ran", tmp_path / "payload"
    script.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    script.chmod(0o755)
    return mark, script


def everything_we_do(hub: Hub, branch: WorkBranch) -> None:
    path = hub.worktree("w1", branch)
    (path / "solution" / "kernel.cpp").write_bytes(b"changed")
    handed = hub.read_worktree("w1")
    commit = hub.submit("w1", branch, handed.solution, handed.notes, "Try", {})
    hub.commits("p"), hub.solution_files(commit), hub.changed_outside(commit, ["solution/**"])
    assert "+changed" in hub.diff(hub.epoch("p").commit, commit)
    hub.merge("p", commit, hub.champions()["p"], "Merge\n")
    (path / "solution" / "kernel.cpp").write_bytes(b"unsaved")
    hub.worktree("w1", hub.assign("q", "w1"))
    hub.bundle()


def test_planted_configuration_hooks_and_filters_never_run(
    hub: Hub, branch: WorkBranch, canary: tuple[Path, Path]
) -> None:
    mark, script = canary
    path = hub.worktree("w1", branch)
    for setting, value in {
        "core.fsmonitor": str(script),
        "core.hooksPath": str(script.parent / "hooks"),
        "core.sshCommand": str(script),
        "core.pager": str(script),
        "filter.evil.clean": str(script),
        "filter.evil.smudge": str(script),
        "filter.evil.process": str(script),
        "diff.evil.textconv": str(script),
        "diff.evil.command": str(script),
        "diff.external": str(script),
        "gpg.program": str(script),
        "commit.gpgSign": "true",
    }.items():
        git(path / ".git", "config", setting, value, cwd=path)
    for hooks in (hub.paths.hub / "hooks", script.parent / "hooks"):
        hooks.mkdir(exist_ok=True)
        for name in (
            "post-checkout",
            "reference-transaction",
            "pre-commit",
            "post-commit",
            "post-index-change",
        ):
            shutil.copy(script, hooks / name)
    for attributes in (path / ".gitattributes", hub.paths.hub / "info" / "attributes"):
        attributes.parent.mkdir(exist_ok=True)
        attributes.write_text("* filter=evil diff=evil\n")
    # The guards are what holds, not luck: the same plant does run in an unguarded git.
    git(path / ".git", "status", cwd=path)
    assert mark.exists()
    mark.unlink()
    everything_we_do(hub, branch)
    assert not mark.exists()


def test_replaced_dot_git_is_never_asked(hub: Hub, branch: WorkBranch, canary: tuple[Path, Path]) -> None:
    mark, script = canary
    path = hub.worktree("w1", branch)
    (path / ".git").unlink()
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    git(path / ".git", "config", "core.fsmonitor", str(script))
    git(path / ".git", "config", "core.worktree", "/")
    everything_we_do(hub, branch)
    assert not mark.exists()
    assert (path / ".git").is_file()


def link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def folder_link(path: Path) -> None:
    path.symlink_to("/etc")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        here = Path.cwd()
        os.chdir(path.parent)  # the path of a socket must be short
        bound.bind(path.name)
        os.chdir(here)


def hard_link(path: Path) -> None:
    target = path.parent.parent.parent / "secret"
    target.write_bytes(b"secret")
    path.hardlink_to(target)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)


def many(path: Path) -> None:
    path.mkdir()
    for number in range(MAX_FILES + 1):
        (path / str(number)).touch()


def odd_name(path: Path) -> None:
    (path.parent / os.fsdecode(b"k\xff\n.h")).write_bytes(b"x")


def nested_repository(path: Path) -> None:
    (path / ".git").mkdir(parents=True)
    (path / ".git" / "config").write_bytes(b"x")


def deep(path: Path) -> None:
    path = path.joinpath(*"abcdefghijklmnopqrs")
    path.mkdir(parents=True)
    (path / "x").write_bytes(b"x")


@pytest.mark.parametrize(
    ("plant", "named"),
    [
        (link, r"solution/x is a symbolic link"),
        (folder_link, r"solution/x is a symbolic link"),
        (pipe, r"solution/x is not a regular file"),
        (listening, r"solution/x cannot be read"),
        (hard_link, r"solution/x is not a regular file with one name"),
        (huge, rf"solution/x is too large \({MAX_FILE_BYTES + 1} bytes\)"),
        (many, rf"solution/x holds more than {MAX_FILES} files"),
        (odd_name, r"k.*udcff.*is not allowed"),
        (nested_repository, r"solution/x/\.git' is not allowed"),
        (deep, r"is not allowed"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_cannot_be_taken_is_named_and_nothing_is_read(
    hub: Hub, branch: WorkBranch, plant: Callable[[Path], None], named: str
) -> None:
    path = hub.worktree("w1", branch)
    plant(path / "solution" / "x")
    with pytest.raises(BadInput, match=named) as caught:
        hub.read_worktree("w1")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["solution", "NOTES.md"])
def test_link_in_place_of_the_solution_or_the_notes_is_not_followed(
    hub: Hub, branch: WorkBranch, name: str
) -> None:
    path = hub.worktree("w1", branch)
    if name == "solution":
        shutil.rmtree(path / name)
    (path / name).symlink_to("/etc")
    with pytest.raises(BadInput, match=f"{name} is a symbolic link"):
        hub.read_worktree("w1")


def test_link_in_place_of_the_worktree_is_not_followed_and_its_target_survives(
    hub: Hub, branch: WorkBranch, tmp_path: Path
) -> None:
    path = hub.worktree("w1", branch)
    victim = tmp_path / "victim"
    (victim / "solution").mkdir(parents=True)
    (victim / "solution" / "k.cpp").write_bytes(b"private")
    shutil.rmtree(path)
    path.symlink_to(victim)
    with pytest.raises(BadInput, match="worktree cannot be read"):
        hub.read_worktree("w1")
    hub.worktree("w1", hub.assign("q", "w1"))
    assert not path.is_symlink()
    assert files_in(victim) == {"solution/k.cpp": b"private"}


def test_links_inside_a_removed_worktree_are_not_followed(
    hub: Hub, branch: WorkBranch, tmp_path: Path
) -> None:
    path = hub.worktree("w1", branch)
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").write_bytes(b"private")
    (path / "away").symlink_to(tmp_path / "victim")
    hub.worktree("w1", hub.assign("q", "w1"))
    assert (tmp_path / "victim" / "file").exists()


def test_worktree_without_rights_can_still_be_removed(hub: Hub, branch: WorkBranch) -> None:
    path = hub.worktree("w1", branch)
    (path / "a" / "b").mkdir(parents=True)
    (path / "a" / "b" / "c").touch()
    (path / "a" / "b").chmod(0)
    (path / "a").chmod(0)
    hub.worktree("w1", hub.assign("q", "w1"))
    assert not (path / "a").exists()


def test_missing_solution_is_an_empty_one(hub: Hub, branch: WorkBranch) -> None:
    path = hub.worktree("w1", branch)
    shutil.rmtree(path / "solution")
    assert hub.read_worktree("w1").solution == {}


def test_file_with_no_rights_is_named(hub: Hub, branch: WorkBranch) -> None:
    path = hub.worktree("w1", branch)
    (path / "solution" / "kernel.cpp").chmod(0)
    if os.access(path / "solution" / "kernel.cpp", os.R_OK):  # root reads everything
        assert worktree.read_files(path)["solution/kernel.cpp"] == SEED["kernel.cpp"]
        return
    with pytest.raises(BadInput, match=r"solution/kernel\.cpp cannot be read: Permission denied"):
        hub.read_worktree("w1")
