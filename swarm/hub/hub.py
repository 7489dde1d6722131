"""The hub: problem branches with their epochs, work branches, worktrees, hand-ins and merges.

Every ref moves by compare-and-swap after its objects are on disk, so a kill between two steps leaves the
state before or after. Whether a tree may be handed in or should be merged is decided elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from swarm.errors import BadInput, Raced, Refused
from swarm.git import ZERO, RefChange, Repo
from swarm.gitobjects import CommitInfo, Entry, regular_files
from swarm.hub import rescue, worktree
from swarm.hub.branches import Branch, Branches
from swarm.hub.history import EPOCH_TRAILER, NUMBER_TRAILER, Epoch, Submission
from swarm.hub.notes import merged_notes
from swarm.hub.trees import NOTES, SOLUTION, epoch_hash, is_editable, is_frozen, solution_paths
from swarm.hub.worktree import MAX_FILE_BYTES, MAX_FILES, MAX_TOTAL_BYTES
from swarm.layout import SALVAGE_REFS, RunPaths, WorkBranch, check_name, problem_ref
from swarm.locks import held
from swarm.messages import format_message

LOCK_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class HandIn:
    """What a worktree holds that may be handed in; `solution` by path below solution/."""

    solution: dict[str, bytes]
    notes: bytes | None


class Hub:
    """One run's branches. Open one per process and thread; close it when done."""

    def __init__(self, paths: RunPaths) -> None:
        self.paths = paths
        self._repo = Repo(paths.hub)
        self._branches = Branches(self._repo)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._repo.close()

    def ensure(self) -> None:
        """Create the hub if it is not there."""
        with self._lock("worktrees", "create the hub"):
            self._repo.init_bare()

    # epochs

    def ensure_epoch(
        self, problem: str, files: Mapping[str, bytes], seed_solution: Mapping[str, bytes], author: str
    ) -> Epoch:
        """Freeze `files` (the problem's and COORDINATION.md) for `problem` unless its newest epoch did.

        A problem without a branch starts with `seed_solution`; one that has a branch keeps its champion.
        """
        wanted = epoch_hash(files)
        frozen: dict[str, bytes | Entry] = {
            path: content for path, content in files.items() if is_frozen(path)
        }
        ref, head = problem_ref(problem), self.champions().get(problem)
        if head is None:
            tree = self._repo.write_tree(frozen | solution_paths(seed_solution))
            message = _epoch_message(f"Seed {problem}", wanted, 1)
            self._move(ref, self._repo.commit_tree(tree, [], message, author), ZERO, "seed")
        elif (now := self.epoch(problem)).hash != wanted:
            kept = {p: e for p, e in self._files(head).items() if not is_frozen(p)}
            tree = self._repo.write_tree(frozen | kept)
            message = _epoch_message(f"Freeze new files of {problem}", wanted, now.number + 1)
            self._move(ref, self._repo.commit_tree(tree, [head], message, author), head, "epoch")
        return self.epoch(problem)

    def epoch(self, problem: str) -> Epoch:
        epoch = self._branches.history(problem).epoch
        assert epoch is not None
        return epoch

    # what is there

    def champions(self) -> dict[str, str]:
        """Return problem -> the commit at the head of its branch."""
        heads = self._branches.all()
        return {problem: found.champion for problem, found in heads.items() if found.champion}

    def branches(self) -> list[Branch]:
        """Return all work branches."""
        heads = self._branches.all().values()
        return [Branch(branch, head) for found in heads for branch, head in found.work.items()]

    def commits(self, problem: str) -> list[Submission]:
        """Return every commit of the problem's current epoch, parents first, the epoch's own included.

        Costs three stat calls when nothing moved, and reads only what is new when something did.
        """
        return list(self._branches.history(problem).submissions)

    def commit(self, sha: str) -> CommitInfo:
        return self._repo.commit(sha)

    def assignment(self, worker: str) -> Branch | None:
        """Return the newest branch of `worker`: that is what it works on."""
        own = [branch for branch in self.branches() if branch.work.worker == worker]
        return max(own, key=lambda branch: branch.work.number, default=None)

    def is_current(self, branch: WorkBranch) -> bool:
        """Say whether `branch` belongs to the newest epoch; commits on an older one are not judged."""
        head = self._branches.heads(branch.problem).work.get(branch)
        return head is not None and self._branches.history(branch.problem).belongs[head]

    def solution_files(self, commit: str) -> dict[str, bytes]:
        """Return path below solution/ -> content; BadInput naming what cannot be taken."""
        files = self._files(commit)
        chosen = regular_files(files, [path for path in files if path.split("/")[0] == SOLUTION])
        if SOLUTION in chosen:
            raise BadInput(f"{SOLUTION} is a file", remedy="make it a folder")
        if len(chosen) > MAX_FILES:
            raise BadInput(f"{SOLUTION} holds more than {MAX_FILES} files", remedy="hand in fewer")
        contents, total = {}, 0
        for path, entry in chosen.items():
            content = contents[path.removeprefix(f"{SOLUTION}/")] = self._repo.blob(entry.sha, MAX_FILE_BYTES)
            total += len(content)
            if total > MAX_TOTAL_BYTES:
                what = f"{SOLUTION} holds more than {MAX_TOTAL_BYTES} bytes"
                raise BadInput(what, where=path, remedy="hand in less")
        return contents

    def frozen_files(self, epoch_commit: str) -> dict[str, bytes]:
        """Return path -> content of everything an epoch freezes."""
        files = self._files(epoch_commit)
        return {path: self._repo.blob(entry.sha) for path, entry in files.items() if is_frozen(path)}

    def frozen_file(self, epoch_commit: str, path: str) -> bytes | None:
        """Return the content of one file that an epoch freezes, None if it has no such file."""
        entry = self._files(epoch_commit).get(path) if is_frozen(path) else None
        return None if entry is None else self._repo.blob(entry.sha)

    def changed_outside(self, commit: str, editable: Iterable[str]) -> list[str]:
        """Return the paths that `commit` changed against its first parent though no pattern allows it."""
        parents = self._repo.commit(commit).parents
        old, new = self._files(parents[0]) if parents else {}, self._files(commit)
        changed = {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}
        patterns = tuple(editable)
        return sorted(path for path in changed if not is_editable(path, patterns))

    def diff(self, old: str, new: str) -> str:
        """Return the textual difference between the solutions of two commits."""
        return self._repo.diff(old, new, SOLUTION)

    def bundle(self) -> None:
        """Write our branches to the bundle among the results; a clone checks the first problem out.

        A branch that somebody broke is left out.
        """
        problems = sorted(self.champions())
        if not problems:
            raise BadInput("there is no problem in this run", where=str(self.paths.hub))
        branches = sorted(branch.work.ref for branch in self.branches())
        rescue.bundle(self._repo, self.paths.hub_bundle, list(map(problem_ref, problems)), branches)

    # what changes

    def assign(self, problem: str, worker: str) -> WorkBranch:
        """Start the next work branch of `worker` at the head of `problem`."""
        check_name("worker", worker)
        head = self._champion(problem)
        newest = self.assignment(worker)
        branch = WorkBranch(problem, worker, newest.work.number + 1 if newest else 1)
        self._move(branch.ref, head, ZERO, "assign")
        return branch

    def worktree(self, worker: str, branch: WorkBranch) -> Path:
        """Return the worker's folder with `branch` in it; unsaved work on another branch is salvaged."""
        path = self._folder(worker)
        with self._lock("worktrees", f"prepare the worktree of {worker}"):
            if worktree.is_ready(self._repo, path, branch.ref):
                return path
            head = self._head(branch)
            self._salvage(worker, path)
            worktree.remove(self._repo, path)
            worktree.create(self._repo, path, branch.ref, self._repo.commit(head).tree)
        return path

    def read_worktree(self, worker: str) -> HandIn:
        """Read what `worker` may hand in; BadInput naming a link, special file or size that cannot be."""
        files = worktree.read_files(self._folder(worker))
        prefix = f"{SOLUTION}/"
        solution = {p.removeprefix(prefix): data for p, data in files.items() if p.startswith(prefix)}
        return HandIn(solution, files.get(NOTES))

    def submit(
        self,
        worker: str,
        branch: WorkBranch,
        files: Mapping[str, bytes],
        notes: bytes | None,
        message: str,
        trailers: Mapping[str, str],
    ) -> str:
        """Commit `files` as the solution on `branch`; return the commit, or the head if nothing changed."""
        if branch.worker != worker:
            raise BadInput(f"{branch.ref} is not a branch of {worker}")
        head = self._head(branch)
        if not self.is_current(branch):
            raise Refused(
                f"{branch.problem} has a new epoch since {branch.ref}", remedy="wait for an assignment"
            )
        tree = self._with_solution(head, solution_paths(files), notes)
        if tree == self._repo.commit(head).tree:
            return head
        subject, _, body = message.strip().partition("\n")
        text = format_message(subject, body, {**trailers, "Worker": worker})
        commit = self._repo.commit_tree(tree, [head], text, worker)
        self._move(branch.ref, commit, head, "submit")
        with self._lock("worktrees", f"refresh the index of {worker}"):
            path = self._folder(worker)
            if worktree.is_ready(self._repo, path, branch.ref):
                worktree.mark(self._repo, path, tree)
        return commit

    def merge(self, problem: str, candidate: str, champion: str, message: str) -> str:
        """Make `candidate`'s solution the head of `problem`, which must be `champion`; Raced if it is not.

        What its worker added to the notes is quoted below its name: other workers will read it.

        `message` comes from format_message. Done twice, it returns the merge that is there.
        """
        head = self._champion(problem)
        if self._repo.commit(head).parents == (champion, candidate):
            return head
        if head != champion:
            raise Raced(f"the champion of {problem} is {head[:12]}, not {champion[:12]}")
        if not self._branches.history(problem).belongs.get(candidate):
            raise BadInput(f"{candidate[:12]} is no commit of the current epoch of {problem}")
        files = self._files(candidate)
        chosen = regular_files(files, [path for path in files if not is_frozen(path)])
        before = self._files(head)
        tree: dict[str, bytes | Entry] = {p: entry for p, entry in before.items() if is_frozen(p)}
        tree |= chosen
        if NOTES in chosen or NOTES in before:
            owner = self._branches.history(problem).owners.get(candidate)
            tree[NOTES] = merged_notes(
                self._notes(before), self._notes(chosen), owner.worker if owner else "somebody", candidate
            )
        commit = self._repo.commit_tree(
            self._repo.write_tree(tree), [champion, candidate], message, "planner"
        )
        self._move(problem_ref(problem), commit, champion, "merge")
        return commit

    # helpers

    def _champion(self, problem: str) -> str:
        champion = self._branches.heads(problem).champion
        assert champion is not None
        return champion

    def _head(self, branch: WorkBranch) -> str:
        head = self._branches.heads(branch.problem).work.get(branch)
        if head is None:
            raise BadInput(f"there is no branch {branch.ref}", where=str(self.paths.hub))
        return head

    def _folder(self, worker: str) -> Path:
        # git registers worktrees by their real path
        return self.paths.worktrees.resolve() / self.paths.worktree(worker).name

    def _files(self, commit: str) -> dict[str, Entry]:
        return self._repo.read_tree(self._repo.commit(commit).tree)

    def _notes(self, files: Mapping[str, Entry]) -> str:
        entry = files.get(NOTES)
        return "" if entry is None else self._repo.blob(entry.sha).decode(errors="replace")

    def _with_solution(self, commit: str, solution: Mapping[str, bytes], notes: bytes | None) -> str:
        kept = {
            path: entry for path, entry in self._files(commit).items() if is_frozen(path) or path == NOTES
        }
        files: dict[str, bytes | Entry] = {**kept, **solution}
        if notes is not None:
            files[NOTES] = notes
        return self._repo.write_tree(files)

    def _move(self, ref: str, new: str, old: str, reason: str) -> None:
        change = RefChange(ref, new, old)
        try:
            self._repo.update_refs([change], reason)
        except Raced:
            if old != ZERO or not rescue.clear_the_way(self._repo, ref):
                raise
            self._repo.update_refs([change], reason)
        self._branches.forget()

    def _salvage(self, worker: str, path: Path) -> None:
        """Save what an abandoned worktree holds beyond its branch under refs/salvage/<worker>/<time>."""
        commit = rescue.unsaved(
            self._repo, worker, path, lambda head, files: self._with_solution(head, files, None)
        )
        if commit is not None:
            self._move(f"{SALVAGE_REFS}{worker}/{time.time_ns()}", commit, ZERO, "salvage")

    def _lock(self, name: str, purpose: str) -> AbstractContextManager[None]:
        return held(self.paths.lock(name), timeout_s=LOCK_TIMEOUT_S, purpose=purpose)


def _epoch_message(subject: str, hash_: str, number: int) -> str:
    return format_message(subject, "", {EPOCH_TRAILER: hash_, NUMBER_TRAILER: str(number)})
