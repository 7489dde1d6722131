"""SOL-ExecBench: a tree of folders with definition.json and workload.jsonl, as its own script makes it."""

from __future__ import annotations

from pathlib import Path

from swarm.definition import DEFINITION_FILE
from swarm.importers.draft import Draft
from swarm.importers.entries import Entry, Source, draft_of, read, reference_beside, walk
from swarm.importers.tensors import roots_of
from swarm.problem import WORKLOAD_FILE
from swarm.workload import Tolerance

CATEGORIES = ("L1", "L2", "Quant", "FlashInfer-Bench")
TOLERANCE = Tolerance(max_atol=1e-2, max_rtol=1e-2, required_matched_ratio=0.99)
"""Its defaults, where a workload says nothing (core/data/workload.py)."""


def find(source: Path, blobs: Path | None) -> Source | None:
    """Return every problem at or below `source`; None if there is none."""
    folders = [path.parent for path in walk(source, DEFINITION_FILE)]
    if not folders:
        return None
    return Source("SOL-ExecBench", [_entry(folder, source, blobs) for folder in folders])


def _entry(folder: Path, source: Path, blobs: Path | None) -> Entry:
    where = folder.relative_to(source).as_posix() if folder != source else folder.resolve().name

    def draft() -> Draft:
        files = (f"{where}/{DEFINITION_FILE}", f"{where}/{WORKLOAD_FILE}")
        return draft_of(
            read(folder / DEFINITION_FILE, files[0]),
            read(folder / WORKLOAD_FILE, files[1]),
            where=files,
            source=f"SOL-ExecBench {_place(folder)}",
            tolerance=TOLERANCE,
            roots=roots_of(folder, source, *([blobs] if blobs else [])),
            reference=reference_beside(folder),
        )

    return Entry(where, draft)


def _place(folder: Path) -> str:
    """Return category and folder; the folder alone if it is in none of the categories."""
    folder = folder.resolve()
    return f"{folder.parent.name}/{folder.name}" if folder.parent.name in CATEGORIES else folder.name
