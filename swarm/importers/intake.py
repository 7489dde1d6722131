"""A whole source, problem by problem: what came in, what did not and why. A wrong one stops no other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from swarm.errors import BadInput, SwarmError
from swarm.importers import flashinfer_trace, kernelbench, sol_execbench
from swarm.importers.draft import render, slug
from swarm.importers.entries import Entry, Source, read
from swarm.importers.folder import Outcome, put, sweep
from swarm.importers.remarks import Remarks
from swarm.layout import RunRoot
from swarm.protocol import Protocol

if TYPE_CHECKING:
    from swarm.judge.reference import References

NOT_STATED = "not stated by its source"


@dataclass(frozen=True, slots=True)
class Imported:
    """A problem that is there now."""

    where: str
    name: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A problem that is not, and what is wrong with it."""

    where: str
    error: SwarmError


def find(path: Path, blobs: Path | None, references: Callable[[], References]) -> Source:
    """Say which format `path` is in; BadInput if it is in none that is known.

    `references` opens the sandbox, once, if something must run.
    """
    found = None
    if path.is_dir():
        found = flashinfer_trace.find(path, blobs) or sol_execbench.find(path, blobs)
    found = found or kernelbench.find(path, references)
    if found is None:
        raise BadInput(
            "holds no problem of a known format",
            where=str(path),
            remedy="name a folder with definition.json and workload.jsonl in it or below (SOL-ExecBench), "
            "one with definitions/ and workloads/ (FlashInfer-Trace), or Python with Model, get_inputs and "
            "get_init_inputs (KernelBench)",
        )
    return found


def bring_in(
    source: Source, root: RunRoot, protocol: Protocol, licence: str, remarks: Remarks, *, force: bool = False
) -> Iterator[Imported | LeftOut]:
    """Import one problem after the other, and yield what became of it."""
    root.problems.mkdir(parents=True, exist_ok=True)
    sweep(root.problems)
    taken: dict[str, str] = {}
    for entry in source.entries:
        try:
            yield _one(entry, root, protocol, licence, remarks, taken, force)
        except SwarmError as error:
            yield LeftOut(entry.where, error)


def _one(
    entry: Entry,
    root: RunRoot,
    protocol: Protocol,
    licence: str,
    remarks: Remarks,
    taken: dict[str, str],
    force: bool,
) -> Imported:
    draft = entry.draft()
    if draft.name in taken:  # by another folder of this source: both are told apart by their folders
        draft = replace(draft, name=slug(f"{draft.name}_{entry.where.rpartition('/')[2]}"))
    if draft.name in taken:
        raise BadInput(
            f"problem {draft.name!r} was imported from {taken[draft.name]} just now",
            where=entry.where,
            remedy="rename one of them",
        )
    try:
        files = render(draft, licence, protocol)
    except BadInput as error:
        place = (error.where or "").removeprefix(f"{draft.name}/").removeprefix(f"{draft.name}: ")
        raise BadInput(
            error.what, where=f"{entry.where}: {place}".rstrip(": "), remedy=error.remedy
        ) from None
    outcome = put(root.problems, draft.name, files, force=force)
    taken[draft.name] = entry.where
    remarks.add(draft.remarks)
    return Imported(entry.where, draft.name, outcome)


def licence_of(path: Path) -> str:
    """Return the licence that a source states: that in the head of its README.md, as data sets have it."""
    folder = path if path.is_dir() else path.parent
    for place in (folder, *folder.resolve().parents[:2]):
        readme = place / "README.md"
        if readme.is_file():
            text = read(readme, str(readme)).decode("utf-8", errors="replace")
            head = re.match(r"---\n(.*?)\n---", text, re.DOTALL)
            stated = re.findall(r"^license(?:_name)?:\s*([^\n]+)", head[1], re.MULTILINE) if head else []
            if stated:
                return ", ".join(item.strip("\"' ") for item in stated)
    return NOT_STATED
