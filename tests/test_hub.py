"""Problems, epochs, work branches, hand-ins and merges on a real hub."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from swarm.errors import BadInput, Raced, Refused
from swarm.hub import Hub, epoch_hash, is_editable
from swarm.layout import RunPaths, WorkBranch
from swarm.messages import format_message
from tests.gitkit import COORDINATION, FILES, SEED, git, hand_in, make_hub

EDITABLE = ["solution/**", "NOTES.md"]


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return make_hub(tmp_path, "p")


def merge(hub: Hub, candidate: str) -> str:
    message = format_message("Merge it", "", {"Speedup": "1.25", "Worker": "w1"})
    return hub.merge("p", candidate, hub.champions()["p"], message)


# epochs


def test_first_epoch_is_a_root_commit_with_seed_and_frozen_files(hub: Hub) -> None:
    epoch = hub.epoch("p")
    assert hub.champions() == {"p": epoch.commit}
    assert (epoch.hash, epoch.number) == (epoch_hash(FILES), 1)
    assert hub.commit(epoch.commit).parents == ()
    assert hub.frozen_files(epoch.commit) == FILES
    assert hub.solution_files(epoch.commit) == SEED
    assert git(hub.paths.hub, "fsck", "--strict") == ""


def test_same_files_make_no_new_epoch(hub: Hub) -> None:
    before = hub.epoch("p")
    assert hub.ensure_epoch("p", FILES, {"other": b"seed"}, "planner") == before
    assert hub.champions() == {"p": before.commit}


def test_changed_file_starts_an_epoch_that_keeps_solution_and_notes(hub: Hub) -> None:
    branch = hub.assign("p", "w1")
    candidate = hub.submit("w1", branch, {**SEED, "kernel.cpp": b"fast"}, b"why", "Try", {})
    merged = merge(hub, candidate)
    old = hub.epoch("p")
    files = {**FILES, "definition.json": b'{"new": 1}', "problem.toml": b""}
    files.pop("workload.jsonl")
    new = hub.ensure_epoch("p", files, SEED, "planner")
    assert (new.number, hub.commit(new.commit).parents) == (2, (merged,))
    assert new.hash != old.hash
    assert hub.frozen_files(new.commit) == files
    assert hub.solution_files(new.commit)["kernel.cpp"] == b"fast"
    assert git(hub.paths.hub, "show", f"{new.commit}:NOTES.md").endswith("> why")
    assert [s.commit for s in hub.commits("p")] == [new.commit]


def test_commits_of_an_older_epoch_are_not_listed_and_no_more_are_taken(hub: Hub) -> None:
    branch = hub.assign("p", "w1")
    old = hand_in(hub, branch, "old")
    hub.ensure_epoch("p", {**FILES, "reference.py": b"new"}, SEED, "planner")
    assert old not in {s.commit for s in hub.commits("p")}
    assert not hub.is_current(branch)
    with pytest.raises(Refused, match="new epoch"):
        hand_in(hub, branch, "late")
    again = hub.assign("p", "w1")
    assert hub.is_current(again)
    assert hand_in(hub, again, "now") in {s.commit for s in hub.commits("p")}


@pytest.mark.parametrize("block", ["output", "rules", "tests", "board", "planner"])
def test_only_the_frozen_blocks_of_the_protocol_make_an_epoch(block: str) -> None:
    changed = COORDINATION.replace(f"[{block}]".encode(), f"[{block}]\nunknown = 1".encode())
    assert changed != COORDINATION
    differs = epoch_hash({**FILES, "COORDINATION.md": changed}) != epoch_hash(FILES)
    assert differs is (block in ("output", "rules", "tests"))


def test_epoch_hash_knows_names_from_contents_and_ignores_what_is_not_frozen() -> None:
    assert epoch_hash({"a": b"bc"}) != epoch_hash({"ab": b"c"})
    assert epoch_hash({"a": b"1", "b": b"2"}) == epoch_hash({"b": b"2", "a": b"1"})
    assert epoch_hash({"a": b"1"}) == epoch_hash({"a": b"1", "solution/x": b"2", "NOTES.md": b"3"})
    assert epoch_hash({"a": b"1"}) != epoch_hash({"a": b"1", "x/solution/x": b"2"})


def test_epoch_trailer_forged_on_a_work_branch_is_not_believed(hub: Hub) -> None:
    epoch = hub.epoch("p")
    branch = hub.assign("p", "w1")
    hub.submit("w1", branch, {**SEED, "a": b""}, None, "x\n\nEpoch: f\nEpoch-Number: 9", {})
    raw = git(
        hub.paths.hub,
        "commit-tree",
        "-p",
        branch.ref,
        "-m",
        "x\n\nEpoch: f\nEpoch-Number: 9",
        epoch.commit + "^{tree}",
    )
    git(hub.paths.hub, "update-ref", branch.ref, raw)
    assert hub.epoch("p") == epoch
    assert len(hub.commits("p")) == 3


# what is listed


def test_commits_come_with_branch_tree_epoch_and_trailers(hub: Hub) -> None:
    branch = hub.assign("p", "w1")
    commit = hand_in(hub, branch, "fast", "BLOCK 64 -> 256")
    seed, own = hub.commits("p")
    assert (seed.branch, seed.commit, seed.subject) == (None, hub.epoch("p").commit, "Seed p")
    assert (own.commit, own.branch, own.subject) == (commit, branch, "BLOCK 64 -> 256")
    assert own.trailers == {"Agent": "test", "Worker": "w1"}
    assert own.epoch == hub.epoch("p").hash
    assert own.tree == git(hub.paths.hub, "rev-parse", f"{commit}:solution")
    assert own.parents == (seed.commit,)


def test_merged_commit_stays_with_its_worker_and_is_listed_once(hub: Hub) -> None:
    one, two = hub.assign("p", "w1"), hub.assign("p", "w2")
    first = hand_in(hub, one, "1")
    merged = merge(hub, first)
    second = hand_in(hub, two, "2")
    three = hub.assign("p", "w3")
    third = hand_in(hub, three, "3")
    owners = {s.commit: s.branch for s in hub.commits("p")}
    assert owners == {hub.epoch("p").commit: None, first: one, merged: None, second: two, third: three}
    with make_hub(hub.paths.root) as fresh:
        assert {s.commit: s.branch for s in fresh.commits("p")} == owners
    order = [s.commit for s in hub.commits("p")]
    for listed in hub.commits("p"):
        assert all(order.index(parent) < order.index(listed.commit) for parent in listed.parents)


def test_merged_commit_without_its_branch_is_not_taken_for_the_planners(hub: Hub) -> None:
    branch = hub.assign("p", "w1")
    merged = merge(hub, hand_in(hub, branch, "fast"))
    git(hub.paths.hub, "update-ref", "-d", branch.ref)
    with Hub(hub.paths) as restarted:
        assert [item.commit for item in restarted.commits("p")] == [hub.epoch("p").commit, merged]


def test_another_process_sees_every_commit_at_once(hub: Hub) -> None:
    branch = hub.assign("p", "w1")
    with Hub(hub.paths) as other:
        for number in range(12):
            commit = hand_in(hub, branch, str(number))
            assert other.commits("p")[-1].commit == commit
            assert len(other.commits("p")) == number + 2


def test_refs_that_were_packed_are_seen(hub: Hub) -> None:
    branch = hub.assign("p", "w1")
    first = hand_in(hub, branch, "1")
    git(hub.paths.hub, "pack-refs", "--all")
    assert hub.commits("p")[-1].commit == first
    second = hand_in(hub, branch, "2")
    git(hub.paths.hub, "gc", "--quiet")
    assert [s.commit for s in hub.commits("p")][1:] == [first, second]
    assert hub.assign("p", "w1").number == 2


def test_problems_do_not_mix(tmp_path: Path) -> None:
    hub = make_hub(tmp_path, "p", "q")
    one, two = hub.assign("p", "w1"), hub.assign("q", "w2")
    a, b = hand_in(hub, one, "1"), hand_in(hub, two, "1")
    assert [s.commit for s in hub.commits("p")] == [hub.epoch("p").commit, a]
    assert [s.commit for s in hub.commits("q")] == [hub.epoch("q").commit, b]
    assert {found.work: found.head for found in hub.branches()} == {one: a, two: b}


def test_unknown_problem_and_branch_are_named(hub: Hub) -> None:
    with pytest.raises(BadInput, match="no problem 'nothing'"):
        hub.commits("nothing")
    with pytest.raises(BadInput, match="no branch refs/heads/work/p/w1-7"):
        hand_in(hub, WorkBranch("p", "w1", 7), "x")


def test_foreign_refs_are_ignored(hub: Hub) -> None:
    head = hub.champions()["p"]
    for ref in ("refs/heads/main", "refs/heads/work/p/UPPER-1", "refs/heads/work/p/w1", "refs/tags/x"):
        git(hub.paths.hub, "update-ref", ref, head)
    assert hub.branches() == []
    assert len(hub.commits("p")) == 1


# assignments and hand-ins


def test_numbers_of_a_worker_grow_over_all_problems(tmp_path: Path) -> None:
    hub = make_hub(tmp_path, "p", "q")
    branches = [hub.assign(problem, "w1") for problem in ("p", "q", "p")]
    assert branches == [WorkBranch("p", "w1", 1), WorkBranch("q", "w1", 2), WorkBranch("p", "w1", 3)]
    assert hub.assign("p", "w2").number == 1
    found = hub.assignment("w1")
    assert found is not None
    assert found.work == branches[-1]
    assert hub.assignment("nobody") is None


def test_assignment_starts_at_the_champion(hub: Hub) -> None:
    merged = merge(hub, hand_in(hub, hub.assign("p", "w1"), "fast"))
    hub.assign("p", "w2")
    found = hub.assignment("w2")
    assert found is not None
    assert found.head == merged


def test_hand_in_of_the_same_tree_is_the_head(hub: Hub) -> None:
    branch = hub.assign("p", "w1")
    first = hand_in(hub, branch, "1")
    assert hand_in(hub, branch, "1", "Another subject") == first
    assert len(hub.commits("p")) == 2


def test_hand_in_changes_solution_and_notes_only(hub: Hub) -> None:
    branch = hub.assign("p", "w1")
    commit = hub.submit("w1", branch, {"new.cpp": b"x", "sub/a.h": b"y"}, b"notes", "Try\n\nBody", {})
    assert hub.solution_files(commit) == {"new.cpp": b"x", "sub/a.h": b"y"}
    assert hub.frozen_files(commit) == FILES
    assert hub.changed_outside(commit, EDITABLE) == []
    assert hub.changed_outside(commit, ["solution/**"]) == ["NOTES.md"]
    assert hub.commit(commit).message.body == "Body"
    later = hub.submit("w1", branch, SEED, None, "Without new notes", {})
    assert git(hub.paths.hub, "show", f"{later}:NOTES.md") == "notes"


@pytest.mark.parametrize("path", ["../definition.json", "/x", "a/../../b", ".gitattributes", "a/.git/x", ""])
def test_hand_in_cannot_leave_the_solution(hub: Hub, path: str) -> None:
    branch = hub.assign("p", "w1")
    with pytest.raises(BadInput, match="is not allowed"):
        hub.submit("w1", branch, {path: b"x"}, None, "Try", {})
    assert len(hub.commits("p")) == 1


def test_worker_cannot_hand_in_on_the_branch_of_another(hub: Hub) -> None:
    branch = hub.assign("p", "w1")
    with pytest.raises(BadInput, match="not a branch of w2"):
        hub.submit("w2", branch, SEED, None, "Try", {})


def test_commit_that_touches_frozen_files_is_found_out(hub: Hub) -> None:
    branch = hub.assign("p", "w1")
    blob = subprocess.run(
        ["git", f"--git-dir={hub.paths.hub}", "hash-object", "-w", "--stdin"],
        input=b"easier",
        capture_output=True,
        check=True,
    ).stdout.decode()
    listing = git(hub.paths.hub, "ls-tree", branch.ref).replace(blob_id(hub, "reference.py"), blob.strip())
    tree = subprocess.run(
        ["git", f"--git-dir={hub.paths.hub}", "mktree"],
        input=listing.encode(),
        capture_output=True,
        check=True,
    ).stdout.decode()
    forged = git(hub.paths.hub, "commit-tree", "-p", branch.ref, "-m", "x", tree.strip())
    git(hub.paths.hub, "update-ref", branch.ref, forged)
    assert hub.changed_outside(forged, EDITABLE) == ["reference.py"]
    assert hub.commits("p")[-1].commit == forged


def blob_id(hub: Hub, path: str) -> str:
    return git(hub.paths.hub, "rev-parse", f"{hub.epoch('p').commit}:{path}")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("120000 blob {blob}\tkernel.cpp", "solution/kernel.cpp is a symbolic link"),
        ("160000 commit {commit}\tsub", "solution/sub is a file of mode 160000"),
        ("100644 blob {blob}\ta\\b", "is not allowed"),
    ],
)
def test_solution_with_anything_but_plain_files_is_named(hub: Hub, row: str, problem: str) -> None:
    branch = hub.assign("p", "w1")
    row = row.format(blob=blob_id(hub, "reference.py"), commit=branch.ref and hub.epoch("p").commit)
    inner = make_tree(hub, row)
    outer = make_tree(
        hub, git(hub.paths.hub, "ls-tree", branch.ref, "definition.json"), f"040000 tree {inner}\tsolution"
    )
    forged = git(hub.paths.hub, "commit-tree", "-p", branch.ref, "-m", "x", outer)
    git(hub.paths.hub, "update-ref", branch.ref, forged)
    listed = hub.commits("p")[-1]
    assert (listed.commit, listed.tree) == (forged, inner)
    with pytest.raises(BadInput, match=problem):
        hub.solution_files(forged)
    with pytest.raises(BadInput, match=problem):
        merge(hub, forged)


def make_tree(hub: Hub, *rows: str) -> str:
    done = subprocess.run(
        ["git", f"--git-dir={hub.paths.hub}", "mktree", "-z"],
        input="".join(f"{row}\0" for row in rows).encode(),
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip()


def test_commit_without_a_solution_is_listed_with_the_empty_tree(hub: Hub) -> None:
    branch = hub.assign("p", "w1")
    outer = make_tree(hub, git(hub.paths.hub, "ls-tree", branch.ref, "definition.json"))
    forged = git(hub.paths.hub, "commit-tree", "-p", branch.ref, "-m", "x", outer)
    git(hub.paths.hub, "update-ref", branch.ref, forged)
    assert hub.solution_files(forged) == {}
    assert "solution/kernel.cpp" not in hub.changed_outside(forged, EDITABLE)
    assert "reference.py" in hub.changed_outside(forged, EDITABLE)


def literal(hub: Hub, kind: str, content: bytes) -> str:
    done = subprocess.run(
        ["git", f"--git-dir={hub.paths.hub}", "hash-object", "-t", kind, "-w", "--stdin", "--literally"],
        input=content,
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip()


@pytest.mark.parametrize(
    ("tree", "named"),
    [
        ("", "malformed"),
        ("not a tree", "malformed"),
        ("f" * 40, "missing"),
        ("{broken}", None),
        ("{blob}", None),
    ],
)
def test_malformed_commit_spoils_its_own_branch_only(hub: Hub, tree: str, named: str | None) -> None:
    bad, good = hub.assign("p", "w1"), hub.assign("p", "w2")
    tree = tree.format(broken=literal(hub, "tree", b"100644 x"), blob=literal(hub, "blob", b"x"))
    head = hub.champions()["p"]
    forged = literal(hub, "commit", f"tree {tree}\nparent {head}\nauthor\ncommitter x\n\nm\n".encode())
    (hub.paths.hub / bad.ref).write_text(forged + "\n")
    commit = hand_in(hub, good, "fine")
    listed = {s.commit for s in hub.commits("p")}
    assert commit in listed
    assert hub.is_current(bad) is (forged in listed)
    for read in (hub.solution_files, lambda sha: hub.changed_outside(sha, EDITABLE)):
        with pytest.raises(BadInput, match=named or "malformed|not a tree"):
            read(forged)


@pytest.mark.parametrize("kind", ["tree", "blob"])
def test_branch_that_is_no_commit_spoils_itself_only(hub: Hub, kind: str) -> None:
    branch = hub.assign("p", "w1")
    (hub.paths.hub / branch.ref).write_text(literal(hub, kind, b"") + "\n")
    assert len(hub.commits("p")) == 1
    assert not hub.is_current(branch)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("solution/a", True),
        ("solution/a/b", True),
        ("NOTES.md", True),
        ("solution", False),
        ("solutions/a", False),
        ("x/solution/a", False),
        ("notes.md", False),
    ],
)
def test_editable_patterns_cover_what_they_say(path: str, expected: bool) -> None:
    assert is_editable(path, EDITABLE) is expected


# merges


def test_merge_is_the_measured_solution_with_both_parents(hub: Hub) -> None:
    seed = hub.champions()["p"]
    candidate = hub.submit("w1", hub.assign("p", "w1"), {"k.cpp": b"fast"}, b"why", "Try", {})
    merged = merge(hub, candidate)
    info = hub.commit(merged)
    assert hub.champions() == {"p": merged}
    assert info.parents == (seed, candidate)
    assert info.message.trailers["Speedup"] == "1.25"
    assert hub.solution_files(merged) == {"k.cpp": b"fast"}
    solution = [git(hub.paths.hub, "rev-parse", f"{sha}:solution") for sha in (merged, candidate)]
    assert solution[0] == solution[1]
    assert hub.changed_outside(merged, EDITABLE) == []


def test_merge_done_again_is_the_same_merge(hub: Hub) -> None:
    seed, candidate = hub.champions()["p"], hand_in(hub, hub.assign("p", "w1"), "fast")
    first = hub.merge("p", candidate, seed, "Merge\n")
    assert hub.merge("p", candidate, seed, "Merge\n") == first


def test_merge_on_a_champion_that_was_replaced_is_raced(hub: Hub) -> None:
    seed = hub.champions()["p"]
    one, two = (hand_in(hub, hub.assign("p", worker), worker) for worker in ("w1", "w2"))
    merged = hub.merge("p", one, seed, "Merge\n")
    with pytest.raises(Raced, match="champion of p is"):
        hub.merge("p", two, seed, "Merge\n")
    assert hub.champions() == {"p": merged}


def test_commit_of_an_older_epoch_is_never_merged(hub: Hub) -> None:
    old = hand_in(hub, hub.assign("p", "w1"), "old")
    new = hub.ensure_epoch("p", {**FILES, "reference.py": b"new"}, SEED, "planner")
    with pytest.raises(BadInput, match="no commit of the current epoch"):
        hub.merge("p", old, new.commit, "Merge\n")


# sharing


def test_bundle_can_be_cloned_and_tells_the_story(hub: Hub, tmp_path: Path) -> None:
    candidate = hand_in(hub, hub.assign("p", "w1"), "fast", "BLOCK 64 -> 256")
    merge(hub, candidate)
    hub.bundle()
    hub.bundle()
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(hub.paths.hub_bundle), str(clone)], check=True)
    story = git(clone / ".git", "log", "--topo-order", "--format=%s", "problem/p").splitlines()
    assert story == ["Merge it", "BLOCK 64 -> 256", "Seed p"]
    assert sorted(path.name for path in hub.paths.results.iterdir()) == ["hub.bundle"]


def test_diff_shows_the_solutions_only(hub: Hub) -> None:
    branch = hub.assign("p", "w1")
    commit = hub.submit("w1", branch, {**SEED, "kernel.cpp": b"int x = 1;\n"}, b"notes", "Try", {})
    shown = hub.diff(hub.epoch("p").commit, commit)
    assert "-int x = 0;\n+int x = 1;" in shown
    assert "notes" not in shown


# many at once


def test_workers_at_once_lose_nothing(tmp_path: Path) -> None:
    hub = make_hub(tmp_path, "p", "q")
    branches = [hub.assign("pq"[n % 2], f"w{n}") for n in range(4)]
    code = """
