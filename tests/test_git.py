"""Objects that git itself accepts, refs that move once, and nothing planted that runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swarm.errors import BadInput, GitFailed, Raced, Refused
from swarm.git import MAX_BLOB_BYTES, STALE_LOCK_S, ZERO, RefChange, Repo
from swarm.gitobjects import EMPTY_TREE, MAX_TREE_DEPTH, Entry, check_path, regular_files
from tests.gitkit import git

REF = "refs/heads/x"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo(tmp_path / "hub.git")
    made.init_bare()
    return made


def put(repo: Repo, files: dict[str, bytes], parents: list[str] | None = None, message: str = "m") -> str:
    return repo.commit_tree(repo.write_tree(files), parents or [], message, "w1")


def test_written_objects_are_what_git_itself_writes(repo: Repo, tmp_path: Path) -> None:
    files = {"b": b"1", "a/x": b"", "a.txt": b"2\n", "a-b/c/d": b"\x00\xff", "ab": b"3", "ä": b"4"}
    tree = repo.write_tree(files)
    commit = repo.commit_tree(tree, [], "Subject\n\nWorker: w1\n", "w1")
    repo.update_refs([RefChange(REF, commit, ZERO)], "test")
    assert git(repo.git_dir, "fsck", "--strict", "--full") == ""
    (tmp_path / "out").mkdir()
    git(repo.git_dir, f"--work-tree={tmp_path / 'out'}", "checkout", "-f", "x")
    written = {
        p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*") if p.is_file()
    }
    assert written == set(files)
    git(repo.git_dir, f"--work-tree={tmp_path / 'out'}", "add", "-A")
    assert git(repo.git_dir, "write-tree") == tree


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.dictionaries(st.from_regex(r"[a-c.-]{1,3}(/[a-c]{1,2}){0,2}", fullmatch=True), st.binary(max_size=9))
)
def test_trees_come_back_as_they_were_written(repo: Repo, files: dict[str, bytes]) -> None:
    try:
        tree = repo.write_tree(files)
    except BadInput:
        return
    assert {path: repo.blob(entry.sha) for path, entry in repo.read_tree(tree).items()} == files


def test_tree_without_files_is_the_empty_tree(repo: Repo) -> None:
    assert repo.write_tree({}) == EMPTY_TREE
    assert repo.read_tree(EMPTY_TREE) == {}


def test_commit_comes_back_with_its_parts(repo: Repo) -> None:
    root = put(repo, {"a": b"1"})
    child = put(repo, {"a": b"2"}, [root], "Subject\n\nBody.\n\nWorker: w1\nAgent: tuner\n")
    info = repo.commit(child)
    assert (info.sha, info.parents, info.author) == (child, (root,), "w1")
    assert info.tree == repo.write_tree({"a": b"2"})
    assert (info.message.subject, info.message.body) == ("Subject", "Body.")
    assert info.message.trailers == {"Worker": "w1", "Agent": "tuner"}
    assert abs(info.committed_s - time.time()) < 60


def test_objects_stay_readable_when_somebody_packs_them(repo: Repo) -> None:
    first = put(repo, {"a": b"1"})
    repo.update_refs([RefChange(REF, first, ZERO)], "test")
    assert repo.commit(first).tree
    git(repo.git_dir, "repack", "-a", "-d", "-q")
    git(repo.git_dir, "prune-packed")
    assert repo.blob(repo.read_tree(repo.commit(first).tree)["a"].sha) == b"1"
    second = put(repo, {"a": b"2"}, [first])
    repo.update_refs([RefChange(REF, second, first)], "test")
    git(repo.git_dir, "gc", "-q", "--prune=now")
    assert repo.blob(repo.read_tree(repo.commit(second).tree)["a"].sha) == b"2"
    assert repo.refs("refs/heads/") == {REF: second}
    repo.close()


def test_missing_and_wrong_objects_are_named(repo: Repo) -> None:
    with pytest.raises(BadInput, match=r"object f{40} is missing"):
        repo.commit("f" * 40)
    with pytest.raises(BadInput, match=r"is a tree of .* not a commit"):
        repo.commit(repo.write_tree({"a": b""}))


def test_blob_above_the_limit_is_refused_unread(repo: Repo) -> None:
    sha = repo._write(b"blob", b"\0" * (MAX_BLOB_BYTES + 1))
    with pytest.raises(BadInput, match=f"of {MAX_BLOB_BYTES + 1} bytes"):
        repo.blob(sha)


def test_tree_that_explodes_is_refused(repo: Repo) -> None:
    sha = repo._write(b"tree", b"100644 x\0" + bytes.fromhex(repo._write(b"blob", b"")))
    for _ in range(MAX_TREE_DEPTH - 2):
        names = b"".join(b"40000 %c\0" % letter + bytes.fromhex(sha) for letter in b"abcdefgh")
        sha = repo._write(b"tree", names)
    with pytest.raises(BadInput, match="too many files"):
        repo.read_tree(sha)


def test_deep_tree_is_refused(repo: Repo) -> None:
    sha = EMPTY_TREE
    repo.write_tree({})
    for _ in range(3 * MAX_TREE_DEPTH):
        sha = repo._write(b"tree", b"40000 a\0" + bytes.fromhex(sha))
    with pytest.raises(BadInput, match="too many files"):
        repo.read_tree(sha)


@pytest.mark.parametrize(
    "path",
    [
        *("", "/etc/passwd", "../x", "a/../b", "a//b", "./a", ".git/config", "a/.gitattributes", ".GIT/x"),
        *(".gitmodules", "a\nb", "a\0b", "a\\b", "c:x", "x" * 201, "/".join("a" * 20), "\udcff"),
    ],
    ids=ascii,
)
def test_unsafe_path_never_enters_a_tree(repo: Repo, path: str) -> None:
    with pytest.raises(BadInput, match="is not allowed"):
        check_path(path)
    with pytest.raises(BadInput, match="is not allowed"):
        repo.write_tree({path: b""})


@pytest.mark.parametrize("files", [{"a": b"", "a/b": b""}, {"a/b": b"", "a": b""}], ids=str)
def test_file_and_folder_of_one_name_are_refused(repo: Repo, files: dict[str, bytes]) -> None:
    with pytest.raises(BadInput, match="same name"):
        repo.write_tree(files)


@pytest.mark.parametrize(("mode", "kind"), [(0o120000, "symbolic link"), (0o160000, "file of mode 160000")])
def test_only_regular_files_are_taken(mode: int, kind: str) -> None:
    with pytest.raises(BadInput, match=f"solution/k is a {kind}"):
        regular_files({"solution/k": Entry(mode, "0" * 40)}, ["solution/k"])


def test_author_cannot_break_out_of_its_line(repo: Repo) -> None:
    with pytest.raises(BadInput, match="author"):
        repo.commit_tree(EMPTY_TREE, [], "m", "x\ncommitter y")


def test_ref_that_moved_is_raced_and_stays(repo: Repo) -> None:
    a, b, c = (put(repo, {"f": text}) for text in (b"a", b"b", b"c"))
    repo.update_refs([RefChange(REF, a, ZERO)], "test")
    for old in (ZERO, b):
        with pytest.raises(Raced):
            repo.update_refs([RefChange(REF, c, old)], "test")
    with pytest.raises(Raced):
        repo.update_refs([RefChange("refs/heads/missing", c, a)], "test")
    assert repo.refs("refs/heads/") == {REF: a}


def test_several_refs_move_together_or_not_at_all(repo: Repo) -> None:
    a, b = (put(repo, {"f": text}) for text in (b"a", b"b"))
    other = "refs/heads/y"
    repo.update_refs([RefChange(REF, a, ZERO), RefChange(other, a, ZERO)], "test")
    with pytest.raises(Raced):
        repo.update_refs([RefChange(REF, b, a), RefChange(other, b, ZERO)], "test")
    assert repo.refs("refs/heads/") == {REF: a, other: a}


def test_of_racing_processes_none_loses_an_update(repo: Repo) -> None:
    repo.update_refs([RefChange(REF, put(repo, {"n": b"0"}), ZERO)], "test")
    code = f"""
