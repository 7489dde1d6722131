"""Worktrees: files written by plumbing, read as what they are (something a hostile process may have made).

Nothing in a worktree is trusted: its .git is never used, links are never followed, special files never
opened. All changes here happen under the hub's worktree lock, which the caller holds.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from swarm.errors import BadInput, Refused
from swarm.git import Repo
from swarm.gitobjects import check_path, regular_files
from swarm.hub.trees import NOTES, SOLUTION

MAX_FILES = 512
MAX_FILE_BYTES = 8 << 20
MAX_TOTAL_BYTES = 32 << 20
"""Far above what a protocol allows; they only keep a hostile worktree from filling our memory."""

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Never through a link; never waiting for the writer of a pipe."""


def is_ready(repo: Repo, path: Path, ref: str) -> bool:
    """Say whether `path` is a finished worktree of `ref`."""
    return current_ref(repo, path) == ref


def current_ref(repo: Repo, path: Path) -> str | None:
    """Return the ref of the finished worktree at `path`; its index is what create() writes last."""
    admin = _admin_dir(repo, path)
    if admin is None or not (admin / "index").is_file() or path.is_symlink() or not path.is_dir():
        return None
    return _head(admin)


def create(repo: Repo, path: Path, ref: str, tree: str) -> None:
    """Make a worktree of `ref` at `path`, where nothing is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    repo.worktree_add(path, ref.removeprefix("refs/heads/"), "in use by the swarm")
    files = repo.read_tree(tree)
    for name, entry in regular_files(files, files).items():
        target = path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            file.write(repo.blob(entry.sha))
        target.chmod(entry.mode & 0o777)
    mark(repo, path, tree)


def mark(repo: Repo, path: Path, tree: str) -> None:
    """Tell the index of the worktree at `path`, if there is one, that it holds `tree`."""
    if admin := _admin_dir(repo, path):
        (admin / "index.lock").unlink(missing_ok=True)  # of a git that was killed: we hold the lock
        repo.read_index(admin, tree)


def remove(repo: Repo, path: Path) -> None:
    """Remove the worktree at `path` and its registration, whatever state they are in."""
    admin = _admin_dir(repo, path)
    if admin is not None:
        (admin / "index").unlink(missing_ok=True)  # first: a half-removed worktree must not look finished
    _remove_tree(path)
    if admin is not None:
        shutil.rmtree(admin)
    for half_made in _admin_dirs(repo):
        if not (half_made / "gitdir").is_file() or not (half_made / "gitdir").read_bytes():
            shutil.rmtree(half_made)


def read_files(path: Path) -> dict[str, bytes]:
    """Return solution/** and NOTES.md of a worktree; BadInput naming the first path that cannot be taken."""
    files, refused = rescue_files(path)
    if refused:
        raise refused[0]
    return files


def rescue_files(path: Path) -> tuple[dict[str, bytes], list[BadInput]]:
    """Return what can be taken of solution/** and NOTES.md, and why the rest cannot."""
    reader = _Reader()
    try:
        root = os.open(path, _OPEN | os.O_DIRECTORY)
    except OSError as error:
        return {}, [BadInput(f"the worktree cannot be read: {error.strerror}", where=str(path))]
    try:
        reader.take(root, "", [NOTES, SOLUTION])
    finally:
        os.close(root)
    return reader.files, reader.refused


@dataclass(slots=True)
class _Reader:
    """Walks by folder descriptors, so that nothing can be swapped for a link between look and use."""

    files: dict[str, bytes] = field(default_factory=dict)
    refused: list[BadInput] = field(default_factory=list)
    total_bytes: int = 0

    def take(self, folder: int, prefix: str, names: list[str]) -> None:
        for name in names:
            path = f"{prefix}{name}"
            try:
                descriptor = os.open(name, _OPEN, dir_fd=folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                why = (
                    "is a symbolic link"
                    if error.errno == errno.ELOOP
                    else f"cannot be read: {error.strerror}"
                )
                self._refuse(path, why)
                continue
            try:
                self._take_open(descriptor, path)
            except BadInput as error:
                self.refused.append(error)
            finally:
                os.close(descriptor)

    def _take_open(self, descriptor: int, path: str) -> None:
        check_path(path)
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            with os.scandir(descriptor) as entries:
                names = sorted(entry.name for entry in islice(entries, MAX_FILES + 1))
            if len(names) > MAX_FILES:
                self._refuse(path, f"holds more than {MAX_FILES} files")
            else:
                self.take(descriptor, f"{path}/", names)
        elif not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            self._refuse(path, "is not a regular file with one name")
        elif found.st_size > MAX_FILE_BYTES or self.total_bytes + found.st_size > MAX_TOTAL_BYTES:
            self._refuse(path, f"is too large ({found.st_size} bytes)")
        elif len(self.files) == MAX_FILES:
            self._refuse(path, f"is one file too many (limit {MAX_FILES})")
        else:
            # It may grow while it is read: what is taken is bounded all the same.
            with os.fdopen(os.dup(descriptor), "rb") as file:
                content = file.read(MAX_FILE_BYTES)
            self.files[path] = content
            self.total_bytes += len(content)

    def _refuse(self, path: str, why: str) -> None:
        self.refused.append(BadInput(f"{ascii(path)[1:-1]} {why}", remedy="hand in regular files only"))


def _admin_dirs(repo: Repo) -> Iterator[Path]:
    with suppress(FileNotFoundError):
        yield from (repo.git_dir / "worktrees").iterdir()


def _admin_dir(repo: Repo, path: Path) -> Path | None:
    """Find where the hub keeps HEAD and index of the worktree at `path`; its own .git file is not asked."""
    wanted = str(path / ".git")
    for admin in _admin_dirs(repo):
        with suppress(OSError):
            if (admin / "gitdir").read_text().strip() == wanted:
                return admin
    return None


def _head(admin: Path) -> str | None:
    with suppress(OSError):
        return (admin / "HEAD").read_text().strip().removeprefix("ref: ")
    return None


def _remove_tree(path: Path) -> None:
    """Remove what an agent left, however deep and whatever rights it took away from folders of its own."""
    if not os.path.lexists(path):
        return
    for program in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        subprocess.run(
            [*program, "--", str(path)], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if not os.path.lexists(path):
            return
    raise Refused("the worktree cannot be removed", where=str(path), remedy="remove it by hand")
