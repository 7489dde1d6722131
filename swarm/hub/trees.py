"""Which files of a problem branch are frozen by an epoch and which a worker may change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from swarm.contents import files_hash
from swarm.errors import BadInput

NOTES = "NOTES.md"
SOLUTION = "solution"
COORDINATION = "COORDINATION.md"


def is_frozen(path: str) -> bool:
    """Say whether an epoch owns `path`: everything but the solution and the notes."""
    return path != NOTES and path.split("/", 1)[0] != SOLUTION


def is_editable(path: str, patterns: Iterable[str]) -> bool:
    """Say whether a pattern of [output].editable covers `path`; `folder/**` covers all below the folder."""
    return any(
        path.startswith(pattern[:-2]) if pattern.endswith("/**") else fnmatchcase(path, pattern)
        for pattern in patterns
    )


def solution_paths(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Prefix paths that are relative to solution/."""
    return {f"{SOLUTION}/{path}": content for path, content in files.items()}


def epoch_hash(files: Mapping[str, bytes]) -> str:
    """Name the frozen files by content: of COORDINATION.md only the blocks that verdicts depend on count."""
    from swarm.protocol import frozen_text  # pydantic, which reading a hub does not need

    frozen = {
        path: frozen_text(_text(content)) if path == COORDINATION else content
        for path, content in files.items()
        if is_frozen(path)
    }
    return files_hash(frozen)[:32]


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"byte {error.start} is not UTF-8", where=COORDINATION) from None
