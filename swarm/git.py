"""Small git verbs on one bare repository, with no policy. Only this module imports GitPython.

Objects are read in this process by GitPython's object database and written as loose files by
swarm.durable; refs, worktrees, diffs and bundles go through the git program, which gets a scrubbed
environment, a time limit, its own process group, and no hook, filter, fsmonitor or configuration that
somebody else may have planted (swarm.gitprogram).
"""

from __future__ import annotations

import hashlib
import os
import re
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from swarm.durable import create_only
from swarm.errors import BadInput, GitFailed, Raced
from swarm.gitobjects import (
    FILE_MODES,
    MAX_TREE_DEPTH,
    TREE_MODE,
    CommitInfo,
    Entry,
    check_path,
    format_commit,
    format_tree,
    parse_commit,
    parse_tree,
)
from swarm.gitprogram import own_config, run_git

ZERO = "0" * 40
MAX_BLOB_BYTES = 64 << 20
MAX_COMMIT_BYTES = 1 << 20
MAX_LEVEL_BYTES = 4 << 20
"""Of one level of a tree: 10,000 names are a tenth of it."""
MAX_TREE_ENTRIES = 10_000
STALE_LOCK_S = 10.0
"""A ref update of ours takes milliseconds: a lock file this old was left by a git that was killed."""

LOCK_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class RefChange:
    """Move `ref` from `old` to `new`; ZERO as old: it must not exist, as new: delete it."""

    ref: str
    new: str
    old: str


