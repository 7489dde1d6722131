"""What the formats share: a source is a list of entries, each of which makes a Draft or says what is wrong.

Nothing is read before it is asked for, so that a tree of hundreds is found at once.
"""

from __future__ import annotations

import fnmatch
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from swarm.definition import REFERENCE_FILE, parse_definition
from swarm.errors import BadInput
from swarm.foreign import read_linked
from swarm.importers.draft import Draft, slug
from swarm.importers.remarks import of_unknown_field
from swarm.importers.tensors import gather
from swarm.schema import read_json
from swarm.workload import Tolerance, parse_workloads

MAX_BYTES = 16 << 20
"""Of one file of text."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One problem of a source, not read yet."""

    where: str
    """For a person: its folder or file, from the source on."""
    draft: Callable[[], Draft]
    """Raises BadInput."""


@dataclass(frozen=True, slots=True)
class Source:
    """What SRC turned out to be."""

    format: str
    entries: list[Entry]
    remark: str = ""
    """What of it is left alone, if anything."""


def read(path: Path, where: str) -> bytes:
    """Return a file's bytes; BadInput if it is none, or larger than text is."""
    data = read_linked(path, MAX_BYTES + 1)
    if data is None:
        raise BadInput("no such file", where=where, remedy="add it")
    if len(data) > MAX_BYTES:
        raise BadInput(f"more than {MAX_BYTES >> 20} MiB", where=where, remedy="a problem's files are small")
    return data


def walk(folder: Path, pattern: str) -> list[Path]:
    """Return, in order, the files below `folder` whose names match, dead links too, none hidden."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        matching = fnmatch.filter(files, pattern)
        found += [Path(place) / name for name in matching if not name.startswith(".")]
    return sorted(found)


def draft_of(
    definition: bytes,
    workloads: bytes,
    *,
    where: tuple[str, str],
    source: str,
    tolerance: Tolerance,
    roots: Sequence[Path],
    reference: bytes | None = None,
) -> Draft:
    """Make a Draft of the text of a definition and of its workloads, which are at `where`.

    `reference` is for a definition that has none itself. Unknown fields become remarks.
    """
    raw = read_json(definition, where[0])
    if isinstance(raw, dict) and raw.get("reference"):
        reference = None
    notes: list[str] = []
    parsed = parse_definition(definition, where[0], reference=reference, warnings=notes)
    try:
        name = slug(parsed.name)
    except BadInput as error:
        raise BadInput(
            f"{error.what} as a problem's", where=f"{where[0]}: name", remedy=error.remedy
        ) from None
    constraints = _constraints(raw)
    lines = parse_workloads(workloads, where[1], parsed, warnings=notes)
    remarks = Counter(map(of_unknown_field, notes))
    try:
        kept, blobs = gather(parsed, lines, constraints, roots, remarks)
    except BadInput as error:
        raise BadInput(error.what, where=f"{where[1]}: {error.where}", remedy=error.remedy) from None
    return Draft(name, source, parsed, kept, tolerance, blobs, remarks)


def _constraints(raw: object) -> list[str]:
    """Return the constraints of a definition: prose to SOL-ExecBench, a hint to us."""
    found = raw.get("constraints") if isinstance(raw, dict) else None
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


def reference_beside(folder: Path) -> bytes | None:
    """Return reference.py of a folder, if there is one."""
    path = folder / REFERENCE_FILE
    return read(path, REFERENCE_FILE) if path.is_file() else None