import random, sys, time
from pathlib import Path
from swarm.errors import Raced
from swarm.git import RefChange, Repo
repo, done = Repo(Path(sys.argv[1])), 0
while done < 15:
    old = repo.refs({REF!r})[{REF!r}]
    number = int(repo.blob(repo.read_tree(repo.commit(old).tree)["n"].sha))
    new = repo.commit_tree(repo.write_tree({{"n": b"%d" % (number + 1)}}), [old], "m", "w")
    try:
        repo.update_refs([RefChange({REF!r}, new, old)], "race")
        done += 1
    except Raced:
        time.sleep(random.random() * 0.02)
"""
    racers = [subprocess.Popen([sys.executable, "-c", code, str(repo.git_dir)]) for _ in range(3)]
    assert [racer.wait(timeout=120) for racer in racers] == [0, 0, 0]
    head = repo.refs(REF)[REF]
    assert repo.blob(repo.read_tree(repo.commit(head).tree)["n"].sha) == b"45"
    assert git(repo.git_dir, "rev-list", "--count", "x") == "46"


def test_lock_left_by_a_killed_git_is_removed(repo: Repo) -> None:
    commit = put(repo, {"a": b"1"})
    lock = repo.git_dir / (REF + ".lock")
    lock.write_bytes(b"")
    old = time.time() - STALE_LOCK_S - 5
    os.utime(lock, (old, old))
    repo.update_refs([RefChange(REF, commit, ZERO)], "test")
    assert repo.refs(REF) == {REF: commit}
    assert not lock.exists()


def test_lock_that_somebody_may_hold_is_waited_for_and_respected(repo: Repo) -> None:
    commit = put(repo, {"a": b"1"})
    lock = repo.git_dir / (REF + ".lock")
    future = time.time() + 1000
    lock.write_bytes(b"")
    os.utime(lock, (future, future))
    repo.stale_lock_s = 0.1
    with pytest.raises(Raced, match="File exists"):
        repo.update_refs([RefChange(REF, commit, ZERO)], "test")
    assert lock.exists()
    releasing = threading.Timer(0.5, lock.unlink)
    releasing.start()
    repo.update_refs([RefChange(REF, commit, ZERO)], "test")
    releasing.join()
    assert repo.refs(REF) == {REF: commit}


def test_interrupted_creation_is_finished(tmp_path: Path) -> None:
    (tmp_path / "hub.git").mkdir()
    (tmp_path / "hub.git" / "HEAD").write_text("ref: refs/heads/main\n")
    with Repo(tmp_path / "hub.git") as repo:
        repo.init_bare()
        repo.init_bare()
        repo.update_refs([RefChange(REF, put(repo, {"a": b""}), ZERO)], "test")


def test_git_sees_nothing_of_the_callers_environment(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "GIT_DIR": "/nonexistent",
        "GIT_OBJECT_DIRECTORY": "/nonexistent",
        "GIT_INDEX_FILE": "/nonexistent",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.bare",
        "GIT_CONFIG_VALUE_0": "nonsense",
        "GIT_TRACE": "2",
    }.items():
        monkeypatch.setenv(name, value)
    commit = put(repo, {"a": b"1"})
    repo.update_refs([RefChange(REF, commit, ZERO)], "test")
    assert repo.refs("refs/heads/") == {REF: commit}


def test_command_that_takes_too_long_is_killed_with_its_children(repo: Repo, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    repo.timeout_s = 0.5
    start = time.monotonic()
    with pytest.raises(GitFailed, match=r"took more than 0\.5 s"):
        repo.run("-c", f"alias.slow=!sleep 300 & echo $! > {pid_file}; wait", "slow")
    assert time.monotonic() - start < 10
    child = int(pid_file.read_text())
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or " Z " in Path(f"/proc/{child}/stat").read_text():
            return
        time.sleep(0.05)
    raise AssertionError("the child of the killed command lives on")


def test_failing_command_says_what_git_said(repo: Repo) -> None:
    with pytest.raises(GitFailed, match="git rev-parse ended with 128: fatal: Needed a single revision"):
        repo.run("rev-parse", "--verify", "nonsense")


def test_full_disk_under_git_is_refused(repo: Repo) -> None:
    with pytest.raises(Refused, match="No space left on device"):
        repo.run("-c", "alias.full=!echo 'fatal: write error: No space left on device' >&2; exit 128", "full")


@pytest.mark.parametrize("damage", [b"", b"not zlib", None], ids=["empty", "garbage", "cut off"])
def test_corrupt_object_is_named(repo: Repo, damage: bytes | None) -> None:
    sha = repo.write_tree({"a": os.urandom(4000)})
    blob = repo.read_tree(sha)["a"].sha
    path = repo.git_dir / "objects" / blob[:2] / blob[2:]
    path.write_bytes(path.read_bytes()[:1000] if damage is None else damage)
    with pytest.raises(BadInput, match=f"object {blob} is (corrupt|missing)"):
        repo.blob(blob)