class Repo:
    """A bare repository. Not for use by several threads at once."""

    def __init__(self, git_dir: Path, *, timeout_s: float = 60.0, stale_lock_s: float = STALE_LOCK_S) -> None:
        self.git_dir = git_dir.absolute()  # git runs in another folder
        self.timeout_s = timeout_s
        self.stale_lock_s = stale_lock_s
        self._objects: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._objects = None  # the object database closes its files when it is collected

    def init_bare(self) -> None:
        """Create the repository, or finish an interrupted creation: git makes objects/info last."""
        if (self.git_dir / "objects" / "info").is_dir():
            return
        self.run("init", "--quiet", "--bare", "--template=", "--initial-branch=main")

    # refs

    def refs(self, *prefixes: str) -> dict[str, str]:
        """Return ref name -> object for every ref below the `prefixes`; a link to another is none."""
        form = "--format=%(objectname) %(refname) %(symref)"
        out = self.run("for-each-ref", form, "--", *prefixes).decode(errors="surrogateescape")
        rows = (line.split(" ") for line in out.split("\n") if line)
        return {ref: sha for sha, ref, symref in rows if not symref}

    def update_refs(self, changes: Sequence[RefChange], reason: str) -> None:
        """Make all `changes` or none; Raced if a ref is not where its change says it was."""
        lines = "".join(f"update {c.ref} {c.new} {c.old}\n" for c in changes)
        # --no-deref: a ref that somebody made a link to another must not move that one.
        arguments = ("--no-deref", "--create-reflog", "-m", reason, "--stdin")
        self._run_locking("update-ref", *arguments, stdin=lines.encode(errors="surrogateescape"))

    def set_head(self, ref: str) -> None:
        """Say which branch a clone checks out."""
        self._run_locking("symbolic-ref", "HEAD", ref)

    def _run_locking(self, *arguments: str, stdin: bytes = b"") -> None:
        """Run a command that locks refs; wait for locks of others, remove those that nobody can hold."""
        deadline = time.monotonic() + self.stale_lock_s + LOCK_PATIENCE_S
        while True:
            try:
                self.run(*arguments, stdin=stdin)
                return
            except GitFailed as error:
                lock = re.search(r"Unable to create '(.*\.lock)': File exists", error.what)
                if lock is None and "cannot lock ref" not in error.what:
                    raise
                if lock is None or time.monotonic() > deadline:
                    raise Raced(error.what) from None
                self._remove_if_stale(Path(lock[1]))

    def _remove_if_stale(self, lock: Path) -> None:
        if lock.resolve().is_relative_to(self.git_dir.resolve()):
            with suppress(FileNotFoundError):
                if time.time() - lock.lstat().st_mtime > self.stale_lock_s:
                    lock.unlink()

    # reading objects

    def commit(self, sha: str) -> CommitInfo:
        """Parse one commit; BadInput if the object is not one."""
        return parse_commit(sha, self._read(sha, b"commit", MAX_COMMIT_BYTES))

    def entries(self, tree: str) -> dict[str, Entry]:
        """Return one level of a tree; a name that is not UTF-8 comes back with surrogates."""
        return parse_tree(self._read(tree, b"tree", MAX_LEVEL_BYTES))

    def read_tree(self, tree: str) -> dict[str, Entry]:
        """Return path -> entry for all files of a tree; BadInput if it is absurdly large or deep."""
        found: dict[str, Entry] = {}
        todo = [("", tree)]
        while todo:
            prefix, sha = todo.pop()
            for name, entry in self.entries(sha).items():
                path = f"{prefix}{name}"
                if entry.mode == TREE_MODE:
                    todo.append((f"{path}/", entry.sha))
                else:
                    found[path] = entry
            if prefix.count("/") > MAX_TREE_DEPTH or len(found) + len(todo) > MAX_TREE_ENTRIES:
                raise BadInput(f"tree {tree[:12]} holds too many files", where=prefix or None)
        return found

    def blob(self, sha: str, limit: int = MAX_BLOB_BYTES) -> bytes:
        """Return the content of a file; BadInput if it is larger than `limit` bytes."""
        return self._read(sha, b"blob", limit)

    def _read(self, sha: str, kind: bytes, limit: int) -> bytes:
        from git.db import GitDB  # GitPython costs 100 ms that `import swarm.git` should not
        from git.exc import BadObject

        binary = bytes.fromhex(sha)
        for attempt in (1, 2):
            if self._objects is None:
                self._objects = GitDB(str(self.git_dir / "objects"))
            try:
                found = self._objects.stream(binary)
                break
            except BadObject:
                # Somebody may have packed the loose objects since: look again with fresh eyes, once.
                self._objects = None
                if attempt == 2:
                    raise BadInput(f"object {sha} is missing", where=str(self.git_dir)) from None
            except (zlib.error, ValueError, EOFError) as error:
                raise self._corrupt(sha, error) from None
        if found.type != kind or found.size > limit:
            what = f"is a {found.type.decode()} of {found.size} bytes, not a {kind.decode()}"
            raise BadInput(f"object {sha} {what} of at most {limit}")
        try:
            data: bytes = found.read()
        except (zlib.error, ValueError, EOFError) as error:
            raise self._corrupt(sha, error) from None
        if len(data) != found.size:
            raise self._corrupt(sha, f"{len(data)} of its {found.size} bytes are there")
        return data

    def _corrupt(self, sha: str, why: object) -> BadInput:
        return BadInput(
            f"object {sha} is corrupt: {why}", where=str(self.git_dir), remedy="git fsck says more"
        )

    # writing objects

    def write_tree(self, files: Mapping[str, bytes | Entry]) -> str:
        """Store `files` (contents, or entries that exist already) as a tree; BadInput for an unsafe path."""
        nested: dict[str, Any] = {}
        for path, file in files.items():
            *folders, name = check_path(path).split("/")
            level = nested
            for folder in folders:
                level = level.setdefault(folder, {})
                if not isinstance(level, dict):
                    raise BadInput("a file and a folder have the same name", where=path)
            if name in level:
                raise BadInput("a file and a folder have the same name", where=path)
            level[name] = (
                file if isinstance(file, Entry) else Entry(FILE_MODES[0], self._write(b"blob", file))
            )
        return self._write_level(nested)

    def _write_level(self, level: dict[str, Any]) -> str:
        entries = {
            name: item if isinstance(item, Entry) else Entry(TREE_MODE, self._write_level(item))
            for name, item in level.items()
        }
        return self._write(b"tree", format_tree(entries))

    def commit_tree(self, tree: str, parents: Sequence[str], message: str, author: str) -> str:
        """Store a commit by `author` (a plain name) of this moment; no ref moves."""
        content = format_commit(tree, parents, message, author, int(time.time()))
        return self._write(b"commit", content)

    def _write(self, kind: bytes, content: bytes) -> str:
        data = b"%s %d\0%s" % (kind, len(content), content)
        sha = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        create_only(self.git_dir / "objects" / sha[:2] / sha[2:], zlib.compress(data, 1))
        return sha

    # worktrees, diffs, bundles

    def worktree_add(self, path: Path, branch: str, reason: str) -> None:
        """Register a worktree without writing a file into it: no checkout, so no filter runs."""
        self.run("worktree", "add", "--no-checkout", "--lock", "--reason", reason, "--", str(path), branch)

    def read_index(self, admin_dir: Path, tree: str) -> None:
        """Make the index of one worktree say `tree`, so that `git status` there makes sense to a person."""
        self.run("read-tree", tree, git_dir=admin_dir)

    def diff(self, old: str, new: str, *paths: str) -> str:
        """Return the textual difference of two commits or trees."""
        options = ("--no-ext-diff", "--no-textconv", "--no-color", "--end-of-options")
        return self.run("diff", *options, old, new, "--", *paths).decode(errors="replace")

    def is_whole(self, ref: str) -> bool:
        """Say whether everything that `ref` leads to is there."""
        try:
            self.run("rev-list", "--objects", "--quiet", "--end-of-options", ref)
        except GitFailed:
            return False
        return True

    def bundle(self, path: Path, refs: Sequence[str]) -> None:
        """Write HEAD and `refs` to a bundle that `git clone` takes; atomically."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path = path.absolute()
        temp = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        listed = "".join(f"{ref}\n" for ref in ("HEAD", *refs)).encode()
        try:
            self.run("bundle", "create", "--quiet", str(temp), "--stdin", stdin=listed)
            temp.replace(path)
        finally:
            temp.unlink(missing_ok=True)

    def run(self, *arguments: str, stdin: bytes = b"", git_dir: Path | None = None) -> bytes:
        """Run one git command and return what it printed; its whole process group dies at the limit."""
        own_config(self.git_dir)
        return run_git(git_dir or self.git_dir, arguments, stdin, self.timeout_s)
