"""Refs and configuration that somebody planted into the hub itself: not obeyed, and not in the way."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm.agents import mailbox
from swarm.cli import main as cli
from swarm.git import Repo
from swarm.gitprogram import CONFIG
from tests.gitkit import git
from tests.hygiene.plants import BEST, SEED
from tests.support import Swarm, make_root, params_of, solution
from tests.test_worker import at_work, write_solution


def script(folder: Path) -> tuple[Path, Path]:
    """Return a program that leaves a mark when it runs, and the mark."""
    mark, payload = folder / "it-ran", folder / "payload"
    payload.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    payload.chmod(0o755)
    return payload, mark


@pytest.fixture
def swarm(tmp_path: Path) -> Iterator[Swarm]:
    with Swarm(make_root(tmp_path / "root")) as swarm:
        swarm.start("norm", "rope", seed=SEED)
        yield swarm


def test_refs_that_are_in_the_way_are_put_aside_and_kept(swarm: Swarm) -> None:
    hub, head = swarm.paths.hub, swarm.hub.champions()["norm"]
    git(hub, "update-ref", "refs/heads/work/norm", head)
    git(hub, "update-ref", "refs/heads/work/rope/w1-1/x", head)
    git(hub, "update-ref", "refs/heads/work/rope/w1-2/y/z", head)
    swarm.until(swarm.is_quiet)
    assert {params_of(swarm.champion(name)) == BEST for name in ("norm", "rope")} == {True}
    kept = git(hub, "for-each-ref", "--format=%(objectname)", "refs/salvage/").splitlines()
    assert kept.count(head) >= 2


def test_refs_without_an_object_stop_neither_run_nor_report(
    swarm: Swarm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = swarm.paths.hub / "refs/heads/work/rope"
    folder.mkdir(parents=True)
    contents = {"m1-1": b"f" * 40, "m2-1": b"garbage", "m3-1": b"", "m4-1": b"\xff" * 9, "m5-1": b"ref: x"}
    for name, content in contents.items():
        (folder / name).write_bytes(content + b"\n")
    (folder / "m6-1").symlink_to("/etc/passwd")
    (folder / "--upload-pack=touch it-ran").write_text(swarm.hub.champions()["norm"] + "\n")
    swarm.until(swarm.is_quiet)
    assert params_of(swarm.champion("rope")) == BEST
    monkeypatch.chdir(swarm.root.path)
    assert cli.main(["report", "--run", "test"]) == 0, capsys.readouterr().err
    git(tmp_path, "clone", "-q", str(swarm.paths.hub_bundle), str(tmp_path / "clone"))
    listed = git(tmp_path / "clone" / ".git", "for-each-ref", "--format=%(refname)")
    assert listed.count("origin/work/") >= 2 and "origin/problem/rope" in listed
    assert "m1-1" not in listed and "upload-pack" not in listed
    assert git(tmp_path / "clone" / ".git", "symbolic-ref", "HEAD") == "refs/heads/problem/norm"


def test_a_branch_that_is_a_link_to_the_champion_does_not_move_it(tmp_path: Path) -> None:
    with at_work(tmp_path) as swarm:
        before = swarm.hub.champions()["rope"]
        ref = swarm.paths.hub / "refs/heads/work/rope/w1-1"
        ref.write_text("ref: refs/heads/problem/rope\n")
        write_solution(swarm, solution(BLOCK=13, UNROLL=1))
        ticket = mailbox.leave(swarm.paths.agent("w1"), "Become the champion")
        swarm.crew[0].step()
        assert mailbox.answer(swarm.paths.agent("w1"), ticket) is not None
        assert git(swarm.paths.hub, "rev-parse", "refs/heads/problem/rope") == before
        swarm.round()
        assert swarm.hub.champions()["rope"] == before


def test_a_worker_whose_head_is_no_tree_of_ours_gets_its_next_assignment_and_loses_nothing(
    tmp_path: Path,
) -> None:
    with at_work(tmp_path) as swarm:
        hub, head = swarm.paths.hub, swarm.hub.champions()["rope"]
        blob = git(hub, "rev-parse", f"{head}:reference.py")
        git(hub, "read-tree", head)
        git(hub, "update-index", "--add", "--cacheinfo", f"100644,{blob},.gitattributes")
        planted = git(hub, "commit-tree", "-p", head, "-m", "x", git(hub, "write-tree"))
        git(hub, "update-ref", "refs/heads/work/rope/w1-1", planted)
        write_solution(swarm, {"kernel.cpp": b"// not handed in yet\n"})
        swarm.start("norm")
        swarm.hub.worktree("w1", swarm.hub.assign("norm", "w1"))
        [saved] = git(hub, "for-each-ref", "--format=%(objectname)", "refs/salvage/w1/").splitlines()
        assert git(hub, "show", f"{saved}:solution/kernel.cpp") == "// not handed in yet"


HOSTILE_CONFIG = """[core]
\trepositoryformatversion = 99
\tbare = false
\tworktree = /
\tfsmonitor = {payload}
\tsshCommand = {payload}
\tpager = {payload}
\taskPass = {payload}
[extensions]
\tobjectFormat = sha256
\tworktreeConfig = true
[include]
\tpath = /dev/full
[hook "x"]
\tevent = reference-transaction
\tcommand = {payload}
[uploadpack]
\tpackObjectsHook = {payload}
[remote "origin"]
\turl = ext::{payload}
[diff]
\texternal = {payload}
"""


def test_configuration_of_the_hub_is_put_back_before_git_obeys_it(swarm: Swarm, tmp_path: Path) -> None:
    payload, mark = script(tmp_path)
    hub = swarm.paths.hub
    (hub / "config").write_text(HOSTILE_CONFIG.format(payload=payload))
    (hub / "info").mkdir(exist_ok=True)
    (hub / "info" / "attributes").write_text("* filter=evil diff=evil merge=evil\n")
    (hub / "info" / "grafts").write_text(f"{swarm.hub.champions()['rope']} {'f' * 40}\n")
    (hub / "hooks").mkdir(exist_ok=True)
    for name in ("reference-transaction", "post-index-change", "post-checkout"):
        shutil.copy(payload, hub / "hooks" / name)
    swarm.until(swarm.is_quiet)
    swarm.hub.bundle()
    assert params_of(swarm.champion("rope")) == BEST
    assert (hub / "config").read_bytes() == CONFIG
    assert not mark.exists()


def test_the_same_configuration_is_obeyed_by_a_git_that_is_not_guarded(tmp_path: Path) -> None:
    """Else the test above could not fail: one line of it at a time, in a repository like the hub."""
    payload, mark = script(tmp_path)
    with Repo(tmp_path / "hub.git") as repo:
        repo.init_bare()
        commit = repo.commit_tree(repo.write_tree({"a": b"1"}), [], "m\n", "mallory")
        (repo.git_dir / "hooks").mkdir()
        shutil.copy(payload, repo.git_dir / "hooks" / "reference-transaction")
        git(repo.git_dir, "update-ref", "refs/heads/x", commit)
        assert mark.exists()
        (repo.git_dir / "config").write_text("[core]\n\trepositoryformatversion = 99\n")
        assert git(repo.git_dir, "for-each-ref", check=False) == ""
        assert repo.refs("refs/heads/") == {"refs/heads/x": commit}