import sys
from pathlib import Path
from swarm.hub import Hub
from swarm.layout import RunPaths
with Hub(RunPaths(Path(sys.argv[1]), "local")) as hub:
    branch = hub.assignment(sys.argv[2]).work
    for n in range(8):
        print(hub.submit(sys.argv[2], branch, {"k.cpp": b"%d" % n}, None, f"Try {n}", {}), flush=True)
"""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), branch.worker], stdout=subprocess.PIPE, text=True
        )
        for branch in branches
    ]
    acknowledged = [worker.communicate(timeout=120)[0].split() for worker in workers]
    assert [len(commits) for commits in acknowledged] == [8] * 4
    for branch, commits in zip(branches, acknowledged, strict=True):
        own = [s.commit for s in hub.commits(branch.problem) if s.branch == branch]
        assert own == commits
    assert git(hub.paths.hub, "fsck", "--strict") == ""


def test_hub_is_not_shared_by_threads_but_each_may_have_its_own(hub: Hub) -> None:
    hub.assign("p", "w1")
    failures: list[BaseException] = []

    def work(worker: str) -> None:
        try:
            with Hub(RunPaths(hub.paths.root, "local")) as own:
                hand_in(own, own.assign("p", worker), worker)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert failures == []
    assert len(hub.commits("p")) == 5
