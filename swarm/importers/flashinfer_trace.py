"""FlashInfer-Trace: definitions/<op type>/<name>.json, and workloads/<op type>/<name>.jsonl, lines of traces.

Solutions and traces of others are left alone: what somebody measured elsewhere is no result of ours.
"""

from __future__ import annotations

import json
from pathlib import Path

from swarm.errors import BadInput
from swarm.importers.draft import Draft
from swarm.importers.entries import Entry, Source, draft_of, read, walk
from swarm.importers.tensors import roots_of
from swarm.schema import read_json, shown
from swarm.workload import Tolerance

DEFINITIONS, WORKLOADS = "definitions", "workloads"
OTHERS = ("solutions", "traces")
TOLERANCE = Tolerance(max_atol=1e-2, max_rtol=1e-2, required_matched_ratio=1.0)
"""Its benchmark's defaults: every element counts."""


def find(source: Path, blobs: Path | None) -> Source | None:
    """Return every definition below source/definitions; None if there is no such folder."""
    if not (source / DEFINITIONS).is_dir():
        return None
    left = [name for name in OTHERS if (source / name).is_dir()]
    remark = f"{' and '.join(left)} not imported: `swarm import-solution` takes one" if left else ""
    paths = walk(source / DEFINITIONS, "*.json")
    return Source("FlashInfer-Trace", [_entry(path, source, blobs) for path in paths], remark)


def _entry(path: Path, source: Path, blobs: Path | None) -> Entry:
    inside = path.relative_to(source / DEFINITIONS)
    where = f"{DEFINITIONS}/{inside.as_posix()}"
    lines = f"{WORKLOADS}/{inside.with_suffix('.jsonl').as_posix()}"

    def draft() -> Draft:
        if not (source / lines).is_file():
            raise BadInput(f"has no workloads: no file {lines}", where=where, remedy="download them, too")
        return draft_of(
            read(path, where),
            _unwrapped(read(source / lines, lines), lines, path.stem),
            where=(where, lines),
            source=f"FlashInfer-Trace {inside.with_suffix('').as_posix()}",
            tolerance=TOLERANCE,
            roots=roots_of(source, *([blobs] if blobs else [])),
        )

    return Entry(where, draft)


def _unwrapped(data: bytes, where: str, definition: str) -> bytes:
    """Return the workloads of a file of traces, each on the line on which it was."""
    lines = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        place = f"{where}:{number}"
        trace = read_json(line, place) if line.strip() else {"definition": definition, "workload": None}
        if not isinstance(trace, dict) or "workload" not in trace:
            raise BadInput("no workload", where=place, remedy="write a trace: definition, workload")
        if trace.get("definition") != definition:
            raise BadInput(
                f"it is of definition {shown(trace.get('definition'))}, not {definition!r}",
                where=f"{place}: definition",
                remedy="move it to that one's file",
            )
        lines.append(json.dumps(trace["workload"]).encode() if trace["workload"] is not None else b"")
    return b"\n".join(lines)
