"""What an agent, or somebody with a git of his own, left behind: saved, put aside or left out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from swarm.errors import BadInput, GitFailed
from swarm.git import ZERO, RefChange, Repo
from swarm.hub import worktree
from swarm.layout import SALVAGE_REFS, STRAY
from swarm.messages import format_message

log = logging.getLogger(__name__)


def unsaved(
    repo: Repo, worker: str, path: Path, tree_with: Callable[[str, Mapping[str, bytes]], str]
) -> str | None:
    """Commit what the worktree at `path` holds beyond its branch; None if that is nothing.

    `tree_with(head, files)` makes the tree that a hand-in of `files` on top of `head` would have.
    """
    ref = worktree.current_ref(repo, path)
    if ref is None:
        return None
    head = repo.refs(ref).get(ref)
    files, refused = worktree.rescue_files(path)
    try:
        if head is None:
            raise BadInput(f"{ref} is gone")
        tree = tree_with(head, files)
        if tree == repo.commit(head).tree and not refused:
            return None
    except BadInput as error:  # its branch is no work of ours any more: save the files alone
        tree, refused = repo.write_tree(files), [*refused, error]
    lost = "".join(f"{error}\n" for error in refused)
    text = format_message(f"Salvage the worktree of {worker}", lost, {"Worker": worker})
    return repo.commit_tree(tree, [head] if head else [], text, worker)


def clear_the_way(repo: Repo, ref: str) -> bool:
    """Put aside the refs that keep `ref` from being made, none of which is ours; False if none does."""
    strays = {
        found: sha
        for found, sha in repo.refs("refs/heads").items()
        if found.startswith(f"{ref}/") or ref.startswith(f"{found}/")
    }
    for number, (found, sha) in enumerate(strays.items()):
        log.warning("%s is put aside: it is in the way of %s", found, ref)
        aside = f"{SALVAGE_REFS}{STRAY}/{time.time_ns()}-{number}"
        repo.update_refs([RefChange(aside, sha, ZERO), RefChange(found, ZERO, sha)], "stray")
    return bool(strays)


def bundle(repo: Repo, path: Path, problems: Sequence[str], branches: Sequence[str]) -> None:
    """Write these refs to a bundle; a clone checks the first problem out. What somebody broke is left out."""
    refs = [*branches, *reversed(problems)]  # of several refs at one commit a clone takes the last
    try:
        _bundle(repo, path, refs)
    except GitFailed:
        whole = [ref for ref in refs if repo.is_whole(ref)]
        if len(whole) == len(refs) or not {*whole} & {*problems}:
            raise
        log.warning("not in the bundle, being broken: %s", ", ".join(sorted({*refs} - {*whole})))
        _bundle(repo, path, whole)


def _bundle(repo: Repo, path: Path, refs: Sequence[str]) -> None:
    repo.set_head(refs[-1])
    repo.bundle(path, refs)
